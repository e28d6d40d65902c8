//! Words for a running turn: where they go, and what is answered.

use tokio::sync::oneshot;
use turnd_protocol::ext::{SteeringOutcome, SteeringResult};

use crate::message::plain_text;
use crate::store::Write;

use super::command::{Prompt, Steer};
use super::io::{Desk, Hearing};
use super::task::{Phase, Running, Task};

impl Task {
    pub(super) fn steer(&mut self, steer: &Steer) -> SteeringResult {
        let text = plain_text(&steer.parts);
        if let Some(result) = self.tell_running(steer, |desk| desk.steer(&text)) {
            return result;
        }
        if steer.wants_prompt_when_idle || steer.expected_turn_id.is_some() {
            return prompt_required();
        }
        if text.trim().is_empty() {
            return failed("emptyPrompt");
        }
        if !self.has_room() {
            return failed("overloaded");
        }
        let (reply, _) = oneshot::channel();
        let cancel = self.mailbox.handle.prompt_token();
        self.enqueue(Prompt { parts: steer.parts.clone(), cancel, reply });
        outcome(SteeringOutcome::StartedNewTurn)
    }

    pub(super) fn redirect(&self, steer: &Steer) -> SteeringResult {
        let text = plain_text(&steer.parts);
        self.tell_running(steer, |desk| desk.redirect(&text)).unwrap_or_else(prompt_required)
    }

    /// What is answered once words that were taken are on disk.
    pub(super) async fn kept(&mut self, steer: &Steer, result: SteeringResult) -> SteeringResult {
        if result.outcome == SteeringOutcome::Injected && !self.keep_words(&plain_text(&steer.parts)).await {
            return failed("notStored");
        }
        result
    }

    /// Stores words for the running turn; false when that failed.
    pub(super) async fn keep_words(&mut self, text: &str) -> bool {
        let (session_id, text) = (self.session.id.to_string(), text.trim().to_owned());
        let stored = self.session.store(vec![Write::KeepWords { session_id, text }]).await;
        stored.inspect_err(|error| tracing::warn!(%error, "words for a turn could not be stored")).is_ok()
    }

    /// Tells the running turn; `None` when none runs that could still listen.
    fn tell_running(&self, steer: &Steer, tell: impl FnOnce(&Desk) -> Hearing) -> Option<SteeringResult> {
        let Phase::Running(running) = &self.phase else { return None };
        if let Some(reason) = refusal(running, steer) {
            return Some(failed(reason));
        }
        match tell(&running.desk) {
            Hearing::Taken => Some(outcome(SteeringOutcome::Injected)),
            Hearing::Blank => Some(failed("emptyPrompt")),
            Hearing::TooLate => None,
        }
    }
}

fn prompt_required() -> SteeringResult {
    SteeringResult { outcome: SteeringOutcome::PromptRequired, reason: Some("noRunningTurn".into()) }
}

fn outcome(outcome: SteeringOutcome) -> SteeringResult {
    SteeringResult { outcome, reason: None }
}

fn failed(reason: &str) -> SteeringResult {
    SteeringResult { outcome: SteeringOutcome::Failed, reason: Some(reason.into()) }
}

/// Why a running turn does not take these words.
fn refusal(running: &Running, steer: &Steer) -> Option<&'static str> {
    let is_other = steer.expected_turn_id.as_deref().is_some_and(|expected| expected != &*running.turn_id);
    if is_other {
        Some("otherTurnRunning")
    } else if running.cancel.is_cancelled() {
        Some("turnIsEnding")
    } else {
        None
    }
}
