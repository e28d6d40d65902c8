//! Takes secrets out of any text that leaves the process: errors, logs, notices, the store.
//!
//! Two nets: every key this process knows, wherever it stands, and whatever has the look of a key.

mod echo;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};

use echo::echoes;

const MASK: &str = "[redacted]";
/// Shorter secrets are not searched for: a key `k` would black out every text.
const MIN_SECRET_BYTES: usize = 6;
/// Beginnings that only keys have.
const KEY_STARTS: [&str; 14] = [
    "sk-",
    "sk_",
    "pk-",
    "gsk_",
    "xai-",
    "AIza",
    "ghp_",
    "gho_",
    "github_pat_",
    "hf_",
    "xoxb-",
    "AKIA",
    "eyJhbGci",
    "csk-",
];
/// Shorter words of that look are examples, such as `sk-...`.
const MIN_KEY_BYTES: usize = 12;
/// Names whose value is a secret.
const SECRET_NAMES: [&str; 9] =
    ["api_key", "apikey", "api-key", "access_token", "authorization", "secret", "password", "signature", "token"];
/// Parts of a configured header's name that say credential.
const SECRET_PARTS: [&str; 7] = ["authorization", "key", "token", "secret", "cookie", "password", "credential"];

/// Knows the process's secrets and cleans texts of them. Clones share what they know.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<Mutex<Vec<Known>>>,
}

/// A secret, and what else a server may make of it when it tells it back.
struct Known {
    secret: SecretString,
    /// Written otherwise: in base64 at each of the three places it can begin at, and encoded for a URL.
    echoes: Vec<SecretString>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// The one of this process: it knows every key that any session has used.
    #[must_use]
    pub fn process() -> Self {
        static PROCESS: OnceLock<Redactor> = OnceLock::new();
        PROCESS.get_or_init(Self::default).clone()
    }

    /// Adds a secret.
    pub fn learn(&self, secret: &SecretString) {
        let text = secret.expose_secret();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.iter().all(|old| old.secret.expose_secret() != text);
        if is_new && text.len() >= MIN_SECRET_BYTES {
            known.push(Known { secret: secret.clone(), echoes: echoes(text, MIN_SECRET_BYTES) });
        }
    }

    /// Adds what a provider's settings hold beside its keys: secret headers, and secrets in its address.
    pub fn learn_settings<'a>(&self, headers: impl Iterator<Item = (&'a str, &'a str)>, address: &str) {
        for (_, value) in headers.filter(|(name, value)| is_secret_header(name) || looks_like_key(value)) {
            self.learn_header(value);
        }
        let (address, query) = address.split_once('?').unwrap_or((address, ""));
        let parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
        for (_, value) in parameters.filter(|(name, value)| is_secret_name(name) || looks_random(value)) {
            self.learn(&SecretString::from(value));
        }
        let password =
            address.split("://").nth(1).and_then(|rest| rest.split('/').next()?.rsplit_once('@')?.0.split_once(':'));
        if let Some((_, password)) = password {
            self.learn(&SecretString::from(password));
        }
    }

    /// Adds a secret header's value without its scheme: the words of a credential, the values of cookies, and what
    /// a `Basic` one holds.
    fn learn_header(&self, value: &str) {
        for part in value.split([' ', ';', ',']).map(str::trim) {
            let is_scheme =
                ["bearer", "basic", "token", "apikey"].iter().any(|scheme| part.eq_ignore_ascii_case(scheme));
            if is_scheme {
                continue;
            }
            self.learn(&SecretString::from(part));
            if let Some((_, value)) = part.split_once('=') {
                self.learn(&SecretString::from(value));
            }
            let plain = STANDARD.decode(part).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, password)) = plain.as_deref().and_then(|plain| plain.split_once(':')) {
                self.learn(&SecretString::from(password));
            }
        }
    }

    /// The text without secrets; borrowed when there were none.
    #[must_use]
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for known in self.known.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for secret in std::iter::once(&known.secret).chain(&known.echoes) {
                if clean.contains(secret.expose_secret()) {
                    clean = Cow::Owned(clean.replace(secret.expose_secret(), MASK));
                }
            }
        }
        match mask_lookalikes(&clean) {
            Some(masked) => Cow::Owned(masked),
            None => clean,
        }
    }
}

