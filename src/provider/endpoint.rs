//! One model of one provider, with everything that is needed to call it settled.
//!
//! Encoders read an [`Endpoint`] and nothing else: no configuration, no environment.

use std::sync::Arc;
use std::time::Duration;

use crate::provider::ApiMode;
use crate::provider::credentials::KeyRing;
use crate::provider::scripted::Script;

/// A provider and a model, resolved.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub model: String,
    /// The wire format.
    pub mode: ApiMode,
    /// Without a slash at the end. With `/v1` for the OpenAI shapes, without for Messages.
    pub base_url: String,
    /// The provider's keys, shared by all endpoints of that provider.
    pub keys: Arc<KeyRing>,
    /// Sent with each request, after our own.
    pub headers: Vec<(String, String)>,
    /// Where the provider differs from the shape's norm.
    pub quirks: ServerQuirks,
    /// How long each wait may take.
    pub timeouts: Timeouts,
    /// How failed calls are repeated.
    pub retry: RetryPolicy,
    /// Tokens the model can read and write together.
    pub context_window: u64,
    /// True when nobody has said how large the context window is, so that the server's word counts.
    pub is_window_assumed: bool,
    /// Tokens an answer may have; `None` leaves it to the provider.
    pub max_output_tokens: Option<u64>,
    /// How hard the model should think: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`.
    pub reasoning_effort: Option<String>,
    /// What the scripted mode plays; `None` in every other mode.
    pub script: Option<Arc<Script>>,
    /// What recovery has switched for the rest of the session.
    pub adjustments: Adjustments,
}

/// Where a server differs from the norm of its wire format, all settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerQuirks {
    /// How an assistant message without text is written.
    pub empty_content: EmptyContent,
    /// Whether an assistant message's reasoning goes back to the server.
    pub reasoning_replay: ReasoningReplay,
    /// The name of the output limit.
    pub max_tokens_field: MaxTokensField,
    /// Ask for usage in the stream.
    pub stream_usage: bool,
    /// Send `parallel_tool_calls`.
    pub parallel_tool_calls: bool,
    /// Send the reasoning effort.
    pub reasoning_effort: bool,
    /// How a chat completions server is told it.
    pub effort_style: EffortStyle,
    /// Send cache markers (Messages) or a cache key (OpenAI).
    pub prompt_cache: bool,
    /// Which of the two a chat completions server takes.
    pub cache_style: CacheStyle,
    /// How long a marked prefix is kept (Messages).
    pub cache_ttl: CacheTtl,
    /// The role of the system prompt.
    pub system_role: SystemRole,
    /// Where pictures of a tool result go.
    pub tool_images: ToolImages,
    /// Whether the provider's extra data on tool calls goes back to it.
    pub tool_call_extra: bool,
    /// Whether calls without a thought signature get the one that stands for none (Gemini 3 refuses the others).
    pub sign_tool_calls: bool,
    /// Which ids of tool calls it accepts.
    pub tool_call_ids: ToolCallIds,
}

impl Default for ServerQuirks {
    fn default() -> Self {
        Self {
            empty_content: EmptyContent::Null,
            reasoning_replay: ReasoningReplay::Never,
            max_tokens_field: MaxTokensField::MaxTokens,
            stream_usage: true,
            parallel_tool_calls: false,
            reasoning_effort: false,
            effort_style: EffortStyle::Field,
            prompt_cache: false,
            cache_style: CacheStyle::Key,
            cache_ttl: CacheTtl::FiveMinutes,
            system_role: SystemRole::System,
            tool_images: ToolImages::UserMessage,
            tool_call_extra: false,
            sign_tool_calls: false,
            tool_call_ids: ToolCallIds::Any,
        }
    }
}

/// How an assistant message without text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyContent {
    /// `"content": null`.
    #[default]
    Null,
    /// `"content": ""`.
    Empty,
    /// No `content` at all.
    Absent,
    /// `"content": " "`.
    Space,
}

/// Whether an assistant message's reasoning goes back to the server as `reasoning_content`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningReplay {
    /// Never; strict servers refuse the field.
    #[default]
    Never,
    /// When the message has reasoning.
    WhenPresent,
    /// Always on messages that call tools; a single space stands for none.
    Padded,
}

/// The name of the output limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

impl MaxTokensField {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// The role of the system prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemRole {
    /// `system`.
    #[default]
    System,
    /// `developer`, of newer OpenAI models.
    Developer,
}

impl SystemRole {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
        }
    }
}

/// Where pictures of a tool result go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolImages {
    /// Into a user message right after the results, with a note in the result.
    #[default]
    UserMessage,
    /// Inside the tool result.
    Inline,
}

