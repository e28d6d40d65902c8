//! Both directions of the format.

use serde_json::{Value, json};

use super::decode::MessagesDecoder;
use crate::message::{FinishReason, Usage};
use crate::provider::golden_tests::{Decoded, Failure, check_folder, decode_chunks, decode_whole, shown};
use crate::provider::{ApiMode, DecodeError, Decoder, ModelEvent, ModelReply, SseEvent};

fn decoder() -> Box<dyn Decoder> {
    Box::new(MessagesDecoder::new("anthropic", "claude-x"))
}

#[test]
fn what_servers_sent_decodes_the_same_however_it_is_cut() {
    check_folder(ApiMode::AnthropicMessages, decoder);
}

/// Decodes events given as JSON, each named by its type.
fn decode(events: &[Value]) -> Decoded {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    let body: String = events.iter().map(event).collect();
    decode_chunks(decoder(), [body.as_bytes()])
}

fn block(index: u64, start: Value, deltas: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": start})];
    events.extend(deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

fn text(index: u64, text: &str) -> Vec<Value> {
    block(index, json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": text})])
}

fn answer(blocks: &[Vec<Value>], stop_reason: &str) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}})];
    events.extend(blocks.iter().flatten().cloned());
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    events
}

#[track_caller]
fn reply(events: &[Value]) -> ModelReply {
    let (events, reply) = decode(events).expect("decodes");
    assert_eq!(shown(&events), (reply.message.text.clone(), reply.message.reasoning.clone()));
    reply
}

#[test]
fn pings_may_stand_anywhere() {
    let plain = answer(
        &[
            text(0, "hi"),
            block(
                1,
                json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}),
                &[json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"})],
            ),
        ],
        "tool_use",
    );
    let ping = json!({"type": "ping"});
    let mut pinged = vec![ping.clone()];
    for event in &plain {
        pinged.extend([event.clone(), ping.clone()]);
    }
    assert_eq!(decode(&pinged), decode(&plain));
}

#[test]
fn unknown_events_blocks_and_deltas_are_ignored() {
    let mut events = answer(
        &[
            text(0, "one "),
            block(1, json!({"type": "hologram", "data": [1]}), &[json!({"type": "light_delta", "light": 7})]),
            block(
                2,
                json!({"type": "text", "text": "two"}),
                &[json!({"type": "citations_delta", "citation": {"url": "u"}})],
            ),
        ],
        "end_turn",
    );
    events.insert(1, json!({"type": "weather", "delta": "sunny", "index": {}}));
    let reply = reply(&events);
    assert_eq!((reply.message.text.as_str(), reply.message.native), ("one \n\ntwo", None));
    let unread = b"event: weather\ndata: sunny\n\n";
    let rest: String = answer(&[text(0, "hi")], "end_turn").iter().map(|event| format!("data: {event}\n\n")).collect();
    let (_, reply) = decode_chunks(decoder(), [unread.as_slice(), rest.as_bytes()]).expect("decodes");
    assert_eq!(reply.message.text, "hi");
}

#[test]
fn a_call_without_arguments_is_an_empty_object() {
    let none = block(0, json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}), &[]);
    let blank = block(
        0,
        json!({"type": "tool_use", "id": "t", "name": "n"}),
        &[json!({"type": "input_json_delta", "partial_json": ""})],
    );
    let at_once = block(0, json!({"type": "tool_use", "id": "t", "name": "n", "input": {"b": 1, "a": 2}}), &[]);
    for (call, arguments) in [(none, "{}"), (blank, "{}"), (at_once, r#"{"b":1,"a":2}"#)] {
        let message = reply(&answer(&[call], "tool_use")).message;
        assert_eq!((message.tool_calls[0].arguments.as_str(), message.finish), (arguments, FinishReason::ToolCalls));
    }
}

#[test]
fn a_call_that_was_cut_never_looks_whole() {
    for deltas in [vec![], vec![json!({"type": "input_json_delta", "partial_json": "{\"path\": \"/a"})]] {
        let call = block(0, json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}), &deltas);
        let message = reply(&answer(&[call], "max_tokens")).message;
        assert_eq!(message.finish, FinishReason::Length);
        assert!(serde_json::from_str::<Value>(&message.tool_calls[0].arguments).is_err());
    }
}

