//! Head and tail of an output of any length, in flat memory.

use std::collections::VecDeque;

use crate::tool::output::clean_for_model;

/// The first and the last bytes of a stream, and how many there were.
#[derive(Clone, Debug)]
pub struct Capture {
    keep: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    /// Keeps up to `keep` bytes of the start and as many of the end.
    #[must_use]
    pub fn new(keep: usize) -> Self {
        Self { keep, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// The next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.total += piece.len() as u64;
        let room = self.keep - self.head.len();
        let (head, rest) = piece.split_at(room.min(piece.len()));
        self.head.extend_from_slice(head);
        let rest = rest.get(rest.len().saturating_sub(self.keep)..).unwrap_or_default();
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.keep);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Whether so many more bytes can be kept without leaving any out.
    #[must_use]
    pub fn has_room_for(&self, more: usize) -> bool {
        self.total.saturating_add(more as u64) <= 2 * self.keep as u64
    }

    /// What was kept, in order.
    #[must_use]
    pub fn pieces(&self) -> [&[u8]; 3] {
        let (front, back) = self.tail.as_slices();
        [&self.head, front, back]
    }

    /// Bytes of the whole stream.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Bytes between head and tail that were not kept.
    #[must_use]
    pub fn omitted_bytes(&self) -> u64 {
        self.total - self.head.len() as u64 - self.tail.len() as u64
    }

    /// What was kept as plain text, with a note where something is missing. Empty for no output.
    #[must_use]
    pub fn text(&self) -> String {
        let omitted = self.omitted_bytes();
        if omitted == 0 {
            let (front, back) = self.tail.as_slices();
            return clean_for_model(&[&self.head, front, back].concat());
        }
        let (front, back) = self.tail.as_slices();
        let (head, tail) = (clean_for_model(&self.head), clean_for_model(&[front, back].concat()));
        let (head, tail) = (head.trim_end_matches('\u{fffd}'), tail.trim_start_matches('\u{fffd}'));
        format!("{head}\n[... {omitted} bytes left out ...]\n{tail}")
    }

    /// What came after the first `seen` bytes, as far as it was kept, as plain text.
    #[must_use]
    pub fn since(&self, seen: u64) -> String {
        if seen == 0 {
            return self.text();
        }
        let new = self.total.saturating_sub(seen);
        self.newest_bytes(usize::try_from(new).unwrap_or(usize::MAX), new)
    }

    /// The newest `max_bytes` or so as plain text, for showing while the stream goes on.
    #[must_use]
    pub fn newest(&self, max_bytes: usize) -> String {
        self.newest_bytes(max_bytes, self.total)
    }

    /// The newest bytes; `of` is how many there are to choose from.
    fn newest_bytes(&self, max_bytes: usize, of: u64) -> String {
        let mut bytes: Vec<u8> = Vec::new();
        let from_head = max_bytes.saturating_sub(self.tail.len());
        if self.omitted_bytes() == 0 {
            bytes.extend(self.head.get(self.head.len().saturating_sub(from_head)..).unwrap_or_default());
        }
        bytes.extend(self.tail.iter().skip(self.tail.len().saturating_sub(max_bytes)));
        let before = of.saturating_sub(bytes.len() as u64);
        let text = clean_for_model(&bytes);
        if before == 0 {
            return text;
        }
        format!("[... {before} bytes before ...]\n{}", text.trim_start_matches('\u{fffd}'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(text: &[u8], keep: usize, piece: usize) -> Capture {
        let mut capture = Capture::new(keep);
        text.chunks(piece).for_each(|piece| capture.push(piece));
        capture
    }

    #[test]
    fn head_and_tail_do_not_depend_on_how_the_output_arrives() {
        let text: Vec<u8> = (0..26).map(|letter| b'a' + letter).collect();
        let check = |keep, expected: &str| {
            for piece in 1..=26 {
                assert_eq!(capture(&text, keep, piece).text(), expected, "pieces of {piece}");
            }
        };
        check(3, "abc\n[... 20 bytes left out ...]\nxyz");
        check(13, "abcdefghijklmnopqrstuvwxyz");
        check(12, "abcdefghijkl\n[... 2 bytes left out ...]\nopqrstuvwxyz");
        check(100, "abcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn a_character_cut_in_two_leaves_no_trace() {
        let capture = capture("äöüß".as_bytes(), 3, 8);
        assert_eq!(capture.text(), "ä\n[... 2 bytes left out ...]\nß");
    }

    #[test]
    fn the_newest_output_is_shown_while_it_runs() {
        assert_eq!(capture(b"abcdef", 100, 2).newest(100), "abcdef");
        assert_eq!(capture(b"abcdef", 100, 2).newest(2), "[... 4 bytes before ...]\nef");
        assert_eq!(capture(b"abcdef", 2, 2).newest(100), "[... 4 bytes before ...]\nef");
        assert_eq!(capture(b"", 2, 2).newest(100), "");
    }

    #[test]
    fn what_was_read_is_not_shown_again() {
        assert_eq!(capture(b"abcdef", 100, 2).since(0), "abcdef");
        assert_eq!(capture(b"abcdef", 100, 2).since(4), "ef");
        assert_eq!(capture(b"abcdef", 100, 2).since(6), "");
        assert_eq!(capture(b"abcdefghij", 2, 2).since(4), "[... 4 bytes before ...]\nij");
    }
}
