//! The token counts of an answer in OpenAI's shapes, under every name that servers give them.
//!
//! Messages is not read here: it counts in parts, and cached input apart from the rest.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::Usage;

/// The numbers of a `usage` object under any of their names; `None` when there are none.
pub(super) fn usage(raw: &RawValue) -> Option<Usage> {
    let value: Value = serde_json::from_str(raw.get()).ok()?;
    let number = |paths: &[&str]| paths.iter().find_map(|path| value.pointer(path).and_then(count));
    let input = number(&["/prompt_tokens", "/input_tokens"]);
    let output = number(&["/completion_tokens", "/output_tokens"]);
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input_tokens: input.unwrap_or(0),
        output_tokens: output.unwrap_or(0),
        cached_tokens: number(&[
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cache_read_input_tokens",
            "/cached_tokens",
        ])
        .unwrap_or(0),
        cache_write_tokens: number(&[
            "/prompt_tokens_details/cache_write_tokens",
            "/prompt_tokens_details/cache_creation_tokens",
            "/input_tokens_details/cache_write_tokens",
            "/cache_creation_input_tokens",
        ])
        .unwrap_or(0),
        reasoning_tokens: number(&[
            "/completion_tokens_details/reasoning_tokens",
            "/output_tokens_details/reasoning_tokens",
            "/reasoning_tokens",
        ])
        .unwrap_or(0),
    })
}

/// A count that may come as a float.
fn count(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|number| *number >= 0.0 && *number < 1e15);
    // The range was checked, and a fraction of a token means nothing.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked just before")]
    value.as_u64().or_else(|| float().map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_under_every_name() {
        let check = |json: &str, expect: Option<(u64, u64, u64, u64)>| {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            let got = usage(raw).map(|u| (u.input_tokens, u.output_tokens, u.cached_tokens, u.reasoning_tokens));
            assert_eq!(got, expect, "{json}");
        };
        check(r#"{"prompt_tokens":5,"completion_tokens":2}"#, Some((5, 2, 0, 0)));
        check(r#"{"prompt_tokens":5.0,"completion_tokens":null}"#, Some((5, 0, 0, 0)));
        check(
            r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4},
                "completion_tokens_details":{"reasoning_tokens":1}}"#,
            Some((9, 2, 4, 1)),
        );
        check(r#"{"input_tokens":9,"output_tokens":2,"prompt_cache_hit_tokens":3}"#, Some((9, 2, 3, 0)));
        check("\"none\"", None);
        check("{}", None);
    }
}
