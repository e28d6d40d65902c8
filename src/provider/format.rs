//! Which encoder, decoder and path belong to a wire format.

use crate::provider::{ApiMode, Decoder, Endpoint, ModelRequest, anthropic_messages, chat_completions, responses};

/// The body of one call; `None` for a mode that is not spoken over HTTP.
pub(super) fn encode(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Option<Vec<u8>> {
    match endpoint.mode {
        ApiMode::ChatCompletions => Some(chat_completions::encode(endpoint, request)),
        ApiMode::AnthropicMessages => Some(anthropic_messages::encode(endpoint, request)),
        ApiMode::CodexResponses => Some(responses::encode(endpoint, request)),
        ApiMode::Scripted => None,
    }
}

/// The decoder of one answer; `None` for a mode that is not spoken over HTTP.
pub(super) fn decoder(endpoint: &Endpoint) -> Option<Box<dyn Decoder>> {
    match endpoint.mode {
        ApiMode::ChatCompletions => Some(chat_completions::decoder(endpoint)),
        ApiMode::AnthropicMessages => Some(anthropic_messages::decoder(endpoint)),
        ApiMode::CodexResponses => Some(responses::decoder(endpoint)),
        ApiMode::Scripted => None,
    }
}

/// The path of a call.
pub(super) fn path(mode: ApiMode) -> &'static str {
    match mode {
        ApiMode::ChatCompletions | ApiMode::Scripted => "chat/completions",
        ApiMode::CodexResponses => "responses",
        ApiMode::AnthropicMessages => "messages",
    }
}

/// Where a path of the API is.
pub(super) fn url(endpoint: &Endpoint, path: &str) -> String {
    let base = endpoint.base_url.as_str();
    if endpoint.mode == ApiMode::AnthropicMessages {
        // The base URL should stand without the version, but many people write it.
        return format!("{}/v1/{path}", base.strip_suffix("/v1").unwrap_or(base));
    }
    format!("{base}/{path}")
}
