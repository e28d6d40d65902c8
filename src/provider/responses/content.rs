//! What the items of an answer come to: text, calls, and the items as they go back.

use serde_json::{Map, Value, json};

use super::items::{Item, Kind};
use crate::message::ToolCall;
use crate::provider::draft::text_field;

/// What the items came to.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The calls in the order asked.
    pub(super) tool_calls: Vec<ToolCall>,
    /// The visible text of each message.
    pub(super) texts: Vec<String>,
    /// The items as they go back; empty when text and calls say all there is.
    pub(super) items: Vec<Value>,
    /// A message was a refusal.
    pub(super) is_refused: bool,
}

/// Sums the items up. `is_cut` tells that the output limit ended the answer.
pub(super) fn content(items: Vec<Item>, is_cut: bool) -> Content {
    let mut content = Content::default();
    let mut says_more = false;
    for item in items {
        match item.kind {
            Kind::Message => {
                content.is_refused |= item.is_refusal;
                let phase = item.last.as_ref().and_then(|fields| fields.get("phase")).filter(|phase| !phase.is_null());
                let text = item.text();
                if text.trim().is_empty() {
                    continue;
                }
                let mut native =
                    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
                if let (Some(phase), Some(fields)) = (phase, native.as_object_mut()) {
                    says_more = true;
                    fields.insert("phase".into(), phase.clone());
                }
                content.items.push(native);
                content.texts.push(text);
            }
            Kind::Reasoning => {
                let native = replayable(item.last);
                says_more |= native.is_some();
                content.items.extend(native);
            }
            Kind::Call | Kind::Custom => {
                let id = if item.call_id.is_empty() { item.id.clone() } else { item.call_id.clone() };
                let call = ToolCall { id, name: item.name.clone(), arguments: item.arguments(is_cut), extra: None };
                content.items.push(json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}));
                content.tool_calls.push(call);
            }
            Kind::Other => {}
        }
    }
    if !says_more {
        content.items.clear();
    }
    content
}

/// A reasoning item as the provider takes it back: without the id of a store that keeps nothing, and only
/// with content that can be read again.
fn replayable(fields: Option<Map<String, Value>>) -> Option<Value> {
    let mut fields = fields?;
    let is_encrypted = !text_field(&fields, "encrypted_content").trim().is_empty();
    let is_open = fields.get("content").and_then(Value::as_array).is_some_and(|parts| !parts.is_empty());
    if !is_encrypted && !is_open {
        return None;
    }
    fields.retain(|name, value| name != "id" && name != "status" && !(name == "content" && value.is_null()));
    if !fields.contains_key("summary") {
        fields.insert("summary".into(), json!([]));
    }
    Some(Value::Object(fields))
}
