//! How hard the model thinks and how much it may write: the rules that tie the two together.
//!
//! Numbers are from Anthropic's model overview and its pages on extended and adaptive thinking.

use serde::Serialize;

use crate::message::{AssistantMessage, Message};
use crate::provider::catalog::output_limit;
use crate::provider::{Endpoint, ModelRequest};

/// Tokens that stay for the answer beside the thinking.
const ANSWER_RESERVE: u64 = 4096;
/// The smallest thinking budget the API accepts.
const MIN_BUDGET: u64 = 1024;

/// The `thinking` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    /// Thinks up to a budget.
    Enabled {
        /// Tokens, below `max_tokens`.
        budget_tokens: u64,
    },
    /// Thinks as much as it finds right.
    Adaptive {
        /// Models since 4.7 say nothing of their thoughts unless they are asked to.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
}

/// The `output_config` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OutputConfig {
    effort: &'static str,
}

/// What one request says about thinking and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) max_tokens: u64,
    pub(super) thinking: Option<Thinking>,
    pub(super) output_config: Option<OutputConfig>,
}

/// Settles the limits of a request.
pub(super) fn limits(endpoint: &Endpoint, request: &ModelRequest<'_>) -> Limits {
    let version = version(&endpoint.model);
    let max_tokens = endpoint.output_limit(request.max_output_tokens).unwrap_or_else(|| default_limit(endpoint));
    let mut limits = Limits { max_tokens, thinking: None, output_config: None };
    let effort = endpoint.reasoning_effort.as_deref().filter(|effort| *effort != "none");
    let Some(effort) = effort.filter(|_| thinks(endpoint)) else { return limits };
    if version >= Some((4, 6)) {
        limits.thinking = Some(Thinking::Adaptive { display: (version >= Some((4, 7))).then_some("summarized") });
        limits.output_config = Some(OutputConfig { effort: effort_name(effort, &endpoint.model) });
    } else if !is_loop_without_thinking(request.messages) {
        let budget_tokens = budget(effort).min(max_tokens.saturating_sub(ANSWER_RESERVE));
        limits.thinking = (budget_tokens >= MIN_BUDGET).then_some(Thinking::Enabled { budget_tokens });
    }
    limits
}

/// The beta header that lets a model think between tool calls; newer models do so without.
#[must_use]
pub fn beta_header(endpoint: &Endpoint) -> Option<&'static str> {
    let is_wanted = endpoint.reasoning_effort.as_deref().is_some_and(|effort| effort != "none");
    let is_needed = version(&endpoint.model).is_some_and(|version| ((4, 0)..(4, 6)).contains(&version));
    (is_wanted && is_needed && !endpoint.adjustments.drop_beta_headers).then_some("interleaved-thinking-2025-05-14")
}

fn thinks(endpoint: &Endpoint) -> bool {
    endpoint.quirks.reasoning_effort && version(&endpoint.model).is_none_or(|version| version >= (3, 7))
}

/// True in the middle of a tool loop that began without thinking, for example with another provider. The API
/// refuses to begin to think there.
fn is_loop_without_thinking(messages: &[Message]) -> bool {
    let newest = messages.iter().rev().find(|message| !matches!(message, Message::Tool(_)));
    match newest {
        Some(Message::Assistant(assistant)) if !assistant.tool_calls.is_empty() => !begins_with_thinking(assistant),
        _ => false,
    }
}

fn begins_with_thinking(assistant: &AssistantMessage) -> bool {
    let first = assistant.native.as_ref().and_then(|native| native.items.first());
    let kind = first.and_then(|item| item.get("type")).and_then(serde_json::Value::as_str);
    matches!(kind, Some("thinking" | "redacted_thinking"))
}

fn budget(effort: &str) -> u64 {
    match effort {
        "minimal" => MIN_BUDGET,
        "low" => 4096,
        "high" => 16_384,
        "xhigh" | "max" => 32_000,
        _ => 8192,
    }
}

fn effort_name(effort: &str, model: &str) -> &'static str {
    match effort {
        "minimal" | "low" => "low",
        "high" => "high",
        "xhigh" if version(model) >= Some((4, 7)) => "xhigh",
        // The highest level is Opus' alone.
        "xhigh" | "max" if model.contains("opus") => "max",
        "xhigh" | "max" => "high",
        _ => "medium",
    }
}

/// The most the model can write, where the configuration names no limit.
fn default_limit(endpoint: &Endpoint) -> u64 {
    output_limit(&endpoint.model).min(endpoint.window().max(1))
}

/// Major and minor version of a Claude model, whichever way round its name is; `None` for other models.
fn version(model: &str) -> Option<(u32, u32)> {
    let name = model.rsplit('/').next()?;
    let name = name.get(name.find("claude")?..)?;
    let mut numbers = name.split(['-', '.', '@', ':', '_']).skip(1);
    // Dates have eight digits.
    let small = |part: &str| part.parse::<u32>().ok().filter(|number| *number < 100);
    let major = numbers.by_ref().find_map(small)?;
    Some((major, numbers.next().and_then(small).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_every_style_of_name() {
        for (model, expected) in [
            ("claude-sonnet-4-5-20250929", Some((4, 5))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("anthropic/claude-sonnet-4.5", Some((4, 5))),
            ("us.anthropic.claude-opus-4-6-v1:0", Some((4, 6))),
            ("claude-opus-5", Some((5, 0))),
            ("smollm2", None),
            ("claude-instant", None),
        ] {
            assert_eq!(version(model), expected, "{model}");
        }
    }
}
