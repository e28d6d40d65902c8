//! Anthropic's Messages format, as Anthropic and the servers that copy it speak it.
//!
//! The encoder writes what Anthropic accepts; the decoder reads what any of them was seen to send.
//! Deliberately absent: tools the provider runs itself are never asked for. Their blocks are kept and
//! replayed when a server sends them all the same, and never run here.

mod blocks;
mod decode;
mod encode;
mod thinking;
mod wire;

#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;

use crate::provider::{Decoder, Endpoint};

pub use encode::encode;
pub use thinking::beta_header;

/// The `anthropic-version` header, the only version there is.
pub const API_VERSION: &str = "2023-06-01";

/// A decoder for one answer of this endpoint.
#[must_use]
pub fn decoder(endpoint: &Endpoint) -> Box<dyn Decoder> {
    Box::new(decode::MessagesDecoder::new(&endpoint.provider, &endpoint.model))
}
