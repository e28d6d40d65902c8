//! The three formats side by side: the same turn must come to the same reply, the same history must be told
//! alike, and what goes out must satisfy the rules of a strict provider, read from the bytes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::golden_tests::{decode_chunks, endpoint, shown};
use super::normalize::random_tests::{build, moves};
use super::normalize::{Target, normalize};
use super::*;
use crate::message::{Effect, FinishReason, Part, ToolCall, ToolResult};

const MODES: [ApiMode; 3] = [ApiMode::ChatCompletions, ApiMode::AnthropicMessages, ApiMode::CodexResponses];

fn decoder(mode: ApiMode) -> Box<dyn Decoder> {
    let endpoint = endpoint(mode, "m");
    match mode {
        ApiMode::AnthropicMessages => anthropic_messages::decoder(&endpoint),
        ApiMode::CodexResponses => responses::decoder(&endpoint),
        ApiMode::ChatCompletions | ApiMode::Scripted => chat_completions::decoder(&endpoint),
    }
}

fn encode(mode: ApiMode, request: &ModelRequest<'_>) -> Value {
    let endpoint = endpoint(mode, "m");
    let body = match mode {
        ApiMode::AnthropicMessages => anthropic_messages::encode(&endpoint, request),
        ApiMode::CodexResponses => responses::encode(&endpoint, request),
        ApiMode::ChatCompletions | ApiMode::Scripted => chat_completions::encode(&endpoint, request),
    };
    serde_json::from_slice(&body).expect("a body is JSON")
}

// ---- the same turn

/// One turn of a model.
#[derive(Clone, Debug, Default)]
struct Turn {
    reasoning: &'static str,
    text: &'static str,
    calls: &'static [(&'static str, &'static str)],
    finish: FinishReason,
}

/// Pieces of at most three characters.
fn pieces(text: &str) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(3).map(|piece| piece.iter().collect()).collect()
}

fn stream(mode: ApiMode, turn: &Turn) -> String {
    let events = match mode {
        ApiMode::AnthropicMessages => messages_events(turn),
        ApiMode::CodexResponses => responses_events(turn),
        ApiMode::ChatCompletions | ApiMode::Scripted => chat_events(turn),
    };
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn chat_events(turn: &Turn) -> Vec<Value> {
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    events.extend(pieces(turn.reasoning).iter().map(|piece| delta(json!({"reasoning_content": piece}))));
    let field = if turn.finish == FinishReason::Refused { "refusal" } else { "content" };
    events.extend(pieces(turn.text).iter().map(|piece| delta(json!({ field: piece }))));
    for (index, (id, arguments)) in turn.calls.iter().enumerate() {
        events.push(delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": "n", "arguments": ""}}]})));
        let piece = |piece: &String| delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
        events.extend(pieces(arguments).iter().map(piece));
    }
    let finish = match turn.finish {
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Stop | FinishReason::Refused | FinishReason::Paused => "stop",
    };
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    events.push(json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}));
    events
}

fn messages_events(turn: &Turn) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": 6, "cache_read_input_tokens": 4}}})];
    let mut block = |start: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": 0, "content_block": start}));
        events
            .extend(deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": 0, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": 0}));
    };
    if !turn.reasoning.is_empty() {
        let deltas =
            pieces(turn.reasoning).iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece})).collect();
        block(json!({"type": "thinking", "thinking": ""}), deltas);
    }
    if !turn.text.is_empty() {
        let deltas = pieces(turn.text).iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect();
        block(json!({"type": "text", "text": ""}), deltas);
    }
    for (id, arguments) in turn.calls {
        let deltas =
            pieces(arguments).iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
        block(json!({"type": "tool_use", "id": id, "name": "n", "input": {}}), deltas);
    }
    let stop = match turn.finish {
        FinishReason::Length => "max_tokens",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::Refused => "refusal",
        FinishReason::Stop | FinishReason::Paused => "end_turn",
    };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    events
}

