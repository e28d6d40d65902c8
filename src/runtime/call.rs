//! The calls of a turn inside the runtime, from the moment they are announced to their end.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::hook::HookPoint;
use crate::message::{Message, Part, ToolCall, ToolResult};
use crate::tool::Display;
use crate::tool::process::Capture;
use crate::turn::event::{StepTool, TurnEvent};
use crate::turn::payload::{self, CallEnd, CallStatus};
use crate::turn::port::{CallState, Record, ToolCallRecord};
use crate::turn::{TurnIo, calls, foreign};

use super::item::{self, Described, Outcome};
use super::turn::{Failure, OpenCall, RuntimeTurn};

/// How often the output of a running command is shown while it changes.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Characters of an id, with room for a number behind it in the 64 that providers take.
const MAX_ID_CHARS: usize = 48;
/// Bytes of running output that are kept at each end, and shown.
const KEPT_OUTPUT_BYTES: usize = 32 << 10;
const SHOWN_OUTPUT_BYTES: usize = 16 << 10;

impl<Io: TurnIo> RuntimeTurn<'_, Io> {
    /// Stores and shows a call that has begun inside the runtime and has not run yet.
    pub(super) async fn announce(&mut self, item: &str, described: Described) -> Result<String, Failure> {
        let call = ToolCall {
            id: self.unique_id(item),
            name: described.tool.clone(),
            arguments: described.arguments.to_string(),
            extra: None,
        };
        let record = self.pending(Some(item), described, &call.id);
        let message = self.assistant("", vec![call]);
        self.store_answer(message, vec![Record::ToolCall(record.clone())]).await?;
        self.show_pending(&record).await;
        Ok(record.id)
    }

    pub(super) fn pending(&mut self, item: Option<&str>, described: Described, id: &str) -> ToolCallRecord {
        let record = ToolCallRecord {
            id: id.to_owned(),
            name: described.tool,
            state: CallState::Pending,
            plan: described.plan,
            arguments: described.arguments,
            display: Vec::new(),
            raw: None,
        };
        self.calls.push(OpenCall {
            item: item.map(str::to_owned),
            record: record.clone(),
            output: Capture::new(KEPT_OUTPUT_BYTES),
            output_shown_at: Instant::now(),
            is_settled: false,
            refusal: None,
        });
        record
    }

    pub(super) async fn show_pending(&mut self, record: &ToolCallRecord) {
        let event = TurnEvent::ToolCallPending {
            id: record.id.clone(),
            name: record.name.clone(),
            arguments: record.arguments.clone(),
            plan: record.plan.clone(),
        };
        self.io.emit(event).await;
    }

    /// An id that no call of the session has, in characters and a length that every provider takes back.
    fn unique_id(&mut self, item: &str) -> String {
        let portable =
            |character: char| if character.is_ascii_alphanumeric() || character == '-' { character } else { '_' };
        let item: String = item.trim().chars().take(MAX_ID_CHARS).map(portable).collect();
        let id = calls::unique_id(&item, &self.used_ids);
        self.used_ids.insert(id.clone());
        id
    }

    /// Where the open call is that an item is.
    pub(super) fn call_of(&self, item: &str) -> Option<usize> {
        self.calls.iter().position(|call| call.item.as_deref() == Some(item))
    }

    pub(super) async fn started(&mut self, id: &str) {
        let Some(call) = self.calls.iter_mut().find(|call| call.record.id == id) else { return };
        if call.record.state == CallState::Pending {
            call.record.state = CallState::InProgress;
            self.io.emit(TurnEvent::ToolCallStarted { id: id.to_owned() }).await;
        }
    }

    pub(super) async fn output(&mut self, item: &str, delta: &str) {
        let Some(index) = self.call_of(item) else { return };
        let Some(call) = self.calls.get_mut(index) else { return };
        call.output.push(delta.as_bytes());
        let id = call.record.id.clone();
        // What the user is being asked about has not begun.
        if self.is_in_question(&id) {
            return;
        }
        // What has output runs, whether it was asked for or not.
        self.started(&id).await;
        let Some(call) = self.calls.get_mut(index) else { return };
        if call.output_shown_at.elapsed() >= SHOW_EVERY {
            call.output_shown_at = Instant::now();
            let shown = Display::Text(call.output.newest(SHOWN_OUTPUT_BYTES));
            self.io.emit(TurnEvent::ToolCallProgress { id, shown }).await;
        }
    }

    /// A change that is being asked for is judged in its newest form.
    pub(super) fn changes_updated(&mut self, item: &str, changes: &Value) {
        let described = item::changes(changes, &self.context.tool_context.cwd);
        let call = self.call_of(item).and_then(|index| self.calls.get_mut(index));
        if let Some(call) = call.filter(|call| !call.is_settled) {
            call.record.plan = described.plan;
            call.record.arguments = described.arguments;
        }
    }

    /// Ends a call: hooks, store and client, in this order.
    pub(super) async fn close(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        if matches!(outcome.status, CallStatus::Done | CallStatus::Failed)
            && let Some(id) = self.calls.get(index).map(|call| call.record.id.clone())
        {
            self.started(&id).await;
        }
        let OpenCall { mut record, .. } = self.calls.remove(index);
        let call = ToolCall {
            id: record.id.clone(),
            name: record.name.clone(),
            arguments: record.arguments.to_string(),
            extra: None,
        };
        let hooks = &self.context.hooks;
        let end = CallEnd { call: &call, result: &outcome.text, status: outcome.status, took: None, request: None };
        hooks.observe(HookPoint::PostToolCall, || payload::ended_call(end)).await;
        let is_failed = outcome.status != CallStatus::Done;
        let result = ToolResult {
            tool_call_id: record.id.clone(),
            name: record.name.clone(),
            content: vec![Part::text(foreign::plain(&outcome.text))],
            is_error: is_failed,
            effect: outcome.status.effect(),
        };
        record.state = if is_failed { CallState::Failed } else { CallState::Completed };
        record.display = display(&record, &result, outcome.status);
        record.raw = outcome.raw;
        let event = TurnEvent::ToolCallEnded {
            id: record.id.clone(),
            is_failed,
            display: record.display.clone(),
            raw: record.raw.clone(),
        };
        let mut records = vec![Record::ToolCall(record)];
        if let Some(place) = place_of(&self.history, &result.tool_call_id) {
            records.insert(0, Record::Message(Message::Tool(result.clone())));
            self.io.record(records).await?;
            self.step_tools.push(StepTool {
                id: call.id,
                name: call.name,
                arguments: call.arguments,
                result: crate::message::plain_text(&result.content),
            });
            self.history.insert(place, Message::Tool(result));
        } else {
            self.io.record(records).await?;
        }
        self.io.emit(event).await;
        Ok(())
    }
}

/// Behind the answer that asked for the call, and behind the results that are there already.
fn place_of(history: &[Message], id: &str) -> Option<usize> {
    let asked = |message: &Message| match message {
        Message::Assistant(answer) => answer.tool_calls.iter().any(|call| call.id == id),
        _ => false,
    };
    let at = history.iter().rposition(asked)? + 1;
    let results = history.iter().skip(at).take_while(|message| matches!(message, Message::Tool(_))).count();
    Some(at + results)
}

/// A change that was made shows its diff, everything else its text.
fn display(record: &ToolCallRecord, result: &ToolResult, status: CallStatus) -> Vec<Display> {
    if status == CallStatus::Done && !record.plan.preview.is_empty() {
        return record.plan.preview.clone();
    }
    result.content.iter().filter_map(Part::as_text).map(|text| Display::Text(text.into_owned())).collect()
}
