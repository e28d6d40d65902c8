//! `sed`: reads when every command of its script only prints, deletes or substitutes in its output.

use super::Assessment;
use crate::approval::shell::{Word, WordKind};

pub(super) fn assess(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let mut given: Vec<Word> = Vec::new();
    let mut operands: Vec<&Word> = Vec::new();
    let mut rest = arguments.iter();
    let mut only_operands = false;
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if only_operands || !text.starts_with('-') || text == "-" {
            operands.push(word);
            continue;
        }
        if let Some(script) = text.strip_prefix("--expression=") {
            given.push(Word { text: script.to_owned(), kind: word.kind });
            continue;
        }
        match text {
            "--" => only_operands = true,
            "-n" | "-E" | "-r" | "-s" | "-u" | "-z" | "-nE" | "-En" | "-nr" | "-rn" | "--quiet" | "--silent"
            | "--regexp-extended" | "--separate" | "--unbuffered" | "--null-data" | "--posix" | "--sandbox" => {}
            "-e" | "--expression" | "-ne" | "-Ee" | "-nEe" | "-re" => match rest.next() {
                Some(script) => given.push(script.clone()),
                None => out.refuse("has no script", text),
            },
            _ if text.starts_with("-i") || text.starts_with("--in-place") || "--in-place".starts_with(text) => {
                out.refuse(&format!("`{text}` changes the file in place"), text);
            }
            _ => out.refuse(&format!("`{text}` does more than read"), text),
        }
    }
    if given.is_empty() && !operands.is_empty() {
        given.push(operands.remove(0).clone());
    }
    for script in given {
        if script.kind != WordKind::Literal || !is_plain(&script.text) {
            out.refuse("its script can run programs or write files", &script.text);
        }
    }
    if operands.iter().any(|word| word.kind != WordKind::Literal && word.text.starts_with(['*', '?', '['])) {
        out.refuse("uses options that are only known when it runs", "sed");
    }
    out.paths.extend(operands.into_iter().cloned());
    out
}

/// True for a script made of addresses, `s`, `y` and commands without arguments.
pub(super) fn is_plain(script: &str) -> bool {
    let mut scan = Scan { rest: script };
    loop {
        scan.skip(|c| c.is_whitespace() || c == ';' || c == '}');
        if scan.rest.is_empty() {
            return true;
        }
        if scan.command().is_none() {
            return false;
        }
    }
}

struct Scan<'a> {
    rest: &'a str,
}

impl Scan<'_> {
    fn bump(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..)?;
        Some(c)
    }

    fn skip(&mut self, what: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(what);
    }

    /// One command with its addresses; `None` when it is not known to be harmless.
    fn command(&mut self) -> Option<()> {
        if self.address()? {
            self.skip(char::is_whitespace);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                self.skip(char::is_whitespace);
                if !self.address()? {
                    return None;
                }
            }
        }
        self.skip(|c| c.is_whitespace() || c == '!');
        match self.bump()? {
            '{' => Some(()),
            'p' | 'd' | 'D' | 'P' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | '=' => self.end(),
            'q' | 'Q' | 'l' => {
                self.skip(|c| c == ' ' || c.is_ascii_digit());
                self.end()
            }
            's' => {
                self.substitution()?;
                self.skip(|c| matches!(c, 'g' | 'p' | 'i' | 'I' | 'm' | 'M') || c.is_ascii_digit());
                self.end()
            }
            'y' => {
                self.substitution()?;
                self.end()
            }
            _ => None,
        }
    }

    /// Nothing but a separator may follow.
    fn end(&mut self) -> Option<()> {
        self.skip(|c| c == ' ' || c == '\t');
        (self.rest.is_empty() || self.rest.starts_with([';', '\n', '}'])).then_some(())
    }

    /// True when there was an address; `None` when it is odd.
    fn address(&mut self) -> Option<bool> {
        match self.rest.chars().next() {
            Some(c) if c.is_ascii_digit() || matches!(c, '$' | '+' | '~') => {
                self.bump();
                self.skip(|c| c.is_ascii_digit() || c == '~');
                Some(true)
            }
            Some('/') => {
                self.bump();
                self.delimited('/')?;
                self.skip(|c| c == 'I' || c == 'M');
                Some(true)
            }
            Some('\\') => None,
            _ => Some(false),
        }
    }

    fn substitution(&mut self) -> Option<()> {
        let delimiter = self.bump().filter(|c| !c.is_alphanumeric() && !c.is_whitespace() && *c != '\\')?;
        self.delimited(delimiter)?;
        self.delimited(delimiter)
    }

    /// Skips to the delimiter. A bracket expression may hold it in some readings and not in others,
    /// so one that does is refused.
    fn delimited(&mut self, delimiter: char) -> Option<()> {
        let mut in_brackets = false;
        loop {
            match self.bump()? {
                '\\' => {
                    self.bump().filter(|c| *c != '\n')?;
                }
                '\n' => return None,
                c if c == delimiter && in_brackets => return None,
                c if c == delimiter => return Some(()),
                '[' => in_brackets = true,
                ']' => in_brackets = false,
                _ => {}
            }
        }
    }
}
