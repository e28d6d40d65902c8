//! The shapes of the stream's events, borrowed from their text.

use serde::Deserialize;
use serde_json::value::RawValue;

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
