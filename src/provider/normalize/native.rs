//! The provider's own items of an answer: who may see them again, and that they say what the message says.
//!
//! The canonical fields of a message are the truth: an id may have been rewritten, a hook may have
//! changed the text. [`bind`] carries that into the items and leaves the rest of them byte for byte.

use serde_json::{Map, Value, json};

use super::Target;
use super::steps::is_blank;
use crate::message::{AssistantMessage, NativeItems, ToolCall};
use crate::provider::ApiMode;

/// What an item is to the canonical message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Visible text.
    Text,
    /// A call we run.
    Call,
    /// Reasoning.
    Thinking,
    /// Anything else, for example a tool the provider ran itself.
    Other,
}

/// Whether these items came from the target: same provider, model family and wire format.
pub(super) fn is_issued_by(native: &NativeItems, target: Target<'_>) -> bool {
    native.api_mode == target.api_mode.as_str()
        && native.provider == target.provider
        && family(&native.model) == family(target.model)
}

/// The model's name without vendor path, variant tag, `-latest` and date.
fn family(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.split([':', '@']).next().unwrap_or(name);
    let name = name.strip_suffix("-latest").unwrap_or(name);
    // `-20250929` and `-2025-08-07` are dates; the `-4-5` before them is the version.
    let undated = ["-20250929".len(), "-2025-08-07".len()].into_iter().find_map(|length| {
        let (front, tail) = name.split_at_checked(name.len().checked_sub(length)?)?;
        is_date(tail).then_some(front)
    });
    undated.unwrap_or(name)
}

fn is_date(tail: &str) -> bool {
    let digits = tail.chars().filter(char::is_ascii_digit).count();
    tail.starts_with("-20")
        && digits == 8
        && tail.chars().all(|character| character.is_ascii_digit() || character == '-')
}

/// Whether the items alone are content. Messages refuses an answer of nothing but thinking.
pub(super) fn says_something(native: &NativeItems, mode: ApiMode) -> bool {
    match mode {
        ApiMode::CodexResponses => !native.items.is_empty(),
        ApiMode::AnthropicMessages => native.items.iter().any(|item| kind(item, mode) != Kind::Thinking),
        ApiMode::ChatCompletions | ApiMode::Scripted => false,
    }
}

/// Whether the items of this format are the whole answer. In chat completions they stand beside it.
fn is_whole_answer(mode: ApiMode) -> bool {
    matches!(mode, ApiMode::AnthropicMessages | ApiMode::CodexResponses)
}

/// Makes the items agree with the message's text and calls.
pub(super) fn bind(message: &mut AssistantMessage, mode: ApiMode) {
    if !is_whole_answer(mode) {
        return;
    }
    let Some(mut native) = message.native.take().filter(|native| !native.items.is_empty()) else { return };
    bind_text(&mut native.items, &message.text, mode);
    bind_calls(&mut native.items, &message.tool_calls, mode);
    if !native.items.is_empty() {
        message.native = Some(native);
    }
}

fn bind_text(items: &mut Vec<Value>, text: &str, mode: ApiMode) {
    let written: String = items.iter().filter(|item| kind(item, mode) == Kind::Text).map(text_of).collect();
    if is_same_text(&written, text) {
        items.retain(|item| kind(item, mode) != Kind::Text || !is_blank(&text_of(item)));
        return;
    }
    let first =
        items.iter().position(|item| matches!(kind(item, mode), Kind::Text | Kind::Call)).unwrap_or(items.len());
    items.retain(|item| kind(item, mode) != Kind::Text);
    if !text.is_empty() {
        items.insert(first.min(items.len()), text_item(text, mode));
    }
}

fn bind_calls(items: &mut Vec<Value>, calls: &[ToolCall], mode: ApiMode) {
    if items.iter().filter(|item| kind(item, mode) == Kind::Call).count() != calls.len() {
        items.retain(|item| kind(item, mode) != Kind::Call);
        items.extend(calls.iter().map(|call| call_item(call, mode)));
        return;
    }
    let slots = items.iter_mut().filter(|item| kind(item, mode) == Kind::Call);
    for (slot, call) in slots.zip(calls) {
        if let (Some(slot), Value::Object(fields)) = (slot.as_object_mut(), call_item(call, mode)) {
            slot.extend(fields);
        }
    }
}

