//! Cuts what is too large in the messages that stay: results first, then the arguments of calls.

use serde_json::Value;

use crate::message::{AssistantMessage, Message, Part, ToolResult};
use crate::tool::output;

use super::estimate::{message_tokens, text_tokens};

/// A result keeps at least this many tokens.
const MIN_RESULT: u64 = 250;
/// What a result's cut costs in tokens: the note, and the bytes that end a character.
const NOTE: u64 = 30;
/// Arguments from here on are worth cutting, in characters.
const LONG_ARGUMENTS: usize = 2_000;
/// A text inside arguments keeps this many characters.
const KEPT_ARGUMENT_CHARS: usize = 400;
/// Our own words stand at the end of a result, from here on.
const OUR_WORDS: &str = "\n\n[turnd:";

const HINT: &str = "call the tool again for a part of it if it is needed";

/// The messages that must change so that all together have `room` tokens, in their new form.
pub(super) fn to_fit(kept: &[(usize, &Message)], room: u64) -> Vec<(usize, Message)> {
    let total: u64 = kept.iter().map(|(_, message)| message_tokens(message)).sum();
    if total <= room {
        return Vec::new();
    }
    let results: Vec<u64> =
        kept.iter().filter(|(_, message)| is_result(message)).map(|(_, message)| message_tokens(message)).collect();
    let others = total.saturating_sub(results.iter().sum());
    let cap = fill(results, room.saturating_sub(others)).max(MIN_RESULT);
    let is_short_of_room = others > room;
    let changed = kept.iter().filter_map(|(place, message)| {
        let message = match message {
            Message::Tool(result) if message_tokens(message) > cap => Message::Tool(cut_result(result, cap)),
            Message::Assistant(assistant) if is_short_of_room => Message::Assistant(cut_arguments(assistant)?),
            _ => return None,
        };
        Some((*place, message))
    });
    changed.collect()
}

fn is_result(message: &Message) -> bool {
    matches!(message, Message::Tool(_))
}

/// The size to cut to so that what is left comes to `room`: the largest go first.
fn fill(mut sizes: Vec<u64>, room: u64) -> u64 {
    sizes.sort_unstable();
    let mut left = room;
    let mut count = u64::try_from(sizes.len()).unwrap_or(u64::MAX);
    for size in sizes {
        let share = left / count.max(1);
        if size > share {
            return share;
        }
        left -= size;
        count -= 1;
    }
    u64::MAX
}

/// The result with head and tail of its text. What turnd or the user said at its end stays whole.
fn cut_result(result: &ToolResult, cap: u64) -> ToolResult {
    let text = crate::message::plain_text(&result.content);
    let (output, words) = text.split_at(text.find(OUR_WORDS).unwrap_or(text.len()));
    let budget = cap.saturating_sub(text_tokens(words)).saturating_sub(NOTE).max(MIN_RESULT / 2);
    // As many characters as the budget has bytes of this text, whatever the script.
    let bytes = u64::try_from(output.len()).unwrap_or(u64::MAX).max(1);
    let chars = u64::try_from(output.chars().count()).unwrap_or(u64::MAX);
    let kept = usize::try_from(chars.saturating_mul(budget.saturating_mul(4)) / bytes).unwrap_or(usize::MAX);
    let cut = format!("{}{words}", output::cap(output, kept, HINT));
    ToolResult { content: vec![Part::text(cut)], ..result.clone() }
}

/// The message with long texts inside its arguments cut; `None` when there are none.
fn cut_arguments(assistant: &AssistantMessage) -> Option<AssistantMessage> {
    let mut cut = assistant.clone();
    let mut is_changed = false;
    for call in &mut cut.tool_calls {
        if let Some(shorter) = shorter_arguments(&call.arguments, LONG_ARGUMENTS) {
            call.arguments = shorter;
            is_changed = true;
        }
    }
    // The provider's own items would say what the message no longer says.
    cut.native = None;
    is_changed.then_some(cut)
}

/// Arguments of more than `limit` characters with their long texts cut inside the JSON, so that it stays
/// valid; `None` when they are short enough or no JSON.
pub(super) fn shorter_arguments(arguments: &str, limit: usize) -> Option<String> {
    if arguments.len() <= limit {
        return None;
    }
    let mut value: Value = serde_json::from_str(arguments).ok()?;
    cut_texts(&mut value);
    let shorter = value.to_string();
    (shorter.len() < arguments.len()).then_some(shorter)
}

fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) => {
            let count = text.chars().count();
            if count > KEPT_ARGUMENT_CHARS + 100 {
                let kept = output::first_chars(text, KEPT_ARGUMENT_CHARS);
                *text = format!("{kept} [... {} characters left out ...]", count - KEPT_ARGUMENT_CHARS);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(cut_texts),
        Value::Object(members) => members.values_mut().for_each(cut_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::property_tests::{call, call_with, result};

    fn texts(kept: &[Message], room: u64) -> Vec<(usize, String)> {
        let kept: Vec<_> = kept.iter().enumerate().collect();
        to_fit(&kept, room).into_iter().map(|(place, message)| (place, message.plain_text())).collect()
    }

    #[test]
    fn only_what_is_larger_than_its_share_is_cut() {
        let history = [call("a"), result("a", &"x".repeat(40_000)), call("b"), result("b", "short")];
        assert!(texts(&history, 20_000).is_empty());
        let cut = texts(&history, 2_000);
        assert_eq!(cut.len(), 1);
        assert_eq!(cut[0].0, 1);
        assert!(cut[0].1.contains("characters left out") && cut[0].1.len() < 8_000, "{}", cut[0].1.len());
    }

    #[test]
    fn a_cut_falls_between_characters_and_spares_the_users_words() {
        let steer = "\n\n[turnd:user-steer]\nleft\n[/turnd:user-steer]";
        let history = [call("a"), result("a", &format!("{}{steer}", "世界🙂".repeat(9_000)))];
        let cut = &texts(&history, 1_000)[0].1;
        assert!(cut.ends_with(steer) && cut.starts_with('世') && text_tokens(cut) <= 1_000, "{}", text_tokens(cut));
    }

    #[test]
    fn arguments_are_cut_inside_their_json_and_only_when_results_are_not_enough() {
        let arguments = format!("{{\"path\":\"a.txt\",\"content\":\"{}\"}}", "é".repeat(9_000));
        let history = [call_with("a", &arguments), result("a", "ok")];
        assert!(texts(&history, 10_000).is_empty());
        let kept: Vec<_> = history.iter().enumerate().collect();
        let changed = to_fit(&kept, 1_000);
        let [(0, Message::Assistant(cut))] = changed.as_slice() else { panic!("the call is cut") };
        let value: Value = serde_json::from_str(&cut.tool_calls[0].arguments).unwrap();
        assert_eq!(value["path"], "a.txt");
        assert!(value["content"].as_str().unwrap().ends_with("[... 8600 characters left out ...]"));
    }
}
