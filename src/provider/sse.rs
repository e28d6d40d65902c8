//! Server-sent events, decoded incrementally. Pure: bytes in, events out.
//!
//! What comes out does not depend on how the bytes were cut. Heartbeats (comments) are counted apart from
//! events, so that a caller can tell a server that answers from one that only keeps its connection open.
//! `id` and `retry` fields are ignored: a model's answer cannot be resumed.

use memchr::{memchr, memchr2};

/// The largest event accepted, in bytes: far above any model's delta, far below memory trouble.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field; empty when there was none.
    pub name: &'a str,
    /// The `data` fields, joined with newlines. Never empty. Bytes that are not UTF-8 were replaced.
    pub data: &'a str,
}

/// Why a stream cannot be decoded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// One event was larger than allowed.
    #[error("an event of the stream is larger than {limit_bytes} bytes")]
    EventTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
}

/// The decoder. Allocates only while its buffers grow to the size of the largest event.
#[derive(Debug)]
pub struct SseDecoder {
    /// The line that is not yet complete.
    line: Vec<u8>,
    data: Vec<u8>,
    name: String,
    has_data: bool,
    is_first_line: bool,
    /// The last byte was a carriage return, so a line feed right after it belongs to it.
    after_return: bool,
    events: u64,
    comments: u64,
    max_event_bytes: usize,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }
}

