//! Compaction: a history that no longer fits the model becomes a shorter one that says the same.
//!
//! The beginning and the end stay as they are, the user's newest request stays wherever it stands, and a
//! summary takes the place of the rest. What is too large even for the kept part is cut. [`Gauge`] says
//! when, [`Plan`] says what, [`summarise`] asks a model for the words and has words of its own when the
//! model gives none.
//!
//! Pure but for that one call. Deliberately absent: storing and telling, which are the turn's.

mod estimate;
mod fallback;
mod gauge;
mod plan;
#[cfg(test)]
mod property_tests;
mod shorten;
mod split;
mod summary;
mod transcript;

use std::sync::Arc;

use crate::config::CompressionConfig;
use crate::message::Message;
use crate::provider::auxiliary::Auxiliary;

pub use estimate::{text_tokens, tokens};
pub use gauge::{Gain, Gauge, MAX_PER_TURN};
pub use plan::{Plan, Request, Urgency};
pub use summary::{Desk, Summary, Writer, summarise};

/// What a session keeps for compaction, shared by its turns.
#[derive(Debug)]
pub struct Compactor {
    /// When and how.
    pub config: CompressionConfig,
    /// The models for side tasks.
    pub auxiliary: Arc<Auxiliary>,
    /// How full the context is.
    pub gauge: Gauge,
}

/// How a history changes. Places count the messages of the history as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Messages of the history as it was, so that a wrong history is noticed.
    pub before: usize,
    /// Messages that are no longer sent, in order.
    pub dropped: Vec<usize>,
    /// Shorter forms of messages that stay.
    pub rewritten: Vec<(usize, Message)>,
    /// Stands where the last dropped message stood.
    pub summary: Option<Message>,
}

impl Change {
    /// The history after the change.
    #[must_use]
    pub fn apply(&self, history: &[Message]) -> Vec<Message> {
        let mut changed = Vec::with_capacity(history.len());
        for (place, message) in history.iter().enumerate() {
            if self.dropped.binary_search(&place).is_ok() {
                if self.dropped.last() == Some(&place) {
                    changed.extend(self.summary.clone());
                }
                continue;
            }
            let rewritten = self.rewritten.iter().find(|(at, _)| *at == place);
            changed.push(rewritten.map_or_else(|| message.clone(), |(_, message)| message.clone()));
        }
        changed
    }
}
