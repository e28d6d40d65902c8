//! What a child agent's turn sees of the outside: its own record, the user of the session it works for.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::config::ChildApprovals;
use crate::delegate::Slot;
use crate::turn::TurnIo;
use crate::turn::event::TurnEvent;
use crate::turn::port::{Answer, Ask, Record, RecordError};

use super::io::tell;
use super::ledger::Ledger;
use super::port::{ChildPhase, ChildState, ClientPort, SessionEvent};
use super::questions::{self, Questions};

/// The session whose user is asked for a child.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pub(super) client: Arc<dyn ClientPort>,
    pub(super) questions: Arc<Questions>,
    /// The turn that is shown there.
    pub(super) turn_id: Arc<str>,
}

/// The port of a child's turn.
#[derive(Debug)]
pub(super) struct ChildIo {
    pub(super) ledger: Ledger,
    pub(super) front: Front,
    /// The session that delegated, as the client shows it.
    pub(super) parent_view: Arc<dyn ClientPort>,
    /// The child's own session, where the client shows that.
    pub(super) view: Option<Arc<dyn ClientPort>>,
    /// The call the child works for.
    pub(super) call_id: String,
    /// In front of the ids of the child's calls where they are shown in the session of the user.
    pub(super) prefix: String,
    /// What the user knows the child by.
    pub(super) label: String,
    pub(super) approvals: ChildApprovals,
    pub(super) slot: Slot,
    pub(super) cancel: CancellationToken,
    /// Calls that the user's session shows because it was asked about them.
    pub(super) shown: Mutex<HashSet<String>>,
}

impl ChildIo {
    /// Tells a client that shows child agents how this one stands.
    pub(super) async fn tell_phase(&self, phase: ChildPhase) {
        if self.view.is_none() {
            return;
        }
        let state =
            ChildState { session_id: Arc::clone(&self.ledger.session_id), tool_call_id: self.call_id.clone(), phase };
        tell(&*self.parent_view, SessionEvent::Child(state), &self.cancel).await;
    }

    /// Shows the end of calls that a torn turn left open in the user's session.
    pub(super) async fn end_shown_calls(&self) {
        let open = std::mem::take(&mut *self.shown());
        for id in open {
            let id = self.front_id(&id);
            self.tell_front(TurnEvent::ToolCallEnded { id, is_failed: true, display: Vec::new(), raw: None }).await;
        }
    }

    async fn tell_front(&self, event: TurnEvent) {
        let event = SessionEvent::Turn { turn_id: Arc::clone(&self.front.turn_id), event };
        tell(&*self.front.client, event, &self.cancel).await;
    }

    fn shown(&self) -> MutexGuard<'_, HashSet<String>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn front_id(&self, call_id: &str) -> String {
        format!("{}{call_id}", self.prefix)
    }

    /// The event as the user's session shows it, when it is about a call that is shown there.
    fn for_front(&self, event: &TurnEvent) -> Option<TurnEvent> {
        let (id, has_ended) = match event {
            TurnEvent::ToolCallStarted { id } | TurnEvent::ToolCallProgress { id, .. } => (id, false),
            TurnEvent::ToolCallEnded { id, .. } => (id, true),
            _ => return None,
        };
        let mut shown = self.shown();
        let is_shown = if has_ended { shown.remove(id) } else { shown.contains(id) };
        drop(shown);
        let mut event = event.clone();
        match &mut event {
            TurnEvent::ToolCallStarted { id }
            | TurnEvent::ToolCallProgress { id, .. }
            | TurnEvent::ToolCallEnded { id, .. } => *id = self.front_id(id),
            _ => {}
        }
        is_shown.then_some(event)
    }

    fn note(&self, event: &TurnEvent) {
        match event {
            TurnEvent::ToolCallPending { plan, name, .. } => {
                self.slot.show(if plan.title.is_empty() { name } else { &plan.title });
            }
            TurnEvent::Step { step, .. } => self.slot.show(&format!("step {step} done")),
            TurnEvent::Notice { text, .. } => self.slot.show(text),
            _ => {}
        }
    }
}

impl TurnIo for ChildIo {
    async fn emit(&self, event: TurnEvent) {
        self.note(&event);
        if let Some(event) = self.for_front(&event) {
            self.tell_front(event).await;
        }
        if let Some(view) = &self.view {
            let event = SessionEvent::Turn { turn_id: Arc::clone(&self.ledger.turn_id), event };
            tell(&**view, event, &self.cancel).await;
        }
    }

    async fn ask(&self, ask: Ask<'_>) -> Answer {
        if self.approvals == ChildApprovals::Deny {
            return Answer::NotAsked;
        }
        let mut question = questions::question(&ask);
        question.tool_call_id = self.front_id(ask.tool_call_id);
        question.plan.title = format!("{}: {}", self.label, question.plan.title);
        question.reasons.insert(0, format!("asked by {}", self.label));
        self.shown().insert(ask.tool_call_id.to_owned());
        self.tell_front(TurnEvent::ToolCallPending {
            id: question.tool_call_id.clone(),
            name: question.tool.clone(),
            arguments: question.arguments.clone(),
            plan: question.plan.clone(),
        })
        .await;
        self.slot.show("waits for your answer");
        self.tell_phase(ChildPhase::Waits).await;
        let answer = self.front.questions.ask(question, &self.cancel).await;
        self.tell_phase(ChildPhase::Works).await;
        self.slot.show(&ask.plan.title);
        answer
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), RecordError> {
        self.ledger.record(records).await
    }

    // Nobody but the agent that delegated speaks to a child.

    fn take_steer(&self) -> Option<String> {
        None
    }

    async fn steered(&self) {
        std::future::pending::<()>().await;
    }

    fn return_steer(&self, _: String) {}

    fn close_words(&self) -> Option<String> {
        None
    }

    fn take_redirect(&self) -> Option<String> {
        None
    }

    fn take_compaction(&self) -> Option<String> {
        None
    }

    async fn redirected(&self) {
        std::future::pending::<()>().await;
    }

    fn progress(&self, _: u32, _: u32) {}
}
