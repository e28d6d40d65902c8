//! Files of the home folder that several daemons and commands change.
//!
//! Every change is made under a lock file on the newest content and put in place by a rename, so nobody
//! loses what another wrote and no reader sees half of it. The files are for the user alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that are read; a longer file counts as unreadable.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// How long another process may hold a lock. A change takes milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// The home folder: `TURND_HOME`, else `.turnd` in the user's home.
///
/// # Errors
/// When neither names a folder.
pub fn home() -> Result<PathBuf, String> {
    let named = std::env::var_os("TURND_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let own = || std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".turnd"));
    let home = named.or_else(own).ok_or("there is no home folder: set TURND_HOME")?;
    std::path::absolute(&home).map_err(|error| format!("TURND_HOME {}: {error}", home.display()))
}

/// Takes the lock at this path, and makes its file and folder when they are missing. It is held until the file is
/// dropped. Blocks for five seconds at most.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] when another process holds it all the time; else what the system said.
pub fn lock(path: &Path) -> io::Result<File> {
    make_folder(path)?;
    let file = private(OpenOptions::new().create(true).truncate(false).write(true)).open(path)?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(error) if error != Errno::WOULDBLOCK => return Err(error.into()),
            Err(_) if begun.elapsed() > LOCK_LIMIT => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process is changing it; try again"));
            }
            Err(_) => std::thread::sleep(LOCK_POLL),
        }
    }
}

/// Puts a text in the place of a file, whole or not at all, and waits for the disk.
///
/// # Errors
/// What the system said; the file is then as it was.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    make_folder(path)?;
    let temporary = path.with_extension(format!("{}.new", uuid::Uuid::now_v7().simple()));
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first failure is the one to tell.
        fs::remove_file(&temporary).ok();
    }
    written?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Why the file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum HomeFileError {
    /// The file or its lock could not be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
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
        let path = self.0.with_extension("lock");
        let _lock = lock(&path).map_err(|source| HomeFileError::Io { path: path.clone(), source })?;
        let mut content = self.read()?;
        let result = edit(&mut content)?;
        let text = toml::to_string(&content).map_err(|error| self.io(io::Error::other(error)))?;
        replace(&self.0, &text).map_err(|source| self.io(source))?;
        Ok(result)
    }

    fn io(&self, source: io::Error) -> HomeFileError {
        HomeFileError::Io { path: self.0.clone(), source }
    }

    fn content(&self, message: &str) -> HomeFileError {
        HomeFileError::Content { path: self.0.clone(), message: message.to_owned() }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| DirBuilder::new().recursive(true).mode(0o700).create(folder))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = private(OpenOptions::new().create_new(true).write(true)).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// For the user alone, whatever the umask.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
}
