//! The strict reading: a small part of the shell language, read exactly or not at all.
//!
//! Accepted: simple commands joined by `;`, newlines, `&&`, `||` and `|`, in groups, subshells,
//! `if`, `while`, `until` and `for`; words of plain characters, quotes, `$NAME`, globs, simple braces
//! and `$(...)`; redirections and here-documents. Everything else (functions, `case`, `&`, backquotes,
//! `${...}` beyond a bare name, arithmetic, arrays, ANSI-C quotes, process substitution for output)
//! makes the whole text opaque.

use super::word::{Command, Joined, Redirect, RedirectKind, Word, WordKind};
use super::{MAX_COMMANDS, MAX_DEPTH};

/// Words one word may become through braces.
const MAX_BRACES: usize = 32;

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

struct HereDocument {
    delimiter: String,
    strips_tabs: bool,
    is_quoted: bool,
}

/// A piece of a word.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Quoted(String),
    Bare(String),
    Variable {
        name: String,
        is_quoted: bool,
    },
    /// The output of commands that were read on their own.
    Output,
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

    fn here_document_body(&mut self, document: &HereDocument) -> Result<(), Opaque> {
        loop {
            if self.rest.is_empty() {
                return Err("a here-document has no end");
            }
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            let compared = if document.strips_tabs { line.trim_start_matches('\t') } else { line };
            if compared == document.delimiter {
                return Ok(());
            }
            if !document.is_quoted && line.contains(['$', '`', '\\']) {
                return Err("a here-document holds expansions");
            }
        }
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
            let depends = parts.iter().any(|part| matches!(part, Part::Variable { .. } | Part::Output));
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

    fn starts_redirect(&self) -> bool {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.starts_with(['<', '>']) || self.rest.starts_with("&>")
    }

    /// Reads a redirection if one is next.
    fn redirect(&mut self, draft: &mut Draft) -> Result<bool, Opaque> {
        if !self.starts_redirect() {
            return Ok(false);
        }
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if self.rest.starts_with("<(") || self.rest.starts_with(">(") {
            return Err("it connects files to commands");
        }
        if self.eat("<<<") {
            self.blanks();
            self.word()?;
            draft.redirects.push((RedirectKind::Plain, Vec::new()));
            return Ok(true);
        }
        if self.rest.starts_with("<<") {
            return self.here_document(draft).map(|()| true);
        }
        if self.eat(">&") || self.eat("<&") {
            let digits = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = self.rest.len() - digits.len();
            let after = if number == 0 { self.rest.strip_prefix('-') } else { Some(digits) };
            return match after {
                Some(after)
                    if after.is_empty() || after.starts_with([' ', '\t', '\n', ';', '|', '&', ')', '<', '>']) =>
                {
                    self.rest = after;
                    draft.redirects.push((RedirectKind::Plain, Vec::new()));
                    Ok(true)
                }
                _ => Err("it redirects to something unclear"),
            };
        }
        let kind = if ["&>>", "&>", ">>", ">|", "<>", ">"].into_iter().any(|sign| self.eat(sign)) {
            RedirectKind::Write
        } else {
            self.bump();
            RedirectKind::Read
        };
        self.blanks();
        if self.rest.starts_with(['(', '<', '>', '&', '|', ';', '\n', ')']) || self.rest.is_empty() {
            return Err("a redirection has no target");
        }
        let target = self.word()?;
        draft.redirects.push((kind, target));
        Ok(true)
    }

    fn here_document(&mut self, draft: &mut Draft) -> Result<(), Opaque> {
        self.eat("<<");
        let strips_tabs = self.eat("-");
        self.blanks();
        let parts = self.word()?;
        let (delimiter, is_quoted) = match parts.as_slice() {
            [Part::Bare(text)] => (text.clone(), false),
            [Part::Quoted(text)] => (text.clone(), true),
            _ => return Err("a here-document has an unclear delimiter"),
        };
        if delimiter.is_empty() || !delimiter.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err("a here-document has an unclear delimiter");
        }
        self.here_documents.push(HereDocument { delimiter, strips_tabs, is_quoted });
        draft.redirects.push((RedirectKind::Plain, Vec::new()));
        Ok(())
    }

    /// One word, to the next blank or operator.
    fn word(&mut self) -> Result<Vec<Part>, Opaque> {
        let mut parts: Vec<Part> = Vec::new();
        loop {
            match self.peek() {
                None | Some(' ' | '\t' | '\n' | ';' | '|' | '&' | ')' | '<' | '>') => break,
                Some('(') => return Err("it uses a shell construct"),
                Some('`') => return Err("it holds backquotes"),
                Some('\'') => {
                    self.bump();
                    let end = self.rest.find('\'').ok_or("a quote is never closed")?;
                    push_text(&mut parts, self.rest.get(..end).unwrap_or_default(), Quoting::Quoted);
                    self.rest = self.rest.get(end + 1..).unwrap_or_default();
                }
                Some('"') => self.double_quoted(&mut parts)?,
                Some('\\') => {
                    self.bump();
                    match self.bump() {
                        Some('\n') => {}
                        Some(c) => push_text(&mut parts, c.encode_utf8(&mut [0; 4]), Quoting::Quoted),
                        None => return Err("it ends in a backslash"),
                    }
                }
                Some('$') => self.dollar(&mut parts, Quoting::Bare)?,
                Some(c) => {
                    self.bump();
                    push_text(&mut parts, c.encode_utf8(&mut [0; 4]), Quoting::Bare);
                }
            }
        }
        let names_descriptor = self.rest.starts_with(['<', '>'])
            && matches!(parts.as_slice(), [Part::Bare(text)] if text.starts_with('{') && text.ends_with('}'));
        if names_descriptor {
            return Err("it keeps a descriptor in a variable");
        }
        if parts.is_empty() { Err("a word is missing") } else { Ok(parts) }
    }

    fn double_quoted(&mut self, parts: &mut Vec<Part>) -> Result<(), Opaque> {
        self.bump();
        push_text(parts, "", Quoting::Quoted);
        loop {
            match self.peek().ok_or("a quote is never closed")? {
                '"' => {
                    self.bump();
                    return Ok(());
                }
                '`' => return Err("it holds backquotes"),
                '$' => self.dollar(parts, Quoting::Quoted)?,
                '\\' => {
                    self.bump();
                    match self.bump().ok_or("a quote is never closed")? {
                        '\n' => {}
                        c @ ('$' | '`' | '"' | '\\') => push_text(parts, c.encode_utf8(&mut [0; 4]), Quoting::Quoted),
                        c => {
                            push_text(parts, "\\", Quoting::Quoted);
                            push_text(parts, c.encode_utf8(&mut [0; 4]), Quoting::Quoted);
                        }
                    }
                }
                c => {
                    self.bump();
                    push_text(parts, c.encode_utf8(&mut [0; 4]), Quoting::Quoted);
                }
            }
        }
    }

    /// `$` and what follows.
    fn dollar(&mut self, parts: &mut Vec<Part>, quoting: Quoting) -> Result<(), Opaque> {
        self.bump();
        let is_quoted = quoting == Quoting::Quoted;
        match self.peek() {
            Some('(') => {
                if self.rest.starts_with("((") {
                    return Err("it computes");
                }
                self.bump();
                self.list_within()?;
                parts.push(Part::Output);
            }
            Some('?' | '#' | '$') => {
                self.bump();
                parts.push(Part::Variable { name: "?".to_owned(), is_quoted });
            }
            Some('{') => {
                self.bump();
                let end = self.rest.find('}').ok_or("a brace is never closed")?;
                let name = self.rest.get(..end).unwrap_or_default();
                if !is_name(name) {
                    return Err("it transforms a variable");
                }
                parts.push(Part::Variable { name: name.to_owned(), is_quoted });
                self.rest = self.rest.get(end + 1..).unwrap_or_default();
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                let name = self.rest.get(..end).unwrap_or_default().to_owned();
                parts.push(Part::Variable { name, is_quoted });
                self.rest = self.rest.get(end..).unwrap_or_default();
            }
            Some(c) if c.is_ascii_digit() || matches!(c, '@' | '*' | '-' | '!') => {
                return Err("it uses the shell's arguments");
            }
            Some('\'' | '"') if !is_quoted => return Err("it uses special quotes"),
            Some('[' | '\\') => return Err("it computes"),
            _ => push_text(parts, "$", Quoting::Quoted),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Quoting {
    Bare,
    Quoted,
}

fn push_text(parts: &mut Vec<Part>, text: &str, quoting: Quoting) {
    match (parts.last_mut(), quoting) {
        (Some(Part::Quoted(last)), Quoting::Quoted) | (Some(Part::Bare(last)), Quoting::Bare) => last.push_str(text),
        (_, Quoting::Quoted) => parts.push(Part::Quoted(text.to_owned())),
        (_, Quoting::Bare) => parts.push(Part::Bare(text.to_owned())),
    }
}

/// A command as read, nothing filled in.
#[derive(Default)]
struct Draft {
    words: Vec<Vec<Part>>,
    outline: Vec<Option<String>>,
    assignments: Vec<(String, Vec<Part>)>,
    redirects: Vec<(RedirectKind, Vec<Part>)>,
    is_test: bool,
}

impl Draft {
    fn is_untouched(&self) -> bool {
        self.words.is_empty() && self.assignments.is_empty() && self.redirects.is_empty()
    }

    fn command(&self, binding: &[(&str, &Word)]) -> Command {
        Command {
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
fn settle(parts: &[Part], binding: &[(&str, &Word)]) -> Word {
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
            Part::Output => word.kind = WordKind::Unknown,
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
fn outline_text(parts: &[Part]) -> Option<String> {
    parts
        .iter()
        .map(|part| match part {
            Part::Quoted(text) | Part::Bare(text) => Some(text.as_str()),
            Part::Variable { .. } | Part::Output => None,
        })
        .collect()
}

fn is_name(text: &str) -> bool {
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

fn assignment(parts: &[Part]) -> Option<(String, Vec<Part>)> {
    let Some(Part::Bare(first)) = parts.first() else { return None };
    let (name, value) = first.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let head = (!value.is_empty()).then(|| Part::Bare(value.to_owned()));
    Some((name.to_owned(), head.into_iter().chain(parts.iter().skip(1).cloned()).collect()))
}

/// Expands `a{b,c}` once; anything richer is refused.
fn braces(parts: Vec<Part>) -> Result<Vec<Vec<Part>>, Opaque> {
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
