//! The file: where it is, who may read it, and what happens when it cannot be opened.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::StoreError;
use super::schema;
use crate::clock;

/// How long a statement waits for another process's lock before it answers busy. Transactions here are
/// short (milliseconds), so five seconds mean that the other process is stuck.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const FILE_NAME: &str = "sessions.db";

/// Where the store lives.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// `sessions.db` in this folder.
    Home(PathBuf),
    /// Nowhere but in memory.
    Memory,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    /// Ready for statements.
    pub(super) connection: Connection,
    /// Why it can only be read, if so.
    pub(super) read_only: Option<StoreError>,
    /// What the user should know.
    pub(super) notice: Option<String>,
}

/// Opens the store, makes it when it is not there, and brings it to the newest schema.
pub(super) fn open(place: &Place) -> Result<Opened, StoreError> {
    let home = match place {
        Place::Memory => {
            let mut connection = Connection::open_in_memory()?;
            connection.pragma_update(None, "foreign_keys", true)?;
            schema::migrate(&mut connection, schema::MIGRATIONS)?;
            return Ok(Opened { connection, read_only: None, notice: None });
        }
        Place::Home(home) => home,
    };
    DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let path = home.join(FILE_NAME);
    match open_file(&path, schema::MIGRATIONS) {
        Err(StoreError::Corrupt(why)) => replace_damaged(home, &path, &why),
        opened => opened,
    }
}

/// A file's device and inode.
pub(super) type FileId = (u64, u64);

/// The file that is at the store's path now; `None` when there is none.
pub(super) fn identity(place: &Place) -> Option<FileId> {
    let Place::Home(home) = place else { return None };
    let metadata = std::fs::metadata(home.join(FILE_NAME)).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Opens the file and brings it to the schema that `migrations` lead to.
pub(super) fn open_file(path: &Path, migrations: &[&str]) -> Result<Opened, StoreError> {
    make_private(path)?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let (found, known) = (schema::found(&connection)?, schema::newest(migrations));
    if found > known {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        return Ok(Opened { connection, read_only: Some(StoreError::NewerVersion { found, known }), notice: None });
    }
    // WAL lets readers and the writer of two processes work side by side; FULL makes each commit wait for
    // the disk, so that an acknowledged message survives a power loss.
    use_wal(&connection)?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    if found < known {
        if found > 0 {
            back_up(&connection, path, found)?;
        }
        schema::migrate(&mut connection, migrations)?;
    }
    Ok(Opened { connection, read_only: None, notice: None })
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without it SQLite plans a kept statement anew whenever a value is bound, in case another plan fits better.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

fn use_wal(connection: &Connection) -> Result<(), StoreError> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        // SQLite does not wait when two processes change the mode of a new file at once.
        match connection.pragma_update(None, "journal_mode", "wal").map_err(StoreError::from) {
            Err(StoreError::Busy) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
}

/// Makes the file when it is missing, and readable by nobody else whatever the umask. SQLite gives the
/// same permissions to the files beside it (`-wal`, `-shm`).
fn make_private(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Copies the file before a migration, as `sessions.db.backup-vN` with the schema `N` it has.
fn back_up(connection: &Connection, path: &Path, found: i64) -> Result<(), StoreError> {
    let backup = beside(path, &format!(".backup-v{found}"));
    // SQLite fills an empty file that is there already, which keeps the permissions.
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&backup)?;
    connection.execute("VACUUM INTO ?1", [backup.to_string_lossy()])?;
    Ok(())
}

/// Moves a damaged file aside and begins a new one.
fn replace_damaged(home: &Path, path: &Path, why: &str) -> Result<Opened, StoreError> {
    // Two processes may find the damage at once; the second must not move the first one's new file.
    let lock = File::open(home)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(io::Error::from)?;
    match open_file(path, schema::MIGRATIONS) {
        Err(StoreError::Corrupt(_)) => {}
        opened => return opened,
    }
    let aside = format!(".corrupt-{}", clock::now_ms());
    for suffix in ["-wal", "-shm", ""] {
        let damaged = beside(path, suffix);
        match std::fs::rename(&damaged, beside(path, &format!("{aside}{suffix}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    let opened = open_file(path, schema::MIGRATIONS)?;
    let notice = format!(
        "The session store was damaged ({why}). It was kept as {} and a new one was begun.",
        beside(path, &aside).display()
    );
    tracing::warn!("{notice}");
    Ok(Opened { notice: Some(notice), ..opened })
}

/// The path with something appended to its file name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
