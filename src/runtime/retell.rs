//! The conversation so far as text, for a runtime that has not been part of it.

use crate::message::{Message, plain_text};

/// Bytes of one message and of the whole; a runtime needs the thread of it, not every output.
const MAX_MESSAGE_BYTES: usize = 4 << 10;
const MAX_BYTES: usize = 48 << 10;

const HEAD: &str = "[The conversation so far, which you were not part of. The newest request follows it.]\n";

/// What was said, newest words kept; `None` when nothing was.
pub(super) fn of(history: &[Message]) -> Option<String> {
    let mut kept = Vec::new();
    let mut bytes = 0;
    for message in history.iter().rev() {
        let told = told(message);
        bytes += told.len();
        if bytes > MAX_BYTES {
            kept.push("[...]\n".to_owned());
            break;
        }
        kept.push(told);
    }
    kept.reverse();
    let text = kept.concat();
    (!text.trim().is_empty()).then(|| format!("{HEAD}{text}"))
}

fn told(message: &Message) -> String {
    match message {
        Message::User(user) => format!("User: {}\n", cut(&plain_text(&user.content))),
        Message::Assistant(assistant) => {
            let calls: String = assistant
                .tool_calls
                .iter()
                .map(|call| format!("Agent called {}: {}\n", call.name, cut(&call.arguments)))
                .collect();
            match assistant.text.trim() {
                "" => calls,
                text => format!("Agent: {}\n{calls}", cut(text)),
            }
        }
        Message::Tool(result) => format!("Result of {}: {}\n", result.name, cut(&plain_text(&result.content))),
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_MESSAGE_BYTES)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_words_are_kept_and_the_size_is_bounded() {
        assert_eq!(of(&[]), None);
        let history: Vec<_> = (0..100).map(|number| Message::user(format!("{number} {}", "x".repeat(9_000)))).collect();
        let text = of(&history).unwrap();
        assert!(text.len() < MAX_BYTES + 1_000, "{}", text.len());
        assert!(text.contains("User: 99 ") && text.contains("[...]") && !text.contains("User: 0 "));
    }
}