#[test]
fn thinking_goes_back_byte_for_byte_and_in_order() {
    let thinking = " let me \u{1f914}\n";
    let message = reply(&answer(
        &[
            block(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[
                    json!({"type": "thinking_delta", "thinking": " let me "}),
                    json!({"type": "thinking_delta", "thinking": "\u{1f914}\n"}),
                    json!({"type": "signature_delta", "signature": "EqQB/+"}),
                    json!({"type": "signature_delta", "signature": "=="}),
                ],
            ),
            block(1, json!({"type": "redacted_thinking", "data": "opaque=="}), &[]),
            text(2, "Looking."),
            block(
                3,
                json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}),
                &[json!({"type": "input_json_delta", "partial_json": "{ \"a\": 1 }"})],
            ),
        ],
        "tool_use",
    ))
    .message;
    assert_eq!((message.reasoning.as_str(), message.text.as_str()), (thinking, "Looking."));
    let native = message.native.expect("thinking is kept");
    assert_eq!(
        (native.provider.as_str(), native.model.as_str(), native.api_mode.as_str()),
        ("anthropic", "claude-x", "anthropic_messages")
    );
    assert_eq!(
        Value::Array(native.items),
        json!([
            {"type": "thinking", "thinking": thinking, "signature": "EqQB/+=="},
            {"type": "redacted_thinking", "data": "opaque=="},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}
        ])
    );
}

#[test]
fn thinking_that_nobody_signed_is_shown_but_not_sent_back() {
    let thinking =
        block(0, json!({"type": "thinking", "thinking": "hm"}), &[json!({"type": "signature_delta", "signature": ""})]);
    let message = reply(&answer(&[thinking, text(1, "hi")], "end_turn")).message;
    assert_eq!((message.reasoning.as_str(), message.text.as_str()), ("hm", "hi"));
    assert_eq!(message.native.map(|native| native.items), Some(vec![]), "only stamped");
}

#[test]
fn tools_that_the_provider_ran_are_kept_and_not_asked_of_us() {
    let message = reply(&answer(
        &[
            text(0, "Searching."),
            block(1, json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}), &[json!({"type": "input_json_delta", "partial_json": "{\"query\":\"q\"}"})]),
            block(2, json!({"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"type": "web_search_result", "encrypted_content": "e"}]}), &[]),
            text(3, "Found."),
        ],
        "pause_turn",
    ))
    .message;
    assert_eq!((message.text.as_str(), message.finish), ("Searching.\n\nFound.", FinishReason::Paused));
    assert!(message.tool_calls.is_empty());
    let items = message.native.expect("kept").items;
    assert_eq!(
        items[1],
        json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}})
    );
    assert_eq!(items[2]["content"][0]["encrypted_content"], "e");
    assert_eq!(items.len(), 4);
}

#[test]
fn a_refusal_runs_nothing_and_says_why() {
    let call = block(0, json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}), &[]);
    let message = reply(&answer(&[call], "refusal")).message;
    assert_eq!((message.finish, message.tool_calls.len()), (FinishReason::Refused, 0));
    let mut events = answer(&[], "refusal");
    events[1]["delta"]["stop_details"] = json!({"type": "refusal", "explanation": "No."});
    assert_eq!(reply(&events).message.text, "No.");
}

#[test]
fn stop_reasons_have_one_vocabulary() {
    for (reason, finish) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("something_new", FinishReason::Stop),
        ("tool_use", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::Refused),
        ("pause_turn", FinishReason::Paused),
    ] {
        assert_eq!(reply(&answer(&[text(0, "x")], reason)).message.finish, finish, "{reason}");
    }
    let call = block(0, json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}), &[]);
    assert_eq!(reply(&answer(&[call], "end_turn")).message.finish, FinishReason::ToolCalls);
}

#[test]
fn an_error_in_the_stream_is_handed_on_wherever_it_comes() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let bare = json!({"error": {"code": 500, "message": "broken"}});
    let whole = answer(&[text(0, "hi")], "end_turn");
    for error in [overloaded, bare] {
        for place in 0..whole.len() {
            let mut events = whole.clone();
            events.insert(place, error.clone());
            assert_eq!(decode(&events), Err(Failure::Decode(DecodeError::Reported { body: error.to_string() })));
        }
    }
}

#[test]
fn a_stream_without_an_end_is_truncated() {
    let whole = answer(&[text(0, "hi")], "end_turn");
    for length in 0..whole.len() - 2 {
        assert_eq!(decode(&whole[..length]), Err(Failure::Decode(DecodeError::Truncated)), "{length} events");
    }
    assert!(decode(&whole[..whole.len() - 1]).is_ok(), "the stop reason ends the answer too");
}

