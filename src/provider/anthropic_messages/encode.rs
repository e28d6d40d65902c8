//! The encoder: one request body, the same bytes for the same input.
//!
//! `messages` come last and in blocks throughout, so that the body of the next step begins with all bytes of
//! this one but the cache markers, which a provider's prefix cache does not look at.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::thinking::{OutputConfig, Thinking, limits};
use crate::message::{AssistantMessage, Message, Part, ToolResult};
use crate::provider::cache_control::CacheControl;
use crate::provider::normalize::TURN_ENDED;
use crate::provider::pictures::left_out;
use crate::provider::schema::without_patterns;
use crate::provider::{Endpoint, ModelRequest};

/// Messages at the end of the history that carry a cache marker. The system prompt has the fourth; the API
/// takes no more.
const MARKED_MESSAGES: usize = 3;

/// The body of one call.
#[must_use]
pub fn encode(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Vec<u8> {
    let marker = endpoint.quirks.prompt_cache.then(|| CacheControl::new(endpoint.quirks.cache_ttl));
    let limits = limits(endpoint, request);
    let mut messages = messages(endpoint, request.messages);
    if let Some(marker) = marker {
        messages
            .iter_mut()
            .rev()
            .filter_map(WireMessage::markable)
            .take(MARKED_MESSAGES)
            .for_each(|block| block.mark(marker));
    }
    let body = Body {
        model: &endpoint.model,
        max_tokens: limits.max_tokens,
        stream: true,
        thinking: limits.thinking,
        output_config: limits.output_config,
        tools: request
            .tools
            .iter()
            .map(|spec| WireTool {
                name: &spec.name,
                description: &spec.description,
                input_schema: without_patterns(&spec.parameters, &endpoint.adjustments),
            })
            .collect(),
        system: (!request.system.trim().is_empty()).then(|| [Block::text(request.system, marker)]),
        messages,
    };
    // Nothing here can fail to serialize: all keys are strings and all numbers are finite.
    serde_json::to_vec(&body).unwrap_or_default()
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Block<'a>; 1]>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Cow<'a, RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Vec<Self>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    #[serde(untagged)]
    Native(Cow<'a, Value>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

impl<'a> WireMessage<'a> {
    /// The last block that takes a marker.
    fn markable(&mut self) -> Option<&mut Block<'a>> {
        self.content.iter_mut().rev().find(|block| block.takes_marker())
    }
}

impl<'a> Block<'a> {
    fn text(text: impl Into<Cow<'a, str>>, cache_control: Option<CacheControl>) -> Self {
        Self::Text { text: text.into(), cache_control }
    }

    /// Whether a marker may stand here. Thinking takes none.
    fn takes_marker(&self) -> bool {
        match self {
            Self::Native(item) => {
                item.is_object()
                    && !matches!(item.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"))
            }
            Self::Text { .. } | Self::Image { .. } | Self::ToolUse { .. } | Self::ToolResult { .. } => true,
        }
    }

    fn mark(&mut self, marker: CacheControl) {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::ToolUse { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => *cache_control = Some(marker),
            Self::Native(item) => {
                if let (Value::Object(fields), Ok(marker)) = (item.to_mut(), serde_json::to_value(marker)) {
                    fields.insert("cache_control".into(), marker);
                }
            }
        }
    }
}

/// The history in messages that alternate strictly: results are a user message, all in one.
fn messages<'a>(endpoint: &Endpoint, history: &'a [Message]) -> Vec<WireMessage<'a>> {
    let mut wire: Vec<WireMessage<'a>> = Vec::with_capacity(history.len());
    for message in history {
        let (role, content) = match message {
            Message::User(user) => ("user", parts(endpoint, &user.content)),
            Message::Assistant(assistant) => ("assistant", answer(endpoint, assistant)),
            Message::Tool(result) => ("user", vec![tool_result(endpoint, result)]),
        };
        match wire.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ => wire.push(WireMessage { role, content }),
        }
    }
    if let Some(last) = wire.last_mut().filter(|last| last.role == "assistant") {
        trim_end(last);
    }
    wire
}

/// A history that ends with an answer to be continued must not end with space.
fn trim_end(message: &mut WireMessage<'_>) {
    match message.content.last_mut() {
        Some(Block::Text { text, .. }) => *text = Cow::Owned(text.trim_end().to_owned()),
        Some(Block::Native(item)) => {
            let trimmed = item.get("text").and_then(Value::as_str).map(|text| text.trim_end().to_owned());
            if let (Some(text), Value::Object(fields)) = (trimmed, item.to_mut()) {
                fields.insert("text".into(), text.into());
            }
        }
        _ => {}
    }
}

fn parts<'a>(endpoint: &Endpoint, parts: &'a [Part]) -> Vec<Block<'a>> {
    let block = |part: &'a Part| match part {
        Part::Image { mime_type, .. } if endpoint.adjustments.drop_images => Block::text(left_out(mime_type), None),
        Part::Image { mime_type, data } => {
            Block::Image { source: Source::Base64 { media_type: mime_type, data }, cache_control: None }
        }
        Part::Text { .. } | Part::Link { .. } | Part::Resource { .. } => {
            Block::text(part.as_text().unwrap_or_default(), None)
        }
    };
    parts.iter().map(block).collect()
}

fn tool_result<'a>(endpoint: &Endpoint, result: &'a ToolResult) -> Block<'a> {
    let mut content = parts(endpoint, &result.content);
    if endpoint.adjustments.flatten_tool_results {
        for (block, part) in content.iter_mut().zip(&result.content) {
            if let Part::Image { mime_type, .. } = part {
                *block = Block::text(left_out(mime_type), None);
            }
        }
    }
    Block::ToolResult { tool_use_id: &result.tool_call_id, content, is_error: result.is_error, cache_control: None }
}

fn answer<'a>(endpoint: &Endpoint, assistant: &'a AssistantMessage) -> Vec<Block<'a>> {
    let native = assistant.native.as_ref().filter(|native| !native.items.is_empty());
    if let Some(native) = native.filter(|_| !endpoint.adjustments.strip_reasoning) {
        return native.items.iter().map(|item| Block::Native(Cow::Borrowed(item))).collect();
    }
    let mut content = Vec::with_capacity(1 + assistant.tool_calls.len());
    if !assistant.text.trim().is_empty() {
        content.push(Block::text(assistant.text.as_str(), None));
    }
    content.extend(assistant.tool_calls.iter().map(|call| Block::ToolUse {
        id: &call.id,
        name: &call.name,
        input: input(&call.arguments),
        cache_control: None,
    }));
    if content.is_empty() {
        content.push(Block::text(TURN_ENDED, None));
    }
    content
}

/// The arguments as they are written; the normaliser has made them an object.
fn input(arguments: &str) -> Cow<'_, RawValue> {
    match serde_json::from_str::<&RawValue>(arguments) {
        Ok(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw),
        _ => Cow::Borrowed(serde_json::from_str("{}").unwrap_or(RawValue::NULL)),
    }
}
