//! Which encoder, decoder and path belong to a wire format.

use crate::provider::{ApiMode, Decoder, Endpoint, ModelRequest, anthropic_messages, chat_completions};

/// The body of one call; `None` for a mode that is not spoken over HTTP.
pub(super) fn encode(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Option<Vec<u8>> {
    match endpoint.mode {
        ApiMode::ChatCompletions => Some(chat_completions::encode(endpoint, request)),
        ApiMode::AnthropicMessages => Some(anthropic_messages::encode(endpoint, request)),
        ApiMode::CodexResponses | ApiMode::Scripted => None,
    }
}

/// The decoder of one answer; `None` for a mode that is not spoken over HTTP.
pub(super) fn decoder(endpoint: &Endpoint) -> Option<Box<dyn Decoder>> {
    match endpoint.mode {
        ApiMode::ChatCompletions => Some(chat_completions::decoder(endpoint)),
        ApiMode::AnthropicMessages => Some(anthropic_messages::decoder(endpoint)),
        ApiMode::CodexResponses | ApiMode::Scripted => None,
    }
}

/// Where a call goes.
pub(super) fn url(endpoint: &Endpoint) -> String {
    let base = endpoint.base_url.as_str();
    match endpoint.mode {
        ApiMode::ChatCompletions | ApiMode::Scripted => format!("{base}/chat/completions"),
        ApiMode::CodexResponses => format!("{base}/responses"),
        // The base URL should stand without it, but many people write it.
        ApiMode::AnthropicMessages => format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base)),
    }
}
