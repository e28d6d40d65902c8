//! What requests look like.

use std::sync::Arc;

use serde_json::{Value, json};

use super::encode;
use crate::message::{AssistantMessage, Effect, Message, NativeItems, Part, ToolCall, ToolResult, UserMessage};
use crate::provider::endpoint::{Adjustments, ToolImages};
use crate::provider::golden_tests::endpoint;
use crate::provider::normalize::TURN_ENDED;
use crate::provider::{ApiMode, Endpoint, ModelRequest};
use crate::tool::ToolSpec;

fn openai(model: &str) -> Endpoint {
    let mut endpoint = endpoint(ApiMode::CodexResponses, model);
    endpoint.quirks.reasoning_effort = true;
    endpoint
}

fn request(messages: &[Message]) -> ModelRequest<'_> {
    ModelRequest { system: "", messages, tools: &[], max_output_tokens: None, session_id: "session" }
}

fn body(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Value {
    serde_json::from_slice(&encode(endpoint, request)).expect("a body is JSON")
}

fn input(endpoint: &Endpoint, history: &[Message]) -> Value {
    body(endpoint, &request(history))["input"].take()
}

fn answer(text: &str, calls: &[&str], items: &[Value]) -> Message {
    let call =
        |id: &&str| ToolCall { id: (*id).into(), name: "n".into(), arguments: r#"{"b":1.50}"#.into(), extra: None };
    let native = NativeItems {
        provider: "p".into(),
        model: "gpt-5".into(),
        api_mode: "codex_responses".into(),
        items: items.to_vec(),
        ..NativeItems::default()
    };
    Message::Assistant(AssistantMessage {
        text: text.into(),
        tool_calls: calls.iter().map(call).collect(),
        native: (!items.is_empty()).then_some(native),
        ..AssistantMessage::default()
    })
}

fn result(id: &str, content: Vec<Part>) -> Message {
    Message::Tool(ToolResult {
        tool_call_id: id.into(),
        name: "n".into(),
        content,
        is_error: false,
        effect: Effect::Done,
    })
}

fn picture() -> Part {
    Part::Image { mime_type: "image/png".into(), data: "QUJD".into() }
}

fn reasoning() -> Value {
    json!({"type": "reasoning", "summary": [], "encrypted_content": "e=="})
}

#[test]
fn a_request_stores_nothing_and_asks_for_encrypted_reasoning() {
    let tools =
        [Arc::new(ToolSpec { name: "n".into(), description: "d".into(), parameters: json!({"type": "object"}) })];
    let mut endpoint = Endpoint { reasoning_effort: Some("low".into()), ..openai("gpt-5") };
    endpoint.quirks.prompt_cache = true;
    let history = [Message::user("q")];
    let request = ModelRequest { system: "be good", tools: &tools, max_output_tokens: Some(100), ..request(&history) };
    assert_eq!(
        body(&endpoint, &request),
        json!({
            "model": "gpt-5",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 100,
            "prompt_cache_key": "session",
            "reasoning": {"effort": "low", "summary": "auto"},
            "tools": [{"type": "function", "name": "n", "description": "d", "parameters": {"type": "object"}, "strict": false}],
            "instructions": "be good",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}]
        })
    );
}

#[test]
fn a_server_that_does_not_reason_is_not_asked_to() {
    let mut endpoint = Endpoint { reasoning_effort: Some("high".into()), ..openai("gpt-4.1") };
    endpoint.quirks.reasoning_effort = false;
    let body = body(&endpoint, &request(&[Message::user("q")]));
    assert_eq!((body.get("include"), body.get("reasoning")), (None, None));
}

#[test]
fn history_goes_back_in_items_without_ids() {
    let history = [
        Message::User(UserMessage { content: vec![Part::text("q"), picture()], ..UserMessage::default() }),
        answer("Looking.", &["a"], &[]),
        result("a", vec![Part::text("1"), Part::text("2")]),
        answer(
            "Done.",
            &[],
            &[
                reasoning(),
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}], "phase": "final_answer"}),
            ],
        ),
    ];
    assert_eq!(
        input(&openai("gpt-5"), &history),
        json!([
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "q"},
                {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
            ]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
            {"type": "function_call", "call_id": "a", "name": "n", "arguments": "{\"b\":1.50}"},
            {"type": "function_call_output", "call_id": "a", "output": "1\n2"},
            {"type": "reasoning", "summary": [], "encrypted_content": "e=="},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}], "phase": "final_answer"}
        ])
    );
}

#[test]
fn reasoning_is_never_last() {
    let items = input(&openai("gpt-5"), &[Message::user("q"), answer("", &[], &[reasoning()]), Message::user("r")]);
    assert_eq!(items[1], reasoning());
    assert_eq!(items[2]["content"][0]["text"], TURN_ENDED);
    let adjustments = Adjustments { strip_reasoning: true, ..Adjustments::default() };
    let stripped = Endpoint { adjustments, ..openai("gpt-5") };
    let body = body(&stripped, &request(&[Message::user("q"), answer("", &[], &[reasoning()]), Message::user("r")]));
    assert_eq!((body.get("include"), body["input"].as_array().map(Vec::len)), (None, Some(3)));
    assert_eq!(body["input"][1]["content"][0]["text"], TURN_ENDED);
}

#[test]
fn pictures_of_results_go_where_the_server_takes_them() {
    let history = [
        Message::user("q"),
        answer("", &["a", "b"], &[]),
        result("a", vec![Part::text("1"), picture()]),
        result("b", vec![Part::text("2")]),
    ];
    let mut endpoint = openai("gpt-5");
    let apart = input(&endpoint, &history);
    assert_eq!(apart[3]["output"], "1\n[the picture is in the next user message]");
    assert_eq!(apart[4]["output"], "2");
    assert_eq!(
        apart[5],
        json!({"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]})
    );
    endpoint.quirks.tool_images = ToolImages::Inline;
    let inline = input(&endpoint, &history);
    assert_eq!(inline[3]["output"][1], json!({"type": "input_image", "image_url": "data:image/png;base64,QUJD"}));
    endpoint.adjustments.drop_images = true;
    assert_eq!(
        input(&endpoint, &history)[3]["output"][1],
        json!({"type": "input_text", "text": "[a picture (image/png) was left out]"})
    );
}

#[test]
fn a_longer_history_begins_with_the_bytes_of_the_shorter() {
    let history = [
        Message::user("1"),
        answer("2", &["a"], &[]),
        result("a", vec![Part::text("3")]),
        answer("", &[], &[reasoning()]),
        Message::user("4"),
    ];
    let whole = encode(&openai("gpt-5"), &request(&history));
    for length in [1, 3, 4, 5] {
        let part = encode(&openai("gpt-5"), &request(&history[..length]));
        assert!(whole.starts_with(part.strip_suffix(b"]}").expect("input comes last")), "{length} messages");
    }
}
