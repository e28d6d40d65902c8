//! Redirections and here-documents.

use super::draft::{Draft, Part};
use super::{Opaque, Reader};
use crate::approval::shell::word::RedirectKind;

/// A here-document whose body is still to come.
pub(super) struct HereDocument {
    delimiter: String,
    strips_tabs: bool,
    is_quoted: bool,
}

impl Reader<'_> {
    pub(super) fn starts_redirect(&self) -> bool {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.starts_with(['<', '>']) || self.rest.starts_with("&>")
    }

    /// Reads a redirection if one is next.
    pub(super) fn redirect(&mut self, draft: &mut Draft) -> Result<bool, Opaque> {
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

    pub(super) fn here_document_body(&mut self, document: &HereDocument) -> Result<(), Opaque> {
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
}
