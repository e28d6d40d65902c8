//! The encoder: one request body, the same bytes for the same input.
//!
//! `input` comes last, so that the body of the next step begins with all bytes of this one but the end, and
//! the provider's prefix cache finds what it knows.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::message::{AssistantMessage, Message, Part, ToolResult};
use crate::provider::endpoint::ToolImages;
use crate::provider::normalize::TURN_ENDED;
use crate::provider::pictures::{left_out, text_of, text_with_note};
use crate::provider::schema::without_patterns;
use crate::provider::{Endpoint, ModelRequest};

/// The longest `prompt_cache_key` the API takes, in characters.
const MAX_CACHE_KEY: usize = 64;

/// The body of one call.
#[must_use]
pub fn encode(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Vec<u8> {
    let quirks = &endpoint.quirks;
    let effort = endpoint.reasoning_effort.as_deref().filter(|effort| *effort != "none");
    // OpenAI's models that do not reason refuse to be asked for encrypted reasoning.
    let keeps_reasoning = quirks.reasoning_effort && !endpoint.adjustments.strip_reasoning;
    let has_tools = !request.tools.is_empty();
    let cache_key: String = request.session_id.chars().take(MAX_CACHE_KEY).collect();
    let body = Body {
        model: &endpoint.model,
        stream: true,
        store: false,
        include: if keeps_reasoning { &["reasoning.encrypted_content"] } else { &[] },
        max_output_tokens: endpoint.output_limit(request.max_output_tokens),
        prompt_cache_key: (quirks.prompt_cache && !cache_key.is_empty()).then_some(cache_key),
        parallel_tool_calls: (quirks.parallel_tool_calls && has_tools).then_some(true),
        reasoning: effort.filter(|_| quirks.reasoning_effort).map(|effort| Reasoning { effort, summary: "auto" }),
        tools: request
            .tools
            .iter()
            .map(|spec| WireTool {
                r#type: "function",
                name: &spec.name,
                description: &spec.description,
                parameters: without_patterns(&spec.parameters, &endpoint.adjustments),
                strict: false,
            })
            .collect(),
        instructions: (!request.system.trim().is_empty()).then_some(request.system),
        input: input(endpoint, request.messages),
    };
    // Nothing here can fail to serialize: all keys are strings and all numbers are finite.
    serde_json::to_vec(&body).unwrap_or_default()
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
    summary: &'static str,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Cow<'a, Value>,
    /// Said because the API's own default rewrites the schema.
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Content<'a>>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
    #[serde(untagged)]
    Native(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: String },
    OutputText { text: Cow<'a, str> },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Content<'a>>),
}

fn input<'a>(endpoint: &Endpoint, history: &'a [Message]) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(history.len());
    let mut pictures = Vec::new();
    for message in history {
        if !matches!(message, Message::Tool(_)) {
            flush_pictures(&mut items, &mut pictures);
        }
        match message {
            Message::User(user) => items.push(Item::Message { role: "user", content: parts(endpoint, &user.content) }),
            Message::Assistant(assistant) => answer(endpoint, assistant, &mut items),
            Message::Tool(result) => items.push(tool_result(endpoint, result, &mut pictures)),
        }
    }
    flush_pictures(&mut items, &mut pictures);
    items
}

/// Pictures that a server does not take in results stand in a user message behind them.
fn flush_pictures<'a>(items: &mut Vec<Item<'a>>, pictures: &mut Vec<Content<'a>>) {
    if !pictures.is_empty() {
        items.push(Item::Message { role: "user", content: std::mem::take(pictures) });
    }
}

fn parts<'a>(endpoint: &Endpoint, parts: &'a [Part]) -> Vec<Content<'a>> {
    parts.iter().map(|part| content(endpoint, part)).collect()
}

fn content<'a>(endpoint: &Endpoint, part: &'a Part) -> Content<'a> {
    match part {
        Part::Image { mime_type, .. } if endpoint.adjustments.drop_images => {
            Content::InputText { text: left_out(mime_type).into() }
        }
        Part::Image { mime_type, data } => Content::InputImage { image_url: format!("data:{mime_type};base64,{data}") },
        Part::Text { .. } | Part::Link { .. } | Part::Resource { .. } => {
            Content::InputText { text: part.as_text().unwrap_or_default() }
        }
    }
}

fn tool_result<'a>(endpoint: &Endpoint, result: &'a ToolResult, pictures: &mut Vec<Content<'a>>) -> Item<'a> {
    let is_picture = |part: &&Part| matches!(part, Part::Image { .. });
    let output = if !result.content.iter().any(|part| is_picture(&part)) {
        Output::Text(text_of(&result.content))
    } else if endpoint.quirks.tool_images == ToolImages::Inline && !endpoint.adjustments.flatten_tool_results {
        Output::Parts(parts(endpoint, &result.content))
    } else {
        pictures.extend(result.content.iter().filter(is_picture).map(|part| content(endpoint, part)));
        Output::Text(text_with_note(&result.content).into())
    };
    Item::FunctionCallOutput { call_id: &result.tool_call_id, output }
}

fn answer<'a>(endpoint: &Endpoint, assistant: &'a AssistantMessage, items: &mut Vec<Item<'a>>) {
    let said = |text: Cow<'a, str>| Item::Message { role: "assistant", content: vec![Content::OutputText { text }] };
    let native = assistant.native.as_ref().filter(|native| !native.items.is_empty());
    if let Some(native) = native.filter(|_| !endpoint.adjustments.strip_reasoning) {
        items.extend(native.items.iter().map(Item::Native));
        let last_kind = native.items.last().and_then(|item| item.get("type")).and_then(Value::as_str);
        if last_kind == Some("reasoning") {
            // Reasoning without what it led to is refused.
            items.push(said(TURN_ENDED.into()));
        }
        return;
    }
    if !assistant.text.trim().is_empty() {
        items.push(said(assistant.text.as_str().into()));
    } else if assistant.tool_calls.is_empty() {
        items.push(said(TURN_ENDED.into()));
    }
    items.extend(assistant.tool_calls.iter().map(|call| Item::FunctionCall {
        call_id: &call.id,
        name: &call.name,
        arguments: &call.arguments,
    }));
}