/// Space is left out of the comparison: merged texts are joined with a newline that no item has.
fn is_same_text(written: &str, text: &str) -> bool {
    let visible = |character: &char| !character.is_whitespace();
    written.chars().filter(visible).eq(text.chars().filter(visible))
}

/// The items of two messages that became one; `None` when neither has any.
pub(super) fn joined(message: &AssistantMessage, next: &AssistantMessage, target: Target<'_>) -> Option<NativeItems> {
    let issuer = message.native.as_ref().or(next.native.as_ref())?;
    let mut items = items_of(message, target.api_mode);
    items.extend(items_of(next, target.api_mode));
    Some(NativeItems { items, ..issuer.clone() })
}

/// An answer in the items of its wire format: the provider's own where there are some.
fn items_of(message: &AssistantMessage, mode: ApiMode) -> Vec<Value> {
    if let Some(native) = message.native.as_ref().filter(|native| !native.items.is_empty()) {
        return native.items.clone();
    }
    if !is_whole_answer(mode) {
        return Vec::new();
    }
    let text = (!is_blank(&message.text)).then(|| text_item(&message.text, mode));
    text.into_iter().chain(message.tool_calls.iter().map(|call| call_item(call, mode))).collect()
}

/// What an item is.
pub(super) fn kind(item: &Value, mode: ApiMode) -> Kind {
    let name = item.get("type").and_then(Value::as_str).unwrap_or_default();
    match (mode, name) {
        (ApiMode::CodexResponses, "message") | (ApiMode::AnthropicMessages, "text") => Kind::Text,
        (ApiMode::CodexResponses, "function_call") | (ApiMode::AnthropicMessages, "tool_use") => Kind::Call,
        (ApiMode::CodexResponses, "reasoning") | (ApiMode::AnthropicMessages, "thinking" | "redacted_thinking") => {
            Kind::Thinking
        }
        _ => Kind::Other,
    }
}

/// The visible text of a text item, refusals included.
fn text_of(item: &Value) -> String {
    let direct = |value: &Value| {
        ["text", "refusal"].iter().find_map(|key| value.get(key).and_then(Value::as_str).map(str::to_owned))
    };
    match item.get("content") {
        Some(Value::Array(parts)) => parts.iter().filter_map(direct).collect(),
        Some(Value::String(text)) => text.clone(),
        _ => direct(item).unwrap_or_default(),
    }
}

fn text_item(text: &str, mode: ApiMode) -> Value {
    match mode {
        ApiMode::CodexResponses => {
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
        }
        ApiMode::AnthropicMessages | ApiMode::ChatCompletions | ApiMode::Scripted => {
            json!({"type": "text", "text": text})
        }
    }
}

fn call_item(call: &ToolCall, mode: ApiMode) -> Value {
    match mode {
        ApiMode::CodexResponses => {
            let ToolCall { id, name, arguments, .. } = call;
            json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
        }
        ApiMode::AnthropicMessages | ApiMode::ChatCompletions | ApiMode::Scripted => {
            let input: Map<String, Value> = serde_json::from_str(&call.arguments).unwrap_or_default();
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_family_ignores_path_tag_and_date() {
        for (model, same) in [
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
            ("claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
            ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
            ("gpt-5.1-2025-11-13", "gpt-5.1"),
            ("deepseek/deepseek-r1:free", "deepseek-r1"),
        ] {
            assert_eq!(family(model), family(same));
        }
        for (model, other) in
            [("claude-sonnet-4-5", "claude-sonnet-4"), ("gpt-5", "gpt-5-mini"), ("kimi-k2-0905", "kimi-k2")]
        {
            assert_ne!(family(model), family(other));
        }
    }
}
