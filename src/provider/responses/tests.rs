//! The decoder against real servers' streams and against everything that servers were seen to get wrong.

use serde_json::{Value, json};

use super::decode::ResponsesDecoder;
use crate::message::{FinishReason, Usage};
use crate::provider::golden_tests::{Decoded, Failure, check_folder, decode_chunks, decode_whole, shown};
use crate::provider::{ApiMode, DecodeError, Decoder, ModelEvent, ModelReply};

fn decoder() -> Box<dyn Decoder> {
    Box::new(ResponsesDecoder::new("openai", "gpt-x"))
}

#[test]
fn what_servers_sent_decodes_the_same_however_it_is_cut() {
    check_folder(ApiMode::CodexResponses, decoder);
}

fn decode(events: &[Value]) -> Decoded {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    let body: String = events.iter().map(event).collect();
    decode_chunks(decoder(), [body.as_bytes()])
}

#[track_caller]
fn reply(events: &[Value]) -> ModelReply {
    let (events, reply) = decode(events).expect("decodes");
    assert_eq!(shown(&events), (reply.message.text.clone(), reply.message.reasoning.clone()));
    reply
}

fn message(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(arguments: &str) -> Value {
    json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "n", "arguments": arguments, "status": "completed"})
}

fn reasoning() -> Value {
    json!({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}], "encrypted_content": "e==", "status": null})
}

fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output, "usage": {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}}}})
}

fn incomplete(reason: &str, output: &[Value]) -> Value {
    json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": output}})
}

fn added(item: &Value) -> Value {
    json!({"type": "response.output_item.added", "item": item})
}

fn ended(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "item": item})
}

fn text_delta(delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "delta": delta})
}

fn arguments_delta(id: &str, delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta})
}

#[test]
fn the_final_output_counts_where_items_were_not_streamed() {
    let got = reply(&[completed(&[reasoning(), message("hi"), call("{\"a\":1}")])]);
    assert_eq!((got.message.reasoning.as_str(), got.message.text.as_str()), ("why", "hi"));
    assert_eq!(
        (got.message.tool_calls[0].id.as_str(), got.message.tool_calls[0].arguments.as_str()),
        ("call_1", "{\"a\":1}")
    );
    assert_eq!(got.message.finish, FinishReason::ToolCalls);
    assert_eq!(
        got.usage,
        Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 4, reasoning_tokens: 2, ..Usage::default() }
    );
}

#[test]
fn streamed_items_count_where_the_final_output_is_empty() {
    let events = [
        added(&json!({"id": "m", "type": "message", "content": []})),
        text_delta("hi"),
        added(&json!({"id": "f", "type": "function_call", "call_id": "c", "name": "n", "arguments": ""})),
        arguments_delta("f", "{\"a\""),
        arguments_delta("f", ":1}"),
        completed(&[]),
    ];
    let got = reply(&events);
    assert_eq!((got.message.text.as_str(), got.message.tool_calls[0].arguments.as_str()), ("hi", "{\"a\":1}"));
    let events = [text_delta("hi"), json!({"type": "response.completed"})];
    assert_eq!(reply(&events).message.text, "hi");
}

#[test]
fn a_streamed_item_and_its_final_form_are_one() {
    let ids_differ = [
        added(&json!({"id": "other", "type": "message"})),
        text_delta("h"),
        ended(&message("hi")),
        completed(&[message("hi")]),
    ];
    let no_reasoning_at_the_end = [ended(&reasoning()), text_delta("hi"), completed(&[message("hi")])];
    let swapped = [ended(&message("hi")), ended(&reasoning()), completed(&[reasoning(), message("hi")])];
    for events in [ids_differ.as_slice(), &no_reasoning_at_the_end, &swapped] {
        let got = reply(events);
        assert_eq!(got.message.text, "hi");
        let kinds =
            got.message.native.map(|native| native.items.iter().map(|item| item["type"].clone()).collect::<Vec<_>>());
        assert!(kinds.is_none_or(|kinds| kinds == ["reasoning", "message"]));
    }
}

#[test]
fn deltas_find_their_item_by_id_by_place_or_by_neither() {
    let start = |index: u64, id: &str| {
        let mut event = added(&json!({"id": id, "type": "function_call", "call_id": format!("c{index}"), "name": "n"}));
        event["output_index"] = index.into();
        event
    };
    let by_id = |id: &str, index: u64| json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": index.to_string()});
    let by_place = |_: &str, index: u64| json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": index.to_string()});
    for delta in [&by_id as &dyn Fn(&str, u64) -> Value, &by_place] {
        let events = [start(0, "a"), start(1, "b"), delta("b", 1), delta("a", 0), delta("b", 1), completed(&[])];
        let calls = reply(&events).message.tool_calls;
        let arguments: Vec<_> = calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, ["0", "11"]);
    }
    let events =
        [start(0, "a"), json!({"type": "response.function_call_arguments.delta", "delta": "{}"}), completed(&[])];
    assert_eq!(reply(&events).message.tool_calls[0].arguments, "{}");
}

