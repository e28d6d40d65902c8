//! What goes over the wire, as JSON.

use std::sync::Arc;

use serde_json::{Value, json};

use super::encode;
use crate::message::{
    AssistantMessage, Effect, FinishReason, Message, NativeItems, Part, ToolCall, ToolResult, UserMessage,
};
use crate::provider::endpoint::tests::endpoint;
use crate::provider::endpoint::{
    CacheStyle, EffortStyle, EmptyContent, MaxTokensField, ReasoningReplay, SystemRole, ToolCallIds, ToolImages,
};
use crate::provider::{Endpoint, ModelRequest};
use crate::tool::ToolSpec;

fn bytes(endpoint: &Endpoint, messages: &[Message]) -> Vec<u8> {
    let tools =
        [Arc::new(ToolSpec { name: "t".into(), description: "d".into(), parameters: json!({"type": "object"}) })];
    let request =
        ModelRequest { system: "sys", messages, tools: &tools, max_output_tokens: Some(100), session_id: "s1" };
    encode(endpoint, &request)
}

fn body(endpoint: &Endpoint, messages: &[Message]) -> Value {
    serde_json::from_slice(&bytes(endpoint, messages)).unwrap()
}

/// The messages without the system prompt.
fn sent(endpoint: &Endpoint, messages: &[Message]) -> Vec<Value> {
    body(endpoint, messages)["messages"].as_array().unwrap()[1..].to_vec()
}

