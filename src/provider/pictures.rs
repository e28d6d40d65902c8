//! Texts that stand for pictures where a server takes none.

use std::borrow::Cow;

use crate::message::{Part, plain_text};

/// Stands for a picture that is not sent.
pub(super) fn left_out(mime_type: &str) -> String {
    format!("[a picture ({mime_type}) was left out]")
}

/// A result's text, with a note for its pictures, which follow in a user message.
pub(super) fn text_with_note(parts: &[Part]) -> String {
    let mut text = plain_text(parts);
    text.push_str(if text.is_empty() { "" } else { "\n" });
    text.push_str("[the picture is in the next user message]");
    text
}

/// Parts without pictures as one text.
pub(super) fn text_of(parts: &[Part]) -> Cow<'_, str> {
    match parts {
        [Part::Text { text }] => Cow::Borrowed(text),
        _ => Cow::Owned(plain_text(parts)),
    }
}