#[test]
fn arguments_come_from_wherever_they_are() {
    let blank = || added(&json!({"id": "f", "type": "function_call", "call_id": "c", "name": "n", "arguments": ""}));
    let whole = "{\"a\":1}";
    for events in [
        vec![
            blank(),
            arguments_delta("f", whole),
            ended(&json!({"id": "f", "type": "function_call", "call_id": "c", "name": "n"})),
        ],
        vec![blank(), json!({"type": "response.function_call_arguments.done", "item_id": "f", "arguments": whole})],
        vec![ended(&json!({"id": "f", "type": "function_call", "call_id": "c", "name": "n", "arguments": {"a": 1}}))],
    ] {
        let events = [events, vec![completed(&[])]].concat();
        let calls = reply(&events).message.tool_calls;
        assert_eq!((calls.len(), calls[0].arguments.as_str()), (1, whole), "{events:?}");
    }
    let none = [ended(&call("")), completed(&[call("")])];
    assert_eq!(reply(&none).message.tool_calls[0].arguments, "{}");
}

#[test]
fn a_call_that_was_cut_never_looks_whole() {
    for output in [vec![], vec![call("")], vec![call("{\"path\": \"/a")]] {
        let mut events = vec![added(&call("")), arguments_delta("fc_1", "{\"path\": \"/a")];
        events.push(incomplete("max_output_tokens", &output));
        let message = reply(&events).message;
        assert_eq!(message.finish, FinishReason::Length);
        assert!(serde_json::from_str::<Value>(&message.tool_calls[0].arguments).is_err());
    }
    let unannounced = [added(&call("")), incomplete("max_output_tokens", &[call("")])];
    assert_eq!(reply(&unannounced).message.tool_calls[0].arguments, "");
}

#[test]
fn each_end_has_its_word() {
    let hi = || [message("hi")];
    for (end, finish) in [
        (completed(&hi()), FinishReason::Stop),
        (incomplete("max_output_tokens", &hi()), FinishReason::Length),
        (incomplete("something_new", &hi()), FinishReason::Length),
        (incomplete("content_filter", &hi()), FinishReason::Refused),
        (json!({"type": "response.done", "response": {"status": "completed", "output": hi()}}), FinishReason::Stop),
    ] {
        assert_eq!(reply(&[end]).message.finish, finish);
    }
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}});
    let cancelled = json!({"type": "response.cancelled", "response": {"status": "cancelled", "error": null}});
    let error = json!({"type": "error", "code": "server_error", "message": "broken"});
    let bare = json!({"error": {"message": "broken", "code": "500"}});
    for (end, said) in [(failed, "slow down"), (cancelled, "cancelled"), (error, "broken"), (bare, "broken")] {
        let Err(Failure::Decode(DecodeError::Reported { body })) = decode(&[text_delta("h"), end]) else {
            panic!("{said} is an error");
        };
        let body: Value = serde_json::from_str(&body).expect("a report is JSON");
        assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains(said)), "{body}");
    }
}

#[test]
fn a_stream_without_an_end_is_truncated() {
    let begun = json!({"type": "response.created", "response": {"status": "in_progress"}});
    let events = [
        begun.clone(),
        added(&message("")),
        text_delta("hi"),
        ended(&message("hi")),
        json!({"type": "response.in_progress"}),
    ];
    for length in 0..=events.len() {
        assert_eq!(decode(&events[..length]), Err(Failure::Decode(DecodeError::Truncated)));
    }
    let queued = json!({"type": "response.completed", "response": {"status": "queued"}});
    assert_eq!(decode(&[begun, queued]), Err(Failure::Decode(DecodeError::Truncated)));
    let marker_alone = b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\ndata: [DONE]\n\n";
    assert_eq!(decode_chunks(decoder(), [marker_alone.as_slice()]), Err(Failure::Decode(DecodeError::Truncated)));
}

#[test]
fn reasoning_is_shown_once_whatever_it_is_called() {
    let delta = |kind: &str, index: u64, delta: &str| json!({"type": kind, "item_id": "rs_1", "summary_index": index, "delta": delta});
    let item = |summary: &[&str]| {
        let parts: Vec<_> = summary.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
        json!({"id": "rs_1", "type": "reasoning", "summary": parts, "encrypted_content": "e=="})
    };
    let summary = "response.reasoning_summary_text.delta";
    for (deltas, last, expected) in [
        (
            vec![delta(summary, 0, "on"), delta(summary, 0, "e"), delta(summary, 1, "two")],
            item(&["one", "two"]),
            "one\n\ntwo",
        ),
        (vec![delta("response.reasoning_text.delta", 0, "raw"), delta(summary, 0, "short")], item(&["short"]), "raw"),
        (vec![], item(&["late"]), "late"),
        (vec![delta(summary, 0, "beg")], item(&["begun"]), "begun"),
    ] {
        let events =
            [vec![added(&item(&[]))], deltas, vec![ended(&last), completed(&[last.clone(), message("hi")])]].concat();
        assert_eq!(reply(&events).message.reasoning, expected);
    }
}

