//! Compaction of a session that runs no turn: asked for by the user, or due after a turn so that the next
//! one need not wait.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tokio_util::sync::CancellationToken;

use crate::message::Message;
use crate::turn::{CompactionEnd, CompactionOutcome, compact_idle};

use super::command::{Prompt, PromptOutcome};
use super::io::{Desk, Occasion, SessionIo};
use super::task::{Phase, Task, answer};
use super::turn_plan::TurnPlan;

/// A compaction that has been lent the history.
pub(super) struct Compacting {
    pub(super) work: BoxFuture<'static, CompactionDone>,
    pub(super) cancel: CancellationToken,
    /// The prompt `/compact`, when it was one.
    prompt: Option<Prompt>,
}

/// What is left to do once the answer of a turn is on its way.
pub(super) struct AfterTurn {
    /// The wish for a compaction that came too late for the turn.
    pub(super) compaction: Option<String>,
}

/// What its future gives: the history, or the one there was and a problem for a person.
pub(super) struct CompactionDone(Result<CompactionEnd, (Vec<Message>, String)>);

impl Task {
    /// `/compact`: at once when idle, before the next model call when a turn runs.
    pub(super) async fn compact(&mut self, focus: Option<String>, prompt: Prompt) {
        let focus = focus.as_deref();
        let refusal = match &self.phase {
            _ if self.has_runtime() => {
                "The external runtime keeps a context of its own and makes it shorter by itself."
            }
            Phase::Idle(_) => return self.start_compaction(focus, prompt.cancel.clone(), Some(prompt)),
            Phase::Running(running) => {
                running.desk.compact(focus);
                "The conversation is made shorter before the next model call of this turn, or right after it."
            }
            Phase::Compacting(_) => "The conversation is being made shorter already.",
        };
        self.remark(refusal.into()).await;
        answer(prompt.reply, PromptOutcome::Obeyed);
    }

    /// Whether an external runtime has the conversation, so that ours is a copy which no model is sent.
    fn has_runtime(&self) -> bool {
        let session = &self.session;
        session.host.config.runtime_of(&session.chain.current().provider).is_some()
    }

    /// Begins a compaction of the idle session.
    pub(super) fn start_compaction(&mut self, focus: Option<&str>, cancel: CancellationToken, prompt: Option<Prompt>) {
        let Phase::Idle(history) = &mut self.phase else { return };
        let history = std::mem::take(history);
        let id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        let occasion = if prompt.is_some() { Occasion::Prompt } else { Occasion::BetweenTurns };
        let io = SessionIo { occasion, ..self.io(&id, &Arc::new(Desk::default()), &cancel) };
        let mut context = TurnPlan::new(&mut self.session, &id, &[]).into_context(&mut self.session);
        context.hooks.end_with(&cancel);
        if prompt.is_some() {
            context.compactor.gauge.forgive();
        }
        let (focus, token) = (focus.map(str::to_owned), cancel.clone());
        let work = async move {
            let before = history.clone();
            let work = compact_idle(&context, history, &io, &token, focus.as_deref());
            CompactionDone(match AssertUnwindSafe(work).catch_unwind().await {
                Ok(end) => end.map_err(|error| (before, error.to_string())),
                Err(_) => Err((before, "it failed inside turnd; see the log".into())),
            })
        };
        self.phase = Phase::Compacting(Compacting { work: work.boxed(), cancel, prompt });
    }

    /// A compaction ended: the history is back, and whoever asked is told.
    pub(super) async fn compaction_done(&mut self, done: CompactionDone) {
        let CompactionDone(result) = done;
        let (history, text) = match result {
            Ok(end) => {
                self.session.usage.add(&end.usage);
                let spent = self.session.spent_usd.zip(end.cost_usd);
                self.session.spent_usd = spent.map(|(before, cost)| before + cost);
                if let CompactionOutcome::Done { tokens_after, .. } = end.outcome {
                    self.context_tokens = tokens_after;
                }
                (end.history, outcome_text(end.outcome))
            }
            Err((before, problem)) => {
                // What is stored counts: the failure may have come after the commit.
                let history = self.session.reload().await.unwrap_or(before);
                (history, format!("The conversation was not made shorter: {problem}."))
            }
        };
        let prompt = match std::mem::replace(&mut self.phase, Phase::Idle(history)) {
            Phase::Compacting(compacting) => compacting.prompt,
            Phase::Idle(_) | Phase::Running(_) => None,
        };
        if let Some(prompt) = prompt {
            let outcome = if prompt.cancel.is_cancelled() { PromptOutcome::NotStarted } else { PromptOutcome::Obeyed };
            self.remark(text).await;
            answer(prompt.reply, outcome);
        }
    }

    /// Compacts after a turn where the user asked for it too late for the turn, or the context is nearly full.
    /// With a prompt waiting its turn does that, and shows it.
    pub(super) fn compact_between_turns(&mut self) {
        let Some(AfterTurn { compaction: wish }) = self.after_turn.take() else { return };
        if self.is_closing || self.has_runtime() {
            return;
        }
        let Phase::Idle(history) = &self.phase else { return };
        let endpoint = self.session.chain.current();
        let compactor = &self.session.compactor;
        let trigger = compactor.config.trigger_between_turns(endpoint.window(), endpoint.output_limit(None));
        let is_due = compactor.gauge.may_begin() && compactor.gauge.level(history, || 0) >= trigger;
        if wish.is_some() || (is_due && self.waiting.is_empty()) {
            let focus = wish.filter(|focus| !focus.is_empty());
            let cancel = self.mailbox.handle.prompt_token();
            self.start_compaction(focus.as_deref(), cancel, None);
        }
    }
}

fn outcome_text(outcome: CompactionOutcome) -> String {
    match outcome {
        CompactionOutcome::Done { tokens_before, tokens_after } => {
            format!("The conversation is shorter now: about {tokens_after} tokens instead of {tokens_before}.")
        }
        CompactionOutcome::Nothing => "There is nothing to make shorter yet.".into(),
        CompactionOutcome::Cancelled => "The conversation was not made shorter: stopped.".into(),
    }
}
