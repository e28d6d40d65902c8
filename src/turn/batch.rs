//! One batch of tool calls: prepared in call order, judged and asked in call order, run side by side.
//!
//! Results come back in call order whatever the order of completion. Calls wait for earlier ones of
//! the batch only where one of the two writes what the other touches, or where one talks to the user.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::message::{ToolCall, ToolResult};
use crate::sandbox::SandboxPolicy;
use crate::tool::{
    Access, CallPlan, GitCare, Prepared, Progress, RunContext, Shell, Spent, Tool, ToolFailure, ToolOutput,
};

use super::admit::Refusal;
use super::close::{Closed, Edit, Outcome, close};
use super::context::Scope;
use super::event::TurnEvent;
use super::exit::ExitReason;
use super::payload::CallStatus;
use super::port::{CallState, Record, RecordError, ToolCallRecord, TurnIo};

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
    /// Model calls that were made for its calls.
    pub(super) spent: Vec<Spent>,
    /// Why the turn ends with it: called off, at a question or from outside, or a question that nobody answered.
    pub(super) stop: Option<ExitReason>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) call: ToolCall,
    pub(super) arguments: Value,
    pub(super) state: SlotState,
    /// What its command runs behind, as the gate said.
    pub(super) sandbox: Option<Arc<SandboxPolicy>>,
    /// How git behaves in its command.
    pub(super) git: GitCare,
}

#[derive(Debug)]
pub(super) enum SlotState {
    /// Ready to be judged.
    Ready(Prepared),
    /// Cannot run, and why.
    Unusable(ToolFailure),
}

impl SlotState {
    fn unusable(text: impl Into<String>) -> Self {
        Self::Unusable(ToolFailure::new(text))
    }
}

impl Slot {
    pub(super) fn plan(&self) -> CallPlan {
        match &self.state {
            SlotState::Ready(prepared) => prepared.plan.clone(),
            SlotState::Unusable(ToolFailure { plan: Some(plan), .. }) => (**plan).clone(),
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
        scope.batch_size.begin();
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
            touched: Vec::new(),
            results: self.slots.iter().map(|_| None).collect(),
            is_one_at_a_time: is_interactive,
            stop: None,
        };
        for (index, slot) in self.slots.into_iter().enumerate() {
            run.start(index, slot).await?;
        }
        while !run.running.is_empty() {
            run.wait_for_one().await?;
        }
        let stop = run.stop.or_else(|| run.cancel.is_cancelled().then_some(ExitReason::InterruptedByUser));
        let mut end = BatchEnd { results: Vec::new(), edits: Vec::new(), spent: Vec::new(), stop };
        for closed in run.results.into_iter().flatten() {
            end.results.push(closed.result);
            end.edits.extend(closed.edits);
            end.spent.extend(closed.spent);
        }
        Ok(end)
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
            SlotState::unusable("The tool call has no name, so nothing was run.")
        }
        (None, _) => SlotState::unusable(tools.unknown(&call.name)),
        (Some(_), Err(problem)) => SlotState::unusable(problem),
        (Some(tool), Ok(map)) => prepare_tool(scope, tool.as_ref(), &map).await,
    };
    Slot { call, arguments, state, sandbox: None, git: GitCare::default() }
}

