//! The decoder against real servers' streams and against everything that servers were seen to get wrong.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::decode::ChatDecoder;
use crate::message::FinishReason;
use crate::provider::sse::{SseDecoder, SseError};
use crate::provider::{DecodeError, Decoder, ModelEvent, ModelReply, SseEvent};

/// Why a stream of a test could not be read.
#[derive(Debug)]
struct Failure(DecodeError);

impl From<SseError> for Failure {
    fn from(error: SseError) -> Self {
        Self(DecodeError::Malformed(error.to_string()))
    }
}

type Outcome = (Vec<ModelEvent>, Result<ModelReply, DecodeError>);

/// Decodes as the network would: each chunk is one read, `out` is emptied after each.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder: Box<dyn Decoder> = Box::new(ChatDecoder::new("p", "m"));
    let mut sse = SseDecoder::default();
    let mut events = Vec::new();
    for chunk in chunks {
        let mut out = Vec::new();
        let fed = sse.feed(chunk, &mut |event| decoder.push(event, &mut out).map_err(Failure));
        events.append(&mut out);
        if let Err(Failure(error)) = fed {
            return (events, Err(error));
        }
    }
    let mut out = Vec::new();
    let fed = sse.finish(&mut |event| decoder.push(event, &mut out).map_err(Failure));
    let reply = fed.map_err(|Failure(error)| error).and_then(|()| decoder.finish(&mut out));
    events.append(&mut out);
    (events, reply)
}

fn streamed(events: &[ModelEvent]) -> (String, String, usize) {
    let mut all = (String::new(), String::new(), 0);
    for event in events {
        match event {
            ModelEvent::Text(text) => all.0.push_str(text),
            ModelEvent::Reasoning(text) => all.1.push_str(text),
            ModelEvent::ToolCallStarted { .. } => all.2 += 1,
        }
    }
    all
}

/// What the events and the reply say, as the fixtures write it; both must agree.
fn summary((events, reply): &Outcome) -> Value {
    let reply = match reply {
        Ok(reply) => reply,
        Err(DecodeError::Truncated) => return json!({"error": "truncated"}),
        Err(DecodeError::Malformed(_)) => return json!({"error": "malformed"}),
        Err(DecodeError::Reported { body }) => return json!({"error": "reported", "body": body}),
        Err(other) => return json!({"error": other.to_string()}),
    };
    let message = &reply.message;
    let told = (message.text.clone(), message.reasoning.clone(), message.tool_calls.len());
    assert_eq!(streamed(events), told, "what was streamed is what is stored");
    let calls =
        message.tool_calls.iter().map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments}));
    let calls: Vec<_> = calls.collect();
    json!({
        "text": message.text,
        "reasoning": message.reasoning,
        "calls": calls,
        "finish": message.finish.as_str(),
        "usage": [reply.usage.input_tokens, reply.usage.output_tokens],
    })
}

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/providers/chat_completions");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut streams: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "sse")).collect();
    streams.sort();
    assert!(streams.len() > 30);
    streams
}

#[test]
fn captured_streams_decode_right_whole_and_cut_at_every_byte() {
    for path in captures() {
        let stream = std::fs::read(&path).unwrap();
        let expect: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let whole = decode([stream.as_slice()]);
        assert_eq!(summary(&whole), expect, "{}", path.display());
        assert_eq!(summary(&decode(stream.chunks(1))), expect, "byte by byte: {}", path.display());
        // Two long pieces per cut cost the square of the length, so the short streams stand for all here.
        let cuts = if stream.len() < 1700 { 1..stream.len() } else { 1..1 };
        for cut in cuts {
            let (first, second) = stream.split_at(cut);
            assert_eq!(decode([first, second]).1, whole.1, "cut at {cut}: {}", path.display());
        }
    }
}

