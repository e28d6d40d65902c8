//! Words that are shown while they come, until the runtime says them whole.

use std::collections::HashSet;

/// What streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An answer.
    Text,
    /// Reasoning.
    Reasoning,
}

/// The items of one turn: what was shown of those that stream, and which are done.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Vec<Stream>,
    done: HashSet<String>,
}

#[derive(Debug)]
struct Stream {
    item: String,
    kind: Kind,
    shown: String,
}

impl Streams {
    /// Adds a piece to what was shown of an item.
    pub(super) fn add(&mut self, item: &str, kind: Kind, piece: &str) {
        match self.open.iter_mut().rev().find(|stream| stream.item == item && stream.kind == kind) {
            Some(stream) => stream.shown.push_str(piece),
            None => self.open.push(Stream { item: item.to_owned(), kind, shown: piece.to_owned() }),
        }
    }

    /// Whether an item was said whole. One without an id never is.
    pub(super) fn is_done(&self, item: &str) -> bool {
        self.done.contains(item)
    }

    /// An item begins, perhaps under the id of an earlier one.
    pub(super) fn begin(&mut self, item: &str) {
        self.done.remove(item);
    }

    /// An item was said whole; false when that was said before.
    pub(super) fn finish(&mut self, item: &str) -> bool {
        item.is_empty() || self.done.insert(item.to_owned())
    }

    /// What was shown of an item that is whole now.
    pub(super) fn take(&mut self, item: &str, kind: Kind) -> String {
        let place = self.open.iter().position(|stream| stream.item == item && stream.kind == kind);
        place.map(|place| self.open.remove(place).shown).unwrap_or_default()
    }

    /// Answers that were shown and never said whole, oldest first.
    pub(super) fn take_unfinished(&mut self) -> Vec<String> {
        let open = std::mem::take(&mut self.open);
        open.into_iter().filter(|stream| stream.kind == Kind::Text).map(|stream| stream.shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_keeps_its_own_words() {
        let mut streams = Streams::default();
        for (item, kind, piece) in
            [("a", Kind::Text, "1"), ("b", Kind::Text, "2"), ("a", Kind::Reasoning, "r"), ("a", Kind::Text, "3")]
        {
            streams.add(item, kind, piece);
        }
        assert_eq!(streams.take("a", Kind::Text), "13");
        assert_eq!(streams.take("a", Kind::Text), "");
        assert_eq!(streams.take_unfinished(), ["2"]);
    }

    #[test]
    fn an_item_is_done_once_until_it_begins_again_and_one_without_an_id_never() {
        let mut streams = Streams::default();
        assert!(streams.finish("a") && !streams.finish("a") && streams.is_done("a"));
        streams.begin("a");
        assert!(!streams.is_done("a") && streams.finish("a"));
        assert!(streams.finish("") && streams.finish("") && !streams.is_done(""));
    }
}
