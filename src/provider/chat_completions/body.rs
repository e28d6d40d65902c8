//! The shape of a request body, and the cache markers in it.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::provider::cache_control::CacheControl;
use crate::provider::endpoint::CacheTtl;

/// Messages that are marked beside the system prompt: the provider takes four markers.
const MARKED_MESSAGES: usize = 3;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<WireTool<'a>>,
    pub(super) messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

/// OpenRouter's form of the reasoning effort.
#[derive(Serialize)]
pub(super) struct Reasoning<'a> {
    pub(super) effort: &'a str,
}

#[derive(Serialize)]
pub(super) struct WireTool<'a> {
    pub(super) r#type: &'static str,
    pub(super) function: WireFunction<'a>,
}

#[derive(Serialize)]
pub(super) struct WireFunction<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters: Cow<'a, Value>,
}

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    pub(super) role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<WireContent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<&'a [Value]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<WireCall<'a>>,
}

pub(super) enum WireContent<'a> {
    Null,
    Text(Cow<'a, str>),
    Parts(Vec<WirePart<'a>>),
}

impl Serialize for WireContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Parts(parts) => parts.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum WirePart<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
}

#[derive(Serialize)]
pub(super) struct ImageUrl {
    pub(super) url: String,
}

#[derive(Serialize)]
pub(super) struct WireCall<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) r#type: &'static str,
    pub(super) function: WireCallFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra_content: Option<Cow<'a, Value>>,
}

#[derive(Serialize)]
pub(super) struct WireCallFunction<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

impl<'a> WirePart<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), cache_control: None }
    }
}

/// Marks the system prompt and the last messages with text as the ends of prefixes worth keeping.
pub(super) fn mark_for_cache(messages: &mut [WireMessage<'_>], ttl: CacheTtl) {
    let marker = CacheControl::new(ttl);
    let Some((system, rest)) = messages.split_first_mut() else { return };
    mark(system, marker);
    let mut marked = 0;
    for message in rest.iter_mut().rev() {
        if marked == MARKED_MESSAGES {
            return;
        }
        marked += usize::from(mark(message, marker));
    }
}

/// False for a message without text, which cannot be marked.
fn mark(message: &mut WireMessage<'_>, marker: CacheControl) -> bool {
    match &mut message.content {
        Some(WireContent::Text(text)) if !text.trim().is_empty() => {
            let text = std::mem::take(text);
            message.content = Some(WireContent::Parts(vec![WirePart::Text { text, cache_control: Some(marker) }]));
            true
        }
        Some(WireContent::Parts(parts)) => {
            let text = parts.iter_mut().rev().find_map(|part| match part {
                WirePart::Text { cache_control, .. } => Some(cache_control),
                WirePart::ImageUrl { .. } => None,
            });
            text.is_some_and(|cache_control| cache_control.replace(marker).is_none())
        }
        _ => false,
    }
}
