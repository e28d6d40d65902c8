//! The store: every session in one SQLite file, and nothing acknowledged before it is on disk.
//!
//! One thread owns the connection. Jobs that are waiting when it begins a transaction are committed
//! together, so a burst of writes costs one `fsync`; each caller is answered after that commit.
//! Two processes may share the file; a session has one owner among them.
//!
//! Deliberately absent: SQL outside this folder, updates of a stored message (a newer form is a new
//! row), and any timer: an idle store does nothing.

mod claim;
mod codec;
mod compact;
mod error;
mod file;
mod fork;
mod read;
mod schema;
mod search;
mod thread;
mod write;

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::message::{Message, Usage};

pub use error::StoreError;
pub use read::{Children, ListQuery, LoadedSession};
pub use search::{SearchHit, SearchQuery};
pub use write::Write;

use file::Place;
use thread::{Db, Job, WriteJob};

/// The handle to the store. Clones share one connection and one thread.
///
/// Every method can be dropped at any point: the job it sent is still done whole or not at all.
#[derive(Clone, Debug)]
pub struct Store {
    jobs: Sender<Job>,
    notice: Arc<Mutex<Option<String>>>,
}

impl Store {
    /// The store in `home/sessions.db`. Returns at once; a failure to open is answered to every call,
    /// each of which tries again.
    #[must_use]
    pub fn open(home: &Path) -> Self {
        Self::start(Place::Home(home.to_owned()))
    }

    /// A store that is gone with its last handle.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::start(Place::Memory)
    }

    fn start(place: Place) -> Self {
        let notice = Arc::default();
        let jobs = thread::spawn(place, Arc::clone(&notice));
        Self { jobs, notice }
    }

    /// Waits until the store has been opened.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.write(Vec::new()).await
    }

    /// What the user should be told about how the store was opened, if anything.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        self.notice.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Stores all of `writes` or nothing, and returns once it is on disk.
    ///
    /// # Errors
    /// When nothing was stored.
    pub async fn write(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Write(WriteJob { writes, reply }))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Claims a session for this process, repairs what a dead process left open, and reads it.
    /// `None` when there is no such session.
    ///
    /// Each tool call without a result gets one that says its effect is unknown, and running turns become
    /// interrupted. A session that this store already holds and that has a running turn is only read.
    ///
    /// # Errors
    /// [`StoreError::Owned`] when another live process holds it.
    pub async fn open_session(&self, id: &str) -> Result<Option<LoadedSession>, StoreError> {
        let id = id.to_owned();
        self.call(move |db| claim::open_session(db, &id)).await
    }

    /// Reads a session without claiming or repairing it; `None` when there is no such session.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn load_session(&self, id: &str) -> Result<Option<LoadedSession>, StoreError> {
        let id = id.to_owned();
        self.call(move |db| read::load_session(&mut db.connection, &id)).await
    }

    /// One page of sessions, newest first, and the cursor of the next page if there is one.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] when the cursor is not one of ours.
    pub async fn list_sessions(&self, query: ListQuery) -> Result<(Vec<SessionRow>, Option<String>), StoreError> {
        self.call(move |db| read::list_sessions(&db.connection, &query)).await
    }

    /// The messages that contain every word of the query, best first. Child agents' sessions are left out.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn search(&self, query: SearchQuery) -> Result<Vec<SearchHit>, StoreError> {
        self.call(move |db| {
            db.index();
            search::search(&db.connection, &query)
        })
        .await
    }

    /// Deletes a session and all that belongs to it; an unknown id is fine.
    ///
    /// # Errors
    /// [`StoreError::Owned`] when another live process holds it.
    pub async fn delete(&self, id: &str) -> Result<(), StoreError> {
        self.write(vec![Write::DeleteSession { id: id.to_owned() }]).await
    }

    /// Does what was asked before, gives up this store's sessions and closes the file. Later calls answer
    /// [`StoreError::Closed`].
    ///
    /// # Errors
    /// When the sessions could not be given up; the file is closed all the same.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Close(reply))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let run = move |db: &mut Db| {
            // A schema that is too new explains whatever failed better than the failure does.
            work(db).map_err(|error| db.read_only.clone().unwrap_or(error))
        };
        self.send(Job::Call(Box::new(move |db| drop(reply.send(db.and_then(run))))))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    fn send(&self, job: Job) -> Result<(), StoreError> {
        self.jobs.send(job).map_err(|_| StoreError::Closed)
    }
}

