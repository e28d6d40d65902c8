//! The encoder: one request body, the same bytes for the same input.
//!
//! `messages` come last, so that the body of the next step begins with all bytes of this one but the end, and a
//! provider's prefix cache finds what it knows.

use std::borrow::Cow;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::body::{
    Body, ImageUrl, Reasoning, StreamOptions, WireCall, WireCallFunction, WireContent, WireFunction, WireMessage,
    WirePart, WireTool, mark_for_cache,
};
use crate::message::{AssistantMessage, Message, Part, ReasoningField, ToolCall, ToolResult, UserMessage};
use crate::provider::endpoint::{
    CacheStyle, EffortStyle, EmptyContent, MaxTokensField, ReasoningReplay, ToolCallIds, ToolImages,
};
use crate::provider::pictures::{left_out, text_of, text_with_note};
use crate::provider::schema::without_patterns;
use crate::provider::{ApiMode, Endpoint, ModelRequest};
use crate::tool::ToolSpec;

/// The signature that Google's documentation gives to calls of another model
/// (ai.google.dev/gemini-api/docs/thought-signatures).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The body of one call.
#[must_use]
pub fn encode(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Vec<u8> {
    let quirks = &endpoint.quirks;
    let limit = endpoint.output_limit(request.max_output_tokens);
    let has_tools = !request.tools.is_empty();
    let effort = endpoint.reasoning_effort.as_deref().filter(|_| quirks.reasoning_effort);
    let cache_key = Some(request.session_id).filter(|key| quirks.prompt_cache && !key.is_empty());
    let mut messages = Messages { endpoint }.write(request);
    if quirks.prompt_cache && quirks.cache_style == CacheStyle::Markers {
        mark_for_cache(&mut messages, quirks.cache_ttl);
    }
    let body = Body {
        model: &endpoint.model,
        stream: true,
        stream_options: quirks.stream_usage.then_some(StreamOptions { include_usage: true }),
        max_tokens: limit.filter(|_| quirks.max_tokens_field == MaxTokensField::MaxTokens),
        max_completion_tokens: limit.filter(|_| quirks.max_tokens_field == MaxTokensField::MaxCompletionTokens),
        reasoning_effort: effort.filter(|_| quirks.effort_style == EffortStyle::Field),
        reasoning: effort.filter(|_| quirks.effort_style == EffortStyle::Object).map(|effort| Reasoning { effort }),
        prompt_cache_key: cache_key.filter(|_| quirks.cache_style == CacheStyle::Key),
        parallel_tool_calls: (quirks.parallel_tool_calls && has_tools).then_some(true),
        tools: request.tools.iter().map(|spec| tool(endpoint, spec)).collect(),
        messages,
    };
    // Nothing here can fail to serialize: all keys are strings and all numbers are finite.
    serde_json::to_vec(&body).unwrap_or_default()
}

fn tool<'a>(endpoint: &Endpoint, spec: &'a ToolSpec) -> WireTool<'a> {
    let parameters = without_patterns(&spec.parameters, &endpoint.adjustments);
    WireTool {
        r#type: "function",
        function: WireFunction { name: &spec.name, description: &spec.description, parameters },
    }
}

/// Writes the history for one endpoint.
#[derive(Clone, Copy)]
struct Messages<'e> {
    endpoint: &'e Endpoint,
}

