//! The promises of the store, on real files.

use super::*;
use crate::message::{AssistantMessage, Effect, Part, ToolCall, ToolResult};

mod compact;
mod disk;
mod history;
mod list;
mod search;
mod sharing;

pub(super) fn session(id: &str) -> SessionRow {
    SessionRow {
        id: id.to_owned(),
        parent_id: None,
        lineage: None,
        cwd: "/work".to_owned(),
        additional_roots: vec!["/more".to_owned()],
        model: "local/m".to_owned(),
        mode: "ask".to_owned(),
        title: None,
        system_prompt: None,
        created_at_ms: 1,
        updated_at_ms: 1,
    }
}

pub(super) fn append(session_id: &str, turn_id: &str, message: Message) -> Write {
    Write::AppendMessage { session_id: session_id.to_owned(), turn_id: Some(turn_id.to_owned()), message }
}

pub(super) fn calls(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall {
        id: (*id).to_owned(),
        name: "read_file".to_owned(),
        arguments: "{}".to_owned(),
        extra: None,
    };
    Message::Assistant(AssistantMessage { tool_calls: ids.iter().map(call).collect(), ..AssistantMessage::default() })
}

pub(super) fn result(id: &str, text: &str) -> Message {
    Message::Tool(ToolResult {
        tool_call_id: id.to_owned(),
        name: "read_file".to_owned(),
        content: vec![Part::text(text)],
        is_error: false,
        effect: Effect::Done,
    })
}

pub(super) fn turn(session_id: &str, id: &str, status: &str) -> TurnRow {
    TurnRow {
        id: id.to_owned(),
        session_id: session_id.to_owned(),
        status: status.to_owned(),
        exit_reason: None,
        steps: 2,
        api_calls: 3,
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
        started_at_ms: 5,
        ended_at_ms: None,
    }
}

pub(super) fn texts(session: &LoadedSession) -> Vec<String> {
    session.messages.iter().map(|stored| stored.message.plain_text()).collect()
}
