//! Whether a prepared call may run.

use serde_json::Value;

use crate::approval::{HookVerdict, Question, Scope as GrantScope, Verdict};
use crate::hook::{HookPoint, ToolDecision};
use crate::tool::{CallPlan, ToolFailure};

use super::batch::{BatchRun, NOT_RUN_CANCELLED, Slot, SlotState, prepare_tool};
use super::context::Unanswered;
use super::exit::ExitReason;
use super::payload::{self, CallStatus};
use super::port::{Answer, Ask, Record, RecordError, TurnIo};

const CHANGED: &str = "what the call is about changed while the question was open; call again to be asked anew";

/// Why a call does not run.
#[derive(Debug)]
pub(super) struct Refusal {
    /// For the model.
    pub(super) text: String,
    pub(super) status: CallStatus,
}

impl Refusal {
    fn cancelled() -> Self {
        Self { text: NOT_RUN_CANCELLED.into(), status: CallStatus::Cancelled }
    }

    fn blocked(reason: &str) -> Self {
        Self { text: format!("Blocked: {reason}"), status: CallStatus::Blocked }
    }

    fn of(answer: Answer) -> Option<Self> {
        let text = match answer {
            Answer::AllowOnce | Answer::AllowSession | Answer::AllowAlways => return None,
            Answer::Cancelled => return Some(Self::cancelled()),
            Answer::TimedOut => "Not approved (timed_out): nobody answered in time, so the call was not run.",
            Answer::NotAsked => {
                "Not approved (denied): the call needs the user's word, and nobody can be asked here. Go on without it and say so."
            }
            Answer::RejectOnce | Answer::RejectAlways => {
                "Not approved (denied): the user refused this call. Do not retry it or work around it."
            }
        };
        Some(Self { text: text.into(), status: CallStatus::Refused })
    }
}

