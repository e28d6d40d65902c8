//! An answer while it streams: what the decoders share.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::decoder::{emit_reasoning, emit_text};
use super::json::{HalfJoiner, without_halves};
use super::think::{Kind, ThinkSplitter};
use super::{DecodeError, ModelEvent};
use crate::message::ToolCall;

/// The most bytes of text, reasoning, arguments and items one answer may have: above any model's output
/// limit by orders of magnitude.
pub(super) const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A text put together from pieces; halves of surrogate pairs are joined over them.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    text: String,
    joiner: HalfJoiner,
}

impl Pieces {
    /// Appends a piece; returns what it added.
    pub(super) fn push(&mut self, piece: &str) -> &str {
        let start = self.text.len();
        self.text.push_str(&self.joiner.join(piece));
        self.text.get(start..).unwrap_or_default()
    }

    /// Ends the text; returns what stands for a half that stayed alone.
    pub(super) fn end(&mut self) -> &'static str {
        let rest = self.joiner.finish();
        self.text.push_str(rest);
        rest
    }

    /// Puts a whole text in the place of what was put together.
    pub(super) fn replace(&mut self, text: String) {
        *self = Self { text, joiner: HalfJoiner::default() };
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
}

/// The texts of the answer, and what was told about them.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Visible text.
    pub(super) text: String,
    /// Reasoning.
    pub(super) reasoning: String,
    /// What a block inside the visible text said so far, while it only repeats the reasoning.
    echo: Option<String>,
}

impl Written {
    /// Takes a piece of the visible text.
    pub(super) fn take(&mut self, kind: Kind, piece: &str, out: &mut Vec<ModelEvent>) {
        match kind {
            Kind::Text => {
                self.flush_echo(out);
                self.text.push_str(piece);
                emit_text(out, piece);
            }
            Kind::Thought => self.think_in_text(piece, out),
        }
    }

    /// Takes a piece of the reasoning.
    pub(super) fn think(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        self.reasoning.push_str(piece);
        emit_reasoning(out, piece);
    }

    /// Some servers send reasoning in its own field and then once more in a block; the second time is dropped.
    fn think_in_text(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        let is_first = self.echo.is_none();
        if is_first && self.reasoning.is_empty() {
            return self.think(piece, out);
        }
        let mut echo = self.echo.take().unwrap_or_default();
        echo.push_str(piece);
        let repeats = starts_with_words(&self.reasoning, &echo);
        self.echo = Some(echo);
        if !repeats {
            self.flush_echo(out);
        }
    }

    /// Hands on what was held back because it seemed to repeat.
    pub(super) fn flush_echo(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(echo) = self.echo.take()
            && !starts_with_words(&self.reasoning, &echo)
        {
            self.think(&echo, out);
        }
    }
}

impl Written {
    /// Ends the texts.
    ///
    /// A model whose opening tag stood in its prompt writes the closing one alone, on a line of its own. That was told
    /// as text while it streamed, but is no part of the answer.
    pub(super) fn end(&mut self, out: &mut Vec<ModelEvent>) {
        self.flush_echo(out);
        let Some((thought, answer)) = self.text.split_once("</think>") else { return };
        let is_alone = thought.ends_with('\n') && answer.starts_with('\n');
        let is_quoted = thought.contains("<think>") || thought.contains("```");
        if is_alone && !is_quoted && self.reasoning.is_empty() {
            self.reasoning = thought.trim().to_owned();
            self.text = answer.trim_start().to_owned();
        }
    }
}

/// True when `whole` begins with `start`, blanks aside.
fn starts_with_words(whole: &str, start: &str) -> bool {
    let mut whole = whole.chars().filter(|character| !character.is_whitespace());
    start.chars().filter(|character| !character.is_whitespace()).all(|character| whole.next() == Some(character))
}

/// The texts of an answer made of items: reasoning tags taken out, an empty line between items.
#[derive(Debug, Default)]
pub(super) struct Shown {
    splitter: ThinkSplitter,
    written: Written,
    is_text_broken: bool,
    is_reasoning_broken: bool,
    bytes: usize,
}

impl Shown {
    pub(super) fn text(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if piece.is_empty() {
            return;
        }
        let is_broken = std::mem::take(&mut self.is_text_broken) && !self.written.text.is_empty();
        let Self { splitter, written, .. } = self;
        for piece in [if is_broken { "\n\n" } else { "" }, piece] {
            splitter.push(piece, &mut |kind, piece| written.take(kind, piece, out));
        }
    }

    pub(super) fn reasoning(&mut self, piece: &str, out: &mut Vec<ModelEvent>) {
        if piece.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_reasoning_broken) && !self.written.reasoning.is_empty() {
            self.written.think("\n\n", out);
        }
        self.written.think(piece, out);
    }

    /// Text that follows begins a paragraph.
    pub(super) fn break_text(&mut self) {
        self.is_text_broken = true;
    }

    /// Reasoning that follows begins a paragraph.
    pub(super) fn break_reasoning(&mut self) {
        self.is_reasoning_broken = true;
    }

    /// Counts bytes received.
    ///
    /// # Errors
    /// [`DecodeError::TooLarge`].
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER_BYTES {
            return Err(DecodeError::TooLarge { limit_bytes: MAX_ANSWER_BYTES });
        }
        Ok(())
    }

    /// Hands on what was held back, and ends the texts.
    pub(super) fn end(mut self, out: &mut Vec<ModelEvent>) -> Written {
        let Self { splitter, written, .. } = &mut self;
        splitter.finish(&mut |kind, piece| written.take(kind, piece, out));
        written.end(out);
        self.written
    }
}

/// Gives every call an id of its own. A missing one is made up the same way each time, so that a repeated
/// answer is byte-identical.
pub(super) fn settle_ids(calls: &mut [ToolCall]) {
    let mut used = std::collections::HashSet::new();
    for (position, call) in calls.iter_mut().enumerate() {
        if call.id.trim().is_empty() {
            let digest = Sha256::digest(format!("{position}\0{}\0{}", call.name, call.arguments));
            let hex: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            call.id = format!("call_{hex}");
        }
        let first = call.id.clone();
        let mut number = 2;
        while !used.insert(call.id.clone()) {
            call.id = format!("{first}_{number}");
            number += 1;
        }
    }
}

/// A value without marks of halved characters.
pub(super) fn without_marks(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_halves(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(without_marks).collect(),
        Value::Object(fields) => Value::Object(fields_without_marks(fields)),
        other => other,
    }
}

/// As [`without_marks`], for an object's fields.
pub(super) fn fields_without_marks(fields: Map<String, Value>) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (without_halves(&name).into_owned(), without_marks(value))).collect()
}

/// A text field of an object; empty when it is missing or no text.
pub(super) fn text_field<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}