/// Which ids of tool calls a server accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolCallIds {
    /// Any text.
    #[default]
    Any,
    /// Nine letters and digits (Mistral); others are replaced by a hash of them.
    NineAlphanumeric,
}

/// How a chat completions server is told what to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheStyle {
    /// A key that groups requests with one prefix.
    #[default]
    Key,
    /// Markers inside text parts, for Anthropic's models behind an aggregator.
    Markers,
}

/// How a chat completions server is told how hard the model should think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EffortStyle {
    /// `"reasoning_effort": "medium"`.
    #[default]
    Field,
    /// `"reasoning": {"effort": "medium"}`, of OpenRouter.
    Object,
}

/// How long a marked prefix is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheTtl {
    /// Five minutes from the last use; writing costs a quarter more than reading nothing.
    #[default]
    FiveMinutes,
    /// One hour; writing costs twice as much, for sessions with long pauses.
    OneHour,
}

/// How long each wait of one call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// From the request to the first event; heartbeats do not count.
    pub first_event: Duration,
    /// Between events; heartbeats do not count.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), first_event: Duration::from_secs(300), idle: Duration::from_secs(60) }
    }
}

/// How failed calls are repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts after the first, per model call.
    pub max_retries: u32,
    /// The first wait, doubled each time, jittered.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retries: 3, base: Duration::from_secs(2), max: Duration::from_secs(60) }
    }
}

/// What recovery has switched because the provider did not accept it. Encoders obey all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjustments {
    /// Leave out all reasoning and provider-native items of the history.
    pub strip_reasoning: bool,
    /// Send `reasoning_content` with every answer; a blank stands for none.
    pub pad_reasoning: bool,
    /// Give calls without a thought signature the one that stands for none.
    pub sign_tool_calls: bool,
    /// Leave out pictures; a note stands for each.
    pub drop_images: bool,
    /// Write tool results as text only; pictures become a note.
    pub flatten_tool_results: bool,
    /// Leave `pattern` and `format` out of tool schemas.
    pub strip_schema_patterns: bool,
    /// Send no beta headers.
    pub drop_beta_headers: bool,
    /// The output limit the provider named, lower than the configured one.
    pub output_cap: Option<u64>,
    /// The context window the provider named, lower than the configured one.
    pub context_window: Option<u64>,
}

impl Endpoint {
    /// The most tokens the answer may have: the smaller of request and configuration, under any cap learned.
    #[must_use]
    pub fn output_limit(&self, asked: Option<u64>) -> Option<u64> {
        let wanted = asked.or(self.max_output_tokens);
        match (wanted, self.adjustments.output_cap) {
            (Some(wanted), Some(cap)) => Some(wanted.min(cap)),
            (wanted, cap) => wanted.or(cap),
        }
    }

    /// Tokens the model can read and write together, as far as is known now.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.adjustments.context_window.map_or(self.context_window, |learned| learned.min(self.context_window))
    }

    /// `PROVIDER/MODEL`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Endpoints for the tests of this and other modules.

    use super::*;
    use crate::provider::redact::Redactor;

    /// An endpoint that nothing answers at.
    pub(crate) fn endpoint(provider: &str, model: &str) -> Endpoint {
        Endpoint {
            provider: provider.into(),
            model: model.into(),
            mode: ApiMode::ChatCompletions,
            base_url: format!("http://{provider}.test/v1"),
            keys: Arc::new(KeyRing::new(provider, Vec::new(), None, Redactor::default())),
            headers: Vec::new(),
            quirks: ServerQuirks::default(),
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
            context_window: 128_000,
            is_window_assumed: false,
            max_output_tokens: None,
            reasoning_effort: None,
            script: None,
            adjustments: Adjustments::default(),
        }
    }

    #[test]
    fn the_smallest_limit_counts() {
        let mut endpoint = endpoint("p", "m");
        assert_eq!(endpoint.output_limit(None), None);
        endpoint.max_output_tokens = Some(100);
        assert_eq!((endpoint.output_limit(None), endpoint.output_limit(Some(50))), (Some(100), Some(50)));
        endpoint.adjustments.output_cap = Some(40);
        assert_eq!((endpoint.output_limit(None), endpoint.output_limit(Some(50))), (Some(40), Some(40)));
        endpoint.adjustments.context_window = Some(500_000);
        assert_eq!(endpoint.window(), 128_000);
        endpoint.adjustments.context_window = Some(8_192);
        assert_eq!(endpoint.window(), 8_192);
    }
}
