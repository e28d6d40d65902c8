//! What a model call costs: what its provider says, else by the public price of the model where that is known.
//!
//! Prices are list prices in US dollars per million tokens as published by the providers in autumn 2025, standard
//! tier, without long-context surcharges. A model that is not listed has no cost: no number is better than a wrong one.

use crate::message::Usage;

/// Prices of one model family, in dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    input: f64,
    output: f64,
    /// Reading from the provider's prompt cache.
    cached: f64,
    /// Writing to it.
    cache_write: f64,
}

const fn price(input: f64, output: f64, cached: f64, cache_write: f64) -> Price {
    Price { input, output, cached, cache_write }
}

/// By the start of a model's name; the first match counts.
const PRICES: [(&str, Price); 21] = [
    ("claude-opus-4-5", price(5.0, 25.0, 0.5, 6.25)),
    ("claude-opus-4", price(15.0, 75.0, 1.5, 18.75)),
    ("claude-sonnet-4", price(3.0, 15.0, 0.3, 3.75)),
    ("claude-haiku-4-5", price(1.0, 5.0, 0.1, 1.25)),
    ("claude-3-7-sonnet", price(3.0, 15.0, 0.3, 3.75)),
    ("claude-3-5-haiku", price(0.8, 4.0, 0.08, 1.0)),
    ("gpt-5-mini", price(0.25, 2.0, 0.025, 0.25)),
    ("gpt-5-nano", price(0.05, 0.4, 0.005, 0.05)),
    ("gpt-5-pro", price(15.0, 120.0, 15.0, 15.0)),
    ("gpt-5", price(1.25, 10.0, 0.125, 1.25)),
    ("gpt-4.1-mini", price(0.4, 1.6, 0.1, 0.4)),
    ("gpt-4.1-nano", price(0.1, 0.4, 0.025, 0.1)),
    ("gpt-4.1", price(2.0, 8.0, 0.5, 2.0)),
    ("gpt-4o-mini", price(0.15, 0.6, 0.075, 0.15)),
    ("gpt-4o", price(2.5, 10.0, 1.25, 2.5)),
    ("o3", price(2.0, 8.0, 0.5, 2.0)),
    ("o4-mini", price(1.1, 4.4, 0.275, 1.1)),
    ("gemini-2.5-pro", price(1.25, 10.0, 0.31, 1.25)),
    ("gemini-2.5-flash-lite", price(0.1, 0.4, 0.025, 0.1)),
    ("gemini-2.5-flash", price(0.3, 2.5, 0.075, 0.3)),
    ("deepseek-", price(0.28, 0.42, 0.028, 0.28)),
];

/// Providers that charge the prices of this table; others resell, or run models of their own.
const PROVIDERS: [&str; 4] = ["anthropic", "openai", "gemini", "deepseek"];

/// The cost of these tokens in US dollars; `None` when neither the provider nor the table knows it.
#[must_use]
pub fn cost_usd(provider: &str, model: &str, usage: &Usage) -> Option<f64> {
    if let Some(micros) = usage.cost_micros {
        #[expect(clippy::cast_precision_loss, reason = "a cost is far below 2^52 millionths of a dollar")]
        return Some(micros as f64 / 1e6);
    }
    if !PROVIDERS.contains(&provider) {
        return None;
    }
    // A variant such as o3-pro has a price of its own.
    let fits = |start: &str| {
        model.strip_prefix(start).is_some_and(|rest| !rest.starts_with("-pro") && !rest.contains("-deep-research"))
    };
    let (_, price) = PRICES.iter().find(|(start, _)| fits(start))?;
    let plain = usage.input_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.cache_write_tokens);
    let charged = [
        (plain, price.input),
        (usage.cached_tokens, price.cached),
        (usage.cache_write_tokens, price.cache_write),
        (usage.output_tokens, price.output),
    ];
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    let dollars = charged.iter().map(|(tokens, price)| *tokens as f64 * price / 1e6).sum();
    Some(dollars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_own_price() {
        let usage = Usage {
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cached_tokens: 600_000,
            cache_write_tokens: 200_000,
            reasoning_tokens: 50_000,
            cost_micros: None,
        };
        let cost = cost_usd("anthropic", "claude-sonnet-4-5", &usage).unwrap();
        let expect = 0.2 * 3.0 + 0.6 * 0.3 + 0.2 * 3.75 + 0.1 * 15.0;
        assert!((cost - expect).abs() < 1e-9, "{cost}");
    }

    #[test]
    fn what_the_provider_says_counts_for_any_model() {
        let told = |cost_micros| Usage { input_tokens: 1_000_000, cost_micros, ..Usage::default() };
        for (provider, model) in [("openrouter", "openai/gpt-5"), ("openai", "gpt-5")] {
            assert_eq!(cost_usd(provider, model, &told(Some(1_500_000))), Some(1.5));
            assert_eq!(cost_usd(provider, model, &told(Some(0))), Some(0.0));
        }
        let mut sum = Usage::default();
        sum.add(&told(Some(2)));
        sum.add(&told(Some(3)));
        assert_eq!(sum.cost_micros, Some(5));
        sum.add(&told(None));
        assert_eq!(sum.cost_micros, None, "the whole is not known when a part is not");
    }

    #[test]
    fn what_is_not_known_has_no_cost() {
        let usage = Usage { input_tokens: 10, ..Usage::default() };
        for (provider, model) in
            [("local", "gpt-5"), ("openrouter", "openai/gpt-5"), ("openai", "gpt-99"), ("openai", "o3-pro")]
        {
            assert_eq!(cost_usd(provider, model, &usage), None, "{provider}/{model}");
        }
        assert!(cost_usd("openai", "gpt-5-mini-2025-08-07", &usage).is_some());
    }
}
