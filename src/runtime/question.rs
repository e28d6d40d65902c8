//! The runtime's questions: judged by our gate, put to our user, answered in the runtime's words.
//!
//! Floor and deny rules come first, hooks next, then what is plainly allowed, then the user, as for our own
//! tools. One question is open at a time, the others wait in the order they came. A question that outlives what it is
//! about is taken back.

use std::collections::VecDeque;

use futures_util::future::FutureExt;
use serde_json::Value;

use crate::approval::{Gate, HookVerdict, Judgement, Question, Scope, Verdict};
use crate::config::Mode;
use crate::hook::{HookPoint, ToolDecision};
use crate::message::ToolCall;
use crate::turn::payload::{self, CallStatus};
use crate::turn::port::{Answer, Ask, CallState, Record};
use crate::turn::{ExitReason, TurnContext, TurnIo, Unanswered};

use super::connection::Connection;
use super::finish::NOT_RUN;
use super::item::{self, Described, Outcome};
use super::shape::Shape;
use super::turn::{Failure, OpenQuestion, Refusal, RuntimeTurn};

const CHANGED: &str = "what the call is about changed while the question was open";
const UNSANDBOXED: &str = "turnd's own sandbox does not hold what the runtime runs";
const TAKEN_BACK: &str = "The question was taken back before it was answered.";

/// A question of the runtime.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The runtime's id of it.
    request: Value,
    shape: Shape,
    /// Our id of the call it is about.
    call: String,
    /// True when nothing but the answer becomes of the call.
    is_only_asked: bool,
    described: Described,
    /// Why the user is asked whatever the rules say.
    must_ask: Option<String>,
}

/// A question with its answer.
#[derive(Debug)]
pub(super) struct Settled {
    case: Case,
    outcome: Settlement,
}

#[derive(Debug)]
enum Settlement {
    /// Rules or mode let it pass.
    Allowed,
    /// It never runs.
    Blocked(String),
    /// The user was asked.
    Answered { answer: Answer, remembered: Option<String>, is_changed: bool },
}

impl<'a, Io: TurnIo> RuntimeTurn<'a, Io> {
    /// Puts a question behind those that wait.
    pub(super) async fn enqueue(
        &mut self,
        request: Value,
        described: Described,
        shape: Shape,
        params: &Value,
    ) -> Result<(), Failure> {
        let item = item::text(params, "itemId");
        let must_ask = self.must_ask(&shape, params);
        let known = self.call_of(item).and_then(|index| self.calls.get(index)).filter(|_| !item.is_empty());
        // What runs already has begun: being asked once more is something else.
        let fits = known.filter(|call| !call.is_settled && call.record.state == CallState::Pending);
        let fits = fits.filter(|call| call.record.name == described.tool).map(|call| call.record.id.clone());
        let is_only_asked = fits.is_none();
        let call = match fits {
            Some(id) => id,
            // A second question about one item, or one about no item, is a call of its own to the user.
            None => {
                // No transcript has it, so its id must be free without looking there.
                self.own_questions += 1;
                let id = format!("{}.question{}", self.context.turn_id, self.own_questions);
                let record = self.pending(None, described.clone(), &id);
                self.io.record(vec![Record::ToolCall(record.clone())]).await?;
                self.show_pending(&record).await;
                id
            }
        };
        if let Some(open) = self.calls.iter_mut().find(|open| open.record.id == call) {
            open.is_settled = true;
            if !is_only_asked {
                open.record.plan = described.plan.clone();
                open.record.arguments = described.arguments.clone();
            }
        }
        self.waiting.push_back(Case { request, shape, call, is_only_asked, described, must_ask });
        Ok(())
    }

    /// Opens the next question when none is open.
    pub(super) fn next_question(&mut self) {
        if self.open_question.is_some() {
            return;
        }
        let Some(case) = self.waiting.pop_front() else { return };
        let (request, shape, call) = (case.request.clone(), case.shape.clone(), case.call.clone());
        let settled = settle(self.context, self.io, case).boxed();
        self.open_question = Some(OpenQuestion { request, shape, call, settled });
    }

