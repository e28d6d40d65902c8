//! The turn's only view of the outside.

use crate::compression::Change;
use crate::message::{Message, Usage};
use crate::tool::{CallPlan, Display};

use super::event::TurnEvent;
use super::exit::TurnReport;

/// What a turn needs from whoever runs it.
pub trait TurnIo: Sync {
    /// Tells the client. Waits while the client lags; cannot fail; never changes the turn.
    fn emit(&self, event: TurnEvent) -> impl Future<Output = ()> + Send;

    /// Asks the user. Ends with [`Answer::Cancelled`] when the turn is cancelled.
    fn ask(&self, ask: Ask<'_>) -> impl Future<Output = Answer> + Send;

    /// Stores, all or nothing, and returns once it is on disk.
    ///
    /// # Errors
    /// When nothing was stored: the turn must not go on to anything that depends on it.
    fn record(&self, records: Vec<Record>) -> impl Future<Output = Result<(), RecordError>> + Send;

    /// Takes what the user wants told to the model, if anything: several steers are joined.
    fn take_steer(&self) -> Option<String>;

    /// Waits until there is a steer.
    fn steered(&self) -> impl Future<Output = ()> + Send;

    /// Puts a steer back that could not be placed yet, before any newer one.
    fn return_steer(&self, text: String);

    /// Takes all that the user still wants told, corrections among it, and lets nothing more in: the turn has
    /// spoken its last word.
    fn close_words(&self) -> Option<String>;

    /// Takes the user's correction of the request, if any.
    fn take_redirect(&self) -> Option<String>;

    /// Waits until there is a correction.
    fn redirected(&self) -> impl Future<Output = ()> + Send;

    /// Takes the user's wish for a compaction, if any: what to keep in particular, or nothing.
    fn take_compaction(&self) -> Option<String>;

    /// Tells where the turn is, for status questions.
    fn progress(&self, step: u32, budget_left: u32);
}

/// A question about one tool call.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The call.
    pub tool_call_id: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// What it would do.
    pub plan: &'a CallPlan,
    /// The arguments it would run with.
    pub arguments: &'a serde_json::Value,
    /// Why it is asked and what could be remembered.
    pub question: &'a crate::approval::Question,
}

/// What the user said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This time.
    AllowOnce,
    /// For the rest of the session.
    AllowSession,
    /// From now on.
    AllowAlways,
    /// Not this time.
    RejectOnce,
    /// Never.
    RejectAlways,
    /// Nobody answered in time.
    TimedOut,
    /// Nobody may be asked here.
    NotAsked,
    /// The question was called off, which ends the turn.
    Cancelled,
}

impl Answer {
    /// The stored text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowSession => "allow_session",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
            Self::TimedOut => "timed_out",
            Self::NotAsked => "not_asked",
            Self::Cancelled => "cancelled",
        }
    }

    /// True when the call may run.
    #[must_use]
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowSession | Self::AllowAlways)
    }
}

/// Something to store.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A new message at the end of the history.
    Message(Message),
    /// A newer form of a message that is already stored: the tool result with this call id, or this
    /// turn's user message.
    Amended(Message),
    /// A shorter history in place of the stored one.
    Compacted(Change),
    /// A tool call as the client last saw it.
    ToolCall(ToolCallRecord),
    /// A decision about a tool call.
    Approval {
        /// The call.
        tool_call_id: String,
        /// What was said.
        answer: Answer,
        /// What is remembered of it.
        remembered: Option<String>,
    },
    /// Tokens of one model call.
    Usage {
        /// The provider.
        provider: String,
        /// The model.
        model: String,
        /// What was counted.
        usage: Usage,
    },
    /// The turn ended.
    End(TurnReport),
}

/// A tool call as the client last saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallRecord {
    /// The call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Where it is.
    pub state: CallState,
    /// What it would do.
    pub plan: CallPlan,
    /// The arguments, parsed where they could be.
    pub arguments: serde_json::Value,
    /// What was shown of its result.
    pub display: Vec<Display>,
    /// Data for the client.
    pub raw: Option<serde_json::Value>,
}

/// Where a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// Asked by the model.
    Pending,
    /// Running.
    InProgress,
    /// Did its work.
    Completed,
    /// Did not.
    Failed,
}

impl CallState {
    /// The stored text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// What could not be stored, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot store the turn: {0}")]
pub struct RecordError(pub String);
