//! The strict reading: a small part of the shell language, read exactly or not at all.
//!
//! Accepted: simple commands joined by `;`, newlines, `&&`, `||` and `|`, in groups, subshells,
//! `if`, `while`, `until` and `for`; words of plain characters, quotes, `$NAME`, globs, simple braces
//! and `$(...)`; redirections and here-documents. Everything else (functions, `case`, `&`, backquotes,
//! `${...}` beyond a bare name, arithmetic, arrays, ANSI-C quotes, process substitution for output)
//! makes the whole text opaque.

mod draft;
mod quote;
mod redirect;

pub(in crate::approval) use draft::is_free_name;
use draft::{Draft, Part, assignment, braces, outline_text, settle};
use redirect::HereDocument;

use super::word::{Command, Joined, Word, WordKind};
use super::{MAX_COMMANDS, MAX_DEPTH};

/// Commands one command may become through a loop's values.
const MAX_VALUES: usize = 32;

/// What the strict reading found.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// All commands, loop variables filled in.
    pub(super) commands: Vec<Command>,
    /// The words of each command before anything is filled in, in text order of their programs:
    /// `None` where a word depends on an expansion.
    pub(super) outline: Vec<Vec<Option<String>>>,
}

/// Why a text is opaque.
pub(super) type Opaque = &'static str;

/// Reads a whole text.
pub(super) fn read(text: &str) -> Result<Reading, Opaque> {
    if let Some(c) = text.chars().find(|&c| (c.is_control() && !matches!(c, '\n' | '\t')) || is_odd_space(c)) {
        return Err(if c == '\0' { "it holds a NUL" } else { "it holds control characters" });
    }
    let mut reader = Reader { rest: text, ..Reader::default() };
    reader.list(Until::End)?;
    if reader.loop_names.iter().any(|name| reader.set_names.contains(name)) {
        return Err("a loop variable is set again");
    }
    Ok(reader.reading)
}

/// Spaces that only some readers take for spaces.
fn is_odd_space(c: char) -> bool {
    !c.is_ascii() && c.is_whitespace()
}

#[derive(Clone, Copy, PartialEq)]
enum Until {
    End,
    Paren,
}