/// Masks words that look like keys and values that follow a secret's name; `None` when there are none.
fn mask_lookalikes(text: &str) -> Option<String> {
    let mut masked = String::new();
    let mut found = false;
    let mut expects_value = false;
    for token in tokens(text) {
        if !is_word(token) {
            // `name: value`, `name=value`, `"name": "value"` and `Bearer value` lead to the value.
            expects_value &=
                token.chars().all(|mark| mark.is_whitespace() || matches!(mark, ':' | '=' | '"' | '\'' | '\\'));
            masked.push_str(token);
            continue;
        }
        let is_scheme = token.eq_ignore_ascii_case("bearer") || token.eq_ignore_ascii_case("basic");
        if looks_like_key(token) || (expects_value && !is_scheme && looks_random(token)) {
            masked.push_str(MASK);
            found = true;
            expects_value = false;
        } else {
            masked.push_str(token);
            expects_value = is_scheme || is_secret_name(token);
        }
    }
    found.then_some(masked)
}

/// Words and the marks between them, in turn.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let kind = is_word_character(first);
        let end = rest.find(|character| is_word_character(character) != kind).unwrap_or(rest.len());
        let (token, tail) = rest.split_at(end);
        rest = tail;
        Some(token)
    })
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | '+' | '/' | '~' | '%')
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(is_word_character)
}

fn looks_like_key(word: &str) -> bool {
    word.len() >= MIN_KEY_BYTES && KEY_STARTS.iter().any(|start| word.starts_with(start))
}

fn is_secret_name(word: &str) -> bool {
    let name = word.rsplit(['/', '.']).next().unwrap_or(word).to_ascii_lowercase();
    name == "key"
        || name.ends_with("-key")
        || name.ends_with("_key")
        || SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

/// True for a header of the configuration that holds a credential, such as `X-Canary-Key` or `Cookie`.
fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Long enough and mixed enough not to be a word of a sentence.
fn looks_random(word: &str) -> bool {
    word.len() >= 8 && (word.len() >= 20 || word.bytes().any(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let redactor = Redactor::default();
        redactor.learn(&SecretString::from("hunter2-horse"));
        redactor.learn(&SecretString::from("k"));
        assert_eq!(redactor.clean(text), expect);
    }

    #[test]
    fn known_secrets_go_wherever_they_stand() {
        check("key hunter2-horse!", "key [redacted]!");
        check("http://h/?key=hunter2-horse&x=1", "http://h/?key=[redacted]&x=1");
        check("xhunter2-horsex", "x[redacted]x");
        check("ok", "ok");
    }

    #[test]
    fn what_looks_like_a_key_goes() {
        check("Incorrect API key provided: sk-proj-abc123def456.", "Incorrect API key provided: [redacted]");
        check("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted]");
        check(r#"{"Authorization":"Bearer abcdef123456"}"#, r#"{"Authorization":"Bearer [redacted]"}"#);
        check("https://h/v1?key=abc12345&alt=sse", "https://h/v1?key=[redacted]&alt=sse");
        check("?api_key=abc12345 and x-api-key: abc12345", "?api_key=[redacted] and x-api-key: [redacted]");
        check(r#"\"api_key\": \"abc12345\""#, r#"\"api_key\": \"[redacted]\""#);
    }

    #[test]
    fn secrets_of_settings_go_wherever_they_stand() {
        let redactor = Redactor::default();
        let headers =
            [("x-canary-key", "walnut-oak"), ("authorization", "Basic almond-ash"), ("x-title", "turnd-test")];
        redactor.learn_settings(headers.into_iter(), "https://me:pine-cone@h/v1?sig=beech9beech&alt=sse-stream");
        let text = "walnut-oak almond-ash turnd-test pine-cone beech9beech sse-stream";
        assert_eq!(redactor.clean(text), "[redacted] [redacted] turnd-test [redacted] [redacted] sse-stream");
    }

    #[test]
    fn headers_whose_name_says_credential_are_secrets() {
        let redactor = Redactor::default();
        let headers = [
            ("Cookie", "session=walnut-oak; theme=dark"),
            ("Proxy-Authorization", "Basic dXNlcjphbG1vbmQtYXNo"),
            ("X-Auth-Token-V2", "pine-cone"),
            ("Ocp-Apim-Subscription-Key", "beech-nut"),
            ("CF-Access-Client-Secret", "maple-leaf"),
            ("X-Title", "plain-title"),
        ];
        redactor.learn_settings(headers.into_iter(), "");
        let text = "walnut-oak almond-ash dXNlcjphbG1vbmQtYXNo pine-cone beech-nut maple-leaf plain-title dark";
        assert_eq!(redactor.clean(text), format!("{} plain-title dark", [MASK; 6].join(" ")));
    }

    #[test]
    fn plain_sentences_stay() {
        for text in [
            "invalid x-api-key",
            "the API key: please check your settings",
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
            "use a key such as sk-...",
            "quota exceeded for key",
        ] {
            check(text, text);
        }
    }
}
