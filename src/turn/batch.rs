//! One batch of tool calls: prepared in call order, judged and asked in call order, run side by side.
//!
//! Results come back in call order whatever the order of completion. Calls wait for earlier ones of
//! the batch only where one of the two writes what the other touches, or where one talks to the user.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::approval::{HookVerdict, Question, Scope as GrantScope, Verdict};
use crate::hook::{HookPoint, ToolDecision};
use crate::message::{Message, Part, ToolCall, ToolResult};
use crate::tool::{Access, CallPlan, Display, Prepared, Progress, RunContext, Tool, ToolOutput};

use super::context::Scope;
use super::event::TurnEvent;
use super::guardrail::Ended;
use super::payload::{self, CallStatus};
use super::port::{Answer, Ask, CallState, Record, RecordError, ToolCallRecord, TurnIo};
use super::steer;

/// How long a call may take to end once its turn is cancelled, before it is abandoned.
const CANCEL_GRACE: Duration = Duration::from_millis(80);

/// The calls of one answer, prepared and not yet run.
#[derive(Debug)]
pub(super) struct Batch {
    slots: Vec<Slot>,
}

/// How a batch ended.
#[derive(Debug)]
pub(super) struct BatchEnd {
    /// One result per call, in call order.
    pub(super) results: Vec<ToolResult>,
    /// The files its calls changed or were to change, in call order.
    pub(super) edits: Vec<Edit>,
    /// The user called the turn off at a question.
    pub(super) is_cancelled: bool,
}

#[derive(Debug)]
struct Slot {
    call: ToolCall,
    arguments: Value,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    /// Ready to be judged.
    Ready(Prepared),
    /// Cannot run; the text says why.
    Unusable(String),
}

impl Slot {
    fn plan(&self) -> CallPlan {
        match &self.state {
            SlotState::Ready(prepared) => prepared.plan.clone(),
            SlotState::Unusable(_) if self.call.name.trim().is_empty() => {
                CallPlan { title: "(a tool without a name)".into(), ..CallPlan::default() }
            }
            SlotState::Unusable(_) => CallPlan { title: self.call.name.clone(), ..CallPlan::default() },
        }
    }

    fn record(&self) -> ToolCallRecord {
        ToolCallRecord {
            id: self.call.id.clone(),
            name: self.call.name.clone(),
            state: CallState::Pending,
            plan: self.plan(),
            arguments: self.arguments.clone(),
            display: Vec::new(),
            raw: None,
        }
    }
}

impl Batch {
    /// Looks every call up, checks its arguments and binds what it would do.
    pub(super) async fn prepare<Io: TurnIo>(scope: &Scope<'_, Io>, calls: &[ToolCall]) -> Self {
        let mut slots = Vec::with_capacity(calls.len());
        for call in calls {
            slots.push(prepare(scope, call.clone()).await);
        }
        Self { slots }
    }

    /// What to store beside the assistant message.
    pub(super) fn records(&self) -> Vec<Record> {
        self.slots.iter().map(|slot| Record::ToolCall(slot.record())).collect()
    }

    /// True when no call names a tool that exists.
    pub(super) fn is_all_unknown<Io: TurnIo>(&self, scope: &Scope<'_, Io>) -> bool {
        self.slots.iter().all(|slot| scope.context.tools.get(&slot.call.name).is_none())
    }

    /// Runs the batch to its end.
    ///
    /// # Errors
    /// When a result could not be stored.
    pub(super) async fn run<Io: TurnIo>(self, scope: &Scope<'_, Io>) -> Result<BatchEnd, RecordError> {
        for slot in &self.slots {
            let record = slot.record();
            let event = TurnEvent::ToolCallPending {
                id: record.id,
                name: record.name,
                arguments: record.arguments,
                plan: record.plan,
            };
            scope.io.emit(event).await;
        }
        let is_interactive = self.slots.iter().any(|slot| is_interactive(scope, &slot.call));
        let mut run = BatchRun {
            scope,
            cancel: scope.cancel.child_token(),
            running: FuturesUnordered::new(),
            active: Vec::new(),
            results: self.slots.iter().map(|_| None).collect(),
            is_one_at_a_time: is_interactive,
            is_cancelled: false,
        };
        for (index, slot) in self.slots.into_iter().enumerate() {
            run.start(index, slot).await?;
        }
        while !run.running.is_empty() {
            run.wait_for_one().await?;
        }
        let (results, edits) = run.results.into_iter().flatten().map(|closed| (closed.result, closed.edits)).unzip();
        let edits: Vec<Vec<Edit>> = edits;
        Ok(BatchEnd { results, edits: edits.concat(), is_cancelled: run.is_cancelled })
    }
}

