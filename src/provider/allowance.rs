//! What a provider says about the account's allowance, in the headers of every answer.
//!
//! For display only. What a used-up allowance means for a refused request is read by
//! [`retry_after`](super::retry_after::retry_after).

use std::time::Duration;

use reqwest::header::HeaderMap;

use crate::provider::retry_after::reset_wait;

/// One allowance: requests or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// How much there is when it is full.
    pub limit: Option<u64>,
    /// How much is left.
    pub remaining: u64,
    /// When it is full again, in milliseconds since 1970.
    pub full_at_ms: Option<i64>,
}

/// The allowances of an account as of its last answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Requests.
    pub requests: Option<Quota>,
    /// Tokens; of input where the provider counts the two apart.
    pub tokens: Option<Quota>,
}

impl Allowance {
    /// Reads the headers; `None` when they say nothing about it.
    #[must_use]
    pub fn read(headers: &HeaderMap, now_ms: i64) -> Option<Self> {
        let quota = |names: &[&str]| names.iter().find_map(|name| Quota::read(headers, name, now_ms));
        let allowance = Self { requests: quota(&["requests", ""]), tokens: quota(&["tokens", "input-tokens"]) };
        (allowance != Self::default()).then_some(allowance)
    }
}

impl Quota {
    /// Reads the headers of one kind, in OpenAI's and Anthropic's spelling.
    fn read(headers: &HeaderMap, kind: &str, now_ms: i64) -> Option<Self> {
        let field = |field: &str| {
            let joined = format!("x-ratelimit-{field}-{kind}");
            let openai = headers.get(joined.trim_end_matches('-'));
            let value = openai.or_else(|| headers.get(format!("anthropic-ratelimit-{kind}-{field}")))?;
            value.to_str().ok().map(str::trim)
        };
        let reset = field("reset").and_then(|value| reset_wait(value, now_ms)).map(|wait: Duration| wait.as_millis());
        let reset = reset.and_then(|wait| i64::try_from(wait).ok());
        Some(Self {
            limit: field("limit").and_then(|value| value.parse().ok()),
            remaining: field("remaining")?.parse().ok()?,
            full_at_ms: reset.map(|wait| now_ms.saturating_add(wait)),
        })
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expect: Option<(Option<Quota>, Option<Quota>)>) {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let read = Allowance::read(&map, 1_000).map(|allowance| (allowance.requests, allowance.tokens));
        assert_eq!(read, expect, "{headers:?}");
    }

    fn quota(limit: Option<u64>, remaining: u64, full_at_ms: Option<i64>) -> Option<Quota> {
        Some(Quota { limit, remaining, full_at_ms })
    }

    #[test]
    fn both_spellings_are_read_and_nonsense_is_nothing() {
        check(&[("x-ratelimit-remaining-requests", "7")], Some((quota(None, 7, None), None)));
        check(
            &[
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            Some((quota(Some(60), 59, Some(2_000)), quota(None, 149_984, Some(361_000)))),
        );
        check(
            &[
                ("anthropic-ratelimit-requests-limit", "50"),
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "1970-01-01T00:00:05Z"),
                ("anthropic-ratelimit-input-tokens-remaining", "12"),
            ],
            Some((quota(Some(50), 0, Some(5_000)), quota(None, 12, None))),
        );
        check(&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "2")], Some((quota(None, 3, Some(3_000)), None)));
        for value in ["", "-1", "many", "18446744073709551616"] {
            check(&[("x-ratelimit-remaining-requests", value)], None);
        }
        check(&[("x-ratelimit-limit-requests", "60")], None);
    }
}
