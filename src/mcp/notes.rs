//! What the servers of a session have to be told about, and how their words become fit for that.

use std::sync::{Mutex, PoisonError};

use crate::approval::display;
use crate::tool::output::one_line;

use super::spec::Address;

/// Notices kept until a turn tells them; a server that fails has one, so more is a fault.
const MAX_NOTES: usize = 64;

/// Values shorter than this are no secrets but settings like `1` or `true`.
const MIN_SECRET_CHARS: usize = 6;

/// Notices that the next turn tells the user.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Vec<String>>);

impl Notes {
    pub(super) fn add(&self, text: String) {
        tracing::warn!("{text}");
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MAX_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Words of a server as one short line without hidden characters and without the secrets it was given.
pub(super) fn words(text: &str, address: &Address, max_chars: usize) -> String {
    let mut text = text.to_owned();
    for secret in address.secrets().filter(|secret| secret.chars().count() >= MIN_SECRET_CHARS) {
        text = text.replace(secret, "[secret]");
    }
    display::escape(&one_line(&text, max_chars))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_carry_no_secret_and_nothing_hidden() {
        let env = [("TOKEN", "hunter22"), ("DEBUG", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let address = Address::Stdio { command: "x".into(), args: Vec::new(), env: env.into(), cwd: None };
        assert_eq!(words("bad\ntoken hunter22 1\u{202e}", &address, 100), "bad token [secret] 1\\u{202e}");
    }
}