fn is_interactive<Io: TurnIo>(scope: &Scope<'_, Io>, call: &ToolCall) -> bool {
    scope.context.tools.get(&call.name).is_some_and(|tool| tool.is_interactive())
}

async fn prepare<Io: TurnIo>(scope: &Scope<'_, Io>, call: ToolCall) -> Slot {
    let tools = &scope.context.tools;
    let (arguments, parsed) = parse_arguments(&call.arguments);
    let state = match (tools.get(&call.name), parsed) {
        (None, _) if call.name.trim().is_empty() => {
            SlotState::Unusable("The tool call has no name, so nothing was run.".into())
        }
        (None, _) => SlotState::Unusable(tools.unknown(&call.name)),
        (Some(_), Err(problem)) => SlotState::Unusable(problem),
        (Some(tool), Ok(map)) => prepare_tool(scope, tool.as_ref(), &map).await,
    };
    Slot { call, arguments, state }
}

async fn prepare_tool<Io: TurnIo>(scope: &Scope<'_, Io>, tool: &dyn Tool, arguments: &Map<String, Value>) -> SlotState {
    let prepared = AssertUnwindSafe(tool.prepare(arguments, &scope.context.tool_context)).catch_unwind();
    tokio::select! {
        biased;
        () = scope.cancel.cancelled() => SlotState::Unusable(NOT_RUN_CANCELLED.into()),
        prepared = prepared => match prepared {
            Ok(Ok(prepared)) => SlotState::Ready(prepared),
            Ok(Err(failure)) => SlotState::Unusable(failure.0),
            Err(_) => SlotState::Unusable(format!("The tool `{}` failed inside turnd; nothing was run.", tool.spec().name)),
        },
    }
}

