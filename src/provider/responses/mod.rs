//! OpenAI's Responses format, as OpenAI and the servers that copy it speak it.
//!
//! Nothing is stored at the provider: each request carries the whole history, reasoning in encrypted items.
//! So no item goes back with an id that only the provider's store could resolve.

mod content;
mod decode;
mod encode;
mod items;
mod wire;

#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;

use crate::provider::{Decoder, Endpoint};

pub use encode::encode;

/// A decoder for one answer of this endpoint.
#[must_use]
pub fn decoder(endpoint: &Endpoint) -> Box<dyn Decoder> {
    Box::new(decode::ResponsesDecoder::new(&endpoint.provider, &endpoint.model))
}