pub(super) async fn prepare_tool<Io: TurnIo>(
    scope: &Scope<'_, Io>,
    tool: &dyn Tool,
    arguments: &Map<String, Value>,
) -> SlotState {
    let prepared = AssertUnwindSafe(tool.prepare(arguments, &scope.context.tool_context)).catch_unwind();
    tokio::select! {
        biased;
        () = scope.cancel.cancelled() => SlotState::unusable(NOT_RUN_CANCELLED),
        prepared = prepared => match prepared {
            Ok(Ok(prepared)) => SlotState::Ready(prepared),
            Ok(Err(failure)) => SlotState::Unusable(failure),
            Err(_) => SlotState::unusable(format!("The tool `{}` failed inside turnd; nothing was run.", tool.spec().name)),
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

pub(super) const NOT_RUN_CANCELLED: &str = "Not run: the turn was cancelled before this call started.";
const CUT_OFF: &str = "Interrupted by the user; whether the call had an effect is unknown.";

/// A batch while it runs.
pub(super) struct BatchRun<'a, Io> {
    pub(super) scope: &'a Scope<'a, Io>,
    /// Fires with the turn's token, or when the user calls the turn off at a question.
    pub(super) cancel: CancellationToken,
    running: FuturesUnordered<BoxFuture<'a, Result<(usize, Closed), RecordError>>>,
    /// What the running calls touch.
    active: Vec<(usize, Vec<Access>)>,
    /// What all calls started so far touch or touched.
    touched: Vec<Access>,
    results: Vec<Option<Closed>>,
    is_one_at_a_time: bool,
    pub(super) stop: Option<ExitReason>,
}

impl<'a, Io: TurnIo> BatchRun<'a, Io> {
    async fn start(&mut self, index: usize, mut slot: Slot) -> Result<(), RecordError> {
        let mut is_fresh = false;
        loop {
            while self.must_wait(&slot) && !self.cancel.is_cancelled() {
                self.wait_for_one().await?;
                is_fresh = false;
            }
            if is_fresh || self.cancel.is_cancelled() || !self.may_be_outdated(&slot) {
                break;
            }
            // What it touches may be known only now, and then it may have to wait for more.
            slot = prepare(self.scope, slot.call).await;
            is_fresh = true;
        }
        match self.admit(&mut slot).await? {
            None => self.launch(index, slot),
            Some(refusal) => self.finish(index, slot, refusal).await?,
        }
        Ok(())
    }

    fn must_wait(&self, slot: &Slot) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let depends = |access: &[Access]| match &slot.state {
            SlotState::Ready(prepared) => conflicts(access, &prepared.plan.access),
            // What cannot run now may be able to once the calls before it have done their work.
            SlotState::Unusable(_) => true,
        };
        self.is_one_at_a_time || self.active.iter().any(|(_, access)| depends(access))
    }

    /// Whether an earlier call of the batch may have changed what this one was prepared from.
    fn may_be_outdated(&self, slot: &Slot) -> bool {
        match &slot.state {
            SlotState::Ready(prepared) => conflicts(&self.touched, &prepared.plan.access),
            SlotState::Unusable(_) => !self.touched.is_empty(),
        }
    }

    fn launch(&mut self, index: usize, slot: Slot) {
        let plan = slot.plan();
        self.touched.extend(plan.access.iter().cloned());
        self.active.push((index, plan.access));
        let (scope, cancel) = (self.scope, self.cancel.clone());
        let is_interactive = is_interactive(scope, &slot.call);
        self.running.push(Box::pin(async move {
            let started = TurnEvent::ToolCallStarted { id: slot.call.id.clone() };
            // A call that waits for the user is pending until the user has answered.
            if !is_interactive {
                scope.io.emit(started.clone()).await;
            }
            let (call, record) = (slot.call.clone(), slot.record());
            let SlotState::Ready(prepared) = slot.state else { return Err(RecordError("a call lost its plan".into())) };
            let began = Instant::now();
            let output = run_prepared(scope, &call.id, prepared, (slot.sandbox, slot.git), &cancel).await;
            if is_interactive && !output.is_error {
                scope.io.emit(started).await;
            }
            let status = match (output.is_cut_off, output.is_error) {
                (true, _) => CallStatus::CutOff,
                (false, true) => CallStatus::Failed,
                (false, false) => CallStatus::Done,
            };
            let outcome = Outcome { output, status, took: began.elapsed() };
            Ok((index, close(scope, &call, record, outcome).await?))
        }));
    }

    /// Ends a call that was never launched.
    async fn finish(&mut self, index: usize, slot: Slot, refusal: Refusal) -> Result<(), RecordError> {
        let output = ToolOutput::error(refusal.text);
        let outcome = Outcome { output, status: refusal.status, took: Duration::ZERO };
        let done = close(self.scope, &slot.call, slot.record(), outcome).await?;
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
    pub(super) async fn drive<T>(&mut self, other: impl Future<Output = T>) -> Result<T, RecordError> {
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
    (sandbox, git): (Option<Arc<SandboxPolicy>>, GitCare),
    cancel: &CancellationToken,
) -> ToolOutput {
    let (progress, mut shown) = Progress::channel();
    let (call_id, cancel_grace) = (id.to_owned(), prepared.cancel_grace);
    let shell = if scope.context.gate.relies_on_sandbox() { Shell::Own } else { Shell::Any };
    let run = RunContext { call_id, cancel: cancel.clone(), progress, sandbox, shell, git };
    let run = AssertUnwindSafe(prepared.run(run)).catch_unwind();
    let mut run = std::pin::pin!(run);
    let mut overdue = std::pin::pin!(async {
        cancel.cancelled().await;
        tokio::time::sleep(cancel_grace).await;
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
                    let shown = shown.borrow_and_update().clone();
                    scope.io.emit(TurnEvent::ToolCallProgress { id: id.to_owned(), shown }).await;
                }
            }
        }
    }
}

/// True when one of the two writes what the other touches. What a command or a foreign tool touches is unknown, so it
/// keeps its order with every write; two commands run side by side, as the model asked.
fn conflicts(a: &[Access], b: &[Access]) -> bool {
    a.iter().any(|a| b.iter().any(|b| pair_conflicts(a, b) || pair_conflicts(b, a)))
}

fn pair_conflicts(a: &Access, b: &Access) -> bool {
    match (a, b) {
        (Access::Write(written), Access::Write(other) | Access::Read(other)) => overlap(written, other),
        (Access::Write(_), Access::Execute { .. } | Access::External(_)) => true,
        (Access::Note(changed), Access::Note(other)) => changed == other,
        (Access::Feed(_), Access::Feed(_)) => true,
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
