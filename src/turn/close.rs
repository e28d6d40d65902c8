//! The end of a tool call: hooks, guardrail, store and client, in this order.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::hook::HookPoint;
use crate::message::{Message, Part, ToolCall, ToolResult};
use crate::tool::{Access, CallPlan, Display, Spent, ToolOutput};

use super::context::Scope;
use super::event::TurnEvent;
use super::foreign;
use super::guardrail::Ended;
use super::limit;
use super::payload::{self, CallEnd, CallStatus};
use super::port::{CallState, Record, RecordError, ToolCallRecord, TurnIo};
use super::steer;

/// A call that ended: its result, and the files it was to change.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) result: ToolResult,
    pub(super) edits: Vec<Edit>,
    pub(super) spent: Option<Spent>,
}

/// A file that a call changed, or was to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) path: PathBuf,
    pub(super) is_failed: bool,
}

/// What came of a call.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) output: ToolOutput,
    pub(super) status: CallStatus,
    /// How long it ran.
    pub(super) took: Duration,
}

/// Stores a call's result, then tells the client and the hooks.
pub(super) async fn close<Io: TurnIo>(
    scope: &Scope<'_, Io>,
    call: &ToolCall,
    mut record: ToolCallRecord,
    outcome: Outcome,
) -> Result<Closed, RecordError> {
    let Outcome { output, status, took } = outcome;
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
    let request = scope.request_id();
    let end = CallEnd { call, result: &text, status, took: Some(took), request: Some(&request) };
    hooks.observe(HookPoint::PostToolCall, || payload::ended_call(end)).await;
    if let Some(text) = hooks.transform(HookPoint::TransformToolResult, || payload::ended_call(end)).await {
        result.content = vec![Part::text(text)];
    }
    foreign::plain_result(&mut result);
    limit::shorten(scope, &mut result, output.whole.as_ref()).await;
    record.display = if output.display.is_empty() {
        result.content.iter().filter_map(Part::as_text).map(|text| Display::Text(text.into_owned())).collect()
    } else {
        output.display
    };
    if matches!(status, CallStatus::Done | CallStatus::Failed | CallStatus::CutOff) {
        if is_foreign(scope, &call.name) {
            foreign::fence_result(&mut result);
        }
        note_circle(scope, call, &record.plan, &output.raw, &mut result);
    }
    let edits = edits(&record.plan, output.is_error);
    // What was cut off did not do its work, whatever it had written by then.
    let is_failed = output.is_error || status == CallStatus::CutOff;
    record.state = if is_failed { CallState::Failed } else { CallState::Completed };
    record.raw = output.raw;
    let event = TurnEvent::ToolCallEnded {
        id: record.id.clone(),
        is_failed,
        display: record.display.clone(),
        raw: record.raw.clone(),
    };
    scope.io.record(vec![Record::Message(Message::Tool(result.clone())), Record::ToolCall(record)]).await?;
    scope.io.emit(event).await;
    if let Some(plan) = output.plan {
        scope.io.emit(TurnEvent::Plan(plan)).await;
    }
    Ok(Closed { result, edits, spent: output.spent })
}

/// Whether a tool gives what strangers wrote.
fn is_foreign<Io>(scope: &Scope<'_, Io>, name: &str) -> bool {
    scope.context.tools.get(name).is_some_and(|tool| tool.is_foreign())
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
