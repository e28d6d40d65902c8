//! The shapes of the stream's events, borrowed from their text.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::Usage;
use crate::provider::loose::Loose;
use crate::provider::usage::cost_micros;

/// Any event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Loose<'a>,
    #[serde(borrow)]
    pub(super) index: Loose<'a>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The delta of a block or of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Loose<'a>,
    #[serde(borrow)]
    pub(super) text: Loose<'a>,
    #[serde(borrow)]
    pub(super) thinking: Loose<'a>,
    #[serde(borrow)]
    pub(super) signature: Loose<'a>,
    #[serde(borrow)]
    pub(super) partial_json: Loose<'a>,
    #[serde(borrow)]
    pub(super) stop_reason: Loose<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
}

/// The kind of an event that has nothing else we can read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Unread<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Loose<'a>,
}

/// What `message_start` brings.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Opening<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// A whole answer of a server that did not stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Whole<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) stop_reason: Loose<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Why the model would not answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StopDetails<'a> {
    #[serde(borrow)]
    pub(super) explanation: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    #[serde(alias = "reasoning_tokens")]
    thinking_tokens: Option<u64>,
}

/// The counts of one answer. They are cumulative and come in parts, so a later number replaces an earlier one;
/// a zero replaces none, because some servers send zeros where they know nothing.
#[derive(Debug, Default)]
pub(super) struct UsageCounter {
    input: u64,
    output: u64,
    cached: u64,
    cache_write: u64,
    reasoning: u64,
    cost_micros: Option<u64>,
}

impl UsageCounter {
    /// Takes a `usage` object; an odd one is ignored.
    pub(super) fn take(&mut self, usage: Option<&RawValue>) {
        let Some(raw) = usage else { return };
        let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        self.cost_micros = cost_micros(&value).or(self.cost_micros);
        let Ok(counts) = serde_json::from_str::<Counts>(raw.get()) else { return };
        let reasoning = counts.output_tokens_details.and_then(|details| details.thinking_tokens);
        for (known, new) in [
            (&mut self.input, counts.input_tokens),
            (&mut self.output, counts.output_tokens),
            (&mut self.cached, counts.cache_read_input_tokens),
            (&mut self.cache_write, counts.cache_creation_input_tokens),
            (&mut self.reasoning, reasoning),
        ] {
            *known = new.filter(|count| *count > 0).unwrap_or(*known);
        }
    }

    /// The sum: Messages counts cached input apart from the rest.
    pub(super) fn total(&self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cached).saturating_add(self.cache_write),
            output_tokens: self.output,
            cached_tokens: self.cached,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
            cost_micros: self.cost_micros,
        }
    }
}
