//! The stored form of a message: its JSON with a version in front.
//!
//! Fields this program does not know are skipped when read and stay in the row, which is never rewritten.

use serde::Serialize;

use crate::message::{AssistantMessage, Effect, Message, Part, ToolResult};

/// The version written now. Readers take every version: a newer one only adds fields.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Body<'a> {
    v: u32,
    #[serde(flatten)]
    message: &'a Message,
}

/// The message as stored.
pub(super) fn encode(message: &Message) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Body { v: VERSION, message })
}

/// The message of a row.
///
/// A body that cannot be read (a part of a kind that only a newer program knows) falls back to the row's
/// plain text, because one such row must not lock the user out of the whole session.
pub(super) fn decode(
    body: &str,
    role: &str,
    content: impl FnOnce() -> String,
    tool_call_id: Option<String>,
) -> Message {
    serde_json::from_str(body).unwrap_or_else(|error| {
        tracing::warn!(role, %error, "a stored message is not readable; its plain text is used");
        plain(role, content(), tool_call_id)
    })
}

fn plain(role: &str, text: String, tool_call_id: Option<String>) -> Message {
    match (role, tool_call_id) {
        ("assistant", _) => Message::Assistant(AssistantMessage { text, ..AssistantMessage::default() }),
        ("tool", Some(tool_call_id)) => Message::Tool(ToolResult {
            tool_call_id,
            name: String::new(),
            content: vec![Part::text(text)],
            is_error: false,
            effect: Effect::Done,
        }),
        _ => Message::user(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FinishReason, NativeItems, Origin, ToolCall, UserMessage};
    use serde_json::json;

    fn check(message: &Message, stored: &str) {
        assert_eq!(encode(message).unwrap(), stored);
        assert_eq!(&decode(stored, message.role(), || panic!("not needed"), None), message);
    }

    #[test]
    fn the_stored_form_is_fixed() {
        check(
            &Message::User(UserMessage {
                content: vec![
                    Part::text("a\u{0}b"),
                    Part::Image { mime_type: "image/png".into(), data: "AA==".into() },
                    Part::Link { name: "n".into(), uri: "file:///n".into() },
                    Part::Resource { uri: "file:///r".into(), text: "r".into() },
                ],
                ..UserMessage::default()
            }),
            r#"{"v":1,"role":"user","content":[{"type":"text","text":"a\u0000b"},{"type":"image","mime_type":"image/png","data":"AA=="},{"type":"link","name":"n","uri":"file:///n"},{"type":"resource","uri":"file:///r","text":"r"}]}"#,
        );
        check(
            &Message::User(UserMessage { content: vec![Part::text("s")], origin: Origin::Compaction }),
            r#"{"v":1,"role":"user","content":[{"type":"text","text":"s"}],"origin":"compaction"}"#,
        );
        check(
            &Message::Assistant(AssistantMessage {
                text: "t".into(),
                reasoning: "r".into(),
                tool_calls: vec![ToolCall {
                    id: "c1".into(),
                    name: "read_file".into(),
                    arguments: "{\"path\":".into(),
                    extra: Some(json!({"z": 1, "a": 2.0})),
                }],
                finish: FinishReason::ToolCalls,
                native: Some(NativeItems {
                    provider: "p".into(),
                    model: "m".into(),
                    api_mode: "a".into(),
                    items: vec![json!({"type": "thinking", "signature": "s"})],
                    ..NativeItems::default()
                }),
            }),
            r#"{"v":1,"role":"assistant","text":"t","reasoning":"r","tool_calls":[{"id":"c1","name":"read_file","arguments":"{\"path\":","extra":{"z":1,"a":2.0}}],"finish":"tool_calls","native":{"provider":"p","model":"m","api_mode":"a","items":[{"type":"thinking","signature":"s"}]}}"#,
        );
        check(
            &Message::Tool(ToolResult {
                tool_call_id: "c1".into(),
                name: "read_file".into(),
                content: vec![Part::text("out")],
                is_error: true,
                effect: Effect::Unknown,
            }),
            r#"{"v":1,"role":"tool","tool_call_id":"c1","name":"read_file","content":[{"type":"text","text":"out"}],"is_error":true,"effect":"unknown"}"#,
        );
    }

    #[test]
    fn fields_of_a_newer_program_do_not_hinder_reading() {
        let stored = r#"{"v":7,"role":"assistant","text":"t","mood":"good","finish":"stop"}"#;
        let message = decode(stored, "assistant", String::new, None);
        assert_eq!(message.plain_text(), "t");
    }

    #[test]
    fn an_unreadable_row_falls_back_to_its_plain_text() {
        let stored = r#"{"v":7,"role":"user","content":[{"type":"smell","of":"rain"}]}"#;
        assert_eq!(decode(stored, "user", || "rain".into(), None), Message::user("rain"));
        let Message::Tool(result) = decode("", "tool", || "out".into(), Some("c1".into())) else { panic!("a result") };
        assert_eq!(result.tool_call_id, "c1");
    }
}
