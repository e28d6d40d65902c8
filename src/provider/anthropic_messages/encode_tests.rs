//! What requests look like.

use std::sync::Arc;

use serde_json::{Value, json};

use super::encode;
use crate::message::{
    AssistantMessage, Effect, FinishReason, Message, NativeItems, Part, ToolCall, ToolResult, UserMessage,
};
use crate::provider::endpoint::{Adjustments, CacheTtl};
use crate::provider::golden_tests::endpoint;
use crate::provider::{ApiMode, Endpoint, ModelRequest};
use crate::tool::ToolSpec;

const MODEL: &str = "claude-sonnet-4-5";

fn claude() -> Endpoint {
    let mut endpoint = endpoint(ApiMode::AnthropicMessages, MODEL);
    endpoint.quirks.reasoning_effort = true;
    endpoint
}

fn request(messages: &[Message]) -> ModelRequest<'_> {
    ModelRequest { system: "", messages, tools: &[], max_output_tokens: None, session_id: "s" }
}

fn body(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Value {
    serde_json::from_slice(&encode(endpoint, request)).expect("a body is JSON")
}

fn messages(endpoint: &Endpoint, history: &[Message]) -> Value {
    body(endpoint, &request(history))["messages"].take()
}

fn calls(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall {
        id: (*id).into(),
        name: "n".into(),
        arguments: r#"{"b":1.50,"a":{}}"#.into(),
        extra: None,
    };
    Message::Assistant(AssistantMessage {
        tool_calls: ids.iter().map(call).collect(),
        finish: FinishReason::ToolCalls,
        ..AssistantMessage::default()
    })
}

fn answer(text: &str) -> Message {
    Message::Assistant(AssistantMessage { text: text.into(), ..AssistantMessage::default() })
}

fn result(id: &str, content: Vec<Part>) -> Message {
    Message::Tool(ToolResult {
        tool_call_id: id.into(),
        name: "n".into(),
        content,
        is_error: id == "bad",
        effect: Effect::Done,
    })
}

fn picture() -> Part {
    Part::Image { mime_type: "image/png".into(), data: "QUJD".into() }
}

fn signed(text: &str) -> Message {
    let items =
        vec![json!({"type": "thinking", "thinking": " ü ", "signature": "s=="}), json!({"type": "text", "text": text})];
    let native = NativeItems {
        provider: "p".into(),
        model: MODEL.into(),
        api_mode: "anthropic_messages".into(),
        items,
        ..NativeItems::default()
    };
    Message::Assistant(AssistantMessage { text: text.into(), native: Some(native), ..AssistantMessage::default() })
}

#[test]
fn a_request_has_the_shape_that_the_api_documents() {
    let tools =
        [Arc::new(ToolSpec { name: "n".into(), description: "d".into(), parameters: json!({"type": "object"}) })];
    let history = [Message::user("q")];
    let request = ModelRequest { system: "be good", tools: &tools, max_output_tokens: Some(100), ..request(&history) };
    assert_eq!(
        body(&claude(), &request),
        json!({
            "model": MODEL,
            "max_tokens": 100,
            "stream": true,
            "tools": [{"name": "n", "description": "d", "input_schema": {"type": "object"}}],
            "system": [{"type": "text", "text": "be good"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]
        })
    );
}

#[test]
fn results_are_one_user_message_in_call_order() {
    let history = [
        Message::user("q"),
        calls(&["a", "bad"]),
        result("a", vec![Part::text("1"), picture()]),
        result("bad", vec![Part::text("2")]),
    ];
    assert_eq!(
        messages(&claude(), &history),
        json!([
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "n", "input": {"b": 1.50, "a": {}}},
                {"type": "tool_use", "id": "bad", "name": "n", "input": {"b": 1.50, "a": {}}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [
                    {"type": "text", "text": "1"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
                ]},
                {"type": "tool_result", "tool_use_id": "bad", "content": [{"type": "text", "text": "2"}], "is_error": true}
            ]}
        ])
    );
    let bytes = encode(&claude(), &request(&history));
    assert!(String::from_utf8_lossy(&bytes).contains(r#""input":{"b":1.50,"a":{}}"#), "arguments go out as written");
}

#[test]
fn recovery_leaves_out_what_the_provider_refused() {
    let history = [
        Message::User(UserMessage { content: vec![Part::text("q"), picture()], ..UserMessage::default() }),
        signed("hi"),
        Message::user("r"),
    ];
    let plain = messages(&claude(), &history);
    assert_eq!(plain[1]["content"][0], json!({"type": "thinking", "thinking": " ü ", "signature": "s=="}));
    let adjustments = Adjustments { strip_reasoning: true, drop_images: true, ..Adjustments::default() };
    let bare = messages(&Endpoint { adjustments, ..claude() }, &history);
    assert_eq!(bare[0]["content"][1], json!({"type": "text", "text": "[a picture (image/png) was left out]"}));
    assert_eq!(bare[1]["content"], json!([{"type": "text", "text": "hi"}]));
    let adjustments = Adjustments { flatten_tool_results: true, ..Adjustments::default() };
    let history = [Message::user("q"), calls(&["a"]), result("a", vec![picture()])];
    let flat = messages(&Endpoint { adjustments, ..claude() }, &history);
    assert_eq!(
        flat[2]["content"][0]["content"],
        json!([{"type": "text", "text": "[a picture (image/png) was left out]"}])
    );
}

fn markers(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            usize::from(fields.contains_key("cache_control")) + fields.values().map(markers).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(markers).sum(),
        _ => 0,
    }
}

#[test]
fn the_system_prompt_and_the_last_three_messages_are_marked() {
    let mut endpoint = claude();
    endpoint.quirks.prompt_cache = true;
    let history = [
        Message::user("1"),
        signed("2"),
        Message::user("3"),
        calls(&["a", "b"]),
        result("a", vec![Part::text("4")]),
        result("b", vec![Part::text("5")]),
    ];
    let body = body(&endpoint, &ModelRequest { system: "s", ..request(&history) });
    let marker = json!({"type": "ephemeral"});
    assert_eq!(markers(&body), 4);
    assert_eq!(body["system"][0]["cache_control"], marker);
    for pointer in ["/messages/4/content/1", "/messages/3/content/1", "/messages/2/content/0"] {
        assert_eq!(body.pointer(pointer).map(|block| &block["cache_control"]), Some(&marker), "{pointer}");
    }
    endpoint.quirks.cache_ttl = CacheTtl::OneHour;
    let body = self::body(&endpoint, &ModelRequest { system: "s", ..request(&history) });
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
}

#[test]
fn thinking_takes_no_marker() {
    let mut endpoint = claude();
    endpoint.quirks.prompt_cache = true;
    let Message::Assistant(mut only_thinking) = signed("x") else { unreachable!("made as an answer") };
    only_thinking.native.as_mut().expect("signed").items.reverse();
    let body = body(&endpoint, &request(&[Message::user("q"), Message::Assistant(only_thinking), Message::user("r")]));
    assert!(body["messages"][1]["content"][0].get("cache_control").is_some());
    assert!(body["messages"][1]["content"][1].get("cache_control").is_none());
}

#[test]
fn a_longer_history_begins_with_the_bytes_of_the_shorter() {
    let history = [
        Message::user("1"),
        signed("2"),
        Message::user("3"),
        calls(&["a"]),
        result("a", vec![Part::text("4")]),
        answer("5"),
        Message::user("6"),
    ];
    let whole = encode(&claude(), &request(&history));
    for length in [1, 3, 5, 7] {
        let part = encode(&claude(), &request(&history[..length]));
        let front = part.strip_suffix(b"]}").expect("messages come last");
        assert!(whole.starts_with(front), "{length} messages");
    }
}

#[test]
fn a_history_to_be_continued_does_not_end_with_space() {
    let history = [Message::user("q"), answer("to be continued \n")];
    assert_eq!(messages(&claude(), &history)[1]["content"][0]["text"], "to be continued");
    let history = [Message::user("q"), signed("signed \n")];
    assert_eq!(messages(&claude(), &history)[1]["content"][1]["text"], "signed");
}

#[track_caller]
fn check_limits(model: &str, effort: Option<&str>, asked: Option<u64>, expected: Value) {
    let endpoint = Endpoint { reasoning_effort: effort.map(str::to_owned), model: model.into(), ..claude() };
    let history = [Message::user("q")];
    let body = body(&endpoint, &ModelRequest { max_output_tokens: asked, ..request(&history) });
    let fields = ["max_tokens", "thinking", "output_config"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), body.get(name)?.clone())));
    assert_eq!(Value::Object(fields.collect()), expected, "{model} {effort:?} {asked:?}");
}

