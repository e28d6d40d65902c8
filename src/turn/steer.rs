//! Words that reach the model in the middle of a turn: steers, notices, corrections.
//!
//! A steer rides at the end of the newest tool result. A user message there would break the order of
//! roles, and anything placed earlier would change bytes that the provider has cached.

use crate::message::{Message, Origin, Part};

/// Opens what the user said in the middle of the turn.
pub const STEER_OPEN: &str = "[turnd:user-steer]";
/// Closes it.
pub const STEER_CLOSE: &str = "[/turnd:user-steer]";
/// Opens what turnd itself has to say in the middle of the turn.
pub const NOTICE_OPEN: &str = "[turnd:notice]";
/// Closes it.
pub const NOTICE_CLOSE: &str = "[/turnd:notice]";

/// What the model is told when 80 % of the run budget have passed.
pub const WRAP_UP: &str = "Most of the time for this task has passed. Start no new work; finish what is \
     open and answer with what you have.";

/// The words that mark a correction inside the user's request.
pub const CORRECTION_LABEL: &str = "Correction by the user while the work was under way:";

/// A steer as the model reads it.
#[must_use]
pub fn steer_text(text: &str) -> String {
    format!("\n\n{STEER_OPEN}\n{text}\n{STEER_CLOSE}")
}

/// A notice as the model reads it.
#[must_use]
pub fn notice_text(text: &str) -> String {
    format!("\n\n{NOTICE_OPEN}\n{text}\n{NOTICE_CLOSE}")
}

/// Appends a text to the newest message if that is a tool result; returns its new form to store.
pub fn append_to_newest_result(history: &mut [Message], text: &str) -> Option<Message> {
    let Some(Message::Tool(result)) = history.last_mut() else { return None };
    match result.content.last_mut() {
        Some(Part::Text { text: last }) => last.push_str(text),
        _ => result.content.push(Part::text(text.trim_start())),
    }
    history.last().cloned()
}

/// Puts a correction into the request it corrects: the newest user message. It is part of the request
/// from then on, so it survives compaction. Returns the new form to store.
pub fn correct_request(history: &mut [Message], correction: &str) -> Option<Message> {
    let request = history.iter_mut().rev().find_map(|message| match message {
        Message::User(user) if user.origin == Origin::User => Some(user),
        _ => None,
    })?;
    request.content.push(Part::text(format!("{CORRECTION_LABEL} {correction}")));
    Some(Message::User(request.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Effect, ToolResult};

    fn result(content: Vec<Part>) -> Message {
        Message::Tool(ToolResult {
            tool_call_id: "c".into(),
            name: "t".into(),
            content,
            is_error: false,
            effect: Effect::Done,
        })
    }

    #[test]
    fn a_steer_rides_on_the_newest_tool_result_and_nowhere_else() {
        let mut history = vec![Message::user("go"), result(vec![Part::text("out")])];
        let stored = append_to_newest_result(&mut history, &steer_text("left")).unwrap();
        assert_eq!(stored.plain_text(), "out\n\n[turnd:user-steer]\nleft\n[/turnd:user-steer]");
        let picture = Part::Image { mime_type: "image/png".into(), data: "AA==".into() };
        let mut history = vec![result(vec![picture])];
        assert!(append_to_newest_result(&mut history, &steer_text("left")).unwrap().plain_text().contains("left"));
        assert!(append_to_newest_result(&mut [Message::user("go")], "x").is_none());
    }

    #[test]
    fn a_correction_becomes_part_of_the_newest_request() {
        let mut history = vec![Message::user("old"), Message::user("paint it red")];
        let stored = correct_request(&mut history, "blue").unwrap();
        assert_eq!(stored.plain_text(), format!("paint it red\n{CORRECTION_LABEL} blue"));
        assert_eq!(history[0].plain_text(), "old");
    }
}
