//! The canonical form of a conversation, OpenAI-shaped and provider-neutral.
//!
//! Every provider format is converted to and from these types, and they are also the stored form:
//! a field added here must stay readable by older rows, so every new field has a default.

use serde::{Deserialize, Serialize};

/// One message of a session's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the user said.
    User(UserMessage),
    /// What the model answered, whole.
    Assistant(AssistantMessage),
    /// The answer to one tool call.
    Tool(ToolResult),
}

impl Message {
    /// A user message of one text part.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(UserMessage { content: vec![Part::text(text)], ..UserMessage::default() })
    }

    /// True for what the user said, false for a summary in the user's place.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(self, Self::User(UserMessage { origin: Origin::User, .. }))
    }

    /// The column value of the store: `user`, `assistant` or `tool`.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
            Self::Tool(_) => "tool",
        }
    }

    /// All text of the message as one string, for search, titles and size estimates.
    #[must_use]
    pub fn plain_text(&self) -> String {
        match self {
            Self::User(user) => plain_text(&user.content),
            Self::Assistant(assistant) => assistant.text.clone(),
            Self::Tool(result) => plain_text(&result.content),
        }
    }
}

/// What the user said: text, pictures, links and embedded files in the order given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The parts, never empty in a stored message.
    pub content: Vec<Part>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Origin::is_user")]
    pub origin: Origin,
}

/// Who wrote a message that stands in the user's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The user.
    #[default]
    User,
    /// Compaction: a summary of what stood before.
    Compaction,
}

impl Origin {
    fn is_user(&self) -> bool {
        *self == Self::User
    }
}

/// What the model answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// Visible text, without reasoning. Empty when the model only called tools.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Reasoning text as it was streamed. Empty when there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The tool calls in the order asked, ids unique within the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped.
    #[serde(default)]
    pub finish: FinishReason,
    /// The provider's own items (signed thinking, encrypted reasoning), replayed to their issuer only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeItems>,
}

/// One tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's own call id, made unique per session.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments as JSON text. Kept as written so that a broken text can be shown to the model again.
    pub arguments: String,
    /// Provider data that must come back with the call (`extra_content` of Gemini's OpenAI surface).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<serde_json::Value>,
}

/// The answer to one tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call this answers.
    pub tool_call_id: String,
    /// The tool's name.
    pub name: String,
    /// What the model reads.
    pub content: Vec<Part>,
    /// True when the tool could not do its work, was refused, blocked or cut off.
    #[serde(default)]
    pub is_error: bool,
    /// What is known about side effects.
    #[serde(default)]
    pub effect: Effect,
}

/// What is known about the side effects of a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call ran to its end.
    #[default]
    Done,
    /// The call never started.
    None,
    /// The call was cut off; it may or may not have had an effect.
    Unknown,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// For example `image/png`.
        mime_type: String,
        /// The bytes in base64.
        data: String,
    },
    /// A link the user attached; nothing of it was read.
    Link {
        /// What to call it.
        name: String,
        /// Where it is.
        uri: String,
    },
    /// A text file the user embedded.
    Resource {
        /// Where it came from.
        uri: String,
        /// Its text.
        text: String,
    },
}

impl Part {
    /// A text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The part as text for the model; `None` for a picture.
    #[must_use]
    pub fn as_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text { text } => Some(text.as_str().into()),
            Self::Link { name, uri } => Some(format!("[{name}]({uri})").into()),
            Self::Resource { uri, text } => Some(format!("<file uri=\"{uri}\">\n{text}\n</file>").into()),
            Self::Image { .. } => None,
        }
    }
}

/// Joins the text of all parts with newlines; pictures are left out.
#[must_use]
pub fn plain_text(parts: &[Part]) -> String {
    let texts: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
    texts.join("\n")
}

/// Opens a summary that stands for an older part of the conversation.
pub const COMPACTION_OPEN: &str = "[turnd:compaction]";
/// Closes it.
pub const COMPACTION_CLOSE: &str = "[/turnd:compaction]";

/// Stands for the colon of a marker that means nothing.
const DEAD_COLON: char = '\u{2236}';

/// Takes the meaning out of our own markers (`[turnd:...]`) in a text that somebody else wrote, however they are
/// spelled: any case, with blanks in between.
#[must_use]
pub fn defuse_markers(text: &str) -> std::borrow::Cow<'_, str> {
    let mut clean = String::new();
    let mut copied = 0;
    for (at, _) in text.match_indices('[') {
        let colon = text.get(at..).and_then(marker_colon).map(|colon| at + colon);
        if let Some((colon, kept)) = colon.and_then(|colon| Some((colon, text.get(copied..colon)?))) {
            clean.push_str(kept);
            clean.push(DEAD_COLON);
            copied = colon + 1;
        }
    }
    if copied == 0 {
        return text.into();
    }
    clean.push_str(text.get(copied..).unwrap_or_default());
    clean.into()
}

/// Where the colon is of a marker that a text begins with.
fn marker_colon(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?.trim_start();
    let inner = inner.strip_prefix('/').unwrap_or(inner).trim_start();
    let (name, rest) = inner.split_at_checked("turnd".len())?;
    let rest = rest.trim_start();
    (name.eq_ignore_ascii_case("turnd") && rest.starts_with(':')).then(|| text.len() - rest.len())
}

/// The provider's own items of one answer, in wire order, kept byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NativeItems {
    /// The provider that issued them; only this one may see them again.
    pub provider: String,
    /// The model that issued them.
    pub model: String,
    /// The API mode whose shape they have.
    pub api_mode: String,
    /// Content blocks (Messages) or output items (Responses).
    pub items: Vec<serde_json::Value>,
    /// The field that the reasoning came in, and goes back in (chat completions).
    #[serde(default, skip_serializing_if = "ReasoningField::is_usual")]
    pub reasoning_field: ReasoningField,
}

/// What a chat completions server calls the text of its reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// `reasoning_content`.
    #[default]
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
}

impl ReasoningField {
    fn is_usual(&self) -> bool {
        *self == Self::ReasoningContent
    }
}

/// Why the model stopped, in one vocabulary for all providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A normal end.
    #[default]
    Stop,
    /// It wants tools run.
    ToolCalls,
    /// The output limit cut it.
    Length,
    /// The provider or the model refused (content filter, refusal).
    Refused,
    /// The provider paused a long turn and wants the same content back to go on.
    Paused,
}

impl FinishReason {
    /// The stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::Paused => "paused",
        }
    }
}

/// Tokens of one or more model calls. `input` includes the cached ones, `output` the reasoning ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// Answer tokens, reasoning included.
    pub output_tokens: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached_tokens: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
    /// What the provider says that all of it cost, in millionths of a US dollar; `None` where it says nothing.
    #[serde(skip)]
    pub cost_micros: Option<u64>,
}

impl Usage {
    /// Input and output together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Adds another call's tokens, and its cost where that of both is known.
    pub fn add(&mut self, other: &Self) {
        let is_first = *self == Self::default();
        let sum = self.cost_micros.zip(other.cost_micros).map(|(one, other)| one.saturating_add(other));
        self.cost_micros = if is_first { other.cost_micros } else { sum };
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }
}