fn call(reasoning: &str) -> AssistantMessage {
    AssistantMessage {
        reasoning: reasoning.into(),
        tool_calls: vec![ToolCall { id: "c1".into(), name: "t".into(), arguments: r#"{"a":1}"#.into(), extra: None }],
        finish: FinishReason::ToolCalls,
        ..AssistantMessage::default()
    }
}

fn result(content: Vec<Part>) -> Message {
    let tool_call_id = "c1".into();
    Message::Tool(ToolResult { tool_call_id, name: "t".into(), content, is_error: false, effect: Effect::Done })
}

fn picture() -> Part {
    Part::Image { mime_type: "image/png".into(), data: "QUJD".into() }
}

fn native(provider: &str, items: Vec<Value>) -> Option<NativeItems> {
    let api_mode = "chat_completions".into();
    Some(NativeItems { provider: provider.into(), model: "m".into(), api_mode, items, ..NativeItems::default() })
}

#[test]
fn a_turn_with_a_tool_is_written_as_strict_servers_want_it() {
    let messages = [Message::user("hello"), Message::Assistant(call("")), result(vec![Part::text("done")])];
    assert_eq!(
        body(&endpoint("p", "m"), &messages),
        json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 100,
            "tools": [{"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "sys"},
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{\"a\":1}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
            ],
        })
    );
}

#[test]
fn the_next_step_begins_with_all_bytes_of_this_one() {
    let mut own = call("hm");
    own.native = native("p", Vec::new());
    let messages = [
        Message::user("hello"),
        Message::Assistant(own),
        result(vec![Part::text("see"), picture()]),
        Message::Assistant(AssistantMessage { text: "ok".into(), ..AssistantMessage::default() }),
        Message::user("more"),
    ];
    let mut replaying = endpoint("p", "m");
    replaying.quirks.reasoning_replay = ReasoningReplay::WhenPresent;
    for length in 1..messages.len() {
        let shorter = bytes(&replaying, &messages[..length]);
        let longer = bytes(&replaying, &messages[..=length]);
        assert!(longer.starts_with(shorter.strip_suffix(b"]}").unwrap()), "{length} messages");
        assert_eq!(shorter, bytes(&replaying, &messages[..length]), "the same input gives the same bytes");
    }
}

#[test]
fn quirks_are_obeyed() {
    let mut odd = endpoint("p", "m");
    odd.quirks.stream_usage = false;
    odd.quirks.parallel_tool_calls = true;
    odd.quirks.prompt_cache = true;
    odd.quirks.reasoning_effort = true;
    odd.quirks.max_tokens_field = MaxTokensField::MaxCompletionTokens;
    odd.quirks.system_role = SystemRole::Developer;
    odd.reasoning_effort = Some("low".into());
    let body = body(&odd, &[Message::user("x")]);
    let field = |name: &str| body.get(name).cloned().unwrap_or_default();
    assert_eq!(field("stream_options"), Value::Null);
    assert_eq!(field("max_tokens"), Value::Null);
    assert_eq!(field("max_completion_tokens"), 100);
    assert_eq!(field("parallel_tool_calls"), true);
    assert_eq!(field("prompt_cache_key"), "s1");
    assert_eq!(field("reasoning_effort"), "low");
    assert_eq!(body["messages"][0]["role"], "developer");
}

#[test]
fn cache_markers_stand_at_the_system_prompt_and_the_last_three_texts() {
    let mut marked = endpoint("p", "m");
    marked.quirks.prompt_cache = true;
    marked.quirks.cache_style = CacheStyle::Markers;
    let messages = [
        Message::user("one"),
        Message::Assistant(call("")),
        result(vec![Part::text("two")]),
        Message::Assistant(AssistantMessage { text: "three".into(), ..AssistantMessage::default() }),
        Message::user("four"),
    ];
    let body = body(&marked, &messages);
    assert_eq!(body.get("prompt_cache_key"), None);
    let is_marked = |message: &Value| message.to_string().contains(r#""cache_control":{"type":"ephemeral"}"#);
    let marks: Vec<_> = body["messages"].as_array().unwrap().iter().map(is_marked).collect();
    assert_eq!(marks, [true, false, false, true, true, true]);
}

#[test]
fn an_assistant_message_without_text_is_written_as_the_server_wants_it() {
    for (quirk, expect) in [
        (EmptyContent::Null, Some(Value::Null)),
        (EmptyContent::Empty, Some(json!(""))),
        (EmptyContent::Space, Some(json!(" "))),
        (EmptyContent::Absent, None),
    ] {
        let mut odd = endpoint("p", "m");
        odd.quirks.empty_content = quirk;
        assert_eq!(sent(&odd, &[Message::Assistant(call(""))])[0].get("content").cloned(), expect, "{quirk:?}");
    }
}

#[test]
fn reasoning_goes_back_to_its_issuer_only_and_only_with_tool_calls() {
    let check = |replay, message: AssistantMessage, expect: Value| {
        let mut target = endpoint("p", "m");
        target.quirks.reasoning_replay = replay;
        let sent = sent(&target, &[Message::Assistant(message)]);
        assert_eq!(sent[0].get("reasoning_content").cloned().unwrap_or_default(), expect, "{replay:?}");
    };
    let by = |provider: &str| AssistantMessage { native: native(provider, Vec::new()), ..call("hm") };
    check(ReasoningReplay::WhenPresent, by("p"), json!("hm"));
    check(ReasoningReplay::WhenPresent, call("hm"), json!("hm"));
    check(ReasoningReplay::WhenPresent, by("other"), Value::Null);
    check(ReasoningReplay::WhenPresent, call(""), Value::Null);
    check(ReasoningReplay::Padded, by("other"), json!(" "));
    check(ReasoningReplay::Padded, call(""), json!(" "));
    check(ReasoningReplay::Never, by("p"), Value::Null);
    let answer = AssistantMessage { text: "ok".into(), tool_calls: Vec::new(), ..by("p") };
    check(ReasoningReplay::Padded, answer, Value::Null);
}

#[test]
fn native_items_and_extra_data_go_back_to_their_issuer_only() {
    let items = vec![json!({"type": "reasoning.encrypted", "data": "x"})];
    let mut message = AssistantMessage { native: native("p", items.clone()), ..call("hm") };
    message.tool_calls[0].extra = Some(json!({"google": {"thought_signature": "s"}}));
    let messages = [Message::Assistant(message)];
    let replaying = |provider: &str| {
        let mut endpoint = endpoint(provider, "m");
        endpoint.quirks.reasoning_replay = ReasoningReplay::WhenPresent;
        endpoint.quirks.tool_call_extra = true;
        endpoint
    };
    let own = sent(&replaying("p"), &messages);
    assert_eq!(own[0]["reasoning_details"], Value::Array(items));
    assert_eq!(own[0]["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "s");
    let foreign = sent(&replaying("other"), &messages);
    assert_eq!((foreign[0].get("reasoning_details"), foreign[0]["tool_calls"][0].get("extra_content")), (None, None));
    let mut stripped = replaying("p");
    stripped.adjustments.strip_reasoning = true;
    assert_eq!(sent(&stripped, &messages)[0].get("reasoning_details"), None);
}

#[test]
fn pictures_stand_where_the_server_takes_them() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}});
    let shown = vec![Part::text("a file"), picture()];
    let user = Message::User(UserMessage { content: vec![Part::text("look"), picture()], ..UserMessage::default() });
    assert_eq!(sent(&endpoint("p", "m"), &[user])[0]["content"], json!([{"type": "text", "text": "look"}, image]));

    let turn = [Message::Assistant(call("")), result(shown)];
    let moved = sent(&endpoint("p", "m"), &turn);
    assert_eq!(moved[1]["content"], "a file\n[the picture is in the next user message]");
    assert_eq!(moved[2], json!({"role": "user", "content": [image]}));

    let followed = sent(&endpoint("p", "m"), &[turn[0].clone(), turn[1].clone(), Message::user("and?")]);
    assert_eq!(followed.len(), 3, "no two user messages in a row");
    assert_eq!(followed[2]["content"], json!([image, {"type": "text", "text": "and?"}]));

    let mut inline = endpoint("p", "m");
    inline.quirks.tool_images = ToolImages::Inline;
    assert_eq!(sent(&inline, &turn)[1]["content"], json!([{"type": "text", "text": "a file"}, image]));

    let mut blind = endpoint("p", "m");
    blind.adjustments.drop_images = true;
    assert!(!String::from_utf8(bytes(&blind, &turn)).unwrap().contains("QUJD"));
}

#[test]
fn ids_are_shortened_the_same_way_on_call_and_result() {
    let mut mistral = endpoint("p", "m");
    mistral.quirks.tool_call_ids = ToolCallIds::NineAlphanumeric;
    let sent = sent(&mistral, &[Message::Assistant(call("")), result(vec![Part::text("ok")])]);
    let id = sent[0]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!((id.len(), sent[1]["tool_call_id"].as_str().unwrap()), (9, id));
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
}

#[test]
fn blank_arguments_are_an_empty_object() {
    let mut message = call("");
    message.tool_calls[0].arguments = " ".into();
    let sent = sent(&endpoint("p", "m"), &[Message::Assistant(message)]);
    assert_eq!(sent[0]["tool_calls"][0]["function"]["arguments"], "{}");
}

#[test]
fn the_effort_goes_in_the_form_the_server_reads() {
    let mut endpoint = endpoint("p", "m");
    endpoint.reasoning_effort = Some("low".into());
    let fields = |endpoint: &Endpoint| {
        let body = body(endpoint, &[Message::user("hi")]);
        (body.get("reasoning_effort").cloned(), body.get("reasoning").cloned())
    };
    assert_eq!(fields(&endpoint), (None, None), "a server nobody knows is not told");
    endpoint.quirks.reasoning_effort = true;
    assert_eq!(fields(&endpoint), (Some(json!("low")), None));
    endpoint.quirks.effort_style = EffortStyle::Object;
    assert_eq!(fields(&endpoint), (None, Some(json!({"effort": "low"}))));
}

#[test]
fn calls_of_another_model_get_the_signature_that_stands_for_none() {
    let call = |id: &str, extra| ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into(), extra };
    let signature = json!({"google": {"thought_signature": "Es4B+/=="}});
    let native = NativeItems { provider: "p".into(), model: "m".into(), ..NativeItems::default() };
    let signed = AssistantMessage {
        tool_calls: vec![call("c1", Some(signature.clone())), call("c2", None)],
        native: Some(native),
        ..AssistantMessage::default()
    };
    let unsigned =
        AssistantMessage { tool_calls: vec![call("c3", None), call("c4", None)], ..AssistantMessage::default() };
    let messages = [Message::Assistant(signed), Message::Assistant(unsigned)];
    let extras = |endpoint: &Endpoint| -> Vec<Value> {
        let sent = sent(endpoint, &messages);
        let calls = sent.iter().flat_map(|message| message["tool_calls"].as_array().unwrap());
        calls.map(|call| call["extra_content"].clone()).collect()
    };
    let mut gemini = endpoint("p", "m");
    gemini.quirks.tool_call_extra = true;
    assert_eq!(extras(&gemini), [signature.clone(), Value::Null, Value::Null, Value::Null]);
    gemini.quirks.sign_tool_calls = true;
    let none = json!({"google": {"thought_signature": "skip_thought_signature_validator"}});
    assert_eq!(extras(&gemini), [signature, Value::Null, none.clone(), Value::Null]);
    gemini.adjustments.strip_reasoning = true;
    assert_eq!(extras(&gemini), [none.clone(), Value::Null, none, Value::Null]);
}
