//! A TOML file of the home folder that several daemons and commands change.
//!
//! Every change is made under a lock file on the newest content and put in place by a rename, so nobody
//! loses what another wrote and no reader sees half of it. The file is for the user alone.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that are read; a longer file counts as unreadable.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Why the file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum HomeFileError {
    /// The file or its lock could not be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The file is not what was written there.
    #[error("cannot read {}: {message}; mend it or remove it", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// One such file, by its path.
#[derive(Clone, Debug)]
pub struct HomeFile(PathBuf);

impl HomeFile {
    /// The file at this path. Nothing is read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its content; the default when there is no file.
    ///
    /// # Errors
    /// When it cannot be read or is not what belongs there.
    pub fn read<T: DeserializeOwned + Default>(&self) -> Result<T, HomeFileError> {
        let size = match fs::metadata(&self.0) {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            Ok(_) => return Err(self.content("it is not a file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
            Err(source) => return Err(self.io(source)),
        };
        if size > MAX_FILE_BYTES {
            return Err(self.content("it is too long"));
        }
        let text = fs::read_to_string(&self.0).map_err(|source| self.io(source))?;
        toml::from_str(&text).map_err(|error| self.content(error.message()))
    }

    /// Edits the newest content and puts it in place; what the edit refuses is not written.
    ///
    /// # Errors
    /// What the edit says, or that the file cannot be read or written; it is then unchanged.
    pub fn change<T, R, E>(&self, edit: impl FnOnce(&mut T) -> Result<R, E>) -> Result<R, E>
    where
        T: DeserializeOwned + Serialize + Default,
        E: From<HomeFileError>,
    {
        let _lock = self.lock()?;
        let mut content = self.read()?;
        let result = edit(&mut content)?;
        self.write(&content).map_err(|source| self.io(source))?;
        Ok(result)
    }

    fn lock(&self) -> Result<File, HomeFileError> {
        let path = self.0.with_extension("lock");
        let failed = |source| HomeFileError::Io { path: path.clone(), source };
        let lock = private(OpenOptions::new().create(true).truncate(false).write(true)).open(&path).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(lock)
    }

    fn write(&self, content: &impl Serialize) -> std::io::Result<()> {
        let text = toml::to_string(content).map_err(std::io::Error::other)?;
        let temporary = self.0.with_extension(format!("toml.{}", uuid::Uuid::now_v7().simple()));
        let written = write_new(&temporary, &text).and_then(|()| fs::rename(&temporary, &self.0));
        if written.is_err() {
            fs::remove_file(&temporary).ok();
        }
        written?;
        self.0.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    fn io(&self, source: std::io::Error) -> HomeFileError {
        HomeFileError::Io { path: self.0.clone(), source }
    }

    fn content(&self, message: &str) -> HomeFileError {
        HomeFileError::Content { path: self.0.clone(), message: message.to_owned() }
    }
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = private(OpenOptions::new().create_new(true).write(true)).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// For the user alone, whatever the umask.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
}
