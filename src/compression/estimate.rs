//! Rough sizes in tokens, for what no provider has counted yet.

use crate::message::{Message, Part};

/// Bytes of text per token: English and code have about four, other scripts fewer characters but as many
/// bytes.
const BYTES_PER_TOKEN: usize = 4;
/// A picture, whatever its size: about what the large providers charge.
const IMAGE_TOKENS: u64 = 1_500;
/// What the frame of a message or of a call costs.
const FRAME_TOKENS: u64 = 6;

/// Tokens of a text.
#[must_use]
pub fn text_tokens(text: &str) -> u64 {
    size(text.len())
}

/// Tokens of a piece of a history.
#[must_use]
pub fn tokens(messages: &[Message]) -> u64 {
    messages.iter().map(message_tokens).fold(0, u64::saturating_add)
}

pub(super) fn message_tokens(message: &Message) -> u64 {
    let content = match message {
        Message::User(user) => parts_tokens(&user.content),
        Message::Tool(result) => parts_tokens(&result.content),
        Message::Assistant(assistant) => {
            let calls = assistant.tool_calls.iter();
            let calls: u64 = calls.map(|call| size(call.name.len() + call.arguments.len()) + FRAME_TOKENS).sum();
            // Reasoning goes back only inside the provider's own items.
            let reasoning = if assistant.native.is_some() { text_tokens(&assistant.reasoning) } else { 0 };
            text_tokens(&assistant.text) + calls + reasoning
        }
    };
    content.saturating_add(FRAME_TOKENS)
}

fn parts_tokens(parts: &[Part]) -> u64 {
    let sizes = parts.iter().map(|part| match part {
        Part::Text { text } => text_tokens(text),
        Part::Image { .. } => IMAGE_TOKENS,
        Part::Link { name, uri } => size(name.len() + uri.len()),
        Part::Resource { uri, text } => size(uri.len() + text.len()),
    });
    sizes.sum()
}

fn size(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}
