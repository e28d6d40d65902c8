//! Random histories, whole and damaged in every way, against the rules.

use proptest::prelude::*;
use serde_json::json;

use super::tests::{MESSAGES, RESPONSES, TARGETS, assistant, result, show, user, with_native};
use super::*;
use crate::message::FinishReason;

/// What may happen next to a history. Texts are unique, so that a lost one is noticed.
#[derive(Clone, Debug)]
pub(in crate::provider) enum Move {
    /// A whole turn: question, batches of calls (call and answer), final answer.
    Turn {
        batches: Vec<u8>,
        has_native: bool,
    },
    /// A question and nothing else.
    Question,
    /// A row copied, dropped, or swapped with its neighbour.
    Repeat(usize),
    Drop(usize),
    Swap(usize),
    /// A row of nonsense.
    Stray(u8),
    /// Something in a row replaced by something broken.
    Spoil(usize, u8),
}

pub(in crate::provider) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let turn = (prop::collection::vec(0_u8..4, 0..3), any::<bool>())
        .prop_map(|(batches, has_native)| Move::Turn { batches, has_native });
    prop::collection::vec(
        prop_oneof![
            4 => turn,
            1 => Just(Move::Question),
            1 => (0_usize..64).prop_map(Move::Repeat),
            1 => (0_usize..64).prop_map(Move::Drop),
            1 => (0_usize..64).prop_map(Move::Swap),
            1 => (0_u8..9).prop_map(Move::Stray),
            2 => ((0_usize..64), (0_u8..12)).prop_map(|(index, how)| Move::Spoil(index, how)),
        ],
        0..8,
    )
}

pub(in crate::provider) fn build(moves: &[Move]) -> Vec<Message> {
    let mut history = Vec::new();
    let mut count = 0;
    for next in moves {
        apply(next, &mut history, &mut count);
    }
    history
}

fn apply(next: &Move, history: &mut Vec<Message>, count: &mut u32) {
    let mut unique = |kind: &str| {
        *count += 1;
        format!("{kind}{count};")
    };
    match next {
        Move::Question => history.push(user(&unique("u"))),
        Move::Turn { batches, has_native } => {
            history.push(user(&unique("u")));
            for size in batches {
                let calls: Vec<_> =
                    (0..=*size).map(|_| (unique("c"), format!("{{\"v\": \"{}\"}}", unique("v")))).collect();
                let pairs: Vec<_> = calls.iter().map(|(id, arguments)| (id.as_str(), arguments.as_str())).collect();
                let text = if size % 2 == 0 { String::new() } else { unique("a") };
                history.push(native(assistant(&text, &pairs), *has_native, &text));
                history.extend(calls.iter().map(|(id, _)| result(id, &unique("r"))));
            }
            let text = unique("a");
            history.push(native(assistant(&text, &[]), *has_native, &text));
        }
        Move::Stray(how) => history.push(stray(*how)),
        Move::Repeat(index) | Move::Drop(index) | Move::Swap(index) | Move::Spoil(index, _) if !history.is_empty() => {
            let index = index % history.len();
            let neighbour = (index + 1).min(history.len() - 1);
            match next {
                Move::Repeat(_) => history.insert(index, history[index].clone()),
                Move::Drop(_) => drop(history.remove(index)),
                Move::Swap(_) => history.swap(index, neighbour),
                Move::Spoil(_, how) => spoil(&mut history[index], *how),
                Move::Question | Move::Turn { .. } | Move::Stray(_) => {}
            }
        }
        Move::Repeat(_) | Move::Drop(_) | Move::Swap(_) | Move::Spoil(..) => {}
    }
}