fn responses_events(turn: &Turn) -> Vec<Value> {
    let mut events = Vec::new();
    let mut output = Vec::new();
    let mut item = |added: Value, kind: &str, deltas: &str, last: Value| {
        events.push(json!({"type": "response.output_item.added", "item": added}));
        events.extend(pieces(deltas).iter().map(|piece| json!({"type": kind, "item_id": added["id"], "delta": piece})));
        events.push(json!({"type": "response.output_item.done", "item": last}));
        output.push(last);
    };
    if !turn.reasoning.is_empty() {
        let last =
            json!({"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": turn.reasoning}]});
        item(
            json!({"id": "r", "type": "reasoning", "summary": []}),
            "response.reasoning_summary_text.delta",
            turn.reasoning,
            last,
        );
    }
    if !turn.text.is_empty() {
        let is_refused = turn.finish == FinishReason::Refused;
        let kind = if is_refused { "response.refusal.delta" } else { "response.output_text.delta" };
        let part = if is_refused {
            json!({"type": "refusal", "refusal": turn.text})
        } else {
            json!({"type": "output_text", "text": turn.text})
        };
        item(
            json!({"id": "m", "type": "message", "content": []}),
            kind,
            turn.text,
            json!({"id": "m", "type": "message", "content": [part]}),
        );
    }
    for (id, arguments) in turn.calls {
        let call = |arguments: &str| json!({"id": format!("f{id}"), "type": "function_call", "call_id": id, "name": "n", "arguments": arguments});
        item(call(""), "response.function_call_arguments.delta", arguments, call(arguments));
    }
    let is_cut = turn.finish == FinishReason::Length;
    let status = if is_cut { "incomplete" } else { "completed" };
    events.push(json!({"type": format!("response.{status}"), "response": {
        "status": status,
        "incomplete_details": is_cut.then(|| json!({"reason": "max_output_tokens"})),
        "output": output,
        "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5}
    }}));
    events
}

#[track_caller]
fn check_turn(turn: &Turn) {
    let calls = turn.calls.iter().map(|(id, arguments)| ToolCall {
        id: (*id).into(),
        name: "n".into(),
        arguments: (*arguments).into(),
        extra: None,
    });
    let usage = Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 4, ..Usage::default() };
    for mode in MODES {
        let stream = stream(mode, turn);
        let (events, reply) = decode_chunks(decoder(mode), [stream.as_bytes()]).expect("decodes");
        let message = AssistantMessage {
            text: turn.text.into(),
            reasoning: turn.reasoning.into(),
            tool_calls: calls.clone().collect(),
            finish: turn.finish,
            native: reply.message.native.clone(),
        };
        assert_eq!(reply, ModelReply { message, usage }, "{mode:?}");
        assert_eq!(shown(&events), (turn.text.to_owned(), turn.reasoning.to_owned()), "{mode:?}");
        let started = events.iter().filter(|event| matches!(event, ModelEvent::ToolCallStarted { .. })).count();
        assert_eq!(started, turn.calls.len(), "{mode:?}");
    }
}

