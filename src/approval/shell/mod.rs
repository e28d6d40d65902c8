//! Two readings of a shell command.
//!
//! [`strict`] reads the small part of the language whose meaning is beyond doubt and gives up on
//! everything else; only it may prove that a command is plain. [`tree`] walks the tree of a full,
//! error-tolerant parser and collects every command it can find, however hidden; it only looks for
//! harm. A command counts as plain when the strict reading accepts it and the tree agrees with it
//! word for word.

mod decode;
mod runner;
mod strict;
mod tree;
mod unwrap;
mod word;

pub(super) use strict::is_free_name;
pub(super) use unwrap::{SHELLS, interpreter, is_wrapper, plain_inner, program_name, wrapped_program};
pub(super) use word::{Command, Joined, Plainness, RedirectKind, Word, WordKind};

/// Bytes of a command that are analysed; a longer one is opaque.
pub(super) const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// Commands within one text that are looked at one by one; more make it opaque.
const MAX_COMMANDS: usize = 512;

/// Operators in a text that is parsed; one with more is as opaque as one that is too long.
const MAX_OPERATORS: usize = 4096;

/// Words of all commands together that are looked at; more make it opaque.
const MAX_WORDS: usize = 4096;

/// Levels of nesting (substitutions, groups, shells within shells) that are followed.
const MAX_DEPTH: usize = 32;

/// What the two readings of a command found.
#[derive(Clone, Debug, Default)]
pub(super) struct Analysis {
    /// The commands that run, all of them, when that is certain; else why it is not.
    pub(super) plain: Plainness,
    /// Every command found anywhere, wrappers taken off, to look for harm in.
    pub(super) found: Vec<Command>,
    /// Harm that lies in how commands are put together.
    pub(super) dangers: Vec<&'static str>,
    /// True when the text defines a function that multiplies itself.
    pub(super) is_fork_bomb: bool,
    /// True when a limit was reached, so that something may have gone unseen.
    pub(super) is_cut: bool,
}

/// Reads a command both ways.
pub(super) fn analyse(text: &str) -> Analysis {
    let n_operators = text.bytes().filter(|byte| matches!(byte, b';' | b'|' | b'&' | b'<')).count();
    if text.len() > MAX_COMMAND_BYTES || n_operators > MAX_OPERATORS {
        return tree::too_long(text);
    }
    let outline = tree::outline(text);
    let plain = match strict::read(text) {
        Err(reason) => Plainness::Opaque(reason),
        Ok(reading) if outline.agrees_with(&reading) => Plainness::Plain(reading.commands),
        Ok(_) => Plainness::Opaque("it can be read in more than one way"),
    };
    outline.into_analysis(plain)
}