#[test]
fn a_capture_that_ends_early_is_never_a_whole_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/providers/chat_completions/llamacpp-smollm2-tool.sse");
    let stream = std::fs::read(path).unwrap();
    let text = String::from_utf8(stream.clone()).unwrap();
    let marker = text.find("\"finish_reason\":\"tool_calls\"").unwrap();
    let event_end = marker + text[marker..].find("}\n\n").unwrap();
    for length in 0..event_end {
        let (_, reply) = decode([&stream[..length]]);
        assert!(reply.is_err(), "cut at {length} of {event_end} gave {reply:?}");
    }
}

/// Builds a stream of these chunks, closed by `[DONE]`.
fn stream(chunks: &[&str]) -> String {
    let mut text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    text
}

fn read(chunks: &[&str]) -> Outcome {
    decode([stream(chunks).as_bytes()])
}

fn check(chunks: &[&str], text: &str, reasoning: &str) -> ModelReply {
    let outcome = read(chunks);
    summary(&outcome);
    let reply = outcome.1.unwrap();
    assert_eq!((reply.message.text.as_str(), reply.message.reasoning.as_str()), (text, reasoning), "{chunks:?}");
    reply
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn text_of_one_read_is_one_event() {
    let (events, reply) = read(&[
        r#"{"choices":[{"delta":{"content":"a"}}]}"#,
        r#"{"choices":[{"delta":{"content":"b"}}]}"#,
        r#"{"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}]}"#,
    ]);
    assert_eq!(events, [ModelEvent::Text("abc".into())]);
    assert_eq!(reply.unwrap().message.finish, FinishReason::Stop);
}

#[test]
fn empty_and_null_deltas_are_harmless() {
    let chunks = [
        r#"{"choices":[],"prompt_filter_results":[]}"#,
        r#"{"choices":null}"#,
        "null",
        "{}",
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":null}}]}"#,
        r#"{"choices":[{"delta":{"content":"","tool_calls":[]},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"content":"x"},"finish_reason":""}]}"#,
        STOP,
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
    ];
    let reply = check(&chunks, "x", "");
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (3, 1));
    assert!(reply.message.tool_calls.is_empty());
}

#[test]
fn the_last_usage_wins_wherever_it_stands() {
    let reply = check(
        &[
            r#"{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":5,"completion_tokens":5}}"#,
            r#"{"choices":[{"delta":{},"usage":{"prompt_tokens":5,"completion_tokens":45}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":95}}}"#,
            r#"{"choices":[],"usage":null}"#,
        ],
        "x",
        "",
    );
    assert_eq!(reply.usage.total(), 100);
}

#[test]
fn reasoning_is_told_once_whatever_its_field() {
    let thought = |fields: &str| format!(r#"{{"choices":[{{"delta":{{{fields}}}}}]}}"#);
    for fields in [
        r#""reasoning_content":"hm""#,
        r#""reasoning":"hm""#,
        r#""reasoning":"hm","reasoning_content":"hm""#,
        r#""reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}]"#,
        r#""reasoning_details":[{"type":"reasoning.text","text":"hm"}]"#,
        r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]"#,
        r#""content":"<think>hm</think>""#,
    ] {
        let answer = r#"{"choices":[{"delta":{"content":"\nyes"}}]}"#;
        let (_, reply) = read(&[&thought(fields), answer, STOP]);
        let message = reply.unwrap().message;
        assert_eq!((message.text.trim(), message.reasoning.as_str()), ("yes", "hm"), "{fields}");
    }
}

