//! Model providers: one request shape in, one stream of events out, whatever the wire format.
//!
//! The decoders and encoders are pure; `http` is the only place that opens connections.
//! Recovery (retry, credential refresh, fallback) is decided here as data and carried out by the turn.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::{AssistantMessage, Message, Usage};
use crate::tool::ToolSpec;

pub mod allowance;
pub mod anthropic_messages;
pub mod auxiliary;
mod cache_control;
pub mod catalog;
pub mod chain;
pub mod chat_completions;
pub mod classify;
pub mod credentials;
pub mod decoder;
mod draft;
pub mod endpoint;
mod format;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod golden_tests;
pub mod http;
#[cfg(test)]
mod http_tests;
pub mod json;
mod loose;
#[cfg(test)]
mod matrix_tests;
pub mod models;
pub mod normalize;
mod pictures;
pub mod pricing;
pub mod recovery;
pub mod redact;
pub mod responses;
pub mod retry_after;
mod schema;
pub mod scripted;
pub mod sse;
pub mod stream;
mod think;
pub mod url;
mod usage;

pub use credentials::KeyMark;
pub use decoder::{DecodeError, Decoder};
pub use endpoint::Endpoint;
pub use sse::SseEvent;

/// Everything one model call needs.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The system prompt, byte-identical through a session.
    pub system: &'a str,
    /// The history, already normalised for the endpoint's mode.
    pub messages: &'a [Message],
    /// The tools offered; empty for a toolless call.
    pub tools: &'a [Arc<ToolSpec>],
    /// The most tokens the answer may have; `None` leaves it to the endpoint's configuration.
    pub max_output_tokens: Option<u64>,
    /// Groups requests that share a prefix, for the provider's prompt cache.
    pub session_id: &'a str,
}

/// Something that happened while the model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// More visible text.
    Text(String),
    /// More reasoning text.
    Reasoning(String),
    /// The model began a tool call; its arguments still stream.
    ToolCallStarted {
        /// The tool's name.
        name: String,
    },
}

/// One whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelReply {
    /// The assembled message.
    pub message: AssistantMessage,
    /// What the provider counted; zero where it counted nothing.
    pub usage: Usage,
}

/// The wire format of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiMode {
    /// OpenAI-compatible chat completions.
    #[default]
    ChatCompletions,
    /// OpenAI Responses.
    #[serde(alias = "responses")]
    CodexResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// Answers read from a script file, no network.
    Scripted,
}

impl ApiMode {
    /// The configuration string.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::CodexResponses => "codex_responses",
            Self::AnthropicMessages => "anthropic_messages",
            Self::Scripted => "scripted",
        }
    }
}

/// The classified reason of a failed model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The credential was refused.
    Auth,
    /// No credential is configured for the provider.
    AuthRequired,
    /// The account cannot pay.
    Billing,
    /// Too many requests.
    RateLimit,
    /// An aggregator's upstream is rate-limited.
    UpstreamRateLimit,
    /// The provider is overloaded.
    Overloaded,
    /// A server error.
    ServerError,
    /// No answer in time, or a transport failure.
    Timeout,
    /// The stream ended before the answer did.
    TruncatedStream,
    /// The server's certificate was not accepted.
    SslCertVerification,
    /// The prompt is too long for the model.
    ContextOverflow,
    /// The asked output is too long for the model.
    OutputCap,
    /// The request body is too large.
    PayloadTooLarge,
    /// A picture is too large or broken.
    ImageTooLarge,
    /// The model takes no pictures in tool results.
    MultimodalToolContentUnsupported,
    /// No such model.
    ModelNotFound,
    /// The account's data policy forbids the endpoint.
    ProviderPolicyBlocked,
    /// The content was refused.
    ContentPolicyBlocked,
    /// The provider did not accept the request's shape.
    FormatError,
    /// Encrypted reasoning was not accepted.
    InvalidEncryptedContent,
    /// A thinking signature was not accepted.
    ThinkingSignature,
    /// The long-context tier is not available.
    LongContextTier,
    /// A beta header is not available.
    OauthLongContextBetaForbidden,
    /// The server cannot compile the tool schema's grammar.
    LlamaCppGrammarPattern,
    /// The answer had no usable shape.
    InvalidResponse,
    /// Nothing fits.
    Unknown,
}

impl ErrorKind {
    /// The reason with this wire name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name)).ok()
    }

    /// The wire and store name, as in `data.kind` of an error.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::AuthRequired => "auth_required",
            Self::Billing => "billing",
            Self::RateLimit => "rate_limit",
            Self::UpstreamRateLimit => "upstream_rate_limit",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::TruncatedStream => "truncated_stream",
            Self::SslCertVerification => "ssl_cert_verification",
            Self::ContextOverflow => "context_overflow",
            Self::OutputCap => "output_cap",
            Self::PayloadTooLarge => "payload_too_large",
            Self::ImageTooLarge => "image_too_large",
            Self::MultimodalToolContentUnsupported => "multimodal_tool_content_unsupported",
            Self::ModelNotFound => "model_not_found",
            Self::ProviderPolicyBlocked => "provider_policy_blocked",
            Self::ContentPolicyBlocked => "content_policy_blocked",
            Self::FormatError => "format_error",
            Self::InvalidEncryptedContent => "invalid_encrypted_content",
            Self::ThinkingSignature => "thinking_signature",
            Self::LongContextTier => "long_context_tier",
            Self::OauthLongContextBetaForbidden => "oauth_long_context_beta_forbidden",
            Self::LlamaCppGrammarPattern => "llama_cpp_grammar_pattern",
            Self::InvalidResponse => "invalid_response",
            Self::Unknown => "unknown",
        }
    }
}

/// Why a model call failed. The message holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{provider}/{model}: {message}")]
pub struct ProviderError {
    /// The classified reason.
    pub kind: ErrorKind,
    /// The HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// What the provider said, for a person, at most 500 characters, secrets removed.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// The key that was used, for putting it to rest.
    pub key: Option<KeyMark>,
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model asked.
    pub model: String,
}
