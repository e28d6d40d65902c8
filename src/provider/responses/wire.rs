//! The shapes of the stream's events, borrowed from their text.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::message::Usage;
use crate::provider::loose::Loose;

/// Any event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Loose<'a>,
    #[serde(borrow)]
    pub(super) item_id: Loose<'a>,
    #[serde(borrow)]
    pub(super) output_index: Loose<'a>,
    #[serde(borrow)]
    pub(super) summary_index: Loose<'a>,
    #[serde(borrow)]
    pub(super) delta: Loose<'a>,
    #[serde(borrow)]
    pub(super) text: Loose<'a>,
    #[serde(borrow)]
    pub(super) arguments: Loose<'a>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The answer as the last event brings it, or a server that did not stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) status: Loose<'a>,
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<Incomplete<'a>>,
}

/// Why an answer ended early.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(super) reason: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    #[serde(alias = "prompt_tokens")]
    input_tokens: Option<u64>,
    #[serde(alias = "completion_tokens")]
    output_tokens: Option<u64>,
    #[serde(alias = "prompt_tokens_details")]
    input_tokens_details: Option<Details>,
    #[serde(alias = "completion_tokens_details")]
    output_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

/// The counts of a `usage` object; `None` when it is none.
pub(super) fn usage(raw: &RawValue) -> Option<Usage> {
    let counts: Counts = serde_json::from_str(raw.get()).ok()?;
    let input = counts.input_tokens_details.unwrap_or_default();
    let output = counts.output_tokens_details.unwrap_or_default();
    Some(Usage {
        input_tokens: counts.input_tokens?,
        output_tokens: counts.output_tokens.unwrap_or(0),
        cached_tokens: input.cached_tokens.unwrap_or(0),
        cache_write_tokens: input.cache_write_tokens.unwrap_or(0),
        reasoning_tokens: output.reasoning_tokens.unwrap_or(0),
    })
}
