//! State that tools keep for the length of a session: the task list, and which version of each file the
//! model has seen. Neither is stored; the task list is rebuilt from the history, the files are read again.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

use super::PlanEntry;

/// The SHA-256 of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hash of what was fed to a hasher.
    #[must_use]
    pub fn from_hasher(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

/// Files remembered before the ledger starts anew; then the model is asked to read again, which is safe.
const MAX_FILES: usize = 4096;

/// The task list and what the model has read.
#[derive(Debug, Default)]
pub struct SessionState {
    todos: Mutex<Vec<PlanEntry>>,
    files: Mutex<HashMap<PathBuf, ContentHash>>,
    hidden: OnceLock<HiddenFiles>,
}

/// Says which files a search must not look into.
#[derive(Clone)]
pub struct HiddenFiles(Arc<dyn Fn(&Path) -> bool + Send + Sync>);

impl HiddenFiles {
    /// The files for which this is true.
    pub fn new(is_hidden: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_hidden))
    }
}

impl fmt::Debug for HiddenFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HiddenFiles").finish_non_exhaustive()
    }
}

impl SessionState {
    /// The task list.
    #[must_use]
    pub fn todos(&self) -> Vec<PlanEntry> {
        locked(&self.todos).clone()
    }

    /// Replaces the task list.
    pub fn set_todos(&self, todos: Vec<PlanEntry>) {
        *locked(&self.todos) = todos;
    }

    /// Keeps a search from looking into files nobody allowed it to read (secrets, `deny_read`). Set once, when
    /// the session opens.
    pub fn hide_from_search(&self, files: HiddenFiles) {
        self.hidden.set(files).ok();
    }

    /// Whether a search must not look into this file.
    #[must_use]
    pub fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.get().is_some_and(|hidden| (hidden.0)(path))
    }

    /// Remembers that the model has seen (or written) this version of the file at this resolved path.
    pub fn saw_file(&self, path: &Path, hash: ContentHash) {
        let mut files = locked(&self.files);
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(path.to_path_buf(), hash);
    }

    /// The version of a file the model has seen last.
    #[must_use]
    pub fn seen_version(&self, path: &Path) -> Option<ContentHash> {
        locked(&self.files).get(path).copied()
    }
}

/// A panic elsewhere leaves plain data behind, which is still good to use.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
