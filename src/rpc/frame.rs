//! Splits a byte stream into lines, with a limit that a hostile line cannot exceed in memory.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest line taken, line end not counted. Image prompts are the largest honest lines; other
/// agents of the field take 10 to 64 MiB.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Bytes of a line that is too long which are kept: enough for the id of an answer.
const HEAD_BYTES: usize = 256;

/// Read at a time. Large enough that a burst of small requests costs one system call.
const READ_BYTES: usize = 64 << 10;

/// What a line turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line without its end (`\n` or `\r\n`). Blank lines are skipped.
    Line(Vec<u8>),
    /// A line passed the limit; it is told once, as soon as that is known, and the rest is skipped.
    TooLong {
        /// How it begins.
        head: Vec<u8>,
    },
}

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// How much of `buffer` has been searched for a newline.
    searched: usize,
    /// Inside a line that was already reported as too long.
    is_skipping: bool,
    is_ended: bool,
    limit: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader with the given limit in bytes per line.
    pub fn new(source: R, limit: usize) -> Self {
        Self { source, buffer: Vec::new(), searched: 0, is_skipping: false, is_ended: false, limit }
    }

    /// The next frame, or `None` at the end of the stream. A last line without its newline counts
    /// only if it is whole JSON: half a line means that the client died while writing.
    ///
    /// # Errors
    /// What the source said.
    ///
    /// # Cancel safety
    /// Bytes read stay in the buffer, so dropping the future loses nothing.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            if self.is_ended {
                return Ok(self.take_remainder());
            }
            self.buffer.reserve(READ_BYTES);
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                self.is_ended = true;
            }
        }
    }

    fn take_frame(&mut self) -> Option<Frame> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(offset) = memchr::memchr(b'\n', unsearched) else { break };
            let end = self.searched + offset;
            self.searched = 0;
            let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.shrink();
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if std::mem::take(&mut self.is_skipping) || line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Some(if line.len() > self.limit { too_long(line) } else { Frame::Line(line) });
        }
        self.searched = self.buffer.len();
        if self.is_skipping {
            self.buffer.clear();
            self.searched = 0;
            return None;
        }
        // One byte more than the limit may still be the `\r` of a line that fits exactly.
        if self.buffer.len() > self.limit + 1 {
            self.is_skipping = true;
            self.searched = 0;
            return Some(too_long(std::mem::take(&mut self.buffer)));
        }
        None
    }

    /// Gives a large line's memory back.
    fn shrink(&mut self) {
        if self.buffer.capacity() > 16 * READ_BYTES && self.buffer.len() < READ_BYTES {
            self.buffer.shrink_to(2 * READ_BYTES);
        }
    }

    fn take_remainder(&mut self) -> Option<Frame> {
        let rest = std::mem::take(&mut self.buffer);
        let is_whole = !self.is_skipping && serde_json::from_slice::<serde::de::IgnoredAny>(&rest).is_ok();
        is_whole.then_some(Frame::Line(rest))
    }
}

fn too_long(mut head: Vec<u8>) -> Frame {
    head.truncate(HEAD_BYTES);
    head.shrink_to_fit();
    Frame::TooLong { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(input: &[u8], limit: usize) -> Vec<Frame> {
        let mut reader = FrameReader::new(input, limit);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await.unwrap() {
            frames.push(frame);
        }
        frames
    }

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_end_in_lf_or_crlf_and_blank_ones_are_skipped() {
        assert_eq!(frames(b"a\r\n\n  \nb\n", 9).await, [line("a"), line("b")]);
    }

    #[tokio::test]
    async fn the_limit_is_exact_for_both_line_ends() {
        for end in ["\n", "\r\n"] {
            for (length, fits) in [(7, true), (8, true), (9, false)] {
                let input = format!("{}{end}x\n", "y".repeat(length));
                let whole = line(&"y".repeat(length));
                let first = if fits { whole } else { too_long("y".repeat(length).into()) };
                assert_eq!(frames(input.as_bytes(), 8).await, [first, line("x")], "{length} {end:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_line_far_over_the_limit_is_told_once_and_the_next_line_is_read() {
        let input = format!("{}\nnext\n", "z".repeat(300_000));
        assert_eq!(frames(input.as_bytes(), 100).await, [too_long("z".repeat(HEAD_BYTES).into()), line("next")]);
    }

    #[tokio::test]
    async fn half_a_line_at_the_end_is_dropped_and_a_whole_one_is_taken() {
        assert_eq!(frames(b"{\"a\":1", 99).await, []);
        assert_eq!(frames(b"{\"a\":1}", 99).await, [line("{\"a\":1}")]);
    }
}
