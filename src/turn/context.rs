//! Everything a turn needs that is settled before it starts.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::approval::Gate;
use crate::compression::Compactor;
use crate::hook::HookSet;
use crate::provider::http::Http;
use crate::provider::recovery::FallbackChain;
use crate::tool::ToolContext;

use super::guardrail::{Guardrails, Strictness};
use super::limit::BatchSize;
use crate::tool::registry::ToolRegistry;

/// One turn's surroundings, immutable while it runs.
#[derive(Clone, Debug)]
pub struct TurnContext {
    /// The session.
    pub session_id: Arc<str>,
    /// This turn.
    pub turn_id: Arc<str>,
    /// The session's system prompt, byte for byte.
    pub system_prompt: Arc<str>,
    /// The tools by name.
    pub tools: Arc<ToolRegistry>,
    /// What tool calls share.
    pub tool_context: ToolContext,
    /// What passes, what is asked, what never happens.
    pub gate: Arc<Gate>,
    /// The model and where to go when it cannot answer.
    pub chain: Arc<FallbackChain>,
    /// What shortens the history when it grows too long.
    pub compactor: Arc<Compactor>,
    /// The way to the network.
    pub http: Http,
    /// The user's own code at points of the turn.
    pub hooks: HookSet,
    /// True when nothing was said in this session before.
    pub is_first_turn: bool,
    /// Whether circles are stopped or only pointed out.
    pub strictness: Strictness,
    /// What becomes of a turn whose question nobody answered in time.
    pub unanswered: Unanswered,
    /// Budgets.
    pub limits: TurnLimits,
}

/// What becomes of a turn whose question nobody answered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unanswered {
    /// The model is told, and goes on.
    #[default]
    GoOn,
    /// It ends.
    Halt,
}

/// Budgets of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// Model calls.
    pub max_iterations: u32,
    /// Wall-clock seconds; 0: no limit.
    pub run_budget_seconds: u64,
    /// Prompt tokens of all calls together, for background reviews; `None`: no limit.
    pub input_tokens: Option<u64>,
}

/// What every piece of a running turn is handed.
#[derive(Debug)]
pub(super) struct Scope<'a, Io> {
    pub(super) context: &'a TurnContext,
    pub(super) io: &'a Io,
    pub(super) cancel: &'a CancellationToken,
    pub(super) guardrails: &'a Mutex<Guardrails>,
    pub(super) batch_size: &'a BatchSize,
    /// Requests sent so far.
    pub(super) requests: &'a AtomicU32,
}

impl<Io> Scope<'_, Io> {
    /// What is known about the calls of this turn. Never hold it across a wait.
    pub(super) fn guardrails(&self) -> MutexGuard<'_, Guardrails> {
        self.guardrails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
