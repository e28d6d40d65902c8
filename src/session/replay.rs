//! Shows a stored session again, with the ids it had when it was live.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::message::{AssistantMessage, Message, Part, ToolResult};
use crate::store::{LoadedSession, ToolCallRow};
use crate::tool::{CallPlan, Display, Location, ToolKind};
use crate::turn::port::{CallState, ToolCallRecord};

use super::io::Unstored;
use super::port::{Replayed, ReplayedCall};

/// The id of a turn's user message.
pub(super) fn user_message_id(turn_id: &str) -> Arc<str> {
    format!("{turn_id}.user").into()
}

/// Everything of a session in the order it happened. `running`: what a running turn has shown beside the store.
pub(super) fn replay(session: &LoadedSession, running: Option<&Unstored>) -> Vec<Replayed> {
    let calls: HashMap<&str, &ToolCallRow> = session.tool_calls.iter().map(|row| (row.id.as_str(), row)).collect();
    let results: HashMap<&str, &ToolResult> = session
        .shown()
        .filter_map(|stored| match &stored.message {
            Message::Tool(result) => Some((result.tool_call_id.as_str(), result)),
            _ => None,
        })
        .collect();
    let mut answers: HashMap<&str, u32> = HashMap::new();
    let mut shown = Vec::new();
    for stored in session.shown() {
        let turn_id = stored.turn_id.as_deref().unwrap_or_default();
        match &stored.message {
            Message::User(user) => {
                shown.push(Replayed::User { message_id: user_message_id(turn_id), parts: user.content.clone() });
            }
            Message::Assistant(assistant) => {
                let answer = answers.entry(turn_id).or_default();
                let message_id: Arc<str> = format!("{turn_id}.{answer}").into();
                *answer += 1;
                replay_answer(assistant, &message_id, &mut shown);
                for call in &assistant.tool_calls {
                    let result = results.get(call.id.as_str()).copied();
                    let row = calls.get(call.id.as_str()).copied();
                    let state = state(&call.id, result, running);
                    shown.push(Replayed::ToolCall(Box::new(replayed_call(call, row, state, result))));
                }
            }
            Message::Tool(_) => {}
        }
    }
    if let Some(Unstored { message_id, answer, .. }) = running {
        replay_answer(answer, message_id, &mut shown);
    }
    shown
}

fn replay_answer(assistant: &AssistantMessage, message_id: &Arc<str>, shown: &mut Vec<Replayed>) {
    if !assistant.reasoning.is_empty() {
        let text = assistant.reasoning.clone();
        shown.push(Replayed::Thought { message_id: Arc::clone(message_id), text });
    }
    if !assistant.text.is_empty() {
        shown.push(Replayed::Agent { message_id: Arc::clone(message_id), text: assistant.text.clone() });
    }
}

/// Where a call is. One without a result has failed, unless a turn still works on it.
fn state(id: &str, result: Option<&ToolResult>, running: Option<&Unstored>) -> CallState {
    match (result, running) {
        (Some(result), _) if result.is_error => CallState::Failed,
        (Some(_), _) => CallState::Completed,
        (None, Some(unstored)) => unstored.calls.get(id).copied().unwrap_or(CallState::Pending),
        (None, None) => CallState::Failed,
    }
}

fn replayed_call(
    call: &crate::message::ToolCall,
    row: Option<&ToolCallRow>,
    state: CallState,
    result: Option<&ToolResult>,
) -> ReplayedCall {
    let stored = row.map(|row| &row.display).unwrap_or(&Value::Null);
    let mut display = read_displays(stored.get("content"));
    if display.is_empty() {
        display.extend(result.map(|result| Display::Text(crate::message::plain_text(&result.content))));
    }
    ReplayedCall {
        id: call.id.clone(),
        name: call.name.clone(),
        plan: CallPlan {
            title: stored.get("title").and_then(Value::as_str).unwrap_or(&call.name).to_owned(),
            kind: stored.get("kind").and_then(Value::as_str).map_or(ToolKind::Other, read_kind),
            locations: read_locations(stored.get("locations")),
            ..CallPlan::default()
        },
        arguments: serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::String(call.arguments.clone())),
        state,
        display,
        raw: stored.get("rawOutput").filter(|raw| !raw.is_null()).cloned(),
    }
}

/// The most bytes of one text or diff side that is stored for display; the model's own result is stored
/// whole beside it.
const MAX_STORED_DISPLAY_BYTES: usize = 32 << 10;

/// What is stored of a call's display. A terminal of the client is left out: its id means nothing to a
/// later client.
pub(super) fn stored_display(call: &ToolCallRecord) -> Value {
    let locations: Vec<_> =
        call.plan.locations.iter().map(|at| json!({ "path": at.path.to_string_lossy(), "line": at.line })).collect();
    let content: Vec<_> = call.display.iter().filter_map(write_display).collect();
    json!({
        "title": call.plan.title,
        "kind": kind_name(call.plan.kind),
        "locations": locations,
        "content": content,
        "rawOutput": call.raw,
    })
}

fn write_display(display: &Display) -> Option<Value> {
    match display {
        Display::Text(text) => Some(json!({ "text": cut(text) })),
        Display::Diff { path, old, new } => Some(json!({
            "path": path.to_string_lossy(),
            "old": old.as_deref().map(cut),
            "new": cut(new),
        })),
        Display::Terminal(_) => None,
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_STORED_DISPLAY_BYTES)).unwrap_or(text)
}

fn read_displays(content: Option<&Value>) -> Vec<Display> {
    let text_of = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let items = content.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let displays = items.iter().filter_map(|item| match text_of(item, "path") {
        Some(path) => Some(Display::Diff { path: path.into(), old: text_of(item, "old"), new: text_of(item, "new")? }),
        None => text_of(item, "text").map(Display::Text),
    });
    displays.collect()
}

fn read_locations(locations: Option<&Value>) -> Vec<Location> {
    let items = locations.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let locations = items.iter().filter_map(|item| {
        let line = item.get("line").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok());
        Some(Location { path: PathBuf::from(item.get("path")?.as_str()?), line })
    });
    locations.collect()
}

const KINDS: [(ToolKind, &str); 7] = [
    (ToolKind::Read, "read"),
    (ToolKind::Edit, "edit"),
    (ToolKind::Search, "search"),
    (ToolKind::Execute, "execute"),
    (ToolKind::Think, "think"),
    (ToolKind::Fetch, "fetch"),
    (ToolKind::Other, "other"),
];

fn kind_name(kind: ToolKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("other", |(_, name)| name)
}

fn read_kind(name: &str) -> ToolKind {
    KINDS.iter().find(|(_, known)| *known == name).map_or(ToolKind::Other, |(kind, _)| *kind)
}

/// The text of a prompt as a title: its first line, shortened.
pub(super) fn title_of(parts: &[Part]) -> Option<String> {
    const MAX_CHARS: usize = 60;
    let text = crate::message::plain_text(parts);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut title: String = line.chars().filter(|character| !character.is_control()).take(MAX_CHARS).collect();
    if line.chars().count() > MAX_CHARS {
        title.push('…');
    }
    (!title.is_empty()).then_some(title)
}
