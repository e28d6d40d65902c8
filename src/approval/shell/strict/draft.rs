//! A command between its text and its words.

use super::Opaque;
use crate::approval::shell::word::{Command, Redirect, RedirectKind, Word, WordKind};

/// Words one word may become through braces.
const MAX_BRACES: usize = 32;

/// A piece of a word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Quoted(String),
    Bare(String),
    Variable {
        name: String,
        is_quoted: bool,
    },
    /// The output of commands that were read on their own.
    Output {
        is_quoted: bool,
    },
}

/// A command as read, nothing filled in.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) words: Vec<Vec<Part>>,
    pub(super) outline: Vec<Option<String>>,
    pub(super) assignments: Vec<(String, Vec<Part>)>,
    pub(super) redirects: Vec<(RedirectKind, Vec<Part>)>,
    pub(super) is_test: bool,
}

impl Draft {
    pub(super) fn is_untouched(&self) -> bool {
        self.words.is_empty() && self.assignments.is_empty() && self.redirects.is_empty()
    }

    pub(super) fn command(&self, binding: &[(&str, &Word)]) -> Command {
        let is_bare =
            |part: &Part| matches!(part, Part::Variable { is_quoted: false, .. } | Part::Output { is_quoted: false });
        let splits = |parts: &Vec<Part>| parts.iter().any(is_bare) && settle(parts, binding).kind == WordKind::Unknown;
        Command {
            may_split: self.words.iter().any(splits),
            words: self.words.iter().map(|parts| settle(parts, binding)).collect(),
            assignments: self.assignments.iter().map(|(name, value)| (name.clone(), settle(value, binding))).collect(),
            redirects: self
                .redirects
                .iter()
                .map(|(kind, target)| Redirect { kind: *kind, target: settle(target, binding) })
                .collect(),
            ..Command::default()
        }
    }
}

/// The word that parts make, with these loop variables filled in.
pub(super) fn settle(parts: &[Part], binding: &[(&str, &Word)]) -> Word {
    let mut word = Word::literal(String::new());
    let worst = |a: WordKind, b: WordKind| match (a, b) {
        (WordKind::Unknown, _) | (_, WordKind::Unknown) => WordKind::Unknown,
        (WordKind::Glob, _) | (_, WordKind::Glob) => WordKind::Glob,
        _ => WordKind::Literal,
    };
    let is_glob = is_glob(parts);
    for (position, part) in parts.iter().enumerate() {
        match part {
            Part::Quoted(text) if is_glob && text.contains(['*', '?', '[', '\\']) => {
                word.text.push_str(text);
                word.kind = WordKind::Unknown;
            }
            Part::Quoted(text) => word.text.push_str(text),
            Part::Bare(text) => {
                word.text.push_str(text);
                if is_glob {
                    word.kind = worst(word.kind, WordKind::Glob);
                }
                if position == 0 && text.starts_with('~') && !is_home(text, parts.len()) {
                    word.kind = WordKind::Unknown;
                }
                // The shell also expands `NAME=~/...` in arguments.
                if text.contains("=~") || text.contains(":~") {
                    word.kind = WordKind::Unknown;
                }
            }
            Part::Output { .. } => word.kind = WordKind::Unknown,
            Part::Variable { name, .. } if name == "?" => word.text.push('0'),
            Part::Variable { name, is_quoted } => match binding.iter().find(|(bound, _)| bound == name) {
                Some((_, value)) if *is_quoted || is_one_word(value) => {
                    word.text.push_str(&value.text);
                    word.kind = worst(word.kind, value.kind);
                }
                _ if name == "HOME" && position == 0 => word.text.push('~'),
                _ => word.kind = WordKind::Unknown,
            },
        }
    }
    word
}

/// True when the shell would look for files that match. A bracket counts only when it is closed.
fn is_glob(parts: &[Part]) -> bool {
    let bare: String = parts.iter().map(|part| if let Part::Bare(text) = part { text.as_str() } else { "" }).collect();
    bare.contains(['*', '?']) || bare.find('[').is_some_and(|open| bare.rfind(']').is_some_and(|close| close > open))
}

/// `~` alone or before a slash, the only tilde whose meaning is known here.
fn is_home(text: &str, n_parts: usize) -> bool {
    text.starts_with("~/") || (text == "~" && n_parts == 1)
}

/// True for a value that stays one word without quotes.
fn is_one_word(value: &Word) -> bool {
    value.kind == WordKind::Literal
        && !value.text.is_empty()
        && !value.text.contains([' ', '\t', '\n', '*', '?', '[', '\\'])
}

/// The word's text when it depends on no expansion.
pub(super) fn outline_text(parts: &[Part]) -> Option<String> {
    parts
        .iter()
        .map(|part| match part {
            Part::Quoted(text) | Part::Bare(text) => Some(text.as_str()),
            Part::Variable { .. } | Part::Output { .. } => None,
        })
        .collect()
}

pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A variable that no program and no shell gives a meaning to: lower case, and none of the proxies.
pub(in crate::approval) fn is_free_name(name: &str) -> bool {
    is_name(name)
        && !name.chars().any(|c| c.is_ascii_uppercase())
        && !name.starts_with('_')
        && !name.ends_with("_proxy")
}

pub(super) fn assignment(parts: &[Part]) -> Option<(String, Vec<Part>)> {
    let Some(Part::Bare(first)) = parts.first() else { return None };
    let (name, value) = first.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let head = (!value.is_empty()).then(|| Part::Bare(value.to_owned()));
    Some((name.to_owned(), head.into_iter().chain(parts.iter().skip(1).cloned()).collect()))
}

/// Expands `a{b,c}` once; anything richer is refused.
pub(super) fn braces(parts: Vec<Part>) -> Result<Vec<Vec<Part>>, Opaque> {
    let bare: String =
        parts.iter().filter_map(|part| if let Part::Bare(text) = part { Some(text.as_str()) } else { None }).collect();
    let n_open = bare.matches('{').count();
    if n_open == 0 || !(bare.contains(',') || bare.contains("..")) {
        return Ok(vec![parts]);
    }
    let [Part::Bare(text)] = parts.as_slice() else { return Err("it expands braces") };
    let (Some(open), Some(close)) = (text.find('{'), text.find('}')) else { return Err("it expands braces") };
    if n_open != 1 || text.matches('}').count() != 1 || open > close || text.contains("..") {
        return Err("it expands braces");
    }
    let (before, rest) = text.split_at(open);
    let (inner, after) = rest.split_at(close - open);
    let inner = inner.trim_start_matches('{');
    let after = after.trim_start_matches('}');
    let choices: Vec<&str> = inner.split(',').collect();
    if choices.len() < 2 || choices.len() > MAX_BRACES {
        return Err("it expands braces");
    }
    let expanded = choices.iter().map(|choice| format!("{before}{choice}{after}"));
    Ok(expanded.filter(|word| !word.is_empty()).map(|word| vec![Part::Bare(word)]).collect())
}
