//! What can be asked of a session. Cancelling is not among it: that is a token, so that it never waits
//! behind anything.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnd_protocol::ext::{StatusResult, SteeringResult};

use crate::config::Mode;
use crate::mcp::ServerSpec;
use crate::message::Part;
use crate::turn::TurnReport;

use super::port::SessionOptions;

/// One request to a session's task.
#[derive(Debug)]
pub enum Command {
    /// Run a turn, or obey a slash command.
    Prompt(Prompt),
    /// Show the session again, or just say how it stands, to a client that loads or resumes it twice.
    /// The MCP servers are those it wants now; `None`: it said nothing of them.
    Reopen(ReplayWish, Option<Vec<ServerSpec>>, oneshot::Sender<Result<Opened, SessionError>>),
    /// Change the mode.
    SetMode(Mode, oneshot::Sender<SessionOptions>),
    /// Change the model.
    SetModel(String, oneshot::Sender<Result<SessionOptions, SessionError>>),
    /// Tell the model something in the middle of the running turn.
    Steer(Steer, oneshot::Sender<SteeringResult>),
    /// Correct the request of the running turn.
    Redirect(Steer, oneshot::Sender<SteeringResult>),
    /// Say what is going on.
    Status(oneshot::Sender<StatusResult>),
}

/// A prompt and whom to tell.
#[derive(Debug)]
pub struct Prompt {
    /// What the user said.
    pub parts: Vec<Part>,
    /// Cancels this prompt only.
    pub cancel: CancellationToken,
    /// Gets the outcome.
    pub reply: oneshot::Sender<Result<PromptEnd, SessionError>>,
}

/// A prompt's outcome on its way to the client.
#[derive(Debug)]
pub struct PromptEnd {
    /// How it ended.
    pub outcome: PromptOutcome,
    /// Dropped once the answer is queued: the next turn's updates may follow.
    pub delivered: Delivered,
}

/// Held while an answer is on its way; whoever waits for the other end goes on when it is dropped.
pub type Delivered = oneshot::Sender<()>;

/// Whether the history is shown when a session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayWish {
    /// `session/load`.
    Replay,
    /// `session/resume`.
    Silent,
}

/// A session that is open.
#[derive(Debug)]
pub struct Opened {
    /// What can be chosen.
    pub options: SessionOptions,
    /// Dropped once the answer is queued: the session's updates may follow.
    pub delivered: Delivered,
}

/// Words for a running turn.
#[derive(Debug)]
pub struct Steer {
    /// What the user said.
    pub parts: Vec<Part>,
    /// Only for this turn, if given.
    pub expected_turn_id: Option<String>,
    /// Answer `promptRequired` when idle instead of starting a turn.
    pub wants_prompt_when_idle: bool,
}

/// How a prompt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptOutcome {
    /// A turn ran.
    Turn(Box<TurnReport>),
    /// A slash command was obeyed.
    Obeyed,
    /// Cancelled before its turn began.
    NotStarted,
}

/// Why a session cannot do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// There is no such session.
    #[error("there is no session {0}")]
    Unknown(Arc<str>),
    /// Another process has it open.
    #[error("session {id} is open in another turnd (process {pid}); close it there first")]
    Owned {
        /// The session.
        id: Arc<str>,
        /// The process.
        pid: u32,
    },
    /// A child agent works in it.
    #[error("a child agent works in session {0}; try again once its task has ended")]
    AtWork(Arc<str>),
    /// Too many prompts wait.
    #[error("too many prompts are waiting in this session; wait for one to end")]
    Overloaded,
    /// The session was closed meanwhile.
    #[error("the session was closed")]
    Closed,
    /// No model can be used because there is no credential.
    #[error("{0}")]
    AuthRequired(String),
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// A parameter makes no sense.
    #[error("{field}: {problem}")]
    BadParameter {
        /// The field's name on the wire.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The store cannot be used.
    #[error("{0}")]
    Store(String),
    /// A fault of our own.
    #[error("{0}")]
    Internal(String),
}
