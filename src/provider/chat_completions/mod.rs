//! OpenAI-compatible chat completions: the format that most servers speak, each a little differently.
//!
//! The encoder writes what strict servers accept; the decoder reads whatever servers were seen to send.

mod body;
mod calls;
mod decode;
mod encode;
mod wire;

use crate::provider::{Decoder, Endpoint};

pub use encode::encode;

/// A decoder for one answer of this endpoint.
#[must_use]
pub fn decoder(endpoint: &Endpoint) -> Box<dyn Decoder> {
    Box::new(decode::ChatDecoder::new(&endpoint.provider, &endpoint.model))
}

#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;