/// The arguments for display, and as the object the tool needs. Broken arguments are never emptied:
/// running a tool with less than the model asked for is worse than not running it.
fn parse_arguments(text: &str) -> (Value, Result<Map<String, Value>, String>) {
    if text.trim().is_empty() {
        return (Value::Object(Map::new()), Ok(Map::new()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => (Value::Object(map.clone()), Ok(map)),
        Ok(other) => (other, Err("The arguments must be a JSON object. The call was not run.".into())),
        Err(error) => {
            let problem = format!(
                "The arguments are not valid JSON ({error}). The call was not run; send it again with valid JSON."
            );
            (Value::String(text.into()), Err(problem))
        }
    }
}

const NOT_RUN_CANCELLED: &str = "Not run: the turn was cancelled before this call started.";
const CUT_OFF: &str = "Interrupted by the user; whether the call had an effect is unknown.";

/// A batch while it runs.
struct BatchRun<'a, Io> {
    scope: &'a Scope<'a, Io>,
    /// Fires with the turn's token, or when the user calls the turn off at a question.
    cancel: CancellationToken,
    running: FuturesUnordered<BoxFuture<'a, Result<(usize, Closed), RecordError>>>,
    /// What the running calls touch.
    active: Vec<(usize, Vec<Access>)>,
    results: Vec<Option<Closed>>,
    is_one_at_a_time: bool,
    is_cancelled: bool,
}

impl<'a, Io: TurnIo> BatchRun<'a, Io> {
    async fn start(&mut self, index: usize, mut slot: Slot) -> Result<(), RecordError> {
        let mut had_to_wait = false;
        while self.must_wait(&slot) && !self.cancel.is_cancelled() {
            had_to_wait = true;
            self.wait_for_one().await?;
        }
        if had_to_wait && matches!(slot.state, SlotState::Ready(_)) {
            // An earlier call may have changed what this one is about.
            slot = prepare(self.scope, slot.call).await;
        }
        match self.admit(&mut slot).await? {
            None => self.launch(index, slot),
            Some(refusal) => self.finish(index, slot, refusal).await?,
        }
        Ok(())
    }

    /// Whether a call may run: guardrail, hooks, gate and user in this order. Gives the reason if not.
    async fn admit(&mut self, slot: &mut Slot) -> Result<Option<Refusal>, RecordError> {
        if self.cancel.is_cancelled() {
            return Ok(Some(Refusal::cancelled()));
        }
        if let SlotState::Unusable(text) = &slot.state {
            return Ok(Some(Refusal { text: text.clone(), status: CallStatus::Failed }));
        }
        let circle = self.scope.guardrails().block(&slot.call.name, &slot.call.arguments);
        if let Some(reason) = circle {
            return Ok(Some(Refusal::blocked(&reason)));
        }
        let hook_verdict = self.ask_hooks(slot).await;
        let prepared = match &slot.state {
            SlotState::Unusable(text) => return Ok(Some(Refusal { text: text.clone(), status: CallStatus::Failed })),
            SlotState::Ready(prepared) => prepared,
        };
        let gate = &self.scope.context.gate;
        match gate.judge(&slot.call.name, &slot.arguments, &prepared.plan, &hook_verdict).verdict {
            Verdict::Allow { .. } => Ok(None),
            Verdict::Block { reason } => Ok(Some(Refusal::blocked(&reason))),
            Verdict::Ask(question) => self.ask(slot, &question).await,
        }
    }

    /// Lets the hooks decide. Arguments that they change are prepared anew, and judged like any others.
    async fn ask_hooks(&mut self, slot: &mut Slot) -> HookVerdict {
        let hooks = &self.scope.context.hooks;
        if !hooks.has(HookPoint::PreToolCall) {
            return HookVerdict::None;
        }
        match hooks.decide_tool(|| payload::tool_call(&slot.call, &slot.arguments)).await {
            ToolDecision::Pass => HookVerdict::None,
            ToolDecision::Block(reason) => HookVerdict::Block(reason),
            ToolDecision::Ask(reason) => HookVerdict::Ask(reason),
            ToolDecision::Modify(changes) => {
                let Value::Object(mut arguments) = slot.arguments.clone() else { return HookVerdict::None };
                arguments.extend(changes);
                if let Some(tool) = self.scope.context.tools.get(&slot.call.name) {
                    slot.state = prepare_tool(self.scope, tool.as_ref(), &arguments).await;
                }
                slot.arguments = Value::Object(arguments);
                HookVerdict::None
            }
        }
    }

    fn must_wait(&self, slot: &Slot) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let SlotState::Ready(prepared) = &slot.state else { return self.is_one_at_a_time };
        self.is_one_at_a_time || self.active.iter().any(|(_, access)| conflicts(access, &prepared.plan.access))
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
        hooks.observe(HookPoint::PreApprovalRequest, || payload::approval(&slot.call, question, None)).await;
        let answer = self.drive(scope.io.ask(ask)).await?;
        hooks.observe(HookPoint::PostApprovalResponse, || payload::approval(&slot.call, question, Some(answer))).await;
        let remembered = self.remember(answer, question);
        let record = Record::Approval { tool_call_id: slot.call.id.clone(), answer, remembered };
        scope.io.record(vec![record]).await?;
        if answer == Answer::Cancelled {
            self.is_cancelled = true;
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

    fn launch(&mut self, index: usize, slot: Slot) {
        let plan = slot.plan();
        self.active.push((index, plan.access));
        let (scope, cancel) = (self.scope, self.cancel.clone());
        self.running.push(Box::pin(async move {
            scope.io.emit(TurnEvent::ToolCallStarted { id: slot.call.id.clone() }).await;
            let (call, record) = (slot.call.clone(), slot.record());
            let SlotState::Ready(prepared) = slot.state else { return Err(RecordError("a call lost its plan".into())) };
            let output = run_prepared(scope, &call.id, prepared, &cancel).await;
            let status = match (output.is_cut_off, output.is_error) {
                (true, true) => CallStatus::CutOff,
                (_, true) => CallStatus::Failed,
                (_, false) => CallStatus::Done,
            };
            Ok((index, close(scope, &call, record, output, status).await?))
        }));
    }

    /// Ends a call that was never launched.
    async fn finish(&mut self, index: usize, slot: Slot, refusal: Refusal) -> Result<(), RecordError> {
        let output = ToolOutput::error(refusal.text);
        let done = close(self.scope, &slot.call, slot.record(), output, refusal.status).await?;
        self.store(index, done);
        Ok(())
    }

    fn store(&mut self, index: usize, result: Closed) {
        self.active.retain(|(active, _)| *active != index);
        if let Some(place) = self.results.get_mut(index) {
            *place = Some(result);
        }
    }

    async fn wait_for_one(&mut self) -> Result<(), RecordError> {
        if let Some(done) = self.running.next().await {
            let (index, result) = done?;
            self.store(index, result);
        }
        Ok(())
    }

    /// Waits for something else while the running calls go on.
    async fn drive<T>(&mut self, other: impl Future<Output = T>) -> Result<T, RecordError> {
        let mut other = std::pin::pin!(other);
        loop {
            let done = tokio::select! {
                biased;
                value = &mut other => return Ok(value),
                Some(done) = self.running.next(), if !self.running.is_empty() => done,
            };
            let (index, result) = done?;
            self.store(index, result);
        }
    }
}

/// Runs one call, relays its output, and abandons it when it outlives a cancel.
async fn run_prepared<Io: TurnIo>(
    scope: &Scope<'_, Io>,
    id: &str,
    prepared: Prepared,
    cancel: &CancellationToken,
) -> ToolOutput {
    let (progress, mut shown) = Progress::channel();
    let run = AssertUnwindSafe(prepared.run(RunContext { cancel: cancel.clone(), progress })).catch_unwind();
    let mut run = std::pin::pin!(run);
    let mut overdue = std::pin::pin!(async {
        cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    });
    let mut is_watching = true;
    loop {
        tokio::select! {
            biased;
            output = &mut run => return output.unwrap_or_else(|_| ToolOutput {
                is_cut_off: true,
                ..ToolOutput::error("The tool failed inside turnd; whether the call had an effect is unknown.")
            }),
            () = &mut overdue => return ToolOutput { is_cut_off: true, ..ToolOutput::error(CUT_OFF) },
            changed = shown.changed(), if is_watching && !cancel.is_cancelled() => {
                is_watching = changed.is_ok();
                if is_watching {
                    let output = shown.borrow_and_update().clone();
                    scope.io.emit(TurnEvent::ToolCallProgress { id: id.to_owned(), output }).await;
                }
            }
        }
    }
}

/// A call that ended: its result, and the files it was to change.
#[derive(Debug)]
struct Closed {
    result: ToolResult,
    edits: Vec<Edit>,
}

/// A file that a call changed, or was to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) path: PathBuf,
    pub(super) is_failed: bool,
}

/// Why a call does not run.
#[derive(Debug)]
struct Refusal {
    /// For the model.
    text: String,
    status: CallStatus,
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
            Answer::RejectOnce | Answer::RejectAlways => {
                "Not approved (denied): the user refused this call. Do not retry it or work around it."
            }
        };
        Some(Self { text: text.into(), status: CallStatus::Refused })
    }
}