#[test]
fn the_same_turn_is_the_same_reply_in_each_format() {
    let calls: &[(&str, &str)] = &[("a", r#"{"x":"é\n"}"#), ("b", r#"{"x":[1,2]}"#)];
    for turn in [
        Turn { text: "plain text", ..Turn::default() },
        Turn { text: "café 你好 \u{1f600} naïve — €5", ..Turn::default() },
        Turn { reasoning: "because\n\nso", text: "therefore", ..Turn::default() },
        Turn { text: "Looking.", calls: &calls[..1], finish: FinishReason::ToolCalls, ..Turn::default() },
        Turn { reasoning: "both", calls, finish: FinishReason::ToolCalls, ..Turn::default() },
        Turn { calls: &[("a", "{}")], finish: FinishReason::ToolCalls, ..Turn::default() },
        Turn { text: "I will not.", finish: FinishReason::Refused, ..Turn::default() },
        Turn { text: "and so on and", finish: FinishReason::Length, ..Turn::default() },
        Turn { calls: &[("a", "{\"path\": \"/a")], finish: FinishReason::Length, ..Turn::default() },
    ] {
        check_turn(&turn);
    }
}

// ---- the same history

/// A request's history as lines that name no format.
fn told(mode: ApiMode, body: &Value) -> Vec<String> {
    let items = body[if mode == ApiMode::CodexResponses { "input" } else { "messages" }].as_array();
    items.into_iter().flatten().flat_map(|item| told_item(mode, item)).collect()
}

fn told_item(mode: ApiMode, item: &Value) -> Vec<String> {
    let role = item["role"].as_str().unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| joined(value), str::to_owned);
    let mut lines = Vec::new();
    let call = |id: &Value, name: &Value, arguments: &str| {
        let arguments: Value = serde_json::from_str(arguments).expect("arguments are JSON");
        format!("call {id} {name} {arguments}")
    };
    match (mode, item["type"].as_str().unwrap_or_default()) {
        (ApiMode::CodexResponses, "function_call") => {
            lines.push(call(&item["call_id"], &item["name"], item["arguments"].as_str().unwrap_or_default()));
        }
        (ApiMode::CodexResponses, "function_call_output") => {
            lines.push(format!("result {} {}", item["call_id"], text(&item["output"])));
        }
        (ApiMode::AnthropicMessages, _) => {
            for block in item["content"].as_array().into_iter().flatten() {
                lines.push(match block["type"].as_str().unwrap_or_default() {
                    "tool_use" => call(&block["id"], &block["name"], &block["input"].to_string()),
                    "tool_result" => format!("result {} {}", block["tool_use_id"], text(&block["content"])),
                    _ => format!("{role} {}", text(block)),
                });
            }
        }
        _ if role == "tool" => lines.push(format!("result {} {}", item["tool_call_id"], text(&item["content"]))),
        _ => {
            lines.extend(Some(format!("{role} {}", text(&item["content"]))).filter(|line| line.len() > role.len() + 1));
            for made in item["tool_calls"].as_array().into_iter().flatten() {
                let function = &made["function"];
                lines.push(call(&made["id"], &function["name"], function["arguments"].as_str().unwrap_or_default()));
            }
        }
    }
    lines
}

fn joined(value: &Value) -> String {
    let parts = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n")
}

#[test]
fn the_same_history_is_told_alike_in_each_format() {
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: "n".into(),
        arguments: arguments.into(),
        extra: None,
    };
    let result = |id: &str, text: &str| {
        Message::Tool(ToolResult {
            tool_call_id: id.into(),
            name: "n".into(),
            content: vec![Part::text(text)],
            is_error: false,
            effect: Effect::Done,
        })
    };
    let history = [
        Message::user("question \u{1f600}"),
        Message::Assistant(AssistantMessage {
            text: "Looking.".into(),
            tool_calls: vec![call("a", "{\"x\":1}"), call("b", "{}")],
            ..AssistantMessage::default()
        }),
        result("a", "one\ntwo"),
        result("b", "three"),
        Message::Assistant(AssistantMessage { text: "Done.".into(), ..AssistantMessage::default() }),
        Message::user("next"),
    ];
    let expected = [
        "user question \u{1f600}",
        "assistant Looking.",
        "call \"a\" \"n\" {\"x\":1}",
        "call \"b\" \"n\" {}",
        "result \"a\" one\ntwo",
        "result \"b\" three",
        "assistant Done.",
        "user next",
    ];
    for mode in MODES {
        let request =
            ModelRequest { system: "", messages: &history, tools: &[], max_output_tokens: None, session_id: "" };
        assert_eq!(told(mode, &encode(mode, &request)), expected, "{mode:?}");
    }
}

