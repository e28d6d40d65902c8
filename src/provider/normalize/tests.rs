//! Damaged histories, one kind of damage at a time.

use serde_json::{Value, json};

use super::*;
use crate::message::{NativeItems, ToolCall};

pub(super) const CHAT: Target<'_> = Target { api_mode: ApiMode::ChatCompletions, provider: "local", model: "m" };
pub(super) const MESSAGES: Target<'_> =
    Target { api_mode: ApiMode::AnthropicMessages, provider: "anthropic", model: "claude-x" };
pub(super) const RESPONSES: Target<'_> =
    Target { api_mode: ApiMode::CodexResponses, provider: "openai", model: "gpt-x" };
pub(super) const TARGETS: [Target<'_>; 3] = [CHAT, MESSAGES, RESPONSES];

pub(super) fn user(text: &str) -> Message {
    Message::user(text)
}

pub(super) fn assistant(text: &str, calls: &[(&str, &str)]) -> Message {
    let tool_calls = calls
        .iter()
        .map(|(id, arguments)| ToolCall {
            id: (*id).into(),
            name: "t".into(),
            arguments: (*arguments).into(),
            extra: None,
        })
        .collect();
    Message::Assistant(AssistantMessage { text: text.into(), tool_calls, ..AssistantMessage::default() })
}

pub(super) fn result(id: &str, text: &str) -> Message {
    Message::Tool(ToolResult {
        tool_call_id: id.into(),
        name: "t".into(),
        content: vec![Part::text(text)],
        is_error: false,
        effect: Effect::Done,
    })
}

/// One line per message: role, text, and calls as `id:arguments`.
pub(super) fn show(messages: &[Message]) -> Vec<String> {
    let line = |message: &Message| match message {
        Message::User(_) => format!("user {}", message.plain_text()),
        Message::Assistant(assistant) => {
            let calls: String =
                assistant.tool_calls.iter().map(|call| format!(" {}:{}", call.id, call.arguments)).collect();
            format!("assistant {}{calls}", assistant.text)
        }
        Message::Tool(result) => format!("tool {} {}", result.tool_call_id, message.plain_text()),
    };
    messages.iter().map(|message| line(message).replace('\n', "|")).collect()
}

#[track_caller]
fn check_shape(history: &[Message], expected: &[&str]) {
    for target in TARGETS {
        let normal = normalize(history, target);
        assert_eq!(check(&normal, target), Ok(()));
        assert_eq!(show(&normal), expected, "{target:?}");
        assert_eq!(normalize(&normal, target), normal, "not idempotent for {target:?}");
    }
}

#[test]
fn a_valid_history_is_left_alone() {
    let history = [
        user("q"),
        assistant("let me see", &[("a", r#"{"x":1}"#), ("b", "{}")]),
        result("a", "1"),
        result("b", "2"),
        assistant("done", &[]),
        user("more"),
    ];
    for target in TARGETS {
        assert_eq!(normalize(&history, target), history);
    }
    assert_eq!(normalize(&[], CHAT), []);
}

#[test]
fn two_questions_are_never_glued_together() {
    check_shape(&[user("one"), user("two")], &["user one", &format!("assistant {TURN_ENDED}"), "user two"]);
}

#[test]
fn an_answer_stands_between_results_and_the_next_question() {
    check_shape(
        &[user("q"), assistant("", &[("a", "{}")]), result("a", "r"), user("next")],
        &["user q", "assistant  a:{}", "tool a r", &format!("assistant {TURN_ENDED}"), "user next"],
    );
}

#[test]
fn an_unanswered_call_is_answered_as_interrupted() {
    let history = [user("q"), assistant("", &[("a", "{}"), ("b", "{}")]), result("b", "r"), user("next")];
    check_shape(
        &history,
        &[
            "user q",
            "assistant  a:{} b:{}",
            &format!("tool a {INTERRUPTED}"),
            "tool b r",
            &format!("assistant {TURN_ENDED}"),
            "user next",
        ],
    );
    let normal = normalize(&history, CHAT);
    assert!(matches!(&normal[2], Message::Tool(result) if result.is_error && result.effect == Effect::Unknown));
}

#[test]
fn results_return_to_their_call_in_call_order() {
    check_shape(
        &[user("q"), assistant("", &[("a", "{}"), ("b", "{}")]), result("b", "2"), user("next"), result("a", "1")],
        &["user q", "assistant  a:{} b:{}", "tool a 1", "tool b 2", &format!("assistant {TURN_ENDED}"), "user next"],
    );
}

#[test]
fn stray_and_second_results_are_dropped() {
    check_shape(
        &[
            result("x", "0"),
            user("q"),
            assistant("", &[("a", "{}")]),
            result("a", "1"),
            result("a", "2"),
            result("y", "3"),
        ],
        &["user q", "assistant  a:{}", "tool a 1"],
    );
}

#[test]
fn a_result_that_comes_after_the_next_answer_changes_nothing_already_sent() {
    check_shape(
        &[user("q"), assistant("", &[("a", "{}")]), user("next"), assistant("done", &[]), result("a", "late")],
        &[
            "user q",
            "assistant  a:{}",
            &format!("tool a {INTERRUPTED}"),
            &format!("assistant {TURN_ENDED}"),
            "user next",
            "assistant done",
        ],
    );
}

#[test]
fn adjacent_answers_become_one_even_around_a_stray_result() {
    check_shape(
        &[
            user("q"),
            assistant("one", &[("a", "{}")]),
            result("x", "0"),
            assistant("two", &[("b", "{}")]),
            result("b", "2"),
            result("a", "1"),
        ],
        &["user q", "assistant one|two a:{} b:{}", "tool a 1", "tool b 2"],
    );
}

#[test]
fn a_row_read_twice_counts_once() {
    check_shape(
        &[user("q"), assistant("", &[("a", "{}")]), assistant("", &[("a", "{}"), ("a", "{}")]), result("a", "1")],
        &["user q", "assistant  a:{}", "tool a 1"],
    );
}

#[test]
fn calls_that_share_an_id_get_their_own_in_order() {
    check_shape(
        &[
            user("q"),
            assistant("", &[("a", r#"{"n":1}"#), ("a", r#"{"n":2}"#)]),
            result("a", "1"),
            result("a", "2"),
            assistant("", &[("a", "{}")]),
            result("a", "3"),
        ],
        &["user q", r#"assistant  a:{"n":1} a_2:{"n":2}"#, "tool a 1", "tool a_2 2", "assistant  a_3:{}", "tool a_3 3"],
    );
}

#[test]
fn blank_content_is_dropped_or_named() {
    check_shape(
        &[
            user("  "),
            assistant("\n", &[("a", "")]),
            result("a", " "),
            assistant(" ", &[]),
            user("q"),
            assistant("", &[]),
            user("r"),
        ],
        &[
            &format!("user {NO_TEXT}"),
            "assistant  a:{}",
            &format!("tool a {NO_OUTPUT}"),
            &format!("assistant {TURN_ENDED}"),
            "user q",
            &format!("assistant {TURN_ENDED}"),
            "user r",
        ],
    );
}

#[test]
fn broken_arguments_are_sent_empty_and_named_in_the_result() {
    check_shape(
        &[user("q"), assistant("", &[("a", "{\"path\":\"/x")]), result("a", "not run")],
        &[
            "user q",
            "assistant  a:{}",
            "tool a [The arguments of this call were not a valid JSON object and are shown as {}. Written was: {\"path\":\"/x]|not run",
        ],
    );
}

#[test]
fn an_answer_at_the_beginning_gets_a_question() {
    check_shape(&[assistant("hello", &[])], &[&format!("user {BEGINNING_MISSING}"), "assistant hello"]);
}

#[test]
fn ids_are_rewritten_for_call_and_result_alike() {
    let history = [user("q"), assistant("", &[("functions.t:0", "{}")]), result("functions.t:0", "r")];
    assert_eq!(show(&normalize(&history, CHAT)), ["user q", "assistant  functions.t:0:{}", "tool functions.t:0 r"]);
    assert_eq!(show(&normalize(&history, MESSAGES)), ["user q", "assistant  functions_t_0:{}", "tool functions_t_0 r"]);
}

pub(super) fn with_native(message: Message, target: Target<'_>, items: Value) -> Message {
    let Message::Assistant(assistant) = message else { return message };
    let items = items.as_array().cloned().unwrap_or_default();
    let native = NativeItems {
        provider: target.provider.into(),
        model: target.model.into(),
        api_mode: target.api_mode.as_str().into(),
        items,
        ..NativeItems::default()
    };
    Message::Assistant(AssistantMessage { native: Some(native), ..assistant })
}

fn native_items(message: &Message) -> Value {
    match message {
        Message::Assistant(AssistantMessage { native: Some(native), .. }) => Value::Array(native.items.clone()),
        _ => Value::Null,
    }
}

#[test]
fn native_items_go_back_to_their_issuer_only() {
    let thinking = json!([{"type": "thinking", "thinking": " ü ", "signature": "s=="}, {"type": "text", "text": "hi"}]);
    let history = [user("q"), with_native(assistant("hi", &[]), MESSAGES, thinking.clone())];
    assert_eq!(native_items(&normalize(&history, MESSAGES)[1]), thinking);
    let dated = Target { model: "claude-x-20250101", ..MESSAGES };
    assert_eq!(native_items(&normalize(&history, dated)[1]), thinking);
    for foreign in [CHAT, RESPONSES, Target { provider: "other", ..MESSAGES }, Target { model: "claude-y", ..MESSAGES }]
    {
        assert_eq!(native_items(&normalize(&history, foreign)[1]), Value::Null, "{foreign:?}");
    }
}

#[test]
fn a_foreign_provider_sees_neither_reasoning_nor_extra_data() {
    let mut answer = with_native(assistant("hi", &[("a", "{}")]), CHAT, json!([{"type": "reasoning.text"}]));
    let Message::Assistant(message) = &mut answer else { unreachable!("made above") };
    message.reasoning = "thought".into();
    message.tool_calls[0].extra = Some(json!({"signature": "s"}));
    let history = [user("q"), answer, result("a", "r")];
    assert_eq!(normalize(&history, CHAT), history);
    let Message::Assistant(seen) = &normalize(&history, Target { provider: "other", ..CHAT })[1] else {
        unreachable!("roles stay")
    };
    assert_eq!((seen.reasoning.as_str(), &seen.native, &seen.tool_calls[0].extra), ("", &None, &None));
}

#[test]
fn native_items_say_what_the_message_says() {
    let items = json!([
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "original"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "tool_use", "id": "a.1", "name": "t", "input": {}, "kept": true}
    ]);
    let history =
        [user("q"), with_native(assistant("rewritten", &[("a.1", r#"{"x":1}"#)]), MESSAGES, items), result("a.1", "r")];
    let normal = normalize(&history, MESSAGES);
    assert_eq!(
        native_items(&normal[1]),
        json!([
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "rewritten"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "tool_use", "id": "a_1", "name": "t", "input": {"x": 1}, "kept": true}
        ])
    );
}

#[test]
fn thinking_alone_is_an_answer_for_responses_only() {
    let thinking = json!([{"type": "thinking", "thinking": "t", "signature": "s"}]);
    let history = [user("q"), with_native(assistant("", &[]), MESSAGES, thinking), user("r")];
    assert_eq!(show(&normalize(&history, MESSAGES)), ["user q", &format!("assistant {TURN_ENDED}"), "user r"]);
    let reasoning = json!([{"type": "reasoning", "summary": [], "encrypted_content": "e"}]);
    let history = [user("q"), with_native(assistant("", &[]), RESPONSES, reasoning.clone()), user("r")];
    let normal = normalize(&history, RESPONSES);
    assert_eq!((normal.len(), native_items(&normal[1])), (3, reasoning));
}

#[test]
fn merged_answers_keep_the_items_of_both() {
    let thinking = json!([{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "one"}]);
    let history = [
        user("q"),
        with_native(assistant("one", &[]), MESSAGES, thinking),
        assistant("two", &[("a", "{}")]),
        result("a", "r"),
    ];
    let normal = normalize(&history, MESSAGES);
    assert_eq!(show(&normal)[1], "assistant one|two a:{}");
    assert_eq!(
        native_items(&normal[1]),
        json!([
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "one"},
            {"type": "text", "text": "two"},
            {"type": "tool_use", "id": "a", "name": "t", "input": {}}
        ])
    );
}

#[test]
fn every_rule_can_be_broken() {
    let broken: [(&[Message], Violation); 9] = [
        (&[assistant("a", &[])], Violation::BeginsWrong),
        (&[user("a"), user("b")], Violation::NotAlternating { index: 1 }),
        (&[user("a"), assistant("", &[("c", "{}")])], Violation::Unanswered { index: 2, id: "c".into() }),
        (&[user("a"), result("c", "r")], Violation::StrayResult { index: 1, id: "c".into() }),
        (
            &[user("a"), assistant("", &[("c.", "{}")]), result("c.", "r")],
            Violation::BadId { index: 1, id: "c.".into() },
        ),
        (
            &[user("a"), assistant("", &[("c", "{ }")]), result("c", "r")],
            Violation::BadArguments { index: 1, id: "c".into() },
        ),
        (&[user(" ")], Violation::Blank { index: 0 }),
        (&[user("a"), assistant(" ", &[])], Violation::Blank { index: 1 }),
        (
            &[
                user("a"),
                with_native(
                    assistant("x", &[]),
                    RESPONSES,
                    json!([{"type": "reasoning"}, {"type": "message", "content": "x"}]),
                ),
            ],
            Violation::BadNative { index: 1 },
        ),
    ];
    for (history, violation) in broken {
        assert_eq!(check(history, MESSAGES), Err(violation));
    }
}