impl<Io: TurnIo> BatchRun<'_, Io> {
    /// Whether a call may run: guardrail, hooks, gate and user in this order. Gives the reason if not.
    pub(super) async fn admit(&mut self, slot: &mut Slot) -> Result<Option<Refusal>, RecordError> {
        if self.cancel.is_cancelled() {
            return Ok(Some(Refusal::cancelled()));
        }
        if let SlotState::Unusable(failure) = &slot.state {
            return self.tell_why(slot, failure).await.map(Some);
        }
        let circle = self.scope.guardrails().block(&slot.call.name, &slot.call.arguments);
        if let Some(reason) = circle {
            return Ok(Some(Refusal::blocked(&reason)));
        }
        let hook_verdict = self.ask_hooks(slot).await?;
        if self.cancel.is_cancelled() {
            return Ok(Some(Refusal::cancelled()));
        }
        let prepared = match &slot.state {
            SlotState::Unusable(failure) => return self.tell_why(slot, failure).await.map(Some),
            SlotState::Ready(prepared) => prepared,
        };
        let gate = &self.scope.context.gate;
        let judgement = gate.judge(&slot.call.name, &slot.arguments, &prepared.plan, &hook_verdict);
        match judgement.verdict {
            Verdict::Allow { .. } => {
                slot.sandbox = judgement.sandbox;
                slot.git = judgement.git;
                Ok(None)
            }
            Verdict::Block { reason } => Ok(Some(Refusal::blocked(&reason))),
            Verdict::Ask(question) => {
                let refusal = self.ask(slot, &question).await?;
                // What was approved must be what runs: no link swapped, no policy tightened meanwhile.
                let is_same = || gate.digest(&slot.call.name, &slot.arguments, &slot.plan()) == judgement.digest;
                Ok(refusal.or_else(|| (!is_same()).then(|| Refusal::blocked(CHANGED))))
            }
        }
    }

    /// What is said about a call that cannot work. It may tell what is in a file, or that there is one, which
    /// takes the same consent as reading it.
    async fn tell_why(&mut self, slot: &Slot, failure: &ToolFailure) -> Result<Refusal, RecordError> {
        let told = Refusal { text: failure.text.clone(), status: CallStatus::Failed };
        let Some(plan) = &failure.plan else { return Ok(told) };
        let gate = &self.scope.context.gate;
        let judge = |plan: &CallPlan| gate.judge(&slot.call.name, &slot.arguments, plan, &HookVerdict::None).verdict;
        if let Verdict::Block { reason } = judge(plan) {
            return Ok(Refusal::blocked(&reason));
        }
        match judge(&plan.as_read()) {
            Verdict::Allow { .. } => Ok(told),
            Verdict::Block { reason } => Ok(Refusal::blocked(&reason)),
            Verdict::Ask(question) => {
                // A rule that came of this answer would be one for edits.
                let question = Question { remember: None, ..question };
                Ok(self.ask(slot, &question).await?.unwrap_or(told))
            }
        }
    }

    /// Lets the hooks decide while the other calls go on. Arguments that they change are prepared anew, and judged
    /// like any others.
    async fn ask_hooks(&mut self, slot: &mut Slot) -> Result<HookVerdict, RecordError> {
        let hooks = &self.scope.context.hooks;
        if !hooks.has(HookPoint::PreToolCall) {
            return Ok(HookVerdict::None);
        }
        let request = self.scope.request_id();
        let decision = hooks.decide_tool(|| payload::tool_call(&slot.call, &slot.arguments, Some(&request)));
        let (reason, changes) = match self.drive(decision).await? {
            ToolDecision::Block(reason) => return Ok(HookVerdict::Block(reason)),
            decision => decision.into_parts(),
        };
        if let (false, Value::Object(arguments)) = (changes.is_empty(), &mut slot.arguments) {
            arguments.extend(changes);
            if let Some(tool) = self.scope.context.tools.get(&slot.call.name) {
                slot.state = prepare_tool(self.scope, tool.as_ref(), arguments).await;
            }
        }
        Ok(reason.map_or(HookVerdict::None, HookVerdict::Ask))
    }

    /// Asks while the other calls go on. Gives the reason when the call may not run.
    async fn ask(&mut self, slot: &Slot, question: &Question) -> Result<Option<Refusal>, RecordError> {
        let plan = slot.plan();
        let ask = Ask {
            tool_call_id: &slot.call.id,
            tool: &slot.call.name,
            plan: &plan,
            arguments: &slot.arguments,
            question,
        };
        let scope = self.scope;
        let hooks = &scope.context.hooks;
        let watch = |point, answer| hooks.observe(point, move || payload::approval(&slot.call, question, answer));
        self.drive(watch(HookPoint::PreApprovalRequest, None)).await?;
        let answer = self.drive(scope.io.ask(ask)).await?;
        self.drive(watch(HookPoint::PostApprovalResponse, Some(answer))).await?;
        let remembered = self.remember(answer, question);
        let record = Record::Approval { tool_call_id: slot.call.id.clone(), answer, remembered };
        scope.io.record(vec![record]).await?;
        self.stop = match (answer, scope.context.unanswered) {
            (Answer::Cancelled, _) => Some(ExitReason::InterruptedByUser),
            (Answer::TimedOut, Unanswered::Halt) => Some(ExitReason::ApprovalTimedOut),
            _ => self.stop,
        };
        if self.stop.is_some() {
            self.cancel.cancel();
        }
        Ok(Refusal::of(answer))
    }

    fn remember(&self, answer: Answer, question: &Question) -> Option<String> {
        let offer = question.remember.as_ref()?;
        let gate = &self.scope.context.gate;
        let result = match answer {
            Answer::AllowSession => gate.grant(offer, GrantScope::Session),
            Answer::AllowAlways => gate.grant(offer, GrantScope::Always),
            Answer::RejectAlways => gate.refuse(offer),
            _ => return None,
        };
        match result {
            Ok(()) => Some(offer.covers().to_owned()),
            Err(error) => {
                tracing::warn!(%error, "an approval could not be remembered");
                None
            }
        }
    }
}
