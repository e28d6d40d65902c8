//! Sessions in which a child agent works. They belong to the agent that delegated until the task has ended: a
//! prompt beside it would mix two conversations, and a copy of the history would miss the rest.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sessions of all child agents that work just now. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AtWork(Arc<Mutex<HashSet<Arc<str>>>>);

/// Says that a child works in its session until it is dropped.
#[derive(Debug)]
pub(super) struct Working {
    id: Arc<str>,
    all: AtWork,
}

impl AtWork {
    /// True while a child agent works in this session.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.lock().contains(id)
    }

    pub(super) fn begin(&self, id: &Arc<str>) -> Working {
        self.lock().insert(Arc::clone(id));
        Working { id: Arc::clone(id), all: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}
