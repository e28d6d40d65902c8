//! What hooks are told, beside what every payload holds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::approval::Question;
use crate::clock;
use crate::message::{AssistantMessage, Effect, Message, ToolCall};
use crate::provider::endpoint::Endpoint;
use crate::provider::{ModelReply, ProviderError};

use super::context::Scope;
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

/// A history in the shape hooks know: role, content, and the calls or the call that belong to it.
fn conversation(history: &[Message]) -> Value {
    history.iter().map(message).collect()
}

fn message(message: &Message) -> Value {
    let (role, text) = (message.role(), message.plain_text());
    let content = cut(&text);
    match message {
        Message::User(_) => json!({ "role": role, "content": content }),
        Message::Assistant(answer) => json!({ "role": role, "content": content, "tool_calls": calls(answer) }),
        Message::Tool(result) => json!({ "role": role, "content": content, "tool_call_id": result.tool_call_id }),
    }
}

fn calls(answer: &AssistantMessage) -> Value {
    let call = |call: &ToolCall| json!({ "id": call.id, "name": call.name, "arguments": cut(&call.arguments) });
    answer.tool_calls.iter().map(call).collect()
}

/// A request to a provider, as the hooks around it know it.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) turn_id: &'a str,
    pub(super) endpoint: &'a Endpoint,
    /// Counted in the turn, from 1.
    pub(super) number: u32,
}

impl Asked<'_> {
    fn with(self, more: Value) -> Value {
        let mut fields = json!({
            "api_request_id": request_id(self.turn_id, self.number),
            "provider": self.endpoint.provider,
            "model": self.endpoint.model,
            "base_url": self.endpoint.base_url,
            "api_mode": self.endpoint.mode.as_str(),
            "api_call_count": self.number,
        });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        fields
    }
}

/// Ties what hooks hear of one request to the tool calls that its answer asked for.
fn request_id(turn_id: &str, number: u32) -> String {
    format!("{turn_id}.request{number}")
}

impl<Io> Scope<'_, Io> {
    /// The request whose answer is being worked on.
    pub(super) fn request_id(&self) -> String {
        request_id(&self.context.turn_id, self.requests.load(std::sync::atomic::Ordering::Relaxed))
    }
}

/// `request`: whose answer asked for the call, where that is known.
pub(crate) fn tool_call(call: &ToolCall, arguments: &Value, request: Option<&str>) -> Value {
    json!({ "tool_name": call.name, "args": arguments, "tool_call_id": call.id, "api_request_id": request })
}

/// How a call ended, for hooks.
#[derive(Clone, Copy)]
pub(crate) struct CallEnd<'a> {
    pub(crate) call: &'a ToolCall,
    pub(crate) result: &'a str,
    pub(crate) status: CallStatus,
    /// How long it ran, where that is known.
    pub(crate) took: Option<Duration>,
    /// The request whose answer asked for it, where that is known.
    pub(crate) request: Option<&'a str>,
}

pub(crate) fn ended_call(end: CallEnd<'_>) -> Value {
    let error = (end.status != CallStatus::Done).then_some(end.status.as_str());
    json!({
        "tool_name": end.call.name,
        "args": serde_json::from_str(&end.call.arguments).unwrap_or(Value::Null),
        "tool_call_id": end.call.id,
        "api_request_id": end.request,
        "status": end.status.as_str(),
        "result": cut(end.result),
        "duration_ms": end.took.map(|took| took.as_millis()),
        "error_type": error,
        "error_message": error.map(|_| cut(end.result)),
    })
}

pub(crate) fn approval(call: &ToolCall, question: &Question, answer: Option<Answer>) -> Value {
    let covers = question.remember.as_ref().map(|offer| offer.covers());
    json!({
        "tool_name": call.name,
        "tool_call_id": call.id,
        "command": cut(&question.subject),
        "description": question.reasons.join("; "),
        "reasons": question.reasons,
        "pattern_key": covers,
        "pattern_keys": covers.into_iter().collect::<Vec<_>>(),
        "surface": "client",
        "choice": answer.map(Answer::as_str),
        "decided_by": answer.map(|answer| match answer {
            Answer::TimedOut => "timeout",
            Answer::NotAsked => "configuration",
            Answer::Cancelled => "cancel",
            _ => "user",
        }),
    })
}

pub(crate) fn session_start(text: &str) -> Value {
    json!({ "user_message": cut(text), "is_first_turn": true })
}

/// `history` ends with the user's message.
pub(crate) fn user_message(text: &str, is_first_turn: bool, history: &[Message]) -> Value {
    json!({
        "user_message": cut(text),
        "is_first_turn": is_first_turn,
        "conversation_history": conversation(history),
        "sender_id": null,
    })
}

pub(super) fn request(asked: Asked<'_>, messages: &[Message], tools: usize, max_tokens: Option<u64>) -> Value {
    let chars: usize = messages.iter().map(|message| message.plain_text().chars().count()).sum();
    asked.with(json!({
        "request_messages": conversation(messages),
        "message_count": messages.len(),
        "tool_count": tools,
        "request_char_count": chars,
        "approx_input_tokens": chars / 4,
        "max_tokens": max_tokens,
        "started_at": clock::iso8601(clock::now_ms()),
    }))
}

/// `took`: from the request to the end of the answer.
pub(super) fn reply(asked: Asked<'_>, reply: &ModelReply, took: Duration) -> Value {
    let answer = &reply.message;
    asked.with(json!({
        "finish_reason": answer.finish.as_str(),
        "usage": reply.usage,
        "assistant_message": {
            "role": "assistant",
            "content": cut(&answer.text),
            "reasoning": cut(&answer.reasoning),
            "tool_calls": calls(answer),
        },
        "assistant_content_chars": answer.text.chars().count(),
        "assistant_tool_call_count": answer.tool_calls.len(),
        "api_duration": took.as_secs_f64(),
        "ended_at": clock::iso8601(clock::now_ms()),
    }))
}

/// `retries` counts the requests of this call that failed before.
pub(super) fn request_error(asked: Asked<'_>, retries: u32, error: &ProviderError) -> Value {
    asked.with(json!({
        "error_type": if error.status.is_some() { "http" } else { "transport" },
        "status_code": error.status,
        "error_message": error.message,
        "retry_count": retries,
        "max_retries": asked.endpoint.retry.max_retries,
        "retryable": error.kind.hints().retryable,
        "reason": error.kind.as_str(),
    }))
}

/// An answer before it is stored.
pub(super) fn final_text(user_message: &str, text: &str) -> Value {
    json!({ "user_message": cut(user_message), "response_text": cut(text), "assistant_response": cut(text) })
}

/// `history` ends with the answer.
pub(crate) fn answer(user_message: &str, text: &str, history: &[Message]) -> Value {
    json!({
        "user_message": cut(user_message),
        "assistant_response": cut(text),
        "conversation_history": conversation(history),
    })
}

pub(crate) fn verify(text: &str, attempt: u32, changed_paths: &[String]) -> Value {
    json!({
        "final_response": cut(text),
        "attempt": attempt,
        "coding": !changed_paths.is_empty(),
        "changed_paths": changed_paths,
    })
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

pub(crate) fn stopped(report: &TurnReport) -> Value {
    let is_timeout = report.exit == super::exit::ExitReason::ApprovalTimedOut;
    json!({ "reason": if is_timeout { report.exit.as_str() } else { "cancelled" } })
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