    /// Tells runtime, store and client what became of a question.
    pub(super) async fn settle(&mut self, connection: &mut Connection, settled: Settled) -> Result<(), Failure> {
        self.open_question = None;
        let Settled { case, outcome } = settled;
        let (answer, refusal) = match &outcome {
            Settlement::Allowed => (Answer::AllowOnce, None),
            Settlement::Blocked(reason) => (Answer::RejectOnce, Some(blocked(reason))),
            Settlement::Answered { is_changed: true, answer, .. } if answer.allows() => {
                (Answer::RejectOnce, Some(blocked(CHANGED)))
            }
            Settlement::Answered { answer, .. } => (*answer, refusal(*answer)),
        };
        if let Settlement::Answered { answer, remembered, .. } = outcome {
            let record = Record::Approval { tool_call_id: case.call.clone(), answer, remembered };
            self.io.record(vec![record]).await?;
        }
        connection.answer(&case.request, case.shape.answer(answer));
        let is_refused = refusal.is_some();
        let index = self.calls.iter().position(|call| call.record.id == case.call);
        if let Some(call) = index.and_then(|index| self.calls.get_mut(index)) {
            call.refusal.clone_from(&refusal);
        }
        if !is_refused {
            self.started(&case.call).await;
        }
        if let Some(index) = index.filter(|_| case.is_only_asked) {
            let allowed = || Refusal { status: CallStatus::Done, text: "Allowed.".into() };
            let Refusal { status, text } = refusal.unwrap_or_else(allowed);
            self.close(index, Outcome { status, text, raw: None }).await?;
        }
        match (answer, self.context.unanswered) {
            (Answer::Cancelled, _) => self.interrupt(connection, ExitReason::InterruptedByUser),
            (Answer::TimedOut, Unanswered::Halt) => self.interrupt(connection, ExitReason::ApprovalTimedOut),
            _ => {}
        }
        Ok(())
    }