#[test]
fn types_and_indexes_may_be_missing() {
    let events = "event: message_start\ndata: {}\n\nevent: content_block_start\ndata: {\"content_block\":{\"type\":\"text\"}}\n\nevent: content_block_delta\ndata: {\"delta\":{\"text\":\"a\"}}\n\nevent: content_block_delta\ndata: {\"index\":\"5\",\"delta\":{\"type\":\"text_delta\",\"text\":\"b\"}}\n\nevent: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    let (_, reply) = decode_chunks(decoder(), [events.as_bytes()]).expect("decodes");
    assert_eq!(reply.message.text, "ab");
}

#[test]
fn ids_are_made_up_and_made_unique() {
    let call = |id: &str| block(0, json!({"type": "tool_use", "id": id, "name": "n", "input": {}}), &[]);
    let message = reply(&answer(&[call("a"), call("a"), call("")], "tool_use")).message;
    let ids: Vec<_> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(&ids[..2], ["a", "a_2"]);
    assert!(ids[2].starts_with("call_"), "{ids:?}");
}

#[test]
fn usage_adds_cached_input_and_takes_the_last_count() {
    let mut events = answer(&[text(0, "x")], "end_turn");
    events[0]["message"]["usage"] = json!({"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1});
    let last = events.len() - 2;
    events[last]["usage"] =
        json!({"input_tokens": 0, "output_tokens": 42, "output_tokens_details": {"thinking_tokens": 7}});
    let expected = Usage {
        input_tokens: 115,
        output_tokens: 42,
        cached_tokens: 100,
        cache_write_tokens: 5,
        reasoning_tokens: 7,
        cost_micros: None,
    };
    assert_eq!(reply(&events).usage, expected);
}

#[test]
fn a_body_that_came_whole_is_read_like_a_stream() {
    let body = json!({"type": "message", "content": [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "a", "name": "n", "input": {"x": 1}}
    ], "stop_reason": "tool_use", "usage": {"input_tokens": 7, "output_tokens": 5}});
    let streamed = answer(
        &[
            block(0, json!({"type": "thinking", "thinking": "t", "signature": "s"}), &[]),
            text(1, "hi"),
            block(
                2,
                json!({"type": "tool_use", "id": "a", "name": "n", "input": {}}),
                &[json!({"type": "input_json_delta", "partial_json": "{\"x\":1}"})],
            ),
        ],
        "tool_use",
    );
    let (events, whole) = decode_whole(decoder(), body.to_string().as_bytes()).expect("decodes");
    assert_eq!(whole, reply(&streamed));
    assert!(events.contains(&ModelEvent::ToolCallStarted { name: "n".into() }));
    for (body, error) in [
        (
            r#"{"type":"error","error":{"message":"no"}}"#,
            DecodeError::Reported { body: r#"{"type":"error","error":{"message":"no"}}"#.into() },
        ),
        ("{}", DecodeError::Invalid("the answer has no content")),
    ] {
        assert_eq!(decode_whole(decoder(), body.as_bytes()), Err(Failure::Decode(error)));
    }
    assert!(matches!(decode_whole(decoder(), b"<html>"), Err(Failure::Decode(DecodeError::Malformed(_)))));
}

#[test]
fn an_answer_has_a_largest_size() {
    let mut decoder = decoder();
    let piece = "x".repeat(1 << 20);
    let event = json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}).to_string();
    let mut out = Vec::new();
    let event = crate::provider::SseEvent { name: "", data: &event };
    let failed = (0..100).find_map(|_| decoder.push(&event, &mut out).err());
    assert!(matches!(failed, Some(DecodeError::TooLarge { .. })));
}

#[test]
fn what_brings_nothing_new_is_no_progress() {
    let start = r#"{"type":"message_start","message":{}}"#;
    let counts = r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":1}}"#;
    let stop = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let mut decoder = MessagesDecoder::new("p", "m");
    for (data, expect) in [(start, 1), (start, 1), (counts, 1), (r#"{"type":"ping"}"#, 1), (stop, 2)] {
        decoder.push(&SseEvent { name: "", data }, &mut Vec::new()).unwrap();
        assert_eq!(decoder.progress(), expect, "{data}");
    }
}
