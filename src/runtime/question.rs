//! The runtime's questions: judged by our gate, put to our user, answered in the runtime's words.
//!
//! Floor and deny rules come first, hooks next, then what is plainly allowed, then the user, as for our own
//! tools. One question is open at a time, the others wait in the order they came.

use futures_util::future::FutureExt;
use serde_json::Value;

use crate::approval::{Gate, HookVerdict, Judgement, Question, Scope, Verdict};
use crate::config::Mode;
use crate::hook::{HookPoint, ToolDecision};
use crate::message::ToolCall;
use crate::turn::payload::{self, CallStatus};
use crate::turn::port::{Answer, Ask, Record};
use crate::turn::{ExitReason, TurnContext, TurnIo};

use super::connection::Connection;
use super::item::{self, Described, Outcome};
use super::shape::{self, Shape};
use super::turn::{Failure, OpenQuestion, RuntimeTurn};

const CHANGED: &str = "what the call is about changed while the question was open";
const UNSANDBOXED: &str = "turnd's own sandbox does not hold what the runtime runs";
const LEAVES_SANDBOX: &str = "it is to run outside the runtime's sandbox";

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
    /// Takes a request of the runtime.
    pub(super) async fn asked(
        &mut self,
        connection: &mut Connection,
        id: Value,
        method: &str,
        params: Value,
    ) -> Result<(), Failure> {
        let cwd = &self.context.tool_context.cwd;
        let case = match method {
            "item/commandExecution/requestApproval" => {
                let described = match params.get("networkApprovalContext").filter(|network| network.is_object()) {
                    Some(network) => shape::host(network),
                    None => item::command(item::text(&params, "command"), item::text(&params, "cwd"), cwd),
                };
                let offered = params.get("availableDecisions").and_then(Value::as_array);
                let has_session = offered.is_none_or(|offered| offered.iter().any(|one| one == "acceptForSession"));
                Some((described, Shape::Decision { has_session }))
            }
            "item/fileChange/requestApproval" => {
                let call = self.calls.iter().find(|call| call.item == item::text(&params, "itemId"));
                let record = call.map(|call| &call.record);
                record.map(|record| {
                    let described = Described {
                        tool: record.name.clone(),
                        arguments: record.arguments.clone(),
                        plan: record.plan.clone(),
                    };
                    (described, Shape::Decision { has_session: true })
                })
            }
            "item/permissions/requestApproval" => Some((
                shape::permissions(&params),
                Shape::Permissions(params.get("permissions").cloned().unwrap_or_default()),
            )),
            "mcpServer/elicitation/request" if shape::is_consent(&params) => {
                Some((shape::consent(&params), Shape::Form))
            }
            _ => None,
        };
        match case {
            Some((_, shape)) if self.stop.is_some() => {
                connection.answer(&id, shape.answer(Answer::Cancelled));
                Ok(())
            }
            Some((described, shape)) => self.enqueue(id, described, shape, &params).await,
            None => {
                tracing::info!(method, "a question of the runtime is declined");
                match shape::refusal(method) {
                    Some(refusal) => connection.answer(&id, refusal),
                    None => connection.refuse(&id, method),
                }
                Ok(())
            }
        }
    }

    async fn enqueue(
        &mut self,
        request: Value,
        described: Described,
        shape: Shape,
        params: &Value,
    ) -> Result<(), Failure> {
        let item = item::text(params, "itemId");
        let must_ask = self.must_ask(&shape, item::text(params, "reason"));
        let known = self.calls.iter().find(|call| call.item == item && !call.is_settled && !item.is_empty());
        let fits = known.filter(|call| call.record.name == described.tool).map(|call| call.record.id.clone());
        let is_only_asked = fits.is_none();
        let call = match fits {
            Some(id) => id,
            // A second question about one item, or one about no item, is a call of its own to the user.
            None => {
                let id = self.unique_id(item);
                let record = self.pending("", described.clone(), &id);
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

    fn must_ask(&self, shape: &Shape, reason: &str) -> Option<String> {
        if self.context.gate.mode() == Mode::FullAccess {
            return None;
        }
        match shape {
            Shape::Permissions(_) => Some(with_reason("it grants more than one call", reason)),
            Shape::Decision { .. } if self.stance.asks_only_to_leave() || !reason.is_empty() => {
                Some(with_reason(LEAVES_SANDBOX, reason))
            }
            _ => None,
        }
    }

    /// Opens the next question when none is open.
    pub(super) fn next_question(&mut self) {
        if self.open_question.is_some() {
            return;
        }
        let Some(case) = self.waiting.pop_front() else { return };
        let (request, shape) = (case.request.clone(), case.shape.clone());
        let settled = settle(self.context, self.io, case).boxed();
        self.open_question = Some(OpenQuestion { request, shape, settled });
    }

    /// Tells runtime, store and client what became of a question.
    pub(super) async fn settle(&mut self, connection: &mut Connection, settled: Settled) -> Result<(), Failure> {
        self.open_question = None;
        let Settled { case, outcome } = settled;
        let (answer, refusal) = match &outcome {
            Settlement::Allowed => (Answer::AllowOnce, None),
            Settlement::Blocked(reason) => (Answer::RejectOnce, Some(format!("Blocked: {reason}"))),
            Settlement::Answered { is_changed: true, answer, .. } if answer.allows() => {
                (Answer::RejectOnce, Some(format!("Blocked: {CHANGED}")))
            }
            Settlement::Answered { answer, .. } => (*answer, refusal_text(*answer)),
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
            let status = if is_refused { CallStatus::Refused } else { CallStatus::Done };
            let text = refusal.unwrap_or_else(|| "Allowed.".into());
            self.close(index, Outcome { status, text, raw: None }).await?;
        }
        if answer == Answer::Cancelled {
            self.interrupt(connection, ExitReason::InterruptedByUser);
        }
        Ok(())
    }

    /// The turn ends: open questions are taken back.
    pub(super) fn withdraw_questions(&mut self, connection: &mut Connection) {
        let open = self.open_question.take().map(|question| (question.request, question.shape));
        let waiting = self.waiting.drain(..).map(|case| (case.request, case.shape));
        for (request, shape) in open.into_iter().chain(waiting) {
            connection.answer(&request, shape.answer(Answer::Cancelled));
        }
    }

    /// The runtime has answered its own question, for example because its turn was ended.
    pub(super) fn resolved_elsewhere(&mut self, request: &Value) {
        self.waiting.retain(|case| case.request != *request);
        if self.open_question.as_ref().is_some_and(|question| question.request == *request) {
            self.open_question = None;
        }
    }
}

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

fn refusal_text(answer: Answer) -> Option<String> {
    let text = match answer {
        Answer::AllowOnce | Answer::AllowSession | Answer::AllowAlways => return None,
        Answer::TimedOut => "Not approved (timed_out)",
        Answer::RejectOnce | Answer::RejectAlways | Answer::NotAsked => "Not approved (denied)",
        Answer::Cancelled => "Not run: the turn was cancelled.",
    };
    Some(text.to_owned())
}

fn with_reason(why: &str, reason: &str) -> String {
    if reason.is_empty() { why.to_owned() } else { format!("{why}; the agent says: {reason}") }
}
