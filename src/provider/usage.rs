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
    let cost_micros = cost_micros(&value);
    if input.is_none() && output.is_none() && cost_micros.is_none() {
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
        cost_micros,
    })
}

/// What the call cost in millionths of a US dollar, as OpenRouter and LiteLLM tell it. With a key of the user's own for
/// the provider behind OpenRouter, `cost` is OpenRouter's fee alone and the provider's part stands beside it.
pub(super) fn cost_micros(usage: &Value) -> Option<u64> {
    let dollars = |path: &str| usage.pointer(path).and_then(Value::as_f64).filter(|cost| (0.0..1e9).contains(cost));
    let is_own_key = usage.get("is_byok").and_then(Value::as_bool).unwrap_or(false);
    let beside = if is_own_key { dollars("/cost_details/upstream_inference_cost") } else { None };
    let micros = ((dollars("/cost")? + beside.unwrap_or(0.0)) * 1e6).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked just before")]
    Some(micros as u64)
}

/// A count that may come as a float or as text. What is far above any model's window is none.
fn count(value: &Value) -> Option<u64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    // The range was checked, and a fraction of a token means nothing.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked just before")]
    number.filter(|number| (0.0..1e12).contains(number)).map(|number| number as u64)
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
        check(r#"{"cost":0.5}"#, Some((0, 0, 0, 0)));
        check(r#"{"prompt_tokens":"12","completion_tokens":18446744073709551615}"#, Some((12, 0, 0, 0)));
        check("\"none\"", None);
        check("{}", None);
    }

    #[test]
    fn a_cost_is_read_in_dollars_and_nonsense_is_none() {
        let check = |json: &str, expect: Option<u64>| {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(cost_micros(&value), expect, "{json}");
        };
        check(r#"{"cost":0.00014}"#, Some(140));
        check(r#"{"cost":0}"#, Some(0));
        check(r#"{"cost":0.0000004}"#, Some(0));
        let details = r#""cost":0.01,"cost_details":{"upstream_inference_cost":0.2}"#;
        check(&format!("{{{details}}}"), Some(10_000));
        check(&format!(r#"{{{details},"is_byok":true}}"#), Some(210_000));
        for json in [r#"{"cost":null}"#, r#"{"cost":-1}"#, r#"{"cost":1e300}"#, r#"{"cost":"free"}"#, "[]", "{}"] {
            check(json, None);
        }
    }
}
