//! What every stream decoder has in common: the trait, its error, and how events are merged.
//!
//! Decoders are pure: bytes of one answer in, events and one whole reply out. They open nothing, wait for
//! nothing and classify nothing; an error the provider reported inside its stream is handed on as the
//! JSON it sent, and [`crate::provider`] classifies it like any other error body.

use crate::provider::{ModelEvent, ModelReply, SseEvent};

/// Turns the events of one answer into [`ModelEvent`]s and, at the end, the whole reply.
pub trait Decoder: Send {
    /// Takes one event of the stream; appends what the client may see to `out`, merged with its last entry
    /// where both are text of the same kind (see [`emit_text`] and [`emit_reasoning`]).
    ///
    /// # Errors
    /// [`DecodeError`]; the answer is lost and the decoder must not be used again.
    fn push(&mut self, event: &SseEvent<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError>;

    /// Takes a whole JSON body, from a server that did not stream although it was asked to.
    ///
    /// # Errors
    /// As [`Decoder::push`].
    fn whole(&mut self, body: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), DecodeError>;

    /// True after the event that ends the answer for certain (`[DONE]`, `message_stop`, `response.completed`).
    /// Nothing more is read then. A terminal marker after which more may follow (`finish_reason`, and then
    /// usage) does not count.
    fn is_done(&self) -> bool;

    /// True once the answer's terminal marker came, even where more may follow: a server that falls silent now is
    /// not waited for as long as one that still writes.
    fn has_ended(&self) -> bool {
        self.is_done()
    }

    /// How many events have brought something of the answer. Servers also keep their connections open with events
    /// that bring nothing (pings, empty deltas, a state told again): those are heartbeats and do not count.
    fn progress(&self) -> u64;

    /// The whole reply, once the stream has ended. `out` gets what was held back while streaming
    /// (the start of a tag that never came, half of a surrogate pair).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when no terminal marker came.
    fn finish(self: Box<Self>, out: &mut Vec<ModelEvent>) -> Result<ModelReply, DecodeError>;
}

/// Why an answer could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The provider reported an error inside a successful answer. The JSON is what it sent.
    #[error("the provider reported an error inside its answer: {body}")]
    Reported {
        /// The event's JSON, with the `error` object in it where the format has one.
        body: String,
    },
    /// An event was not JSON or had the wrong shape.
    #[error("an event of the answer is malformed: {0}")]
    Malformed(String),
    /// The stream ended before the answer did.
    #[error("the stream ended before the answer did")]
    Truncated,
    /// The answer has no usable content.
    #[error("the answer has no usable shape: {0}")]
    Invalid(&'static str),
    /// The answer is larger than anything a model writes.
    #[error("the answer is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
}

/// Appends visible text, merging it with a text event that is already last.
pub fn emit_text(out: &mut Vec<ModelEvent>, piece: &str) {
    if piece.is_empty() {
        return;
    }
    if let Some(ModelEvent::Text(text)) = out.last_mut() {
        text.push_str(piece);
    } else {
        out.push(ModelEvent::Text(piece.to_owned()));
    }
}

/// Appends reasoning text, merging it with a reasoning event that is already last.
pub fn emit_reasoning(out: &mut Vec<ModelEvent>, piece: &str) {
    if piece.is_empty() {
        return;
    }
    if let Some(ModelEvent::Reasoning(text)) = out.last_mut() {
        text.push_str(piece);
    } else {
        out.push(ModelEvent::Reasoning(piece.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_pieces_of_one_kind_become_one_event() {
        let mut out = Vec::new();
        emit_reasoning(&mut out, "a");
        emit_reasoning(&mut out, "b");
        emit_text(&mut out, "");
        emit_text(&mut out, "c");
        emit_text(&mut out, "d");
        emit_reasoning(&mut out, "e");
        let wanted =
            [ModelEvent::Reasoning("ab".into()), ModelEvent::Text("cd".into()), ModelEvent::Reasoning("e".into())];
        assert_eq!(out, wanted);
    }
}
