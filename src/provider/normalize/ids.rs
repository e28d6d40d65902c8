//! Call ids and tool names that the target allows, each id used once in a request.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use super::Target;
use crate::provider::ApiMode;

/// Longest tool name all three formats take (OpenAI's limit; Anthropic's is 128).
const MAX_NAME: usize = 64;

/// Which call ids a target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Letters, digits, `_` and `-`, at most 64 (Anthropic's pattern; Responses has the same length).
    Word64,
    /// Anything that is not blank, at most 40 characters (OpenAI's chat completions).
    Any40,
    /// Anything that is not blank. Some servers keep data of their own in long ids.
    Any,
}

impl Rule {
    fn of(target: Target<'_>) -> Self {
        match (target.api_mode, target.provider) {
            (ApiMode::AnthropicMessages | ApiMode::CodexResponses, _) => Self::Word64,
            (_, "openai") => Self::Any40,
            _ => Self::Any,
        }
    }

    fn allows(self, id: &str) -> bool {
        match self {
            Self::Word64 => !id.is_empty() && id.len() <= 64 && id.chars().all(is_word),
            Self::Any40 => !id.trim().is_empty() && id.chars().count() <= 40,
            Self::Any => !id.trim().is_empty(),
        }
    }

    /// The legal id nearest to `id`; itself when it is legal.
    fn nearest(self, id: &str) -> String {
        if self.allows(id) {
            return id.into();
        }
        match self {
            Self::Any40 | Self::Any if id.trim().is_empty() => "call".into(),
            Self::Any40 | Self::Any => shortened(id, 40),
            Self::Word64 => {
                let word = word(id);
                if word.is_empty() { "call".into() } else { shortened(&word, 64) }
            }
        }
    }

    /// The `number`th id made from a legal one.
    fn numbered(self, id: &str, number: usize) -> String {
        let suffix = format!("_{number}");
        match self {
            Self::Any => format!("{id}{suffix}"),
            Self::Any40 => id.chars().take(40 - suffix.len()).chain(suffix.chars()).collect(),
            Self::Word64 => id.chars().take(64 - suffix.len()).chain(suffix.chars()).collect(),
        }
    }
}

/// Gives out each id once, always the same for the same calls before it.
#[derive(Debug)]
pub(super) struct CallIds {
    rule: Rule,
    used: HashSet<String>,
}

impl CallIds {
    pub(super) fn new(target: Target<'_>) -> Self {
        Self { rule: Rule::of(target), used: HashSet::new() }
    }

    /// A legal id that no call before had: the call's own where it can be.
    pub(super) fn claim(&mut self, id: &str) -> String {
        let nearest = self.rule.nearest(id);
        let mut claimed = nearest.clone();
        let mut number = 2;
        while !self.used.insert(claimed.clone()) {
            claimed = self.rule.numbered(&nearest, number);
            number += 1;
        }
        claimed
    }
}

/// Whether the target takes this id.
pub(super) fn is_legal(id: &str, target: Target<'_>) -> bool {
    Rule::of(target).allows(id)
}

/// The name with everything replaced that some provider refuses.
pub(super) fn legal_name(name: &str) -> String {
    let mut name = word(name.trim());
    name.truncate(MAX_NAME);
    if name.is_empty() { "unnamed_tool".into() } else { name }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '-'
}

fn word(text: &str) -> String {
    text.chars().map(|character| if is_word(character) { character } else { '_' }).collect()
}

/// The text's beginning and a digest of all of it, so that long ids with a common beginning differ.
fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.into();
    }
    let digest: String =
        Sha256::digest(text.as_bytes()).into_iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    text.chars().take(max - 9).chain(['_']).chain(digest.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANTHROPIC: Target<'_> = Target { api_mode: ApiMode::AnthropicMessages, provider: "anthropic", model: "m" };

    #[track_caller]
    fn check(target: Target<'_>, given: &[&str], claimed: &[&str]) {
        let mut ids = CallIds::new(target);
        let got: Vec<_> = given.iter().map(|id| ids.claim(id)).collect();
        assert_eq!(got, claimed);
        assert!(got.iter().all(|id| is_legal(id, target)));
    }

    #[test]
    fn legal_ids_stay_and_repeated_ones_are_numbered() {
        check(ANTHROPIC, &["toolu_1", "a", "a", "a_2", "a"], &["toolu_1", "a", "a_2", "a_2_2", "a_3"]);
    }

    #[test]
    fn illegal_ids_become_words() {
        check(ANTHROPIC, &["functions.read:0", "", "é", "è"], &["functions_read_0", "call", "_", "__2"]);
    }

    #[test]
    fn long_ids_with_a_common_beginning_stay_apart() {
        let (one, two) = (format!("{}1", "x".repeat(500)), format!("{}2", "x".repeat(500)));
        let mut ids = CallIds::new(ANTHROPIC);
        let (one, two) = (ids.claim(&one), ids.claim(&two));
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (64, 64));
    }

    #[test]
    fn chat_servers_get_their_own_ids_back() {
        let chat = Target { api_mode: ApiMode::ChatCompletions, provider: "moonshot", model: "kimi" };
        let long = "x".repeat(500);
        check(chat, &["functions.read:0", &long], &["functions.read:0", &long]);
    }

    #[test]
    fn names_are_words_and_never_blank() {
        for (name, legal) in
            [("read_file", "read_file"), (" a.b c ", "a_b_c"), ("", "unnamed_tool"), ("\n", "unnamed_tool")]
        {
            assert_eq!(legal_name(name), legal);
        }
        assert_eq!(legal_name(&"n".repeat(200)).len(), 64);
    }
}