#[test]
fn native_items_go_back_without_the_ids_of_a_store_that_keeps_nothing() {
    let mut commentary = message("Looking.");
    commentary["phase"] = "commentary".into();
    let empty = json!({"id": "rs_2", "type": "reasoning", "summary": [{"type": "summary_text", "text": "lost"}]});
    let local = json!({"id": "rs_3", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "", "status": "completed"});
    let search = json!({"id": "ws_1", "type": "web_search_call", "status": "completed"});
    let got = reply(&[completed(&[reasoning(), commentary, empty, local, search, call("{ \"a\": 1 }")])]);
    let native = got.message.native.expect("reasoning is kept");
    assert_eq!(
        (native.provider.as_str(), native.model.as_str(), native.api_mode.as_str()),
        ("openai", "gpt-x", "codex_responses")
    );
    assert_eq!(
        Value::Array(native.items),
        json!([
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}], "encrypted_content": "e=="},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}], "phase": "commentary"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": ""},
            {"type": "function_call", "call_id": "call_1", "name": "n", "arguments": "{ \"a\": 1 }"}
        ])
    );
    assert_eq!(reply(&[completed(&[message("hi")])]).message.native, None, "text and calls say it all");
}

#[test]
fn a_refusal_is_text_and_ends_the_turn() {
    let part = json!({"id": "msg_1", "type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]});
    let streamed =
        [json!({"type": "response.refusal.delta", "item_id": "msg_1", "delta": "I will not."}), completed(&[])];
    for events in [vec![completed(std::slice::from_ref(&part))], streamed.to_vec()] {
        let message = reply(&events).message;
        assert_eq!((message.text.as_str(), message.finish), ("I will not.", FinishReason::Refused));
    }
    let filtered = reply(&[incomplete("content_filter", &[call("{}")])]).message;
    assert_eq!((filtered.tool_calls.len(), filtered.finish), (0, FinishReason::Refused), "nothing refused is run");
}

#[test]
fn a_call_of_a_tool_with_free_text_is_a_call_that_can_be_answered() {
    let custom = json!({"id": "ct", "type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls \"x\""});
    let deltas = json!({"type": "response.custom_tool_call_input.delta", "item_id": "ct", "delta": "ls"});
    let (events, got) = decode(&[
        added(&json!({"id": "ct", "type": "custom_tool_call", "call_id": "c", "name": "shell"})),
        deltas,
        completed(&[custom]),
    ])
    .expect("decodes");
    assert_eq!(events, [ModelEvent::ToolCallStarted { name: "shell".into() }]);
    let call = &got.message.tool_calls[0];
    assert_eq!(
        (call.id.as_str(), call.name.as_str(), call.arguments.as_str()),
        ("c", "shell", r#"{"input":"ls \"x\""}"#)
    );
}

#[test]
fn texts_of_several_messages_are_paragraphs() {
    let second = json!({"id": "msg_2", "type": "message", "content": [{"type": "output_text", "text": "two"}]});
    let events = [ended(&message("one")), ended(&second), completed(&[message("one"), second.clone()])];
    assert_eq!(reply(&events).message.text, "one\n\ntwo");
}

#[test]
fn what_a_message_says_at_its_end_is_kept() {
    let (events, got) = decode(&[text_delta("draught"), completed(&[message("draft")])]).expect("decodes");
    assert_eq!((shown(&events).0.as_str(), got.message.text.as_str()), ("draught", "draft"));
}

#[test]
fn unknown_events_are_ignored() {
    let rest = [text_delta("hi"), completed(&[])];
    let rest: String = rest.iter().map(|event| format!("data: {event}\n\n")).collect();
    let odd = "event: keepalive\ndata: -\n\nevent: x\ndata: {\"type\":\"response.novelty.delta\",\"delta\":{\"a\":[]},\"item_id\":7}\n\n";
    let (_, got) = decode_chunks(decoder(), [odd.as_bytes(), rest.as_bytes()]).expect("decodes");
    assert_eq!(got.message.text, "hi");
    let cut =
        decode_chunks(decoder(), [b"event: response.output_text.delta\ndata: {\"ty\n\n".as_slice(), rest.as_bytes()]);
    assert!(matches!(cut, Err(Failure::Decode(DecodeError::Malformed(_)))));
}

#[test]
fn a_body_that_came_whole_is_read_like_a_stream() {
    let output = [reasoning(), message("hi"), call("{}")];
    let body = completed(&output)["response"].to_string();
    let (_, got) = decode_whole(decoder(), body.as_bytes()).expect("decodes");
    assert_eq!(got, reply(&[completed(&output)]));
    for (body, error) in [
        (r#"{"error":{"message":"no"}}"#, DecodeError::Reported { body: r#"{"error":{"message":"no"}}"#.into() }),
        (r#"{"status":"in_progress","output":[]}"#, DecodeError::Truncated),
        ("{}", DecodeError::Invalid("the answer has no output")),
    ] {
        assert_eq!(decode_whole(decoder(), body.as_bytes()), Err(Failure::Decode(error)));
    }
}
