//! What can go wrong with the store, and what the user can do about it.

use rusqlite::ErrorCode;

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process kept the file locked for longer than the busy timeout.
    #[error("the session store is locked by another process; try again")]
    Busy,
    /// No room.
    #[error("the disk that holds the session store is full; free some space and try again")]
    Full,
    /// The file is damaged.
    #[error("the session store is damaged ({0}); quit turnd, move sessions.db aside and start again")]
    Corrupt(String),
    /// A newer turnd wrote the file; it can only be read.
    #[error(
        "the session store has schema {found} and this turnd knows {known}; update turnd or use another TURND_HOME"
    )]
    NewerVersion {
        /// The schema of the file.
        found: i64,
        /// The newest schema this program knows.
        known: i64,
    },
    /// The file or its folder cannot be written.
    #[error("the session store cannot be written ({0}); make TURND_HOME writable")]
    ReadOnly(String),
    /// The operating system or SQLite refused.
    #[error("the session store failed ({0}); `turnd doctor` names its file")]
    Io(String),
    /// The session is open in another process.
    #[error("the session is open in another turnd (pid {pid}); close it there first")]
    Owned {
        /// That process.
        pid: u32,
    },
    /// There is no such session to write to.
    #[error("there is no such session in the store; list the sessions or begin a new one")]
    UnknownSession,
    /// The cursor is not one this store gave out.
    #[error("the cursor is not valid; list again from the beginning")]
    BadCursor,
    /// The store was closed.
    #[error("the session store is closed; turnd is shutting down")]
    Closed,
}

impl StoreError {
    /// The stable name of the error.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy => "store_busy",
            Self::Full => "store_full",
            Self::Corrupt(_) => "store_corrupt",
            Self::NewerVersion { .. } => "store_newer_version",
            Self::ReadOnly(_) => "store_read_only",
            Self::Io(_) => "store_io",
            Self::Owned { .. } => "session_owned",
            Self::UnknownSession => "session_unknown",
            Self::BadCursor => "bad_cursor",
            Self::Closed => "store_closed",
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        if let rusqlite::Error::SqliteFailure(code, _) = &error
            && code.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY
        {
            // Every foreign key of the schema points at `sessions`.
            return Self::UnknownSession;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(error.to_string()),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}