/// What a session is, apart from its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The session's id.
    pub id: String,
    /// The session this one comes from, if any.
    pub parent_id: Option<String>,
    /// How it comes from it; `None`: it is a session of its own.
    pub lineage: Option<Lineage>,
    /// Working folder, absolute.
    pub cwd: String,
    /// Other folders of the client, absolute.
    pub additional_roots: Vec<String>,
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// The mode's name.
    pub mode: String,
    /// For lists.
    pub title: Option<String>,
    /// The exact system prompt, once built.
    pub system_prompt: Option<String>,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds of the last change.
    pub updated_at_ms: i64,
}

/// How a session comes from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lineage {
    /// A child agent works for it.
    Child,
}

impl Lineage {
    /// The stored text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Child => "child",
        }
    }
}

/// A stored message.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// Its row, growing within the store.
    pub id: i64,
    /// The turn it belongs to.
    pub turn_id: Option<String>,
    /// The message.
    pub message: Message,
    /// Who gets to see it.
    pub standing: Standing,
}

/// Who gets to see a stored message that no newer form has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Sent to the model and shown.
    Current,
    /// Compacted away: shown, found by searches, no longer sent.
    Compacted,
    /// A summary, or a shortened form of a compacted message: sent, never shown.
    Internal,
}

impl Standing {
    /// The value of the column `active`; 0 is a message that a newer form has replaced.
    pub(crate) fn column(self) -> i64 {
        match self {
            Self::Current => 1,
            Self::Compacted => 2,
            Self::Internal => 3,
        }
    }

    pub(crate) fn of_column(value: i64) -> Self {
        match value {
            2 => Self::Compacted,
            3 => Self::Internal,
            _ => Self::Current,
        }
    }

    /// True for what a request to the model holds.
    #[must_use]
    pub fn is_sent(self) -> bool {
        self != Self::Compacted
    }

    /// True for what a client is shown again.
    #[must_use]
    pub fn is_shown(self) -> bool {
        self != Self::Internal
    }
}

/// How a turn ended, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnRow {
    /// The turn's id.
    pub id: String,
    /// Its session.
    pub session_id: String,
    /// `running`, `completed`, `budget_exhausted`, `interrupted` or `failed`.
    pub status: String,
    /// Why it stopped; `None` while it runs.
    pub exit_reason: Option<String>,
    /// Model calls that counted.
    pub steps: u32,
    /// HTTP requests, retries included.
    pub api_calls: u32,
    /// Tokens of the turn.
    pub usage: Usage,
    /// Unix milliseconds.
    pub started_at_ms: i64,
    /// Unix milliseconds; `None` while it runs.
    pub ended_at_ms: Option<i64>,
}

/// A tool call with what the client was shown of it, for replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCallRow {
    /// The call's id, unique within the session.
    pub id: String,
    /// Its turn.
    pub turn_id: String,
    /// The tool.
    pub name: String,
    /// `pending`, `in_progress`, `completed` or `failed`.
    pub status: String,
    /// What the client was shown last, as JSON: `{title, kind, locations, content, rawInput, rawOutput}`.
    pub display: serde_json::Value,
}

/// One decision of the user or of a rule about a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApprovalRow {
    /// The call.
    pub tool_call_id: String,
    /// Its turn.
    pub turn_id: String,
    /// The outcome: `allow_once`, `allow_session`, `allow_always`, `reject_once`, `reject_always`,
    /// `timed_out`, `cancelled`.
    pub outcome: String,
    /// What was remembered, in words; `None` when nothing was.
    pub remembered: Option<String>,
}

/// What one model was used for in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageRow {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Model calls.
    pub calls: u64,
    /// Their tokens.
    pub usage: Usage,
    /// Millionths of a US dollar; `None` when no price is known.
    pub cost_micros: Option<u64>,
}

#[cfg(test)]
mod tests;