fn native(message: Message, has_native: bool, text: &str) -> Message {
    if !has_native {
        return message;
    }
    let items = json!([{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": text}]);
    with_native(message, MESSAGES, items)
}

fn stray(how: u8) -> Message {
    match how {
        0 => user(" "),
        1 => assistant("", &[]),
        2 => assistant("\t", &[("", "")]),
        3 => result("", "stray"),
        4 => result("nobody", ""),
        5 => assistant("stray", &[("same", "{}"), ("same", "{}"), ("sa me", "[")]),
        6 => with_native(assistant("", &[]), RESPONSES, json!([{"type": "reasoning", "encrypted_content": "e"}])),
        7 => with_native(
            assistant("x", &[("d", "{}")]),
            RESPONSES,
            json!([{"type": "message", "content": []}, {"odd": 1}, null]),
        ),
        _ => with_native(assistant("", &[]), MESSAGES, json!([{"type": "thinking"}, {"type": "text", "text": " "}])),
    }
}

fn spoil(message: &mut Message, how: u8) {
    match message {
        Message::User(user) if how < 6 => user.content.push(Part::text(" ")),
        Message::User(user) => {
            user.content.insert(0, Part::Image { mime_type: "image/png".into(), data: String::new() });
        }
        Message::Tool(result) if how < 3 => result.tool_call_id = "elsewhere".into(),
        Message::Tool(result) if how < 6 => result.tool_call_id.clear(),
        Message::Tool(result) => result.content.clear(),
        Message::Assistant(assistant) => spoil_answer(assistant, how),
    }
}

fn spoil_answer(assistant: &mut AssistantMessage, how: u8) {
    let call = assistant.tool_calls.first_mut();
    match (how, call) {
        (0, Some(call)) => call.arguments = "{\"cut\": \"".into(),
        (1, Some(call)) => call.arguments = "[1]".into(),
        (2, Some(call)) => call.arguments.clear(),
        (3, Some(call)) => call.id.clear(),
        (4, Some(call)) => call.id = "x".repeat(300),
        (5, Some(call)) => call.id = "c1;".into(),
        (6, Some(call)) => call.name = " ".into(),
        (7, _) => assistant.tool_calls.clear(),
        (8, _) => assistant.text.clear(),
        (9, _) => assistant.text = " \n".into(),
        (10, _) => assistant.finish = FinishReason::Refused,
        (_, _) => assistant.reasoning = "thought".into(),
    }
}

/// Every word that is unique in the history and that a reader must still find: what users and answers
/// said, what calls asked, and the first result of each call that came before the next answer.
fn promised(history: &[Message]) -> Vec<String> {
    let mut words = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for message in history {
        match message {
            Message::User(_) => words.push(message.plain_text().trim().to_owned()),
            Message::Assistant(assistant) => {
                words.push(assistant.text.trim().to_owned());
                let valid = assistant.tool_calls.iter().filter(|call| arguments::is_object(&call.arguments));
                words.extend(valid.map(|call| call.arguments.replace(": ", ":")));
                // An item of reasoning alone is an answer where its provider gets it back.
                let says = !assistant.tool_calls.is_empty() || !assistant.text.trim().is_empty();
                if says || assistant.native.is_some() {
                    open = assistant.tool_calls.iter().map(|call| call.id.as_str()).collect();
                }
            }
            Message::Tool(result) => {
                if let Some(place) = open.iter().position(|id| *id == result.tool_call_id) {
                    open.remove(place);
                    words.push(message.plain_text().trim().to_owned());
                }
            }
        }
    }
    words.retain(|word| word.contains(';'));
    words
}

fn all_text(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        text.push_str(&message.plain_text());
        if let Message::Assistant(assistant) = message {
            text.extend(assistant.tool_calls.iter().map(|call| call.arguments.as_str()));
        }
        text.push('\n');
    }
    text
}

/// True when what follows can no longer change what `history` became: its newest calls are answered,
/// and an answer at its end is not continued.
fn is_complete(history: &[Message], rest: &[Message], target: Target<'_>) -> bool {
    let has_open_call = steps::gather(history, target).iter().rev().find_map(|step| match step {
        Step::Assistant(answer) => Some(answer.results.iter().any(Option::is_none)),
        Step::User(_) => None,
    });
    let ends_with_answer = matches!(normalize(history, target).last(), Some(Message::Assistant(_)));
    has_open_call != Some(true) && (!ends_with_answer || matches!(rest.first(), None | Some(Message::User(_))))
}

fn cases() -> ProptestConfig {
    let asked = ProptestConfig::default();
    // `PROPTEST_CASES` asks for more; 256 is what it says when nobody asked.
    ProptestConfig { cases: if asked.cases == 256 { 10_000 } else { asked.cases }, failure_persistence: None, ..asked }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_history_becomes_a_legal_one_and_nothing_said_is_lost(moves in moves(), cut in any::<prop::sample::Index>()) {
        let history = build(&moves);
        let words = promised(&history);
        for target in TARGETS {
            let normal = normalize(&history, target);
            prop_assert_eq!(check(&normal, target), Ok(()));
            prop_assert_eq!(&normalize(&normal, target), &normal);
            let text = all_text(&normal);
            for word in &words {
                prop_assert!(text.contains(word.as_str()), "{} lost for {:?} in\n{:#?}", word, target, show(&normal));
            }
            let (front, rest) = history.split_at(cut.index(history.len() + 1));
            if is_complete(front, rest, target) {
                let front = normalize(front, target);
                prop_assert_eq!(normal.get(..front.len()), Some(front.as_slice()));
            }
        }
    }
}
