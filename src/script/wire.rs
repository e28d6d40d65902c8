//! Scripted replies in the three wire formats.
//!
//! Each function gives the server-sent events of one reply as whole events; the server paces, cuts and
//! splits them.

use serde_json::{Value, json};

use crate::message::FinishReason;
use crate::provider::ApiMode;
use crate::provider::scripted::{ScriptedCall, ScriptedReply};

/// The wire format a request's path belongs to.
#[must_use]
pub fn format_of(path: &str) -> ApiMode {
    if path.contains("/messages") {
        ApiMode::AnthropicMessages
    } else if path.contains("/responses") {
        ApiMode::CodexResponses
    } else {
        ApiMode::ChatCompletions
    }
}

/// The events of a reply.
#[must_use]
pub fn events(format: ApiMode, reply: &ScriptedReply, model: &str, request: usize) -> Vec<String> {
    match format {
        ApiMode::AnthropicMessages => messages(reply, model, request),
        ApiMode::CodexResponses => responses(reply, model, request),
        _ => chat(reply, model, request),
    }
}

/// The body of a failure in the format's own shape.
#[must_use]
pub fn error_body(format: ApiMode, status: u16, message: &str) -> Value {
    match format {
        ApiMode::AnthropicMessages => {
            let kind = match status {
                401 => "authentication_error",
                404 => "not_found_error",
                429 => "rate_limit_error",
                529 => "overloaded_error",
                400..=499 => "invalid_request_error",
                _ => "api_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        _ => json!({"error": {"message": message, "type": "error", "code": null}}),
    }
}

/// One piece of a raw stream: a text as it stands, anything else as an event, named by its `type`.
#[must_use]
pub fn raw_event(piece: &Value) -> String {
    match (piece, piece.get("type").and_then(Value::as_str)) {
        (Value::String(text), _) => text.clone(),
        (data, Some(kind)) => format!("event: {kind}\ndata: {data}\n\n"),
        (data, None) => format!("data: {data}\n\n"),
    }
}

fn call_id(call: &ScriptedCall, request: usize, index: usize) -> String {
    call.id.clone().unwrap_or_else(|| format!("call_{request}_{index}"))
}

fn chat(reply: &ScriptedReply, model: &str, request: usize) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": format!("cmpl-{request}"), "object": "chat.completion.chunk", "created": 1, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut delta = |delta: Value| events.push(chunk(delta, Value::Null));
    reply.pieces(&reply.reasoning).into_iter().for_each(|piece| delta(json!({"reasoning_content": piece})));
    reply.pieces(&reply.text).into_iter().for_each(|piece| delta(json!({"content": piece})));
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let id = call_id(call, request, index);
        let function = json!({"name": call.name, "arguments": ""});
        delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}));
        for piece in reply.pieces(&call.arguments_text()) {
            delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
        }
    }
    let finish = match reply.finish_reason() {
        FinishReason::Refused => "content_filter",
        FinishReason::Paused => "stop",
        other => other.as_str(),
    };
    events.push(chunk(json!({}), json!(finish)));
    let usage = reply.counted();
    events.push(json!({
        "id": format!("cmpl-{request}"), "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [],
        "usage": {
            "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, "total_tokens": usage.total(),
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        },
    }));
    let mut lines: Vec<_> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    lines.push("data: [DONE]\n\n".into());
    lines
}

/// Writes Messages events and numbers their content blocks.
struct Blocks {
    lines: Vec<String>,
    index: usize,
}

impl Blocks {
    fn event(&mut self, kind: &str, mut fields: Value) {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("type".into(), json!(kind));
        }
        self.lines.push(format!("event: {kind}\ndata: {fields}\n\n"));
    }

    fn block(&mut self, start: &Value, deltas: impl IntoIterator<Item = Value>) {
        let index = self.index;
        self.event("content_block_start", json!({"index": index, "content_block": start}));
        for delta in deltas {
            self.event("content_block_delta", json!({"index": index, "delta": delta}));
        }
        self.event("content_block_stop", json!({"index": index}));
        self.index += 1;
    }
}

fn messages(reply: &ScriptedReply, model: &str, request: usize) -> Vec<String> {
    let usage = reply.counted();
    let mut out = Blocks { lines: Vec::new(), index: 0 };
    let uncached = usage.input_tokens.saturating_sub(usage.cached_tokens + usage.cache_write_tokens);
    out.event(
        "message_start",
        json!({"message": {
            "id": format!("msg_{request}"), "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {
                "input_tokens": uncached, "output_tokens": 1, "cache_read_input_tokens": usage.cached_tokens,
                "cache_creation_input_tokens": usage.cache_write_tokens,
            },
        }}),
    );
    if !reply.reasoning.is_empty() {
        let thinking = reply.pieces(&reply.reasoning).into_iter();
        let signature = json!({"type": "signature_delta", "signature": format!("sig-{request}")});
        out.block(
            &json!({"type": "thinking", "thinking": "", "signature": ""}),
            thinking.map(|piece| json!({"type": "thinking_delta", "thinking": piece})).chain([signature]),
        );
    }
    if !reply.text.is_empty() {
        let pieces = reply.pieces(&reply.text).into_iter();
        out.block(
            &json!({"type": "text", "text": ""}),
            pieces.map(|piece| json!({"type": "text_delta", "text": piece})),
        );
    }
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let pieces = reply.pieces(&call.arguments_text()).into_iter();
        out.block(
            &json!({"type": "tool_use", "id": call_id(call, request, index), "name": call.name, "input": {}}),
            pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
        );
    }
    let stop = match reply.finish_reason() {
        FinishReason::Stop => "end_turn",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::Length => "max_tokens",
        FinishReason::Refused => "refusal",
        FinishReason::Paused => "pause_turn",
    };
    out.event(
        "message_delta",
        json!({"delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": usage.output_tokens}}),
    );
    out.event("message_stop", json!({}));
    out.lines
}

