//! Words: quotes, escapes and the few expansions that are understood.

use super::draft::{Part, is_name};
use super::{Opaque, Reader};

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

impl Reader<'_> {
    /// One word, to the next blank or operator.
    pub(super) fn word(&mut self) -> Result<Vec<Part>, Opaque> {
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
        if self.rest.starts_with("<(") || self.rest.starts_with(">(") {
            return Err("a word is glued to a substitution");
        }
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
                    self.sum()?;
                    parts.push(Part::Variable { name: "?".to_owned(), is_quoted });
                    return Ok(());
                }
                self.bump();
                self.list_within()?;
                parts.push(Part::Output { is_quoted });
            }
            Some('?' | '#' | '$') => {
                self.bump();
                parts.push(Part::Variable { name: "?".to_owned(), is_quoted });
            }
            Some('{') => {
                self.bump();
                let end = self.rest.find('}').ok_or("a brace is never closed")?;
                let name = self.rest.get(..end).unwrap_or_default();
                if has_plain_default(name) {
                    parts.push(Part::Output { is_quoted });
                    self.rest = self.rest.get(end + 1..).unwrap_or_default();
                    return Ok(());
                }
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

    /// `((...))` of numbers alone: what a variable holds would be computed in turn.
    fn sum(&mut self) -> Result<(), Opaque> {
        let end = self.rest.find("))").ok_or("it computes")?;
        let inner = self.rest.get(2..end).unwrap_or_default();
        if !inner.chars().all(|c| c.is_ascii_digit() || " +-*/%".contains(c)) {
            return Err("it computes");
        }
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        Ok(())
    }
}

/// True for `NAME:-TEXT` with a text that holds nothing the shell would expand.
fn has_plain_default(text: &str) -> bool {
    text.split_once(":-").is_some_and(|(name, default)| {
        is_name(name) && default.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
    })
}