// ---- what a strict provider refuses, read from the bytes

fn check_bytes(mode: ApiMode, body: &Value) -> Result<(), String> {
    match mode {
        ApiMode::AnthropicMessages => check_messages(&body["messages"]),
        ApiMode::CodexResponses => check_input(&body["input"]),
        ApiMode::ChatCompletions | ApiMode::Scripted => check_chat(&body["messages"]),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ids(items: &[Value], kind: &str, name: &str) -> Vec<String> {
    items.iter().filter(|item| item["type"] == kind).map(|item| item[name].to_string()).collect()
}

fn check_messages(messages: &Value) -> Result<(), String> {
    let mut open = Vec::new();
    for (index, message) in list(messages).iter().enumerate() {
        let (role, blocks) = (if index % 2 == 0 { "user" } else { "assistant" }, list(&message["content"]));
        if message["role"] != role || blocks.is_empty() {
            return Err(format!("message {index} is {message}"));
        }
        let is_blank =
            |block: &Value| block["type"] == "text" && block["text"].as_str().is_none_or(|text| text.trim().is_empty());
        if blocks.iter().any(is_blank) || blocks.iter().all(|block| block["type"] == "thinking") {
            return Err(format!("message {index} is blank: {message}"));
        }
        let results = ids(blocks, "tool_result", "tool_use_id");
        if results != open {
            return Err(format!("message {index} answers {results:?} instead of {open:?}"));
        }
        if blocks.iter().take(results.len()).any(|block| block["type"] != "tool_result") {
            return Err(format!("message {index} does not begin with its results"));
        }
        open = ids(blocks, "tool_use", "id");
    }
    if open.is_empty() { Ok(()) } else { Err(format!("no results for {open:?}")) }
}

fn check_input(input: &Value) -> Result<(), String> {
    let items = list(input);
    let (calls, results) = (ids(items, "function_call", "call_id"), ids(items, "function_call_output", "call_id"));
    let unique: std::collections::HashSet<_> = calls.iter().collect();
    if calls != results || unique.len() != calls.len() {
        return Err(format!("calls {calls:?}, results {results:?}"));
    }
    let is_dangling = |pair: &[Value]| pair[0]["type"] == "reasoning" && pair[1]["role"] == "user";
    if items.windows(2).any(is_dangling) || items.iter().any(|item| item.get("id").is_some()) {
        return Err("reasoning without its answer, or an item with an id".into());
    }
    Ok(())
}

fn check_chat(messages: &Value) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut previous = "assistant";
    for (index, message) in list(messages).iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].to_string();
            if open.is_empty() || id != open.remove(0) {
                return Err(format!("message {index} is a stray result"));
            }
        } else if !open.is_empty() || role == previous || (role == "user" && previous == "tool") {
            return Err(format!("message {index} ({role}) follows {previous}, open {open:?}"));
        }
        if role == "assistant" {
            open = list(&message["tool_calls"]).iter().map(|call| call["id"].to_string()).collect();
            if open.is_empty() && message["content"].as_str().is_none_or(|text| text.trim().is_empty()) {
                return Err(format!("message {index} is blank"));
            }
        }
        previous = role;
    }
    if open.is_empty() { Ok(()) } else { Err(format!("no results for {open:?}")) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_strict_provider_takes_the_bytes_of_any_history(moves in moves()) {
        let history = build(&moves);
        for mode in MODES {
            let provider = if mode == ApiMode::AnthropicMessages { "anthropic" } else { "openai" };
            let messages = normalize(&history, Target { api_mode: mode, provider, model: "claude-x" });
            let request = ModelRequest { system: "", messages: &messages, tools: &[], max_output_tokens: None, session_id: "" };
            let body = encode(mode, &request);
            prop_assert_eq!(check_bytes(mode, &body), Ok(()), "{:#}", body);
        }
    }
}
