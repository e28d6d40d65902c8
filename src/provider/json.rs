//! JSON as servers really send it: with halves of surrogate pairs.
//!
//! A server that cuts its text between the two UTF-16 units of one character sends `"\ud83d"` in one event
//! and `"\ude00"` in the next. Neither is valid JSON to a strict parser. [`JsonReader`] first parses strictly;
//! only on failure it marks lone halves by private characters and parses again. [`HalfJoiner`] then joins the
//! marks over consecutive pieces of one text, and replaces what stays alone.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;

/// Lone unit `0xD800 + n` is marked by this character plus `n`. The range is private and unassigned; a model
/// that writes one of its characters on purpose gets it replaced.
const MARK_BASE: u32 = 0x0010_F000;
const FIRST_UNIT: u16 = 0xD800;
const FIRST_LOW: u16 = 0xDC00;
const LAST_UNIT: u16 = 0xDFFF;
/// The first UTF-8 byte of every mark.
const MARK_LEAD: u8 = 0xF4;

/// Parses events; keeps the buffer it needs for odd ones.
#[derive(Debug, Default)]
pub struct JsonReader {
    scratch: String,
}

impl JsonReader {
    /// Parses `text`, with lone surrogate halves marked for a [`HalfJoiner`] where there are any.
    ///
    /// # Errors
    /// What the strict parser said, when marking did not help.
    pub fn parse<'a, T: Deserialize<'a>>(&'a mut self, text: &'a str) -> Result<T, serde_json::Error> {
        let error = match serde_json::from_str(text) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        self.scratch.clear();
        if mark_halves(text, &mut self.scratch) { serde_json::from_str(&self.scratch) } else { Err(error) }
    }
}

/// Copies `text` with lone halves marked; false when there are none.
fn mark_halves(text: &str, marked: &mut String) -> bool {
    let mut found = false;
    let mut rest = text;
    while let Some(at) = memchr(b'\\', rest.as_bytes()) {
        let (before, escape) = rest.split_at(at);
        marked.push_str(before);
        let width = match unit_escape(escape) {
            Some(unit) if !(FIRST_UNIT..=LAST_UNIT).contains(&unit) => 6,
            Some(unit) if unit < FIRST_LOW && follows_low(escape) => 12,
            Some(unit) => {
                found = true;
                marked.extend(mark(unit));
                rest = escape.get(6..).unwrap_or_default();
                continue;
            }
            None => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        marked.push_str(escape.get(..width).unwrap_or(escape));
        rest = escape.get(width..).unwrap_or_default();
    }
    marked.push_str(rest);
    found
}

/// The unit of a `\uXXXX` at the start of `text`.
fn unit_escape(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) { u16::from_str_radix(digits, 16).ok() } else { None }
}

fn follows_low(escape: &str) -> bool {
    escape.get(6..).and_then(unit_escape).is_some_and(|unit| (FIRST_LOW..=LAST_UNIT).contains(&unit))
}

fn mark(unit: u16) -> Option<char> {
    char::from_u32(MARK_BASE + u32::from(unit - FIRST_UNIT))
}

fn marked_unit(mark: char) -> Option<u16> {
    let offset = u16::try_from(u32::from(mark).checked_sub(MARK_BASE)?).ok()?;
    if offset <= LAST_UNIT - FIRST_UNIT { Some(FIRST_UNIT + offset) } else { None }
}

/// Joins marked halves over consecutive pieces of one text.
#[derive(Debug, Default)]
pub struct HalfJoiner {
    /// A leading half at the very end of the pieces so far.
    pending: Option<u16>,
}

impl HalfJoiner {
    /// The next piece without marks. A leading half at its end is kept back for the piece after it.
    pub fn join<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        let has_marks = memchr(MARK_LEAD, piece.as_bytes()).is_some();
        if piece.is_empty() || (self.pending.is_none() && !has_marks) {
            return Cow::Borrowed(piece);
        }
        let mut joined = String::with_capacity(piece.len() + 4);
        for character in piece.chars() {
            let unit = marked_unit(character);
            if let Some(high) = self.pending.take() {
                let low = unit.filter(|unit| *unit >= FIRST_LOW);
                let pair = low.and_then(|low| char::decode_utf16([high, low]).next()?.ok());
                joined.push(pair.unwrap_or(char::REPLACEMENT_CHARACTER));
                if pair.is_some() {
                    continue;
                }
            }
            match unit {
                None => joined.push(character),
                Some(high) if high < FIRST_LOW => self.pending = Some(high),
                Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
            }
        }
        Cow::Owned(joined)
    }

    /// What stands for a half that was kept back, when no piece follows any more.
    pub fn finish(&mut self) -> &'static str {
        if self.pending.take().is_some() { "\u{fffd}" } else { "" }
    }
}

/// A complete text without marks.
#[must_use]
pub fn without_halves(text: &str) -> Cow<'_, str> {
    let mut joiner = HalfJoiner::default();
    let mut whole = joiner.join(text);
    let tail = joiner.finish();
    if !tail.is_empty() {
        whole.to_mut().push_str(tail);
    }
    whole
}

/// A JSON text whose lone halves are replaced, for readers that know no marks.
#[must_use]
pub fn without_lone_escapes(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return json.into();
    }
    let mut marked = String::new();
    if mark_halves(json, &mut marked) { without_halves(&marked).into_owned().into() } else { json.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], expect: &str) {
        let mut reader = JsonReader::default();
        let mut joiner = HalfJoiner::default();
        let mut whole = String::new();
        for piece in pieces {
            let text: String = reader.parse(piece).unwrap();
            whole.push_str(&joiner.join(&text));
        }
        whole.push_str(joiner.finish());
        assert_eq!(whole, expect, "{pieces:?}");
    }

    #[test]
    fn halves_are_joined_or_replaced_and_nothing_else_changes() {
        check(&[r#""a\ud83d\ude00b""#], "a\u{1f600}b");
        check(&[r#""a\ud83d""#, r#""\ude00b""#], "a\u{1f600}b");
        check(&[r#""a\ud83d""#, r#""""#, r#""\uDE00b""#], "a\u{1f600}b");
        check(&[r#""a\ud83d""#, r#""b""#], "a\u{fffd}b");
        check(&[r#""\ude00\ud83dx\ud83d""#], "\u{fffd}\u{fffd}x\u{fffd}");
        check(&[r#""\ud83d\ud83d""#, r#""\ude00""#], "\u{fffd}\u{1f600}");
        check(&[r#""\\ud83d \n \" \u00e9 \ude00""#], "\\ud83d \n \" \u{e9} \u{fffd}");
    }

    #[test]
    fn broken_json_stays_an_error() {
        let mut reader = JsonReader::default();
        for text in ["", "{", r#""\ud8""#, r#""\ud83d"#, r#""\"#, "\"\\\u{e9}\""] {
            assert!(reader.parse::<String>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_complete_text_loses_its_marks() {
        let text: String = JsonReader::default().parse(r#""x\ud83d""#).unwrap();
        assert_eq!(without_halves(&text), "x\u{fffd}");
        assert!(matches!(without_halves("plain"), Cow::Borrowed("plain")));
    }
}