#[test]
fn reasoning_that_comes_again_inside_the_text_is_dropped() {
    let check_echo = |block: &str, reasoning: &str| {
        let content = json!({"choices": [{"delta": {"content": block}}]}).to_string();
        check(&[r#"{"choices":[{"delta":{"reasoning_content":"a b c"}}]}"#, &content, STOP], "yes", reasoning);
    };
    check_echo("<think>\na b c\n</think>yes", "a b c");
    check_echo("<think>a b</think>yes", "a b c");
    check_echo("<think>other</think>yes", "a b cother");
}

#[test]
fn fragments_of_reasoning_details_are_joined_and_kept() {
    let detail = |part: &str| {
        format!(r#"{{"choices":[{{"delta":{{"reasoning_details":[{{"index":0,"type":"reasoning.text",{part}}}]}}}}]}}"#)
    };
    let chunks = [detail(r#""text":"a""#), detail(r#""text":"b""#), detail(r#""text":null,"signature":"s""#)];
    let (_, reply) = read(&[&chunks[0], &chunks[1], &chunks[2], STOP]);
    let native = reply.unwrap().message.native.unwrap();
    assert_eq!((native.provider.as_str(), native.api_mode.as_str()), ("p", "chat_completions"));
    assert_eq!(native.items, [json!({"index":0,"type":"reasoning.text","text":"ab","signature":"s"})]);
}

#[test]
fn finish_reasons_are_understood_in_every_dialect() {
    let call =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"t","arguments":"{}"}}]}}]}"#;
    let text = r#"{"choices":[{"delta":{"content":"x"}}]}"#;
    for (first, reason, expect) in [
        (text, "stop", FinishReason::Stop),
        (text, "eos", FinishReason::Stop),
        (text, "STOP", FinishReason::Stop),
        (text, "tool_calls", FinishReason::Stop),
        (call, "stop", FinishReason::ToolCalls),
        (call, "function_call", FinishReason::ToolCalls),
        (call, "length", FinishReason::Length),
        (text, "MAX_TOKENS", FinishReason::Length),
        (text, "content_filter", FinishReason::Refused),
    ] {
        let end = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
        let (_, reply) = read(&[first, &end]);
        assert_eq!(reply.unwrap().message.finish, expect, "{reason}");
    }
}

#[test]
fn the_end_is_known_from_either_marker_and_from_none() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    let stop = format!("{text}data: {STOP}\n\n");
    assert!(decode([stop.as_bytes()]).1.is_ok(), "a finish reason without [DONE]");
    let done = format!("{text}data: [DONE]\n\n");
    assert!(decode([done.as_bytes()]).1.is_ok(), "[DONE] without a finish reason");
    assert_eq!(decode([text.as_bytes()]).1, Err(DecodeError::Truncated));
    assert_eq!(decode([&b""[..]]).1, Err(DecodeError::Truncated));
    assert_eq!(read(&[]).1, Err(DecodeError::Invalid("it has no choices")));
}

#[test]
fn errors_inside_a_stream_are_reported_as_sent() {
    for chunk in [
        r#"{"error":{"message":"quota","code":429}}"#,
        r#"{"choices":[],"error":{"message":"quota"}}"#,
        r#"{"error":"quota"}"#,
        r#"{"object":"error","message":"quota","code":40003}"#,
        r#"{"message":"quota"}"#,
        r#"{"detail":"quota"}"#,
        r#"{"choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"message":"quota"}}"#,
    ] {
        let (_, reply) = read(&[chunk]);
        assert_eq!(reply, Err(DecodeError::Reported { body: chunk.to_owned() }));
    }
    let named = "event: error\ndata: {\"message\":\"quota\"}\n\n";
    assert!(matches!(decode([named.as_bytes()]).1, Err(DecodeError::Reported { .. })));
    let other_format = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n";
    assert!(matches!(decode([other_format.as_bytes()]).1, Err(DecodeError::Invalid(_))));
    let gave_up = r#"{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}"#;
    assert!(matches!(read(&[gave_up]).1, Err(DecodeError::Reported { .. })));
}

#[test]
fn a_chunk_that_is_no_json_ends_the_answer() {
    for chunk in ["{\"choices\":[{\"del", "garbage", "[1,2", "\"text\""] {
        assert!(matches!(read(&[chunk]).1, Err(DecodeError::Malformed(_))), "{chunk}");
    }
}