impl Messages<'_> {
    fn write<'a>(self, request: &ModelRequest<'a>) -> Vec<WireMessage<'a>> {
        let mut wire = Vec::with_capacity(request.messages.len() + 1);
        if !request.system.is_empty() {
            wire.push(WireMessage {
                content: Some(WireContent::Text(request.system.into())),
                ..message(self.endpoint.quirks.system_role.as_str())
            });
        }
        let mut pictures = Vec::new();
        for entry in request.messages {
            match entry {
                Message::User(user) => wire.push(self.user(user, std::mem::take(&mut pictures))),
                Message::Assistant(assistant) => {
                    flush_pictures(&mut wire, &mut pictures);
                    wire.push(self.assistant(assistant));
                }
                Message::Tool(result) => wire.push(self.tool_result(result, &mut pictures)),
            }
        }
        flush_pictures(&mut wire, &mut pictures);
        wire
    }

    fn user<'a>(self, user: &'a UserMessage, mut parts: Vec<WirePart<'a>>) -> WireMessage<'a> {
        let has_picture = user.content.iter().any(|part| matches!(part, Part::Image { .. }));
        let content = if parts.is_empty() && !has_picture {
            WireContent::Text(text_of(&user.content))
        } else {
            parts.extend(user.content.iter().map(|part| self.part(part)));
            WireContent::Parts(parts)
        };
        WireMessage { content: Some(content), ..message("user") }
    }

    fn part<'a>(self, part: &'a Part) -> WirePart<'a> {
        match part {
            Part::Image { mime_type, .. } if self.endpoint.adjustments.drop_images => {
                WirePart::text(left_out(mime_type))
            }
            Part::Image { mime_type, data } => {
                WirePart::ImageUrl { image_url: ImageUrl { url: format!("data:{mime_type};base64,{data}") } }
            }
            other => WirePart::text(other.as_text().unwrap_or_default()),
        }
    }

    fn assistant<'a>(self, assistant: &'a AssistantMessage) -> WireMessage<'a> {
        let quirks = &self.endpoint.quirks;
        let native = assistant.native.as_ref();
        let is_own = native.is_some_and(|native| native.provider == self.endpoint.provider);
        let takes_extra = quirks.tool_call_extra && is_own && !self.endpoint.adjustments.strip_reasoning;
        let mut tool_calls: Vec<_> = assistant.tool_calls.iter().map(|call| self.call(call, takes_extra)).collect();
        self.sign(&mut tool_calls);
        let content = if !assistant.text.is_empty() {
            Some(WireContent::Text(assistant.text.as_str().into()))
        } else if tool_calls.is_empty() {
            Some(WireContent::Text("".into()))
        } else {
            match quirks.empty_content {
                EmptyContent::Null => Some(WireContent::Null),
                EmptyContent::Empty => Some(WireContent::Text("".into())),
                EmptyContent::Space => Some(WireContent::Text(" ".into())),
                EmptyContent::Absent => None,
            }
        };
        let reasoning_details = native
            .filter(|native| is_own && native.model == self.endpoint.model && !native.items.is_empty())
            .filter(|native| native.api_mode == ApiMode::ChatCompletions.as_str())
            .filter(|_| quirks.reasoning_replay != ReasoningReplay::Never && !self.endpoint.adjustments.strip_reasoning)
            .map(|native| native.items.as_slice());
        let field = native.map(|native| native.reasoning_field).unwrap_or_default();
        let is_asked_for =
            quirks.reasoning_replay == ReasoningReplay::Padded || self.endpoint.adjustments.pad_reasoning;
        let is_short = field == ReasoningField::Reasoning && !is_asked_for;
        let reasoning = self.reasoning(assistant).filter(|_| reasoning_details.is_none());
        WireMessage {
            content,
            reasoning_content: reasoning.filter(|_| !is_short),
            reasoning: reasoning.filter(|_| is_short),
            reasoning_details,
            tool_calls,
            ..message("assistant")
        }
    }

    /// Only messages with tool calls take their reasoning back: a finished answer's reasoning is of no use to
    /// the model, and servers that want none refuse it there. One that insists gets it with every answer.
    fn reasoning(self, assistant: &AssistantMessage) -> Option<&str> {
        let adjustments = &self.endpoint.adjustments;
        if adjustments.strip_reasoning || (assistant.tool_calls.is_empty() && !adjustments.pad_reasoning) {
            return None;
        }
        let is_foreign = assistant.native.as_ref().is_some_and(|native| native.provider != self.endpoint.provider);
        let own = Some(assistant.reasoning.as_str()).filter(|text| !text.is_empty() && !is_foreign);
        match self.endpoint.quirks.reasoning_replay {
            _ if adjustments.pad_reasoning => own.or(Some(" ")),
            ReasoningReplay::Never => None,
            ReasoningReplay::WhenPresent => own,
            ReasoningReplay::Padded => own.or(Some(" ")),
        }
    }

    fn call<'a>(self, call: &'a ToolCall, takes_extra: bool) -> WireCall<'a> {
        let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        WireCall {
            id: self.call_id(&call.id),
            r#type: "function",
            function: WireCallFunction { name: &call.name, arguments },
            extra_content: call.extra.as_ref().filter(|_| takes_extra).map(Cow::Borrowed),
        }
    }

    /// Of calls that were made at once, one signature stands for all; the provider gives it to the first.
    fn sign(self, calls: &mut [WireCall<'_>]) {
        let is_demanded = self.endpoint.quirks.sign_tool_calls || self.endpoint.adjustments.sign_tool_calls;
        let is_signed = calls.iter().any(|call| call.extra_content.is_some());
        if let Some(first) = calls.first_mut().filter(|_| is_demanded && !is_signed) {
            first.extra_content = Some(Cow::Owned(json!({"google": {"thought_signature": NO_SIGNATURE}})));
        }
    }

    fn call_id<'a>(self, id: &'a str) -> Cow<'a, str> {
        let fits = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match self.endpoint.quirks.tool_call_ids {
            ToolCallIds::NineAlphanumeric if !fits(id) => {
                let digest = Sha256::digest(id.as_bytes());
                let hex: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
                Cow::Owned(hex.get(..9).unwrap_or_default().to_owned())
            }
            ToolCallIds::Any | ToolCallIds::NineAlphanumeric => Cow::Borrowed(id),
        }
    }

    fn tool_result<'a>(self, result: &'a ToolResult, pictures: &mut Vec<WirePart<'a>>) -> WireMessage<'a> {
        let has_picture = result.content.iter().any(|part| matches!(part, Part::Image { .. }));
        let adjustments = &self.endpoint.adjustments;
        let content = if !has_picture {
            WireContent::Text(text_of(&result.content))
        } else if self.endpoint.quirks.tool_images == ToolImages::Inline && !adjustments.flatten_tool_results {
            WireContent::Parts(result.content.iter().map(|part| self.part(part)).collect())
        } else {
            let moved = result.content.iter().filter(|part| matches!(part, Part::Image { .. }));
            pictures.extend(moved.map(|part| self.part(part)));
            WireContent::Text(text_with_note(&result.content).into())
        };
        WireMessage {
            tool_call_id: Some(self.call_id(&result.tool_call_id)),
            content: Some(content),
            ..message("tool")
        }
    }
}

fn message(role: &'static str) -> WireMessage<'static> {
    WireMessage {
        role,
        tool_call_id: None,
        content: None,
        reasoning_content: None,
        reasoning: None,
        reasoning_details: None,
        tool_calls: Vec::new(),
    }
}

/// Pictures of tool results stand in a user message of their own, unless one follows anyway.
fn flush_pictures<'a>(wire: &mut Vec<WireMessage<'a>>, pictures: &mut Vec<WirePart<'a>>) {
    if !pictures.is_empty() {
        let content = WireContent::Parts(std::mem::take(pictures));
        wire.push(WireMessage { content: Some(content), ..message("user") });
    }
}
