//! The messages that go, written down for the model that summarises them.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::message::{Message, Part, defuse_markers, plain_text};
use crate::provider::redact::Redactor;
use crate::tool::output::{first_chars, last_chars, one_line};

use super::shorten::shorter_arguments;
use super::split::is_summary;

/// Characters of one message, and what is kept of a longer one.
const MESSAGE_CHARS: usize = 6_000;
const HEAD_CHARS: usize = 4_000;
const TAIL_CHARS: usize = 1_500;
/// Arguments of more characters are cut, to so many at most.
const LONG_ARGUMENTS: usize = 1_500;
const ARGUMENT_CHARS: usize = 1_200;
/// Results from here on are worth naming only once, in bytes.
const REPEATED_BYTES: usize = 200;
/// Characters of a result that is told on one line.
const LINE_CHARS: usize = 160;

/// Writes the messages down in at most about `max_chars` characters. Where they are more, old results become
/// one line each, and then the oldest messages are left out. Summaries among them are left out: they are
/// handed on as they are.
pub(super) fn write(messages: &[&Message], max_chars: usize) -> String {
    let pieces = pieces(messages);
    let whole: usize = pieces.iter().map(|piece| piece.whole.len()).sum();
    let mut over = whole.saturating_sub(max_chars);
    let mut texts = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        let is_line = over > 0 && piece.line.len() < piece.whole.len();
        if is_line {
            over = over.saturating_sub(piece.whole.len() - piece.line.len());
        }
        texts.push(if is_line { &piece.line } else { &piece.whole });
    }
    let mut kept = Vec::with_capacity(texts.len());
    let mut room = max_chars;
    for text in texts.iter().rev() {
        if text.len() > room {
            break;
        }
        room -= text.len();
        kept.push(text.as_str());
    }
    let left_out = texts.len() - kept.len();
    let note = if left_out > 0 { format!("[{left_out} older messages are left out]\n\n") } else { String::new() };
    kept.reverse();
    Redactor::process().clean(&format!("{note}{}", kept.concat())).into_owned()
}

/// One message, whole as far as that makes sense, and shorter.
struct Piece {
    whole: String,
    line: String,
}

fn pieces(messages: &[&Message]) -> Vec<Piece> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let mut pieces = Vec::with_capacity(messages.len());
    for message in messages.iter().filter(|message| !is_summary(message)) {
        let (whole, line) = match message {
            Message::User(user) => {
                let text = format!("USER:\n{}{}\n\n", clip(&plain_text(&user.content)), pictures(&user.content));
                (text.clone(), text)
            }
            Message::Assistant(assistant) => {
                let mut text = String::from("ASSISTANT:\n");
                if !assistant.text.trim().is_empty() {
                    writeln!(text, "{}", clip(&assistant.text)).ok();
                }
                for call in &assistant.tool_calls {
                    let shorter = shorter_arguments(&call.arguments, LONG_ARGUMENTS);
                    let arguments = shorter.as_deref().unwrap_or(&call.arguments);
                    writeln!(text, "call {} {}", call.name, first_chars(arguments, ARGUMENT_CHARS)).ok();
                }
                text.push('\n');
                (text.clone(), text)
            }
            Message::Tool(result) => {
                let failed = if result.is_error { " (failed)" } else { "" };
                let text = plain_text(&result.content);
                let line = format!(
                    "RESULT of {}{failed}, {} bytes: {}\n\n",
                    result.name,
                    text.len(),
                    one_line(&text, LINE_CHARS)
                );
                let is_repeated =
                    text.len() >= REPEATED_BYTES && seen.insert(text.clone(), &result.tool_call_id).is_some();
                let whole = if is_repeated {
                    format!("RESULT of {}{failed}: the same as an earlier result\n\n", result.name)
                } else {
                    format!("RESULT of {}{failed}:\n{}{}\n\n", result.name, clip(&text), pictures(&result.content))
                };
                (whole, line)
            }
        };
        pieces.push(Piece { whole: defuse_markers(&whole).into_owned(), line: defuse_markers(&line).into_owned() });
    }
    pieces
}

fn clip(text: &str) -> String {
    let count = text.chars().count();
    if count <= MESSAGE_CHARS {
        return text.to_owned();
    }
    let (head, tail) = (first_chars(text, HEAD_CHARS), last_chars(text, TAIL_CHARS));
    format!("{head}\n[... {} characters left out ...]\n{tail}", count - HEAD_CHARS - TAIL_CHARS)
}

fn pictures(parts: &[Part]) -> String {
    let count = parts.iter().filter(|part| matches!(part, Part::Image { .. })).count();
    if count == 0 { String::new() } else { format!("\n[{count} pictures]") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::property_tests::{answer, call, call_with, result, summary};

    fn written(messages: &[Message], max_chars: usize) -> String {
        write(&messages.iter().collect::<Vec<_>>(), max_chars)
    }

    #[test]
    fn a_conversation_is_written_down_without_its_bulk() {
        let long = "z".repeat(300);
        let messages = [
            summary("SUMMARY"),
            Message::user("fix it\n[turnd:user-steer]"),
            call_with("a", &format!("{{\"path\":\"x\",\"content\":\"{}\"}}", "y".repeat(5_000))),
            result("a", &long),
            call("b"),
            result("b", &long),
            answer(&"w".repeat(10_000)),
        ];
        let text = written(&messages, 100_000);
        assert!(!text.contains("SUMMARY") && !text.contains("[turnd:"), "{text}");
        assert_eq!(text.matches(&long).count(), 1, "a repeated result is named once");
        assert!(text.contains("\"path\":\"x\"") && text.contains("4600 characters left out"), "{text}");
        assert!(text.contains("4500 characters left out"), "{text}");
    }

    #[test]
    fn too_long_a_conversation_loses_old_results_first_and_old_messages_then() {
        let messages: Vec<_> = (0..10)
            .flat_map(|number| {
                let id = format!("c{number}");
                [call(&id), result(&id, &format!("{number}{}", "r".repeat(1_000)))]
            })
            .collect();
        let shorter = written(&messages, 6_000);
        assert!(shorter.len() <= 6_100 && shorter.contains("RESULT of t, 1001 bytes: 0rr"), "{shorter}");
        assert!(shorter.contains(&format!("9{}", "r".repeat(1_000))), "the newest stays whole");
        let shortest = written(&messages, 400);
        assert!(shortest.starts_with('[') && shortest.contains("older messages are left out"), "{shortest}");
    }
}
