//! The store: every session in one SQLite file, and nothing acknowledged before it is on disk.
//!
//! One thread owns the connection. Jobs that are waiting when it begins a transaction are committed
//! together, so a burst of writes costs one `fsync`; each caller is answered after that commit.

use serde::{Deserialize, Serialize};

use crate::message::{Message, Usage};

/// What a session is, apart from its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The session's id.
    pub id: String,
    /// The session this one continues (compaction, child agent), if any.
    pub parent_id: Option<String>,
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

/// A stored message.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// Its row, growing within the store.
    pub id: i64,
    /// The turn it belongs to.
    pub turn_id: Option<String>,
    /// The message.
    pub message: Message,
}

/// How a turn ended, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
