//! The session's only view of the client: an editor behind the protocol, or a terminal.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::config::Mode;
use crate::message::Part;
use crate::tool::clarify::{Inquiry, InquiryEnd};
use crate::tool::{CallPlan, ClientTerminals, Display, Editor, PlanEntry};
use crate::turn::TurnReport;
use crate::turn::event::TurnEvent;
use crate::turn::port::{Answer, CallState};

/// Whoever shows a session to a person.
pub trait ClientPort: Send + Sync + fmt::Debug {
    /// Shows something. Waits while the client lags.
    fn tell(&self, event: SessionEvent) -> BoxFuture<'_, ()>;

    /// Asks for approval and waits for the answer, for ever if need be. Dropping the future withdraws
    /// the question.
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, Answer>;

    /// False when there is nobody who could answer a question.
    fn can_ask(&self) -> bool {
        true
    }

    /// The client's terminals, when it offers some.
    fn terminals(&self) -> Option<Arc<dyn ClientTerminals>> {
        None
    }
    /// Puts a question of the model to the user and waits for its end, for ever if need be. Dropping the
    /// future withdraws the question.
    fn inquire(&self, _inquiry: Inquiry) -> BoxFuture<'_, InquiryEnd> {
        Box::pin(std::future::ready(InquiryEnd::Unavailable("nobody can be asked here")))
    }

    /// The view of a child agent's session, where the client shows those.
    fn child(&self, _id: &Arc<str>) -> Option<Arc<dyn ClientPort>> {
        None
    }

    /// The client's view of files, when it offers one.
    fn editor(&self) -> Option<Arc<dyn Editor>>;
}

/// Something about a session that the client may show.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// A turn began.
    TurnStarted {
        /// The turn.
        turn_id: Arc<str>,
    },
    /// Something happened in the running turn.
    Turn {
        /// The turn.
        turn_id: Arc<str>,
        /// What.
        event: TurnEvent,
    },
    /// Something happened to the session between two turns.
    BetweenTurns(TurnEvent),
    /// A turn ended.
    TurnEnded(Box<TurnReport>),
    /// A child agent of this session, for a client that shows those: what it is, or how it stands now.
    Child(ChildState),
    /// Words that are no part of the history: the answer to a slash command.
    Remark {
        /// One id per remark.
        message_id: Arc<str>,
        /// The text.
        text: String,
    },
    /// The commands a prompt may begin with.
    Commands(Vec<CommandInfo>),
    /// The mode changed.
    Mode(Mode),
    /// The model or another option changed.
    Options(SessionOptions),
    /// The session's title.
    Title(String),
    /// A stored message, shown again.
    Replay(Replayed),
}

/// A child agent as a client is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildState {
    /// Its session.
    pub session_id: Arc<str>,
    /// The tool call that it works for.
    pub tool_call_id: String,
    /// What is new about it.
    pub phase: ChildPhase,
}

/// How a child agent stands.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildPhase {
    /// It begins with this task.
    Began {
        /// One line.
        title: String,
    },
    /// It waits for the user.
    Waits,
    /// It works on.
    Works,
    /// It ended.
    Ended(Box<TurnReport>),
}

/// One slash command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// Without the slash.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What may follow it; `None` when nothing may.
    pub hint: Option<&'static str>,
}

/// What can be chosen for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// The mode.
    pub mode: Mode,
    /// `PROVIDER/MODEL` in use.
    pub model: String,
    /// The models that can be chosen, the one in use among them.
    pub models: Vec<String>,
}

/// A piece of a stored session.
#[derive(Clone, Debug, PartialEq)]
pub enum Replayed {
    /// What the user said.
    User {
        /// The id it had.
        message_id: Arc<str>,
        /// The parts.
        parts: Vec<Part>,
    },
    /// Reasoning of the model.
    Thought {
        /// The id it had.
        message_id: Arc<str>,
        /// The text.
        text: String,
    },
    /// The model's words.
    Agent {
        /// The id it had.
        message_id: Arc<str>,
        /// The text.
        text: String,
    },
    /// A tool call and how it ended, or where it is while its turn runs.
    ToolCall(Box<ReplayedCall>),
    /// The task list as it stands.
    Plan(Vec<PlanEntry>),
}

/// A stored tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedCall {
    /// The call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it would do.
    pub plan: CallPlan,
    /// The arguments.
    pub arguments: Value,
    /// How it ended, or where it is.
    pub state: CallState,
    /// What was shown.
    pub display: Vec<Display>,
    /// Data for the client.
    pub raw: Option<Value>,
}

/// A question about a tool call that was already announced.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionQuestion {
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub tool: String,
    /// What it would do.
    pub plan: CallPlan,
    /// The arguments it would run with.
    pub arguments: Value,
    /// Why it is asked, one line each.
    pub reasons: Vec<String>,
    /// What can be answered.
    pub choices: Vec<Choice>,
}

/// One answer that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it means.
    pub answer: Answer,
    /// The words on the button; they say exactly what will be remembered.
    pub name: String,
}
