//! How long a server asks to wait, in every form servers use.

use std::time::Duration;

use reqwest::header::HeaderMap;

/// Headers that say when a used-up allowance is full again; which unit they have, their value tells.
const RESETS: [(&str, &str); 6] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
];

/// The wait these headers ask for; `None` when they ask for none, or for one that is over.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok());
    let asked = match milliseconds {
        Some(milliseconds) => seconds(milliseconds / 1000.0),
        None => text("retry-after").and_then(|value| match value.parse::<f64>() {
            Ok(number) => seconds(number),
            Err(_) => units(value).or_else(|| until(http_date(value)?, now_ms)),
        }),
    };
    asked.or_else(|| {
        let used_up = RESETS.iter().filter(|(remaining, _)| text(remaining) == Some("0"));
        used_up.filter_map(|(_, reset)| reset_wait(text(reset)?, now_ms)).max()
    })
}

/// The wait that an error body asks for in its words, of providers that send no header.
#[must_use]
pub fn retry_after_in(body: &str) -> Option<Duration> {
    let body = body.to_lowercase();
    // Google's RetryInfo, then OpenAI's sentence.
    ["\"retrydelay\":", "try again in ", "retry after ", "retry in "].iter().find_map(|marker| {
        let (_, rest) = body.split_once(marker)?;
        let mut words =
            rest.split(|end: char| end.is_whitespace() || matches!(end, '"' | '\\' | ',')).filter(|w| !w.is_empty());
        let value = words.next()?.trim_end_matches('.');
        match value.parse::<f64>() {
            Ok(number) => words.next().filter(|unit| unit.starts_with("sec")).and_then(|_| seconds(number)),
            Err(_) => units(value),
        }
    })
}

fn seconds(number: f64) -> Option<Duration> {
    if number > 0.0 && number.is_finite() {
        Some(Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX))
    } else {
        None
    }
}

fn until(at_ms: i64, now_ms: i64) -> Option<Duration> {
    let wait = u64::try_from(at_ms.saturating_sub(now_ms)).ok().filter(|wait| *wait > 0)?;
    Some(Duration::from_millis(wait))
}

/// `1m30.5s` and the like, a number of seconds, a time since 1970 in seconds or milliseconds, or a date.
pub(super) fn reset_wait(value: &str, now_ms: i64) -> Option<Duration> {
    if let Ok(number) = value.parse::<f64>() {
        #[expect(clippy::cast_possible_truncation, reason = "a float casts to the nearest representable integer")]
        return match number {
            _ if number > 1e11 => until(number as i64, now_ms),
            _ if number > 1e8 => until((number * 1000.0) as i64, now_ms),
            _ => seconds(number),
        };
    }
    if value.contains('T') { until(iso_date(value)?, now_ms) } else { units(value) }
}

/// Go's duration form: numbers, each with `d`, `h`, `m`, `s` or `ms`.
fn units(value: &str) -> Option<Duration> {
    let mut rest = value;
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|character: char| character.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let factor = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    seconds(total)
}

/// `Wed, 21 Oct 2015 07:28:00 GMT` in milliseconds since 1970.
fn http_date(value: &str) -> Option<i64> {
    let rest = value.split_once(", ").map_or(value, |(_, rest)| rest);
    let mut words = rest.split([' ', '-']);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| month.eq_ignore_ascii_case(name))?;
    unix_ms(year.parse().ok()?, i64::try_from(month).ok()? + 1, day.parse().ok()?, time)
}

/// `2026-01-01T00:00:00Z` in milliseconds since 1970.
fn iso_date(value: &str) -> Option<i64> {
    let (date, time) = value.split_once('T')?;
    let mut parts = date.splitn(3, '-').map(str::parse);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    unix_ms(year, month, day, time.get(..8)?)
}

fn unix_ms(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let mut parts = time.splitn(3, ':').map(str::parse::<i64>);
    let (hour, minute, second) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let is_valid = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_valid || !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
        return None;
    }
    // Days since 1970 of a Gregorian date, with years that begin in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    /// 2015-10-21T07:28:00Z.
    const NOW_MS: i64 = 1_445_412_480_000;

    fn check(headers: &[(&'static str, &str)], expect: Option<Duration>) {
        let map = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        assert_eq!(retry_after(&map, NOW_MS), expect, "{headers:?}");
    }

    #[test]
    fn every_form_of_a_wait_is_understood() {
        let secs = |seconds| Some(Duration::from_secs(seconds));
        check(&[("retry-after", "2")], secs(2));
        check(&[("retry-after", "0.5")], Some(Duration::from_millis(500)));
        check(&[("retry-after", "1m30s")], secs(90));
        check(&[("retry-after", "9"), ("retry-after-ms", "1500")], Some(Duration::from_millis(1500)));
        check(&[("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT")], secs(30));
        check(&[("retry-after", "Wednesday, 21-Oct-2015 07:29:00 GMT")], secs(60));
        check(&[("retry-after", "Thu, 29 Feb 2024 00:00:00 GMT")], secs(263_752_320));
        check(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1m30s")], secs(90));
        check(
            &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "250ms")],
            Some(Duration::from_millis(250)),
        );
        check(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1445412485000")], secs(5));
        check(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1445412485")], secs(5));
        check(
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2015-10-21T07:28:07Z"),
            ],
            secs(7),
        );
    }

    #[test]
    fn a_wait_in_the_words_of_the_error_is_understood() {
        let check = |body: &str, milliseconds: Option<u64>| {
            assert_eq!(retry_after_in(body), milliseconds.map(Duration::from_millis), "{body}");
        };
        check(r#"{"error":{"message":"Rate limit reached. Please try again in 1.2s. Visit"}}"#, Some(1_200));
        check(r#"{"error":{"message":"Please try again in 6m0s."}}"#, Some(360_000));
        check(r#"{"error":{"message":"Please try again in 250ms."}}"#, Some(250));
        check("try again in 20 seconds", Some(20_000));
        check("Please retry after 3 sec.", Some(3_000));
        check(r#"{"details":[{"@type":"RetryInfo","retryDelay": "27s"}]}"#, Some(27_000));
        for body in ["", "try again in a while", "try again in 5 minutes", "try again in -3s", "retry after"] {
            check(body, None);
        }
    }

    #[test]
    fn absurd_waits_are_none_or_very_long_and_never_a_panic() {
        for value in [
            "",
            "-5",
            "0",
            "NaN",
            "soon",
            "Wed, 21 Oct 2005 07:28:00 GMT",
            "Wed, 99 Foo 2015 99:99:99 GMT",
            "-inf",
            "inf",
        ] {
            check(&[("retry-after", value)], None);
        }
        for value in ["315360000", "1e300", "Wed, 21 Oct 2035 07:28:00 GMT"] {
            let mut map = HeaderMap::new();
            map.insert("retry-after", HeaderValue::from_str(value).unwrap());
            assert!(retry_after(&map, NOW_MS).unwrap() > Duration::from_secs(86_400), "{value}");
        }
        check(&[("x-ratelimit-remaining-requests", "5"), ("x-ratelimit-reset-requests", "1m30s")], None);
        check(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1x")], None);
    }
}
