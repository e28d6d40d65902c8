//! The open sessions of one connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;

use super::handle::SessionHandle;
use super::open::{Host, OpenRequest, Opening};
use super::task;

/// Who is open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Registry {
    host: Arc<Host>,
    open: Arc<Mutex<HashMap<Arc<str>, SessionHandle>>>,
    tasks: TaskTracker,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(host: Arc<Host>) -> Self {
        Self { host, open: Arc::default(), tasks: TaskTracker::new() }
    }

    /// What sessions share.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Starts a session's task and registers it at once, so that requests which follow on the wire find
    /// it and wait their turn. One that is being closed ends first: a session has one owner at a time.
    #[must_use]
    pub fn open(&self, request: OpenRequest) -> (SessionHandle, Opening) {
        let id = Arc::clone(&request.id);
        let (handle, mailbox) = SessionHandle::new(Arc::clone(&id), self.host.shutdown.child_token());
        let before = self.lock().insert(Arc::clone(&id), handle.clone());
        let (ready, opening) = tokio::sync::oneshot::channel();
        let (host, registry) = (Arc::clone(&self.host), self.clone());
        self.tasks.spawn(async move {
            if let Some(before) = before {
                before.ended().await;
            }
            task::run(host, request, mailbox, ready).await;
            registry.forget(&id);
        });
        (handle, opening)
    }

    /// The open session with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<SessionHandle> {
        self.open_or_closing(id).filter(|session| !session.is_closing())
    }

    /// The session with this id, also while it ends.
    #[must_use]
    pub fn open_or_closing(&self, id: &str) -> Option<SessionHandle> {
        self.lock().get(id).cloned()
    }

    /// Every open session.
    #[must_use]
    pub fn all(&self) -> Vec<SessionHandle> {
        self.lock().values().cloned().collect()
    }

    /// Waits until every session's task has ended.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Drops the entry of a session whose task has ended, unless a newer one took its place.
    fn forget(&self, id: &str) {
        let mut open = self.lock();
        if open.get(id).is_some_and(SessionHandle::is_ended) {
            open.remove(id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, SessionHandle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
