//! A range of a text's lines, picked out of a stream of any length in flat memory.

use super::output::first_chars;

/// Characters of one line that are shown.
const MAX_LINE_CHARS: usize = 2000;

/// Bytes of one line that are kept: enough for [`MAX_LINE_CHARS`] characters of any script.
const MAX_LINE_BYTES: usize = MAX_LINE_CHARS * 4;

/// Takes text piece by piece and keeps the wanted lines, numbered.
#[derive(Debug)]
pub struct LineWindow {
    first: u64,
    end: u64,
    max_chars: usize,
    line: Vec<u8>,
    line_bytes: usize,
    /// Lines completed so far.
    lines: u64,
    shown: u64,
    is_full: bool,
    text: String,
    chars: usize,
    crlf_lines: u64,
    has_invalid: bool,
}

impl LineWindow {
    /// Lines from `first` (from 1), at most `count`, at most about `max_chars` characters.
    #[must_use]
    pub fn new(first: u64, count: u64, max_chars: usize) -> Self {
        Self {
            first,
            end: first.saturating_add(count),
            max_chars,
            line: Vec::new(),
            line_bytes: 0,
            lines: 0,
            shown: 0,
            is_full: false,
            text: String::new(),
            chars: 0,
            crlf_lines: 0,
            has_invalid: false,
        }
    }

    /// The next piece.
    pub fn push(&mut self, mut piece: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', piece) {
            let (line, rest) = piece.split_at(end);
            self.extend(line);
            self.end_line();
            piece = rest.get(1..).unwrap_or_default();
        }
        self.extend(piece);
    }

    /// True while a later piece can still add lines.
    fn wants_line(&self) -> bool {
        let number = self.lines + 1;
        !self.is_full && number >= self.first && number < self.end
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.line_bytes += bytes.len();
        let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
        if self.wants_line() {
            self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        } else if let Some(last) = bytes.last() {
            self.line.clear();
            self.line.push(*last);
        }
    }

    fn end_line(&mut self) {
        let ends_with_return = self.line.last() == Some(&b'\r') && self.line_bytes <= MAX_LINE_BYTES;
        self.crlf_lines += u64::from(ends_with_return);
        if self.wants_line() {
            if ends_with_return {
                self.line.pop();
            }
            self.show_line();
        }
        self.lines += 1;
        self.line.clear();
        self.line_bytes = 0;
    }

    fn show_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        // A replacement character that the file itself holds is valid text.
        self.has_invalid |= std::str::from_utf8(&self.line).is_err() && self.line_bytes <= MAX_LINE_BYTES;
        let kept = first_chars(&line, MAX_LINE_CHARS);
        let mut shown = format!("{}\t{kept}", self.lines + 1);
        if kept.len() < line.len() || self.line_bytes > MAX_LINE_BYTES {
            shown.push_str(&format!("… [line of {} bytes cut]", self.line_bytes));
        }
        let chars = shown.chars().count() + 1;
        if self.shown > 0 && self.chars + chars > self.max_chars {
            self.is_full = true;
            return;
        }
        if self.shown > 0 {
            self.text.push('\n');
        }
        self.text.push_str(&shown);
        self.chars += chars;
        self.shown += 1;
    }

    /// The end of the text: what was picked.
    #[must_use]
    pub fn finish(mut self) -> Lines {
        let ends_open = self.line_bytes > 0;
        if ends_open {
            self.end_line();
        }
        Lines {
            text: self.text,
            first: self.first,
            shown: self.shown,
            total: self.lines,
            ends_open,
            crlf_lines: self.crlf_lines,
            has_invalid: self.has_invalid,
        }
    }
}

/// The picked lines and what is worth knowing about the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The lines, each with its number and a tab before it.
    pub text: String,
    /// The first line that was wanted.
    pub first: u64,
    /// Lines in `text`.
    pub shown: u64,
    /// Lines of the whole text.
    pub total: u64,
    /// Whether the last line lacks its line end.
    pub ends_open: bool,
    /// Lines that end with `\r\n`.
    pub crlf_lines: u64,
    /// Whether bytes that are no UTF-8 were replaced.
    pub has_invalid: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(text: &[u8], first: u64, count: u64, max_chars: usize, piece: usize) -> Lines {
        let mut window = LineWindow::new(first, count, max_chars);
        text.chunks(piece).for_each(|piece| window.push(piece));
        window.finish()
    }

    #[test]
    fn the_picked_lines_do_not_depend_on_how_the_text_arrives() {
        let check = |text: &str, first, count, expected: &str, total| {
            for piece in [1, 2, 3, 7, 4096] {
                let lines = pick(text.as_bytes(), first, count, 1000, piece);
                assert_eq!((lines.text.as_str(), lines.total), (expected, total), "{text:?} in pieces of {piece}");
            }
        };
        check("a\nb\nc\n", 1, 10, "1\ta\n2\tb\n3\tc", 3);
        check("a\nb\nc", 2, 10, "2\tb\n3\tc", 3);
        check("a\nb\nc\n", 2, 1, "2\tb", 3);
        check("a\r\nb\r\n", 1, 10, "1\ta\n2\tb", 2);
        check("\n\n", 1, 10, "1\t\n2\t", 2);
        check("", 1, 10, "", 0);
        check("a\n", 5, 10, "", 1);
        check("grüße\n世界\n", 1, 10, "1\tgrüße\n2\t世界", 2);
    }

    #[test]
    fn the_window_ends_where_the_characters_run_out_and_goes_on_counting() {
        let lines = pick("0123456789\n".repeat(10).as_bytes(), 1, 100, 30, 4);
        assert_eq!((lines.shown, lines.total), (2, 10));
        let lines = pick(b"one long line", 1, 100, 3, 4);
        assert_eq!(lines.text, "1\tone long line");
    }

    #[test]
    fn a_line_of_any_length_is_kept_short() {
        let text = "é".repeat(1_000_000);
        let lines = pick(text.as_bytes(), 1, 10, 50_000, 8191);
        assert!(lines.text.ends_with("é… [line of 2000000 bytes cut]"), "{}", lines.text.len());
        assert!(lines.text.chars().count() < MAX_LINE_CHARS + 50);
        assert!(!lines.has_invalid);
    }

    #[test]
    fn remarks_about_the_text() {
        let lines = pick(b"a\r\nb\nc\xff", 1, 10, 1000, 2);
        assert_eq!((lines.crlf_lines, lines.ends_open, lines.has_invalid), (1, true, true));
        assert_eq!(pick(b"a\r\nb\r\n", 2, 1, 1000, 1).crlf_lines, 2);
    }
}
