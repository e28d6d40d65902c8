//! Reasoning that a server left in the visible text, between tags at its start, taken out while it streams.
//!
//! Only a block at the very start counts (several may follow each other): a model that writes about such tags
//! in the middle of its answer means them as text.

const TAGS: [(&str, &str); 7] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    // Magistral, Kimi and Seed.
    ("[THINK]", "[/THINK]"),
    ("\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"),
    ("<seed:think>", "</seed:think>"),
];

/// What a piece turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Visible text.
    Text,
    /// Reasoning.
    Thought,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but blanks (and blocks) so far.
    Start,
    /// In a block that this tag closes.
    Inside(&'static str),
    /// In the answer.
    Text,
}

/// Splits a streamed text into reasoning and answer.
#[derive(Debug)]
pub(super) struct ThinkSplitter {
    state: State,
    /// What may yet become a tag.
    held: String,
    had_block: bool,
}

impl Default for ThinkSplitter {
    fn default() -> Self {
        Self { state: State::Start, held: String::new(), had_block: false }
    }
}

impl ThinkSplitter {
    /// Takes the next piece and hands on what is certain.
    pub(super) fn push(&mut self, piece: &str, emit: &mut dyn FnMut(Kind, &str)) {
        if self.state == State::Text {
            return emit(Kind::Text, piece);
        }
        self.held.push_str(piece);
        loop {
            match self.state {
                State::Start => {
                    let text = self.held.trim_start();
                    if let Some((open, close)) = TAGS.into_iter().find(|(open, _)| text.starts_with(open)) {
                        self.held = text.get(open.len()..).unwrap_or_default().to_owned();
                        self.state = State::Inside(close);
                        continue;
                    }
                    if TAGS.into_iter().any(|(open, _)| open.starts_with(text)) {
                        return;
                    }
                    self.state = State::Text;
                    emit(Kind::Text, if self.had_block { text } else { &self.held });
                    self.held.clear();
                    return;
                }
                State::Inside(close) => {
                    if let Some((thought, rest)) = self.held.split_once(close) {
                        emit(Kind::Thought, thought);
                        self.held = rest.to_owned();
                        self.state = State::Start;
                        self.had_block = true;
                        continue;
                    }
                    let certain = self.held.len() - overlap(&self.held, close);
                    emit(Kind::Thought, self.held.get(..certain).unwrap_or_default());
                    self.held.drain(..certain);
                    return;
                }
                State::Text => return,
            }
        }
    }

    /// Hands on what was held back. A block that was never closed is reasoning.
    pub(super) fn finish(&mut self, emit: &mut dyn FnMut(Kind, &str)) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Inside(_) => emit(Kind::Thought, &held),
            State::Start | State::Text if held.trim().is_empty() => {}
            State::Start | State::Text => emit(Kind::Text, &held),
        }
    }
}

/// The length of the longest end of `text` that begins `tag`.
fn overlap(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|length| tag.get(..*length).is_some_and(|start| text.ends_with(start))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&str]) -> (String, String) {
        let mut splitter = ThinkSplitter::default();
        let (mut text, mut thought) = (String::new(), String::new());
        let mut emit = |kind, piece: &str| match kind {
            Kind::Text => text.push_str(piece),
            Kind::Thought => thought.push_str(piece),
        };
        for piece in pieces {
            splitter.push(piece, &mut emit);
        }
        splitter.finish(&mut emit);
        (text, thought)
    }

    fn check(whole: &str, text: &str, thought: &str) {
        let expect = (text.to_owned(), thought.to_owned());
        assert_eq!(split(&[whole]), expect, "whole: {whole:?}");
        let characters: Vec<_> = whole.split_inclusive(|_: char| true).collect();
        assert_eq!(split(&characters), expect, "character by character: {whole:?}");
    }

    #[test]
    fn blocks_at_the_start_become_reasoning() {
        check("<think>a b</think>\n\nanswer", "answer", "a b");
        check("\n<thinking>a</thinking>x", "x", "a");
        check("<think>a</think>\n<think>b</think> x", "x", "ab");
        check("<think>1 < 2 </thin </think>x", "x", "1 < 2 </thin ");
        check("<think></think>x", "x", "");
        check("[THINK]a[/THINK]x", "x", "a");
        check("\u{25c1}think\u{25b7}a\u{25c1}/think\u{25b7}x", "x", "a");
        check("[1] is a note", "[1] is a note", "");
    }

    #[test]
    fn a_block_that_is_never_closed_is_reasoning() {
        check("<think>abc", "", "abc");
        check("<think>abc</thi", "", "abc</thi");
    }

    #[test]
    fn tags_elsewhere_and_near_tags_are_text() {
        check("the tag <think> is text</think>", "the tag <think> is text</think>", "");
        check("<thin", "<thin", "");
        check("<table>", "<table>", "");
        check("  two blanks", "  two blanks", "");
        check("   ", "", "");
        check("caf\u{e9}", "caf\u{e9}", "");
    }
}
