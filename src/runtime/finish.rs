//! The end of a turn inside the runtime: open calls, the report, the last commit, the last hooks.

use crate::hook::HookPoint;
use crate::message::FinishReason;
use crate::turn::event::TurnEvent;
use crate::turn::payload::{self, CallStatus};
use crate::turn::port::{CallState, Record, RecordError};
use crate::turn::{ExitReason, TurnEnd, TurnIo, TurnReport, TurnStatus};

use super::item::Outcome;
use super::turn::{Failure, RuntimeTurn};

pub(super) const NOT_RUN: &str = "Not run: the turn ended before this call started.";
const CUT_OFF: &str = "Interrupted; whether the call had an effect is unknown.";
const RUNS_ON: &str = "It still ran in the background when the turn ended.";

impl<Io: TurnIo> RuntimeTurn<'_, Io> {
    /// The one way out of a turn inside the runtime.
    pub(super) async fn finish(mut self, exit: ExitReason) -> TurnEnd {
        self.open_question = None;
        self.return_steers();
        let unread = self.io.close_words();
        let exit = match self.close_calls(exit).await {
            Ok(()) => exit,
            Err(detail) => {
                self.detail = Some(detail);
                ExitReason::SessionPersistenceFailed
            }
        };
        if let Some(explanation) = exit.explanation() {
            let text = format!("\n\n{explanation}");
            self.io.emit(TurnEvent::Text { message_id: self.message_id(), text }).await;
        }
        let report = self.report(exit, unread);
        let report = match self.io.record(vec![Record::End(report.clone())]).await {
            Ok(()) => report,
            Err(RecordError(detail)) => {
                TurnReport { exit: ExitReason::SessionPersistenceFailed, detail: Some(detail), ..report }
            }
        };
        self.tell_hooks(&report).await;
        tracing::info!(turn = report.turn_id, exit = %report.exit, steps = report.steps, "turn of the runtime ended");
        TurnEnd { history: self.history, report }
    }

    /// Ends what is open, and tells of calls that no counted step has told of.
    async fn close_calls(&mut self, exit: ExitReason) -> Result<(), String> {
        let is_completed = exit.status() == TurnStatus::Completed;
        while let Some(call) = self.calls.first_mut() {
            let (status, text) = match (call.refusal.take(), call.record.state) {
                (Some(refusal), _) => (refusal.status, refusal.text),
                (None, _) if is_completed => (CallStatus::Done, RUNS_ON.to_owned()),
                (None, CallState::Pending) => (CallStatus::Cancelled, NOT_RUN.to_owned()),
                (None, _) => (CallStatus::CutOff, CUT_OFF.to_owned()),
            };
            match self.close(0, Outcome { status, text, raw: None }).await {
                Ok(()) => {}
                Err(Failure::Record(RecordError(detail))) => return Err(detail),
                Err(Failure::Runtime(error)) => return Err(error.to_string()),
            }
        }
        let tools = std::mem::take(&mut self.step_tools);
        if !tools.is_empty() {
            self.steps = self.steps.max(1);
            self.io.emit(TurnEvent::Step { step: self.steps, tools }).await;
        }
        Ok(())
    }

    fn report(&mut self, exit: ExitReason, pending_steer: Option<String>) -> TurnReport {
        TurnReport {
            turn_id: self.context.turn_id.to_string(),
            exit,
            steps: self.steps,
            api_calls: self.steps,
            usage: self.usage,
            cost_usd: None,
            finish: FinishReason::Stop,
            answer: self.answer.take().map(|answer| answer.text),
            error: self.error.take(),
            detail: self.detail.take(),
            pending_steer,
        }
    }

    async fn tell_hooks(&mut self, report: &TurnReport) {
        let hooks = &self.context.hooks;
        if let Some(text) = report.answer.as_deref().filter(|_| report.status() == TurnStatus::Completed) {
            let request = self.request_text();
            hooks.observe(HookPoint::PostLlmCall, || payload::answer(&request, text, &self.history)).await;
        }
        if report.status() == TurnStatus::Interrupted {
            hooks.observe(HookPoint::AgentLoopStopped, || payload::stopped(report)).await;
        }
        hooks.observe(HookPoint::OnSessionEnd, || payload::ended(report)).await;
    }
}
