//! What hooks are told, beside what every payload holds.

use serde_json::{Value, json};

use crate::approval::Question;
use crate::message::{Effect, ToolCall};
use crate::provider::endpoint::Endpoint;
use crate::provider::{ModelReply, ProviderError};

use super::exit::TurnReport;
use super::port::Answer;

/// The most bytes of one text in a payload.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// What became of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStatus {
    /// It did its work.
    Done,
    /// It could not.
    Failed,
    /// Rules or a hook kept it from running.
    Blocked,
    /// The user did.
    Refused,
    /// The turn was cancelled before it ran.
    Cancelled,
    /// It was cut off while it ran.
    CutOff,
}

impl CallStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Failed => "error",
            Self::Blocked => "blocked",
            Self::Refused => "not_approved",
            Self::Cancelled => "cancelled",
            Self::CutOff => "interrupted",
        }
    }

    /// What is known about side effects.
    pub(crate) fn effect(self) -> Effect {
        match self {
            Self::Done | Self::Failed => Effect::Done,
            Self::Blocked | Self::Refused | Self::Cancelled => Effect::None,
            Self::CutOff => Effect::Unknown,
        }
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or(text)
}

pub(crate) fn tool_call(call: &ToolCall, arguments: &Value) -> Value {
    json!({ "tool_name": call.name, "args": arguments, "tool_call_id": call.id })
}

pub(crate) fn ended_call(call: &ToolCall, result: &str, status: CallStatus) -> Value {
    json!({
        "tool_name": call.name,
        "args": serde_json::from_str(&call.arguments).unwrap_or(Value::Null),
        "tool_call_id": call.id,
        "status": status.as_str(),
        "result": cut(result),
    })
}

pub(crate) fn approval(call: &ToolCall, question: &Question, answer: Option<Answer>) -> Value {
    json!({
        "tool_name": call.name,
        "tool_call_id": call.id,
        "reasons": question.reasons,
        "choice": answer.map(Answer::as_str),
    })
}

pub(crate) fn user_message(text: &str, is_first_turn: bool) -> Value {
    json!({ "user_message": cut(text), "is_first_turn": is_first_turn })
}

pub(crate) fn request(endpoint: &Endpoint, api_call: u32, messages: usize, tools: usize) -> Value {
    json!({
        "provider": endpoint.provider,
        "model": endpoint.model,
        "base_url": endpoint.base_url,
        "api_mode": endpoint.mode.as_str(),
        "api_call_count": api_call,
        "message_count": messages,
        "tool_count": tools,
    })
}

pub(crate) fn reply(endpoint: &Endpoint, api_call: u32, reply: &ModelReply) -> Value {
    json!({
        "provider": endpoint.provider,
        "model": endpoint.model,
        "api_call_count": api_call,
        "finish_reason": reply.message.finish.as_str(),
        "usage": reply.usage,
        "assistant_content_chars": reply.message.text.chars().count(),
        "assistant_tool_call_count": reply.message.tool_calls.len(),
    })
}

/// `retries` counts the requests of this call that failed before.
pub(crate) fn request_error(endpoint: &Endpoint, api_call: u32, retries: u32, error: &ProviderError) -> Value {
    json!({
        "provider": endpoint.provider,
        "model": endpoint.model,
        "base_url": endpoint.base_url,
        "api_mode": endpoint.mode.as_str(),
        "api_call_count": api_call,
        "error_type": if error.status.is_some() { "http" } else { "transport" },
        "status_code": error.status,
        "error_message": error.message,
        "retry_count": retries,
        "max_retries": endpoint.retry.max_retries,
        "retryable": error.kind.hints().retryable,
        "reason": error.kind.as_str(),
    })
}

pub(crate) fn answer(user_message: &str, text: &str) -> Value {
    json!({ "user_message": cut(user_message), "assistant_response": cut(text) })
}

pub(crate) fn verify(text: &str, attempt: u32, changed_paths: &[String]) -> Value {
    json!({ "final_response": cut(text), "attempt": attempt, "changed_paths": changed_paths })
}

/// What a compaction did.
pub(super) struct CompactionCounts {
    pub(super) reason: &'static str,
    pub(super) messages_before: usize,
    pub(super) messages_after: usize,
    pub(super) tokens_before: u64,
    pub(super) tokens_after: u64,
    pub(super) summary_by: Option<&'static str>,
}

pub(super) fn compaction(counts: &CompactionCounts) -> Value {
    json!({
        "reason": counts.reason,
        "messages_before": counts.messages_before,
        "messages_after": counts.messages_after,
        "tokens_before": counts.tokens_before,
        "tokens_after": counts.tokens_after,
        "summary_by": counts.summary_by,
    })
}

pub(crate) fn stopped() -> Value {
    json!({ "reason": "cancelled" })
}

pub(crate) fn ended(report: &TurnReport) -> Value {
    json!({
        "status": report.status().as_str(),
        "exit_reason": report.exit.as_str(),
        "completed": report.status() == super::exit::TurnStatus::Completed,
        "interrupted": report.status() == super::exit::TurnStatus::Interrupted,
        "steps": report.steps,
        "api_calls": report.api_calls,
    })
}