/// Writes Responses events and numbers them.
struct Items {
    lines: Vec<String>,
    output: Vec<Value>,
}

impl Items {
    fn event(&mut self, kind: &str, mut fields: Value) {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("type".into(), json!(kind));
            fields.insert("sequence_number".into(), json!(self.lines.len()));
        }
        self.lines.push(format!("event: {kind}\ndata: {fields}\n\n"));
    }

    fn item(&mut self, begun: &Value, done: Value, kind: &str, pieces: Vec<String>) {
        let (index, id) = (self.output.len(), done.get("id").cloned().unwrap_or_default());
        self.event("response.output_item.added", json!({"output_index": index, "item": begun}));
        for piece in pieces {
            self.event(
                kind,
                json!({"item_id": id, "output_index": index, "content_index": 0, "summary_index": 0, "delta": piece}),
            );
        }
        self.event("response.output_item.done", json!({"output_index": index, "item": done}));
        self.output.push(done);
    }
}

fn responses(reply: &ScriptedReply, model: &str, request: usize) -> Vec<String> {
    let mut out = Items { lines: Vec::new(), output: Vec::new() };
    let head = json!({"id": format!("resp_{request}"), "object": "response", "created_at": 1, "model": model});
    let with = |extra: Value| {
        let mut whole = head.as_object().cloned().unwrap_or_default();
        whole.extend(extra.as_object().cloned().unwrap_or_default());
        Value::Object(whole)
    };
    out.event("response.created", json!({"response": with(json!({"status": "in_progress", "output": []}))}));
    if !reply.reasoning.is_empty() {
        let item = |summary: Value| json!({"id": format!("rs_{request}"), "type": "reasoning", "summary": summary, "encrypted_content": format!("enc-{request}")});
        let done = item(json!([{"type": "summary_text", "text": reply.reasoning}]));
        let kind = "response.reasoning_summary_text.delta";
        out.item(&item(json!([])), done, kind, reply.pieces(&reply.reasoning));
    }
    if !reply.text.is_empty() {
        let item = |status: &str, content: Value| json!({"id": format!("msg_{request}"), "type": "message", "role": "assistant", "status": status, "content": content});
        let done = item("completed", json!([{"type": "output_text", "text": reply.text, "annotations": []}]));
        out.item(&item("in_progress", json!([])), done, "response.output_text.delta", reply.pieces(&reply.text));
    }
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let id = call_id(call, request, index);
        let item = |status: &str, arguments: &str| {
            json!({
                "id": format!("fc_{request}_{index}"), "type": "function_call", "call_id": id, "name": call.name,
                "arguments": arguments, "status": status,
            })
        };
        let arguments = call.arguments_text();
        let kind = "response.function_call_arguments.delta";
        out.item(&item("in_progress", ""), item("completed", &arguments), kind, reply.pieces(&arguments));
    }
    let usage = reply.counted();
    let (status, kind, details) = match reply.finish_reason() {
        FinishReason::Length => ("incomplete", "response.incomplete", json!({"reason": "max_output_tokens"})),
        FinishReason::Refused => ("incomplete", "response.incomplete", json!({"reason": "content_filter"})),
        _ => ("completed", "response.completed", Value::Null),
    };
    let output = out.output.clone();
    let whole = with(json!({
        "status": status, "output": output, "incomplete_details": details,
        "usage": {
            "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": usage.total(),
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        },
    }));
    out.event(kind, json!({"response": whole}));
    out.lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> ScriptedReply {
        let call = ScriptedCall { id: Some("c1".into()), name: "t".into(), arguments: json!({"a": 1}) };
        ScriptedReply {
            text: "hi".into(),
            reasoning: "r".into(),
            tool_calls: vec![call],
            chunk: 1,
            ..ScriptedReply::default()
        }
    }

    #[test]
    fn every_format_streams_text_reasoning_and_the_call() {
        for (path, markers) in [
            (
                "/v1/chat/completions",
                ["\"content\":\"h\"", "reasoning_content", "\"finish_reason\":\"tool_calls\"", "[DONE]"],
            ),
            ("/v1/messages", ["\"text\":\"h\"", "thinking_delta", "\"stop_reason\":\"tool_use\"", "message_stop"]),
            (
                "/v1/responses",
                ["\"delta\":\"h\"", "reasoning_summary_text", "\"call_id\":\"c1\"", "response.completed"],
            ),
        ] {
            let all = events(format_of(path), &reply(), "m", 1).concat();
            for marker in markers {
                assert!(all.contains(marker), "{path} lacks {marker}:\n{all}");
            }
        }
    }

    #[test]
    fn a_cut_answer_says_so_in_every_format() {
        let cut = ScriptedReply { text: "a".into(), finish: Some(FinishReason::Length), ..ScriptedReply::default() };
        for (path, marker) in [
            ("/chat/completions", "\"finish_reason\":\"length\""),
            ("/messages", "\"stop_reason\":\"max_tokens\""),
            ("/responses", "\"reason\":\"max_output_tokens\""),
        ] {
            assert!(events(format_of(path), &cut, "m", 1).concat().contains(marker), "{path}");
        }
    }
}