#[test]
fn thinking_leaves_room_for_the_answer_and_fits_the_model() {
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    check_limits("claude-sonnet-4-5", None, None, json!({"max_tokens": 64_000}));
    check_limits("claude-sonnet-4-5", Some("none"), None, json!({"max_tokens": 64_000}));
    check_limits("claude-sonnet-4-5", Some("medium"), None, json!({"max_tokens": 64_000, "thinking": budget(8192)}));
    check_limits(
        "claude-sonnet-4-5",
        Some("high"),
        Some(10_000),
        json!({"max_tokens": 10_000, "thinking": budget(5904)}),
    );
    check_limits("claude-sonnet-4-5", Some("high"), Some(5000), json!({"max_tokens": 5000}));
    check_limits("claude-opus-4-1", Some("minimal"), None, json!({"max_tokens": 32_000, "thinking": budget(1024)}));
    check_limits("claude-3-5-haiku-latest", Some("high"), None, json!({"max_tokens": 8192}));
    check_limits(
        "claude-opus-4-6",
        Some("xhigh"),
        None,
        json!({"max_tokens": 64_000, "thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
    );
    check_limits(
        "claude-sonnet-4-6",
        Some("low"),
        None,
        json!({"max_tokens": 64_000, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
    );
    let shown = json!({"type": "adaptive", "display": "summarized"});
    check_limits(
        "claude-opus-4-7",
        Some("xhigh"),
        None,
        json!({"max_tokens": 64_000, "thinking": shown, "output_config": {"effort": "xhigh"}}),
    );
    check_limits("smollm2", Some("low"), None, json!({"max_tokens": 8192, "thinking": budget(4096)}));
}

#[test]
fn thinking_does_not_begin_inside_a_tool_loop() {
    let endpoint = Endpoint { reasoning_effort: Some("medium".into()), ..claude() };
    let foreign = [Message::user("q"), calls(&["a"]), result("a", vec![Part::text("r")])];
    assert_eq!(body(&endpoint, &request(&foreign)).get("thinking"), None);
    let mut own = foreign;
    if let (Message::Assistant(assistant), Message::Assistant(signed)) = (&mut own[1], signed("")) {
        assistant.native = signed.native;
    }
    assert!(body(&endpoint, &request(&own)).get("thinking").is_some());
}