/// Stores a call's result, then tells the client and the hooks.
async fn close<Io: TurnIo>(
    scope: &Scope<'_, Io>,
    call: &ToolCall,
    mut record: ToolCallRecord,
    output: ToolOutput,
    status: CallStatus,
) -> Result<Closed, RecordError> {
    let content = if output.content.is_empty() { vec![Part::text("(no output)")] } else { output.content };
    let mut result = ToolResult {
        tool_call_id: call.id.clone(),
        name: call.name.clone(),
        content,
        is_error: output.is_error,
        effect: status.effect(),
    };
    let hooks = &scope.context.hooks;
    let text = crate::message::plain_text(&result.content);
    hooks.observe(HookPoint::PostToolCall, || payload::ended_call(call, &text, status)).await;
    if let Some(text) =
        hooks.transform(HookPoint::TransformToolResult, || payload::ended_call(call, &text, status)).await
    {
        result.content = vec![Part::text(text)];
    }
    steer::neutralise_result(&mut result);
    record.display = if output.display.is_empty() {
        result.content.iter().filter_map(Part::as_text).map(|text| Display::Text(text.into_owned())).collect()
    } else {
        output.display
    };
    if matches!(status, CallStatus::Done | CallStatus::Failed) {
        note_circle(scope, call, &record.plan, &output.raw, &mut result);
    }
    let edits = edits(&record.plan, output.is_error);
    record.state = if output.is_error { CallState::Failed } else { CallState::Completed };
    record.raw = output.raw;
    let event = TurnEvent::ToolCallEnded {
        id: record.id.clone(),
        is_failed: output.is_error,
        display: record.display.clone(),
        raw: record.raw.clone(),
    };
    scope.io.record(vec![Record::Message(Message::Tool(result.clone())), Record::ToolCall(record)]).await?;
    scope.io.emit(event).await;
    if let Some(plan) = output.plan {
        scope.io.emit(TurnEvent::Plan(plan)).await;
    }
    Ok(Closed { result, edits })
}

