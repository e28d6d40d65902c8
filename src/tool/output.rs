//! What becomes of a tool's raw output before a model reads it: made valid, made plain, made short.
//!
//! Nothing here knows a tool. What is cut here is kept whole by [`super::spill`].

use std::borrow::Cow;

/// Bytes of output as text a model and JSON can take: invalid UTF-8 replaced, escape sequences and control
/// characters removed, `\r\n` turned to `\n`, and of a line redrawn by `\r` only the last drawing kept.
#[must_use]
pub fn clean_for_model(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut cleaned = String::with_capacity(text.len());
    let mut line_start = 0;
    let mut chars = text.chars().peekable();
    while let Some(character) = chars.next() {
        match character {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\n' => {
                cleaned.push('\n');
                line_start = cleaned.len();
            }
            '\r' => match chars.peek() {
                Some('\n' | '\r') | None => {}
                Some(_) => cleaned.truncate(line_start),
            },
            '\t' => cleaned.push('\t'),
            control if control.is_control() => {}
            other => cleaned.push(other),
        }
    }
    cleaned
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The most characters of one escape sequence that are dropped with it; what is longer is not a sequence.
const MAX_SEQUENCE_CHARS: usize = 4096;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string_sequence(chars);
        }
        Some(' '..='/') => {
            chars.next();
            chars.next();
        }
        Some('0'..='~') => {
            chars.next();
        }
        _ => {}
    }
}

/// Parameters, then one final byte from `@` to `~`.
fn skip_control_sequence(chars: &mut Chars<'_>) {
    for _ in 0..MAX_SEQUENCE_CHARS {
        match chars.peek() {
            Some(' '..='?') => {
                chars.next();
            }
            Some('@'..='~') => {
                chars.next();
                return;
            }
            _ => return,
        }
    }
}

/// Text up to BEL or `ESC \`. An unfinished one ends at the line's end, so that it cannot hide what follows.
fn skip_string_sequence(chars: &mut Chars<'_>) {
    for _ in 0..MAX_SEQUENCE_CHARS {
        match chars.peek() {
            None | Some('\n') => return,
            Some('\u{7}' | '\u{9c}') => {
                chars.next();
                return;
            }
            Some('\u{1b}') => {
                chars.next();
                if chars.peek() == Some(&'\\') {
                    chars.next();
                }
                return;
            }
            Some(_) => {
                chars.next();
            }
        }
    }
}

/// The text itself when it has at most `max_chars` characters; else its head (two thirds) and tail with a
/// note between that says how much is left out and what to do (`hint`).
#[must_use]
pub fn cap<'a>(text: &'a str, max_chars: usize, hint: &str) -> Cow<'a, str> {
    if text.len() <= max_chars {
        return text.into();
    }
    let count = text.chars().count();
    if count <= max_chars {
        return text.into();
    }
    let head_chars = max_chars / 3 * 2;
    let tail_chars = max_chars - head_chars;
    let head = first_chars(text, head_chars);
    let tail = last_chars(text, tail_chars);
    format!("{head}\n[... {} characters left out; {hint} ...]\n{tail}", count - max_chars).into()
}

/// The first `count` characters.
#[must_use]
pub fn first_chars(text: &str, count: usize) -> &str {
    match text.char_indices().nth(count) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

/// The last `count` characters.
#[must_use]
pub fn last_chars(text: &str, count: usize) -> &str {
    let Some(back) = count.checked_sub(1) else { return "" };
    match text.char_indices().rev().nth(back) {
        Some((start, _)) => text.get(start..).unwrap_or(text),
        None => text,
    }
}

/// A text as one line of at most `max_chars` characters: white space runs become one space, control
/// characters are dropped, `…` stands for what is cut.
#[must_use]
pub fn one_line(text: &str, max_chars: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|character| !character.is_control()));
        if line.len() > max_chars.saturating_mul(4) {
            break;
        }
    }
    let kept = first_chars(&line, max_chars);
    if kept.len() == line.len() { line } else { format!("{}…", first_chars(&line, max_chars.saturating_sub(1))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_output_becomes_plain_text() {
        let check = |raw: &[u8], expected: &str| assert_eq!(clean_for_model(raw), expected, "{raw:?}");
        check(b"\xff\x00\x1b[31mred\x1b[0m", "\u{fffd}red");
        check(b"a\r\nb\r\n", "a\nb\n");
        check(b"10%\r50%\r100%\ndone", "100%\ndone");
        check(b"tab\there\x07\x08", "tab\there");
        check(b"\x1b]0;title\x07text", "text");
        check(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link");
        check(b"\x1b]0;never ends\nnext", "\nnext");
        check(b"\x1b(Bplain\x1b=\x1b", "plain");
        check("\u{9b}1mbold\u{85}".as_bytes(), "bold");
        check("grüße 世界 👩‍👩‍👧".as_bytes(), "grüße 世界 👩‍👩‍👧");
        check(b"cut \xf0\x9f\x91", "cut \u{fffd}");
        check(b"", "");
    }

    #[test]
    fn a_long_text_keeps_head_and_tail_on_character_boundaries() {
        let text = "ä".repeat(50) + &"ö".repeat(50);
        let capped = cap(&text, 30, "narrow it");
        assert_eq!(
            capped,
            format!("{}\n[... 70 characters left out; narrow it ...]\n{}", "ä".repeat(20), "ö".repeat(10))
        );
        assert_eq!(cap("short", 5, ""), "short");
        assert_eq!(cap("äöü", 3, ""), "äöü");
    }

    #[test]
    fn a_title_is_one_line() {
        let check = |text: &str, expected: &str| assert_eq!(one_line(text, 8), expected);
        check("a\n  b\tc", "a b c");
        check("0123456789", "0123456…");
        check("\u{1b}[1mx", "[1mx");
    }
}