#[test]
fn a_refusal_is_text_and_a_reason() {
    let (_, reply) = read(&[r#"{"choices":[{"delta":{"refusal":"I cannot"}}]}"#]);
    let message = reply.unwrap().message;
    assert_eq!((message.text.as_str(), message.finish), ("I cannot", FinishReason::Refused));
}

#[test]
fn the_older_function_call_is_a_tool_call() {
    let (_, reply) = read(&[
        r#"{"choices":[{"delta":{"function_call":{"name":"t","arguments":""}}}]}"#,
        r#"{"choices":[{"delta":{"function_call":{"arguments":"{\"a\":1}"}}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"function_call"}]}"#,
    ]);
    let message = reply.unwrap().message;
    assert_eq!(message.finish, FinishReason::ToolCalls);
    assert_eq!((message.tool_calls[0].name.as_str(), message.tool_calls[0].arguments.as_str()), ("t", r#"{"a":1}"#));
}

#[test]
fn a_whole_body_is_an_answer_too() {
    let body = json!({
        "choices": [{"index": 0, "finish_reason": "stop", "message": {
            "role": "assistant", "content": "<think>hm</think>yes",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
        }}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3},
    });
    let mut decoder: Box<dyn Decoder> = Box::new(ChatDecoder::new("p", "m"));
    let mut events = Vec::new();
    decoder.whole(body.to_string().as_bytes(), &mut events).unwrap();
    assert!(decoder.is_done());
    let reply = decoder.finish(&mut events);
    let outcome = (events, reply);
    assert_eq!(summary(&outcome)["calls"][0]["id"], "c1");
    let message = outcome.1.unwrap().message;
    assert_eq!((message.text.as_str(), message.finish), ("yes", FinishReason::ToolCalls));
}

proptest::proptest! {
    #[test]
    fn no_stream_makes_the_decoder_panic_or_disagree_with_itself(
        chunks in proptest::collection::vec(
            proptest::sample::select(vec![
                r#"{"choices":[{"delta":{"content":"<think>"}}]}"#,
                r#"{"choices":[{"delta":{"content":"a</think>\n"}}]}"#,
                r#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#,
                r#"{"choices":[{"delta":{"content":"\ude00b"}}]}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"t","arguments":"{"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c","function":{"arguments":{"a":1}}}]}}]}"#,
                r#"{"choices":[{"delta":{"content":["x",{"type":"text","text":7}]}}]}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":-1}}"#,
                STOP,
            ]),
            0..12,
        ),
        cut in 1usize..40,
    ) {
        let text = stream(&chunks);
        let whole = decode([text.as_bytes()]);
        let pieces = decode(text.as_bytes().chunks(cut));
        proptest::prop_assert_eq!(streamed(&whole.0), streamed(&pieces.0));
        proptest::prop_assert_eq!(whole.1, pieces.1);
    }
}

proptest::proptest! {
    #[test]
    fn damaged_captures_decode_the_same_whole_and_in_pieces(
        which in 0usize..1000,
        damage in proptest::collection::vec((0usize..100_000, proptest::num::u8::ANY), 0..6),
        length in 0usize..20_000,
        cut in 1usize..200,
    ) {
        let files = captures();
        let mut stream = std::fs::read(&files[which % files.len()]).unwrap();
        stream.truncate(length);
        for (at, byte) in damage {
            let at = at % stream.len().max(1);
            if let Some(place) = stream.get_mut(at) {
                *place = byte;
            }
        }
        let whole = decode([stream.as_slice()]);
        let pieces = decode(stream.chunks(cut));
        proptest::prop_assert_eq!(streamed(&whole.0), streamed(&pieces.0));
        proptest::prop_assert_eq!(whole.1, pieces.1);
    }
}

#[test]
fn what_brings_nothing_new_is_no_progress() {
    let named =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"t","arguments":""}}]}}]}"#;
    let piece = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}"#;
    let empty = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let mut decoder = ChatDecoder::new("p", "m");
    for (data, expect) in [(empty, 1), (empty, 1), (named, 2), (named, 2), (piece, 3), (named, 3)] {
        decoder.push(&SseEvent { name: "", data }, &mut Vec::new()).unwrap();
        assert_eq!(decoder.progress(), expect, "{data}");
    }
}
