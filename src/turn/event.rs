//! What a turn tells the outside while it runs.

use std::sync::Arc;

use serde_json::Value;

use crate::message::Usage;
use crate::tool::{CallPlan, Display, PlanEntry};

/// Something the client may want to see. Emitting one can wait for a slow client but cannot fail.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// More visible text of the message with this id.
    Text {
        /// One id per message of the model.
        message_id: Arc<str>,
        /// The piece.
        text: String,
    },
    /// More reasoning of the message with this id.
    Reasoning {
        /// One id per message of the model.
        message_id: Arc<str>,
        /// The piece.
        text: String,
    },
    /// The model asked for a tool; the call is pending.
    ToolCallPending {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments, parsed where they could be.
        arguments: Value,
        /// What the call would do, as far as it is known.
        plan: CallPlan,
    },
    /// The call was approved and runs.
    ToolCallStarted {
        /// The call's id.
        id: String,
    },
    /// The call's output so far.
    ToolCallProgress {
        /// The call's id.
        id: String,
        /// A snapshot that replaces the one before.
        shown: Display,
    },
    /// The call ended.
    ToolCallEnded {
        /// The call's id.
        id: String,
        /// False for `completed`, true for `failed`.
        is_failed: bool,
        /// What to show.
        display: Vec<Display>,
        /// Data for the client.
        raw: Option<Value>,
    },
    /// The task list changed.
    Plan(Vec<PlanEntry>),
    /// A model call was counted.
    Usage {
        /// The whole turn so far.
        turn: Usage,
        /// Tokens in the context now.
        context_tokens: u64,
        /// Tokens the context can hold.
        context_window: u64,
        /// US dollars of the turn so far; the session adds what it spent before. `None`: not known.
        cost_usd: Option<f64>,
    },
    /// Something a person should know: a retry after visible text, a fallback, a wait.
    Notice {
        /// How serious.
        severity: Severity,
        /// One line.
        text: String,
    },
    /// The history is being made shorter.
    Compaction {
        /// One id per compaction.
        id: Arc<str>,
        /// Where it is.
        state: CompactionState,
    },
    /// One step ended.
    Step {
        /// The step's number in the turn, from 1.
        step: u32,
        /// The calls of the step with their results, in call order.
        tools: Vec<StepTool>,
    },
}

/// Where a compaction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionState {
    /// It begins.
    Started {
        /// Tokens in the context now.
        tokens: u64,
    },
    /// The history is shorter.
    Completed {
        /// Tokens in the context before.
        tokens_before: u64,
        /// Tokens in the context now, roughly.
        tokens_after: u64,
        /// What stands for the older messages; `None` when only long results were cut.
        summary: Option<String>,
    },
    /// Nothing changed, and why.
    Failed(String),
    /// It was stopped; nothing changed.
    Cancelled,
}

/// How serious a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// For information.
    Info,
    /// Something went wrong and was dealt with.
    Warning,
}

/// One tool call of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTool {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// The text the model got.
    pub result: String,
}
