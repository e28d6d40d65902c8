//! Numbers that error texts give away: how long an answer may be, how long a prompt.

/// Left free when an output limit is computed from what the server said is available.
const OUTPUT_MARGIN: u64 = 64;

/// The largest output limit that would have been accepted, when the text is about the output and says it.
#[must_use]
pub fn output_cap(text: &str) -> Option<u64> {
    let text = text.to_lowercase();
    let about_output = [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "completion tokens",
        "maxoutputtokens",
        "available_tokens",
        "in the completion",
        "output tokens",
    ];
    if !about_output.iter().any(|word| text.contains(word)) {
        return None;
    }
    available(&text).or_else(|| named_cap(&text)).filter(|cap| *cap > 0)
}

/// What is left of the context once the prompt is in it.
fn available(text: &str) -> Option<u64> {
    if let Some(free) = number_after(text, &["available_tokens:", "available_tokens\":"]) {
        return Some(free.saturating_sub(OUTPUT_MARGIN));
    }
    // "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
    if let Some(rest) = after(text, "exceed context limit:") {
        let mut numbers = numbers(rest);
        let (input, _, limit) = (numbers.next()?, numbers.next()?, numbers.next()?);
        return limit.checked_sub(input)?.checked_sub(OUTPUT_MARGIN);
    }
    // "maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, 8000 in the
    // completion)", and vLLM's "... and your request has 100 input tokens"
    let limit = number_after(text, &["maximum context length is", "context length is only", "context length of"])?;
    let requested = after(text, "however, you requested").map(|rest| {
        let mut numbers = numbers(rest);
        (numbers.next(), numbers.next())
    });
    let input = match requested {
        Some((Some(_), Some(input))) if text.contains("in the completion") || text.contains("of text input") => input,
        _ => number_after(text, &["your request has", "you passed"])?,
    };
    limit.checked_sub(input)?.checked_sub(OUTPUT_MARGIN)
}

/// What the model can write at most.
fn named_cap(text: &str) -> Option<u64> {
    // "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"
    if let Some(rest) = after(text, "max_tokens:").filter(|rest| rest.contains("maximum allowed number of output")) {
        return numbers(rest).nth(1);
    }
    // "the valid range of max_tokens is [1, 8192]"
    if let Some(rest) =
        after(text, "valid range of max_tokens is").or_else(|| after(text, "range of max_tokens should be"))
    {
        return numbers(rest).nth(1);
    }
    // "supported range is from 1 (inclusive) to 8193 (exclusive)"
    if let Some(rest) = after(text, "supported range is from") {
        let limit = numbers(rest).nth(1)?;
        return Some(if rest.contains("(exclusive)") { limit.saturating_sub(1) } else { limit });
    }
    number_after(
        text,
        &[
            "supports at most",
            "less than or equal to",
            "must be at most",
            "cannot exceed",
            "maximum value is",
            "maximum of",
        ],
    )
}

/// The most tokens a prompt may have, when the text says it.
#[must_use]
pub fn context_limit(text: &str) -> Option<u64> {
    let text = text.to_lowercase();
    let direct = number_after(
        &text,
        &[
            "maximum context length is",
            "maximum context length of",
            "maximum model length of",
            "maximum prompt length is",
            "context length is only",
            "context length of only",
            "context length of",
            "available context size (",
            "maximum number of tokens allowed (",
            "exceeds the limit of",
            "exceeded model token limit:",
            "context window of",
            "context window is",
            "context limit of",
            "context size of",
            "\"n_ctx\":",
            "n_ctx =",
            "tokens in the prompt cannot exceed",
        ],
    );
    // "prompt is too long: 210000 tokens > 200000 maximum"
    let compared = || {
        let rest = after(&text, "prompt is too long:")?;
        numbers(rest).nth(1)
    };
    direct.or_else(compared).filter(|limit| *limit >= 256)
}

fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.split_once(marker).map(|(_, rest)| rest)
}

/// The number right after the first marker that has one near.
fn number_after(text: &str, markers: &[&str]) -> Option<u64> {
    markers.iter().find_map(|marker| {
        let rest: String = after(text, marker)?.chars().take(24).collect();
        numbers(&rest).next()
    })
}

/// All whole numbers of a text, thousands separators allowed.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|character: char| !character.is_ascii_digit() && character != ',' && character != '_')
        .filter(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        .filter_map(|word| word.replace([',', '_'], "").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_caps_are_read_from_the_servers_words() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(output_cap(text), expect, "{text}");
        check(
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude",
            Some(64_000),
        );
        check("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease", Some(9_936));
        check("max_tokens is too large: 50000. This model supports at most 16384 completion tokens", Some(16_384));
        check("`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens`", Some(32_768));
        check("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", Some(8_192));
        check(
            "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 \
             (inclusive) to 8193 (exclusive)",
            Some(8_192),
        );
        check("max_tokens too large, available_tokens: 10000", Some(9_936));
        check(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, \
             8000 in the completion). Please reduce the length of the messages or completion.",
            Some(7_128),
        );
        check(
            "'max_tokens' or 'max_completion_tokens' is too large: 65536. This model's maximum context length is 32768 \
             tokens and your request has 100 input tokens (65536 > 32768 - 100).",
            Some(32_604),
        );
        check(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (9000 of \
             text input, 131000 in the output). max_tokens",
            Some(122_008),
        );
        check("prompt is too long: 210000 tokens > 200000 maximum", None);
        check(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens",
            None,
        );
        check(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8900 in the messages, \
             100 in the completion)",
            None,
        );
    }

    #[test]
    fn context_limits_are_read_from_the_servers_words() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(context_limit(text), expect, "{text}");
        check("This model's maximum context length is 128000 tokens. However, your messages", Some(128_000));
        check("request (9024 tokens) exceeds the available context size (8192 tokens), try increasing it", Some(8_192));
        check("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000));
        check(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_048_576),
        );
        check("maximum prompt length is 131072 but the request contains 500000 tokens", Some(131_072));
        check("the decoder prompt (length 5000) is longer than the maximum model length of 4096.", Some(4_096));
        check("model is loaded with context length of only 4,096 tokens", Some(4_096));
        check("Your request exceeded model token limit: 262144", Some(262_144));
        check("input is too long for requested model", None);
        check("context window is full", None);
    }
}