/// Puts the guardrail's warning, if there is one, behind the result.
fn note_circle<Io>(
    scope: &Scope<'_, Io>,
    call: &ToolCall,
    plan: &CallPlan,
    raw: &Option<Value>,
    result: &mut ToolResult,
) {
    let exit_code = raw.as_ref().and_then(|raw| raw.get("exitCode")).and_then(Value::as_i64);
    let ended = Ended {
        tool: &call.name,
        arguments: &call.arguments,
        is_failed: result.is_error || exit_code.is_some_and(|code| code != 0),
        is_read_only: !plan.access.is_empty() && plan.access.iter().all(|access| matches!(access, Access::Read(_))),
        result: &crate::message::plain_text(&result.content),
    };
    let warning = scope.guardrails().note(ended);
    if let Some(warning) = warning {
        result.content.push(Part::text(steer::notice_text(&warning).trim_start()));
    }
}

fn edits(plan: &CallPlan, is_failed: bool) -> Vec<Edit> {
    let written = plan.access.iter().filter_map(|access| match access {
        Access::Write(path) => Some(Edit { path: path.clone(), is_failed }),
        _ => None,
    });
    written.collect()
}

/// True when one of the two writes what the other touches. What a command touches is unknown, so it
/// keeps its order with every write; two commands run side by side, as the model asked.
fn conflicts(a: &[Access], b: &[Access]) -> bool {
    a.iter().any(|a| b.iter().any(|b| pair_conflicts(a, b) || pair_conflicts(b, a)))
}

fn pair_conflicts(a: &Access, b: &Access) -> bool {
    match (a, b) {
        (Access::Write(written), Access::Write(other) | Access::Read(other)) => overlap(written, other),
        (Access::Write(_), Access::Execute { .. }) => true,
        _ => false,
    }
}

fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_and_what_it_touches_keep_their_order() {
        let write = |path: &str| vec![Access::Write(path.into())];
        let read = |path: &str| vec![Access::Read(path.into())];
        let execute = || vec![Access::Execute { command: "true".into(), cwd: "/w".into() }];
        for (a, b, expected) in [
            (write("/w/a"), read("/w/a"), true),
            (read("/w"), write("/w/a"), true),
            (write("/w/a"), write("/w/ab"), false),
            (read("/w/a"), read("/w/a"), false),
            (execute(), write("/w/a"), true),
            (execute(), execute(), false),
            (execute(), read("/w/a"), false),
        ] {
            assert_eq!(conflicts(&a, &b), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn broken_arguments_are_never_emptied() {
        for text in ["{\"a\":1,}", "{a:1}", "{\"a\":\"x\ny\"}", "{\"a\":1} x", "{\"a\":", "null", "[1]", "\"{}\""] {
            assert!(parse_arguments(text).1.is_err(), "{text}");
        }
        assert_eq!(parse_arguments(" ").1.unwrap().len(), 0);
    }
}