    /// Takes the questions of some calls back; gives their ids in the runtime, and how to answer them.
    fn take_questions(&mut self, is_meant: impl Fn(&Asked<'_>) -> bool) -> Vec<(Value, Shape, String)> {
        let mut taken = Vec::new();
        let is_open_meant = self.open_question.as_ref().is_some_and(|open| is_meant(&(&open.request, &open.call)));
        if let Some(open) = self.open_question.take_if(|_| is_open_meant) {
            taken.push((open.request, open.shape, open.call));
        }
        let (meant, kept): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(|case| is_meant(&(&case.request, &case.call)));
        self.waiting = kept;
        taken.extend(meant.into_iter().map(|case| (case.request, case.shape, case.call)));
        taken
    }

    /// The turn ends: open questions are taken back, and what they are about does not run.
    pub(super) fn withdraw_questions(&mut self, connection: &mut Connection) {
        for (request, shape, call) in self.take_questions(|_| true) {
            connection.answer(&request, shape.answer(Answer::Cancelled));
            if let Some(open) = self.calls.iter_mut().find(|open| open.record.id == call) {
                open.refusal = Some(Refusal { status: CallStatus::Cancelled, text: NOT_RUN.into() });
            }
        }
    }

    /// A call has ended: whether it may run is no question any more.
    pub(super) fn withdraw_question_about(&mut self, connection: &mut Connection, index: usize) {
        let Some(ended) = self.calls.get(index).map(|call| call.record.id.clone()) else { return };
        for (request, shape, _) in self.take_questions(|(_, call)| **call == ended) {
            connection.answer(&request, shape.answer(Answer::RejectOnce));
        }
    }

    /// Whether the user is being asked about a call, or will be.
    pub(super) fn is_in_question(&self, call: &str) -> bool {
        self.open_question.as_ref().is_some_and(|open| open.call == call)
            || self.waiting.iter().any(|case| case.call == call)
    }

    /// The runtime has answered its own question, for example because its turn was ended.
    pub(super) async fn resolved_elsewhere(&mut self, resolved: &Value) -> Result<(), Failure> {
        for (_, _, call) in self.take_questions(|(request, _)| *request == resolved) {
            let own = self.calls.iter().position(|open| open.record.id == call && open.item.is_none());
            if let Some(index) = own {
                let outcome = Outcome { status: CallStatus::Cancelled, text: TAKEN_BACK.into(), raw: None };
                self.close(index, outcome).await?;
            }
        }
        Ok(())
    }
}

/// A question by the runtime's id of it, and our id of the call it is about.
type Asked<'a> = (&'a Value, &'a String);

/// Judges a question and puts it to the user where that is the verdict.
async fn settle<Io: TurnIo>(context: &TurnContext, io: &Io, case: Case) -> Settled {
    let Described { tool, arguments, plan } = &case.described;
    let call = ToolCall { id: case.call.clone(), name: tool.clone(), arguments: arguments.to_string(), extra: None };
    let hooks = &context.hooks;
    let verdict = match hooks.decide_tool(|| payload::tool_call(&call, arguments, None)).await {
        ToolDecision::Pass => case.must_ask.clone().map_or(HookVerdict::None, HookVerdict::Ask),
        ToolDecision::Ask { reason, changes } if changes.is_empty() => HookVerdict::Ask(reason),
        ToolDecision::Block(reason) => HookVerdict::Block(reason),
        ToolDecision::Modify(_) | ToolDecision::Ask { .. } => {
            HookVerdict::Block("a hook changes it, which the runtime does not allow".into())
        }
    };
    let (judged_as, judgement) = judge(&context.gate, &case.described, &verdict);
    let question = match &judgement.verdict {
        Verdict::Allow { .. } => return Settled { case, outcome: Settlement::Allowed },
        Verdict::Block { reason } => {
            let outcome = Settlement::Blocked(reason.clone());
            return Settled { case, outcome };
        }
        Verdict::Ask(question) => question,
    };
    hooks.observe(HookPoint::PreApprovalRequest, || payload::approval(&call, question, None)).await;
    let answer = io.ask(Ask { tool_call_id: &call.id, tool, plan, arguments, question }).await;
    hooks.observe(HookPoint::PostApprovalResponse, || payload::approval(&call, question, Some(answer))).await;
    let remembered = remember(&context.gate, answer, question);
    let is_changed = context.gate.digest(judged_as, arguments, plan) != judgement.digest;
    Settled { case, outcome: Settlement::Answered { answer, remembered, is_changed } }
}

/// The strictest verdict under every name by which rules may mean the call.
fn judge<'a>(gate: &Gate, described: &'a Described, hook: &HookVerdict) -> (&'a str, Judgement) {
    let Described { tool, arguments, plan } = described;
    let judge = |name: &'a str| {
        let judgement = gate.judge(name, arguments, plan, hook);
        // Our sandbox is not around what the runtime runs, so it is no reason to let it pass. Only the mode auto
        // makes it one; elsewhere what passes behind it only reads.
        let is_contained = gate.mode() == Mode::Auto && judgement.sandbox.is_some();
        if is_contained && matches!(judgement.verdict, Verdict::Allow { .. }) {
            return (name, gate.judge(name, arguments, plan, &HookVerdict::Ask(UNSANDBOXED.into())));
        }
        (name, judgement)
    };
    let first = judge(tool.as_str());
    if tool != "patch" {
        return first;
    }
    let second = judge("write_file");
    if strictness(&second.1) > strictness(&first.1) { second } else { first }
}

fn strictness(judgement: &Judgement) -> u8 {
    match judgement.verdict {
        Verdict::Allow { .. } => 0,
        Verdict::Ask(_) => 1,
        Verdict::Block { .. } => 2,
    }
}

fn remember(gate: &Gate, answer: Answer, question: &Question) -> Option<String> {
    let offer = question.remember.as_ref()?;
    let result = match answer {
        Answer::AllowSession => gate.grant(offer, Scope::Session),
        Answer::AllowAlways => gate.grant(offer, Scope::Always),
        Answer::RejectAlways => gate.refuse(offer),
        _ => return None,
    };
    if let Err(error) = result {
        tracing::warn!(%error, "an approval could not be remembered");
        return None;
    }
    Some(offer.covers().to_owned())
}

fn blocked(reason: &str) -> Refusal {
    Refusal { status: CallStatus::Blocked, text: format!("Blocked: {reason}") }
}

fn refusal(answer: Answer) -> Option<Refusal> {
    let (status, text) = match answer {
        Answer::AllowOnce | Answer::AllowSession | Answer::AllowAlways => return None,
        Answer::TimedOut => (CallStatus::Refused, "Not approved (timed_out)"),
        Answer::RejectOnce | Answer::RejectAlways | Answer::NotAsked => (CallStatus::Refused, "Not approved (denied)"),
        Answer::Cancelled => (CallStatus::Cancelled, "Not run: the turn was cancelled."),
    };
    Some(Refusal { status, text: text.to_owned() })
}