impl SseDecoder {
    /// A decoder that refuses events above this size.
    #[must_use]
    pub fn with_limit(max_event_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            name: String::new(),
            has_data: false,
            is_first_line: true,
            after_return: false,
            events: 0,
            comments: 0,
            max_event_bytes,
        }
    }

    /// Events seen so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Comments (heartbeats) seen so far.
    #[must_use]
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Takes the next bytes and hands each event they complete to `on_event`.
    ///
    /// # Errors
    /// [`SseError`], or what `on_event` returned. The decoder must not be used again.
    pub fn feed<E: From<SseError>>(
        &mut self,
        chunk: &[u8],
        on_event: &mut dyn FnMut(&SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = chunk;
        if self.after_return && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_return = false;
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            if self.line.is_empty() {
                self.check_size(self.data.len() + line.len())?;
                self.take_line(line, on_event)?;
            } else {
                self.extend_line(line)?;
                let whole = std::mem::take(&mut self.line);
                self.take_line(&whole, on_event)?;
                self.line = whole;
                self.line.clear();
            }
            rest = match tail {
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => tail,
            };
            self.after_return = rest.is_empty() && tail == b"\r";
        }
        self.extend_line(rest)?;
        Ok(())
    }

    /// Tells that no more bytes come. An event that only lacks the empty line after it is handed on.
    ///
    /// # Errors
    /// As [`SseDecoder::feed`].
    pub fn finish<E: From<SseError>>(
        &mut self,
        on_event: &mut dyn FnMut(&SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, on_event)?;
        }
        self.dispatch(on_event)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        self.check_size(self.line.len() + self.data.len() + bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn check_size(&self, bytes: usize) -> Result<(), SseError> {
        let limit_bytes = self.max_event_bytes;
        if bytes > limit_bytes { Err(SseError::EventTooLarge { limit_bytes }) } else { Ok(()) }
    }

    fn take_line<E: From<SseError>>(
        &mut self,
        line: &[u8],
        on_event: &mut dyn FnMut(&SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut line = line;
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let (field, value) = match memchr(b':', line) {
            Some(0) => {
                self.comments += 1;
                return Ok(());
            }
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            _ => {}
        }
        Ok(())
    }

    fn dispatch<E>(&mut self, on_event: &mut dyn FnMut(&SseEvent<'_>) -> Result<(), E>) -> Result<(), E> {
        let result = if self.data.is_empty() {
            Ok(())
        } else {
            self.events += 1;
            let data = String::from_utf8_lossy(&self.data);
            on_event(&SseEvent { name: &self.name, data: &data })
        };
        self.data.clear();
        self.name.clear();
        self.has_data = false;
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(String, String)>, u64) {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        let mut take = |event: &SseEvent<'_>| {
            events.push((event.name.to_owned(), event.data.to_owned()));
            Ok::<(), SseError>(())
        };
        for chunk in chunks {
            decoder.feed(chunk, &mut take).unwrap();
        }
        decoder.finish(&mut take).unwrap();
        assert_eq!(decoder.events(), u64::try_from(events.len()).unwrap());
        (events, decoder.comments())
    }

    fn check(text: &str, expect: &[(&str, &str)]) {
        let expect: Vec<_> = expect.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
        assert_eq!(decode([text.as_bytes()]).0, expect, "whole: {text:?}");
        assert_eq!(decode(text.as_bytes().chunks(1)).0, expect, "byte by byte: {text:?}");
    }

    #[test]
    fn every_line_end_is_understood() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("data: a\r\n\ndata: b\n\r\n", &[("", "a"), ("", "b")]);
    }

    #[test]
    fn fields_follow_the_grammar() {
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check("data:a\n\n", &[("", "a")]);
        check("data:  a\n\n", &[("", " a")]);
        check("event: ping\nid: 7\nretry: 3\ndata: {\ndata: }\n\n", &[("ping", "{\n}")]);
        check("event: x\n\ndata: a\n\n", &[("", "a")]);
        check("data\n\ndata:\n\n", &[]);
        check("data:\ndata: a\n\n", &[("", "\na")]);
        check("database: no\nfoo\ndata: a\n\n", &[("", "a")]);
        check("data: caf\u{e9} \u{1f600}\n\n", &[("", "caf\u{e9} \u{1f600}")]);
    }

    #[test]
    fn an_event_without_its_empty_line_is_delivered_at_the_end() {
        check("data: a\n\ndata: [DONE]", &[("", "a"), ("", "[DONE]")]);
        check("data: a\ndata: b\n", &[("", "a\nb")]);
    }

    #[test]
    fn heartbeats_are_counted_apart() {
        let (events, comments) = decode([&b": PROCESSING\n\n:\n:\ndata: a\n\n"[..]]);
        assert_eq!((events.len(), comments), (1, 3));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(decode([&b"data: a\xff\n\n"[..]]).0, [(String::new(), "a\u{fffd}".to_owned())]);
    }

    #[test]
    fn an_event_above_the_limit_is_refused_however_it_comes() {
        let one_line = format!("data: {}", "x".repeat(100));
        let many_lines = "data: xxxxxxxxxx\n".repeat(10);
        for text in [one_line, many_lines] {
            let mut decoder = SseDecoder::with_limit(64);
            let error =
                text.as_bytes().chunks(7).find_map(|chunk| decoder.feed(chunk, &mut |_| Ok::<(), SseError>(())).err());
            assert_eq!(error, Some(SseError::EventTooLarge { limit_bytes: 64 }));
        }
    }

    #[test]
    fn whether_a_line_passes_the_limit_does_not_depend_on_how_it_was_cut() {
        let read = |text: &str, size: usize| {
            let mut decoder = SseDecoder::with_limit(64);
            let mut take = |_: &SseEvent<'_>| Ok::<(), SseError>(());
            text.as_bytes().chunks(size).try_for_each(|chunk| decoder.feed(chunk, &mut take)).is_ok()
        };
        for (before, field) in [("", "data: "), ("", "other: "), ("", ": "), ("data: x\n", "data: ")] {
            for length in 40..80 {
                let text = format!("{before}{field}{}\n\n", "x".repeat(length));
                let whole = read(&text, usize::MAX);
                assert!((1..9).all(|size| read(&text, size) == whole), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn cutting_a_stream_anywhere_changes_nothing(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "data: ", "data:", "event: e", ": hi", "\n", "\r", "\r\n", "\n\n", "{\"a\":1}", "x", "\u{1f600}",
                    "\u{feff}", "id: 1", "[DONE]",
                ]),
                0..40,
            ),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let text = pieces.concat();
            let mut rest = text.as_bytes();
            let mut chunks = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            prop_assert_eq!(decode([text.as_bytes()]), decode(chunks));
        }
    }
}
