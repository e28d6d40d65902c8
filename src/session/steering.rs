//! Words for a running turn: where they go, and what is answered.

use tokio::sync::oneshot;
use turnd_protocol::ext::{SteeringOutcome, SteeringResult};

use crate::message::plain_text;

use super::command::{Prompt, Steer};
use super::task::{Phase, Running, Task};

impl Task {
    pub(super) fn steer(&mut self, steer: &Steer) -> SteeringResult {
        let text = plain_text(&steer.parts);
        match &self.phase {
            Phase::Running(running) => match refusal(running, steer) {
                Some(reason) => failed(reason),
                None if running.desk.steer(&text) => outcome(SteeringOutcome::Injected),
                None => failed("emptyPrompt"),
            },
            Phase::Idle(_) | Phase::Compacting(_)
                if steer.wants_prompt_when_idle || steer.expected_turn_id.is_some() =>
            {
                SteeringResult { outcome: SteeringOutcome::PromptRequired, reason: Some("noRunningTurn".into()) }
            }
            Phase::Idle(_) | Phase::Compacting(_) if text.trim().is_empty() => failed("emptyPrompt"),
            Phase::Idle(_) | Phase::Compacting(_) => {
                let (reply, _) = oneshot::channel();
                let cancel = self.mailbox.handle.prompt_token();
                self.enqueue(Prompt { parts: steer.parts.clone(), cancel, reply });
                outcome(SteeringOutcome::StartedNewTurn)
            }
        }
    }

    pub(super) fn redirect(&self, steer: &Steer) -> SteeringResult {
        match &self.phase {
            Phase::Running(running) => match refusal(running, steer) {
                Some(reason) => failed(reason),
                None if running.desk.redirect(&plain_text(&steer.parts)) => outcome(SteeringOutcome::Injected),
                None => failed("emptyPrompt"),
            },
            Phase::Idle(_) | Phase::Compacting(_) => {
                SteeringResult { outcome: SteeringOutcome::PromptRequired, reason: Some("noRunningTurn".into()) }
            }
        }
    }
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