#[derive(Default)]
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    reading: Reading,
    /// Open loops, innermost last: the variable with its values for `for`.
    loops: Vec<Option<(String, Vec<Word>)>>,
    loop_names: Vec<String>,
    set_names: Vec<String>,
    /// How the next command follows the last one.
    joined: Joined,
    is_after_group: bool,
    is_negated: bool,
    /// The words of the commands before the next one in its pipeline.
    pipeline: Vec<Vec<String>>,
    /// Delimiters of here-documents whose bodies follow the next newline.
    here_documents: Vec<HereDocument>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips blanks, line continuations and a comment.
    fn blanks(&mut self) {
        loop {
            if self.eat(" ") || self.eat("\t") || self.eat("\\\n") {
                continue;
            }
            if self.peek() == Some('#') {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = self.rest.get(end..).unwrap_or_default();
            }
            return;
        }
    }

    /// Commands up to the end or a closing parenthesis, which is consumed.
    fn list(&mut self, until: Until) -> Result<(), Opaque> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it is nested too deeply");
        }
        loop {
            self.blanks();
            match self.peek() {
                None if until == Until::End => break,
                None => return Err("a parenthesis is never closed"),
                Some(')') if until == Until::Paren => {
                    self.bump();
                    break;
                }
                Some('\n') => self.newline()?,
                Some(';' | '|' | '&') => self.separator()?,
                Some('(') => self.subshell()?,
                Some(')') => return Err("a parenthesis was never opened"),
                Some(_) => self.command()?,
            }
        }
        if !self.here_documents.is_empty() {
            return Err("a here-document has no end");
        }
        self.depth -= 1;
        Ok(())
    }

    fn separator(&mut self) -> Result<(), Opaque> {
        if self.eat("&&") {
            self.joins(Joined::And);
            return Ok(());
        }
        if self.eat("||") {
            self.joins(Joined::Freely);
            return Ok(());
        }
        if self.eat("|&") || self.eat("|") {
            if self.is_after_group {
                self.pipeline = vec![vec!["(".to_owned()]];
            }
            self.joined = Joined::Pipe;
            return Ok(());
        }
        if self.rest.starts_with(";;") || self.rest.starts_with(";&") {
            return Err("it has a case statement");
        }
        if self.eat(";") {
            self.joins(Joined::Freely);
            return Ok(());
        }
        Err("it runs something in the background")
    }

    /// Begins the next command of a list. What follows a group or a negation follows freely.
    fn joins(&mut self, joined: Joined) {
        self.joined = if self.is_after_group || self.is_negated { Joined::Freely } else { joined };
        self.is_after_group = false;
        self.is_negated = false;
        self.pipeline.clear();
    }

    fn subshell(&mut self) -> Result<(), Opaque> {
        if self.rest.starts_with("((") {
            return Err("it computes");
        }
        self.bump();
        self.joins(Joined::Freely);
        self.list(Until::Paren)?;
        self.is_after_group = true;
        self.blanks();
        match self.peek() {
            None | Some('\n' | ';' | '|' | '&' | ')') => Ok(()),
            Some(_) if self.starts_redirect() => self.group_redirects(),
            Some(_) => Err("words follow a group"),
        }
    }

    /// Redirections behind `)`, `}`, `done` or `fi` count as those of a command of their own.
    fn group_redirects(&mut self) -> Result<(), Opaque> {
        let mut command = Draft::default();
        loop {
            self.blanks();
            if !self.redirect(&mut command)? {
                break;
            }
        }
        self.finish(command)?;
        self.is_after_group = true;
        Ok(())
    }

    fn newline(&mut self) -> Result<(), Opaque> {
        self.bump();
        self.joins(Joined::Freely);
        for document in std::mem::take(&mut self.here_documents) {
            self.here_document_body(&document)?;
        }
        Ok(())
    }

    /// One simple command, or a reserved word.
    fn command(&mut self) -> Result<(), Opaque> {
        let mut draft = Draft::default();
        loop {
            self.blanks();
            match self.peek() {
                None | Some('\n' | ';' | '|' | ')') => break,
                Some('&') if !self.rest.starts_with("&>") => break,
                Some('(') => return Err("it defines a function or an array"),
                Some(_) if self.starts_process_input() => {
                    self.rest = self.rest.get(2..).unwrap_or_default();
                    self.list_within()?;
                    if !matches!(self.peek(), None | Some(' ' | '\t' | '\n' | ';' | '|' | '&' | ')')) {
                        return Err("a word is glued to a substitution");
                    }
                    draft.words.push(vec![Part::Quoted("/dev/fd/63".to_owned())]);
                    draft.outline.push(None);
                }
                Some(_) if self.redirect(&mut draft)? => {}
                Some(_) => {
                    let parts = self.word()?;
                    if draft.is_untouched() && self.reserved(&parts)? {
                        return Ok(());
                    }
                    self.place(&mut draft, parts)?;
                }
            }
        }
        self.finish(draft)
    }

    fn list_within(&mut self) -> Result<(), Opaque> {
        if !self.here_documents.is_empty() {
            return Err("a here-document ends in another list");
        }
        let outer = (self.joined, std::mem::take(&mut self.pipeline), self.is_after_group, self.is_negated);
        self.joins(Joined::Freely);
        self.list(Until::Paren)?;
        (self.joined, self.pipeline, self.is_after_group, self.is_negated) = outer;
        Ok(())
    }

    fn starts_process_input(&self) -> bool {
        self.rest.starts_with("<(")
    }

    fn place(&mut self, draft: &mut Draft, parts: Vec<Part>) -> Result<(), Opaque> {
        if draft.words.is_empty()
            && let Some((name, value)) = assignment(&parts)
        {
            draft.assignments.push((name, value));
            return Ok(());
        }
        draft.outline.push(outline_text(&parts));
        draft.words.extend(braces(parts)?);
        Ok(())
    }

    /// Handles a reserved word in command position. True when the word was one.
    fn reserved(&mut self, parts: &[Part]) -> Result<bool, Opaque> {
        let [Part::Bare(word)] = parts else { return Ok(false) };
        match word.as_str() {
            "!" => {
                self.is_negated = true;
                Ok(true)
            }
            "then" | "else" | "elif" | "if" | "do" | "{" => {
                self.is_after_group = true;
                self.joins(Joined::Freely);
                Ok(true)
            }
            "while" | "until" => {
                self.loops.push(None);
                self.is_after_group = true;
                self.joins(Joined::Freely);
                Ok(true)
            }
            "for" => self.for_head().map(|()| true),
            "done" => {
                self.loops.pop().ok_or("a loop ends that never began")?;
                self.after_group().map(|()| true)
            }
            "fi" | "}" => self.after_group().map(|()| true),
            "case" | "esac" | "select" | "function" | "coproc" | "in" => Err("it uses a shell construct"),
            "[[" => self.double_bracket().map(|()| true),
            _ => Ok(false),
        }
    }

    fn after_group(&mut self) -> Result<(), Opaque> {
        self.is_after_group = true;
        self.blanks();
        if self.starts_redirect() { self.group_redirects() } else { Ok(()) }
    }

    fn for_head(&mut self) -> Result<(), Opaque> {
        self.blanks();
        let name = match self.word()?.as_slice() {
            [Part::Bare(name)] if is_free_name(name) => name.clone(),
            _ => return Err("a loop sets a variable that matters elsewhere"),
        };
        self.blanks();
        if !matches!(self.word()?.as_slice(), [Part::Bare(word)] if word == "in") {
            return Err("a loop has no list");
        }
        let mut values = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some('\n' | ';') => break,
                Some(_) => {
                    for parts in braces(self.word()?)? {
                        values.push(settle(&parts, &[]));
                    }
                }
                None => return Err("a loop has no body"),
            }
        }
        self.loop_names.push(name.clone());
        self.loops.push(Some((name, values)));
        Ok(())
    }

    /// `[[ ... ]]`, as one command named `[[`.
    fn double_bracket(&mut self) -> Result<(), Opaque> {
        let mut draft = Draft::default();
        draft.words.push(vec![Part::Quoted("[[".to_owned())]);
        draft.is_test = true;
        loop {
            self.blanks();
            match self.peek() {
                None | Some('\n' | ';' | '|' | '&' | '(' | ')' | '<' | '>') => return Err("a test is not plain"),
                Some(_) => {}
            }
            let parts = self.word()?;
            if matches!(parts.as_slice(), [Part::Bare(word)] if word == "]]") {
                return self.finish(draft);
            }
            draft.words.push(parts);
        }
    }

    fn finish(&mut self, draft: Draft) -> Result<(), Opaque> {
        if self.reading.outline.len() >= MAX_COMMANDS || self.reading.commands.len() >= MAX_COMMANDS {
            return Err("it runs too many commands");
        }
        if draft.is_untouched() {
            return Ok(());
        }
        if draft.words.is_empty() {
            for (name, _) in &draft.assignments {
                if !is_free_name(name) {
                    return Err("it sets a variable that matters elsewhere");
                }
                self.set_names.push(name.clone());
            }
        }
        let is_named = draft.words.first().is_none_or(|parts| {
            let depends = parts.iter().any(|part| matches!(part, Part::Variable { .. } | Part::Output { .. }));
            !depends && settle(parts, &[]).kind == WordKind::Literal
        });
        if !is_named {
            return Err("the program is not named plainly");
        }
        let is_test = draft.is_test || draft.outline.first() == Some(&Some("[".to_owned()));
        if !is_test && !draft.words.is_empty() {
            self.reading.outline.push(draft.outline.clone());
        }
        self.note_read_names(&draft);
        let words: Vec<String> = draft.words.iter().map(|parts| settle(parts, &[]).text).collect();
        if !self.loops.is_empty()
            && words.first().is_some_and(|program| matches!(program.as_str(), "cd" | "pushd" | "popd"))
        {
            return Err("it changes folders in a loop");
        }
        for command in self.fill_in(&draft) {
            self.reading.commands.push(Command { joined: self.joined, fed_by: self.pipeline.clone(), ..command });
        }
        self.is_after_group = false;
        self.pipeline.push(words);
        Ok(())
    }

    /// `read NAME` sets variables, too.
    fn note_read_names(&mut self, draft: &Draft) {
        let words: Vec<String> = draft.words.iter().map(|parts| settle(parts, &[]).text).collect();
        if words.first().is_some_and(|program| program == "read") {
            self.set_names.extend(words.into_iter().skip(1));
        }
    }

    /// The command once per value of the loop variables it uses.
    fn fill_in(&self, draft: &Draft) -> Vec<Command> {
        let all_parts = || {
            let words = draft.words.iter().chain(draft.redirects.iter().map(|(_, target)| target));
            words.chain(draft.assignments.iter().map(|(_, value)| value)).flatten()
        };
        let mut bindings: Vec<Vec<(&str, &Word)>> = vec![Vec::new()];
        let mut seen: Vec<&str> = Vec::new();
        for (name, values) in self.loops.iter().rev().flatten() {
            let is_used = all_parts().any(|part| matches!(part, Part::Variable { name: n, .. } if n == name));
            if !is_used || seen.contains(&name.as_str()) || bindings.len() * values.len() > MAX_VALUES {
                continue;
            }
            seen.push(name);
            bindings = bindings
                .iter()
                .flat_map(|binding| {
                    values.iter().map(move |value| binding.iter().copied().chain([(name.as_str(), value)]).collect())
                })
                .collect();
        }
        bindings.iter().map(|binding| draft.command(binding)).collect()
    }
}
