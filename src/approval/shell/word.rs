//! Words and commands as far as they are known before they run.

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::approval) struct Word {
    /// Its text after quotes are taken off; for an unknown word the parts that are known.
    pub(in crate::approval) text: String,
    /// How much of it is known.
    pub(in crate::approval) kind: WordKind,
}

/// How much of a word is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::approval) enum WordKind {
    /// Exactly this text.
    Literal,
    /// A pattern of file names, or the text itself when no file matches.
    Glob,
    /// Depends on something that is only known when it runs.
    Unknown,
}

impl Word {
    pub(in crate::approval) fn literal(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: WordKind::Literal }
    }

    pub(in crate::approval) fn unknown(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: WordKind::Unknown }
    }

    /// The text, when it is exactly that.
    pub(in crate::approval) fn as_literal(&self) -> Option<&str> {
        (self.kind == WordKind::Literal).then_some(self.text.as_str())
    }
}

/// One simple command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::approval) struct Command {
    /// Program and arguments.
    pub(in crate::approval) words: Vec<Word>,
    /// Variables set for it, or for the shell when there are no words.
    pub(in crate::approval) assignments: Vec<(String, Word)>,
    /// Where its input comes from and its output goes.
    pub(in crate::approval) redirects: Vec<Redirect>,
    /// Wrappers that were taken off, outermost first.
    pub(in crate::approval) wrappers: Vec<String>,
    /// How it follows the command before it. Only the strict reading knows.
    pub(in crate::approval) joined: Joined,
    /// The words of the commands before it in its pipeline. Only the strict reading knows.
    pub(in crate::approval) fed_by: Vec<Vec<String>>,
    /// True when an unknown word of it is not quoted, so that it may become several. Only the strict reading knows.
    pub(in crate::approval) may_split: bool,
}

/// How a command follows the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::approval) enum Joined {
    /// In some other way: it may run whatever the one before did.
    #[default]
    Freely,
    /// It only runs when the one before succeeded.
    And,
    /// It reads what the one before writes.
    Pipe,
}

impl Command {
    /// The texts of all words, known or not.
    pub(in crate::approval) fn texts(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.text.as_str()).collect()
    }

    /// The texts of all words when every one is exactly known.
    pub(in crate::approval) fn literals(&self) -> Option<Vec<&str>> {
        self.words.iter().map(Word::as_literal).collect()
    }

    /// Everything after the program.
    pub(in crate::approval) fn arguments(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// A redirection of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::approval) struct Redirect {
    /// What it does.
    pub(in crate::approval) kind: RedirectKind,
    /// The file; empty for [`RedirectKind::Plain`].
    pub(in crate::approval) target: Word,
}

/// What a redirection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::approval) enum RedirectKind {
    /// Reads a file.
    Read,
    /// Creates or changes a file.
    Write,
    /// Joins, closes or feeds descriptors, touching no file.
    Plain,
}

/// Whether a text is plain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::approval) enum Plainness {
    /// These commands run and no others, in some order, each any number of times.
    Plain(Vec<Command>),
    /// It cannot be told; says why.
    Opaque(&'static str),
}

impl Default for Plainness {
    fn default() -> Self {
        Self::Opaque("it was not read")
    }
}
