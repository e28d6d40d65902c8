//! The record of a conversation without a model: made of what stands in the messages.

use std::collections::BTreeSet;

use crate::message::{Message, defuse_markers};
use crate::provider::redact::Redactor;
use crate::tool::output::{first_chars, one_line};

/// The longest such record.
pub(super) const MAX_CHARS: usize = 8_000;
/// What an earlier record may have of it.
const EARLIER_CHARS: usize = 3_500;
/// Characters of one line.
const LINE_CHARS: usize = 300;
/// Lines of one section; the newest are kept.
const MAX_LINES: usize = 8;
/// Files named.
const MAX_FILES: usize = 30;

/// The record of these messages. The same messages give the same record.
pub(super) fn record(messages: &[&Message], earlier: Option<&str>) -> String {
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    let mut actions = Vec::new();
    let mut files = BTreeSet::new();
    for message in messages {
        match message {
            Message::User(_) if message.is_request() => requests.push(one_line(&message.plain_text(), LINE_CHARS)),
            Message::User(_) => {}
            Message::Assistant(assistant) => {
                if !assistant.text.trim().is_empty() {
                    answers.push(one_line(&assistant.text, LINE_CHARS));
                }
                for call in &assistant.tool_calls {
                    actions.push(format!("{} {}", call.name, one_line(&call.arguments, LINE_CHARS / 2)));
                    files.extend(path_of(&call.arguments));
                }
            }
            Message::Tool(result) if result.is_error => {
                actions.push(format!("{} failed: {}", result.name, one_line(&message.plain_text(), LINE_CHARS / 2)));
            }
            Message::Tool(_) => {}
        }
    }
    let mut text = String::from("(Put together without a model, so details are missing.)\n");
    if let Some(earlier) = earlier {
        text.push_str(&format!("{}\n", first_chars(earlier, EARLIER_CHARS)));
    }
    section(&mut text, "Requests of that time", &requests, MAX_LINES);
    section(&mut text, "Completed actions, newest last", &actions, MAX_LINES);
    section(&mut text, "What the agent said, newest last", &answers, MAX_LINES);
    section(&mut text, "Relevant files", &files.into_iter().collect::<Vec<_>>(), MAX_FILES);
    let clean = Redactor::process().clean(defuse_markers(&text).as_ref()).into_owned();
    first_chars(clean.trim(), MAX_CHARS).to_owned()
}

fn section(text: &mut String, heading: &str, lines: &[String], most: usize) {
    if lines.is_empty() {
        return;
    }
    let left_out = lines.len().saturating_sub(most);
    text.push_str(&format!("## {heading}\n"));
    if left_out > 0 {
        text.push_str(&format!("- ({left_out} older ones left out)\n"));
    }
    for line in lines.iter().skip(left_out) {
        text.push_str(&format!("- {line}\n"));
    }
}

fn path_of(arguments: &str) -> Option<String> {
    let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
    Some(one_line(arguments.get("path")?.as_str()?, LINE_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::property_tests::{answer, call_with, result, summary};

    #[test]
    fn a_record_without_a_model_names_requests_actions_and_files() {
        let messages = [
            summary("before"),
            Message::user("make it\nfast"),
            call_with("a", r#"{"path":"src/a.rs"}"#),
            result("a", "ok"),
            answer("done"),
        ];
        let text = record(&messages.iter().collect::<Vec<_>>(), Some("before"));
        for part in ["before", "- make it fast", "- t {\"path\":\"src/a.rs\"}", "- src/a.rs", "- done"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn it_is_bounded_however_long_the_conversation_was() {
        let messages: Vec<_> =
            (0..2_000).map(|number| Message::user(format!("{number} {}", "é".repeat(900)))).collect();
        let text = record(&messages.iter().collect::<Vec<_>>(), Some(&"x".repeat(50_000)));
        assert!(text.chars().count() <= MAX_CHARS && text.contains("1992 older ones left out"), "{text}");
    }
}
