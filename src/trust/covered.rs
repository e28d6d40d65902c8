//! The files that trust is about, and the hash over them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::project::ProjectError;

/// Files that one trust may be about; a person cannot vouch for more.
const MAX_FILES: usize = 512;

/// Bytes of all of them together.
const MAX_BYTES: u64 = 16 << 20;

/// The hash over everything that would take effect, as lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Fingerprint(String);

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A file that the fingerprint covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveredFile {
    /// Relative to the workspace where it lies in it.
    pub name: PathBuf,
    /// Bytes of its content.
    pub bytes: u64,
}

/// The files so far, in the order of their names.
pub(super) struct Covered {
    workspace: PathBuf,
    files: BTreeMap<PathBuf, (u64, [u8; 32])>,
    /// Where links lead, as they say it.
    links: BTreeMap<PathBuf, PathBuf>,
    bytes: u64,
}

impl Covered {
    pub(super) fn new(workspace: &Path) -> Self {
        Self { workspace: workspace.to_path_buf(), files: BTreeMap::new(), links: BTreeMap::new(), bytes: 0 }
    }

    /// A file whose content was read already.
    pub(super) fn add_read(&mut self, path: &Path, content: &[u8]) -> Result<(), ProjectError> {
        self.bytes = self.bytes.saturating_add(content.len() as u64);
        let name = path.strip_prefix(&self.workspace).unwrap_or(path).to_path_buf();
        self.files.insert(name, (content.len() as u64, Sha256::digest(content).into()));
        if self.files.len() > MAX_FILES || self.bytes > MAX_BYTES {
            return Err(ProjectError::TooMuch { files: MAX_FILES, bytes: MAX_BYTES });
        }
        Ok(())
    }

    /// The file a path leads to, when it is a plain one.
    pub(super) fn add(&mut self, path: &Path) -> Result<(), ProjectError> {
        let name = path.strip_prefix(&self.workspace).unwrap_or(path);
        if self.files.contains_key(name) {
            return Ok(());
        }
        match read_plain(path, MAX_BYTES, OFlags::empty()) {
            Ok(Some(content)) => self.add_read(path, &content),
            Ok(None) => Ok(()),
            Err(source) => Err(ProjectError::Io { path: path.to_path_buf(), source }),
        }
    }

    /// Everything below a folder. A link counts as where it leads and, when that is a file, what is there.
    pub(super) fn add_folder(&mut self, folder: &Path) -> Result<(), ProjectError> {
        let mut waiting = vec![folder.to_path_buf()];
        while let Some(folder) = waiting.pop() {
            let failed = |source| ProjectError::Io { path: folder.clone(), source };
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let kind = fs::symlink_metadata(&path).map_err(failed)?.file_type();
                if kind.is_dir() {
                    waiting.push(path);
                    if waiting.len() + self.links.len() > MAX_FILES {
                        return Err(ProjectError::TooMuch { files: MAX_FILES, bytes: MAX_BYTES });
                    }
                    continue;
                }
                self.add(&path)?;
                if kind.is_symlink() {
                    let target = fs::read_link(&path).map_err(failed)?;
                    self.links.insert(path, target);
                }
            }
        }
        Ok(())
    }

    /// The files and the hash over their names and contents.
    pub(super) fn finish(self) -> (Vec<CoveredFile>, Fingerprint) {
        let mut hasher = Sha256::new();
        let mut feed = |piece: &[u8]| {
            hasher.update((piece.len() as u64).to_le_bytes());
            hasher.update(piece);
        };
        feed(b"turnd.trust.v1");
        for (name, (_, digest)) in &self.files {
            feed(name.as_os_str().as_encoded_bytes());
            feed(digest);
        }
        feed(b"links");
        for (name, target) in &self.links {
            feed(name.as_os_str().as_encoded_bytes());
            feed(target.as_os_str().as_encoded_bytes());
        }
        let digits = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let files = self.files.into_iter().map(|(name, (bytes, _))| CoveredFile { name, bytes });
        (files.collect(), Fingerprint(digits))
    }
}

/// A plain file's bytes; `None` for anything else: no folder, pipe or device is waited for.
pub(super) fn read_plain(path: &Path, limit: u64, flags: OFlags) -> std::io::Result<Option<Vec<u8>>> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(std::io::Error::other(format!("it has more than {limit} bytes")));
    }
    Ok(Some(content))
}
