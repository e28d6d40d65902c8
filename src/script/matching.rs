//! Patterns and variables of transcripts.
//!
//! A pattern is JSON. An object matches an object that has at least its keys; an array matches an
//! array of the same length; a scalar matches itself. On top of that:
//!
//! | pattern | matches |
//! | --- | --- |
//! | `"$any"` / `"$absent"` | anything that is there / a key that is not there |
//! | `"$name"` | anything the first time, which it captures; the same value afterwards |
//! | `{"contains": x}` / `{"not_contains": x}` | text, or other JSON as text, with or without `x` |
//! | `{"starts_with": x}` / `{"ends_with": x}` | text |
//! | `{"at_least": n}` / `{"at_most": n}` | a number |
//! | `{"length": p}` | text or array whose length matches `p` |
//! | `{"includes": p}` / `{"excludes": p}` | an array with some / no element matching `p` |
//! | `{"one_of": [p, ..]}` / `{"not": p}` | any of the patterns / not this one |
//! | `{"json": p}` | text that is JSON matching `p` |

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Captured values and the names the runner provides (`cwd`, `url`, `home`, `sid`).
#[derive(Clone, Debug, Default)]
pub struct Vars(BTreeMap<String, Value>);

impl Vars {
    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// A variable's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Replaces known `$names` in a value; `{"$repeat": [text, count]}` becomes a long text.
    #[must_use]
    pub fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(map) => match repeated(map) {
                Some(text) => Value::String(text),
                None => map.iter().map(|(key, item)| (self.fill_plain(key), self.fill(item))).collect(),
            },
            other => other.clone(),
        }
    }

    /// Replaces known `$names` in a text.
    #[must_use]
    pub fn fill_plain(&self, text: &str) -> String {
        match self.fill_text(text) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    fn fill_text(&self, text: &str) -> Value {
        if let Some(value) = name_of(text).and_then(|name| self.get(name)) {
            return value.clone();
        }
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let end = after.find(|character: char| !is_name(character)).unwrap_or(after.len());
            let (name, tail) = after.split_at(end);
            match self.get(name) {
                Some(Value::String(value)) => filled.push_str(value),
                Some(value) => filled.push_str(&value.to_string()),
                None => {
                    filled.push('$');
                    filled.push_str(name);
                }
            }
            rest = tail;
        }
        filled.push_str(rest);
        Value::String(filled)
    }
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The variable a text consists of, if it is nothing else.
fn name_of(text: &str) -> Option<&str> {
    text.strip_prefix('$').filter(|name| !name.is_empty() && name.chars().all(is_name))
}

fn repeated(map: &Map<String, Value>) -> Option<String> {
    let parts = map.get("$repeat").filter(|_| map.len() == 1)?.as_array()?;
    let text = parts.first()?.as_str()?;
    Some(text.repeat(usize::try_from(parts.get(1)?.as_u64()?).ok()?))
}

/// Where a value is not what the pattern says.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The place, as `.params.update.status`.
    pub path: String,
    /// What the pattern says there, in brief.
    pub expected: String,
    /// What was there, in brief; `None` for nothing.
    pub got: Option<String>,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "the whole" } else { &self.path };
        match &self.got {
            Some(got) => write!(formatter, "at {path}: expected {}, got {}", self.expected, got),
            None => write!(formatter, "at {path}: expected {}, got nothing", self.expected),
        }
    }
}

/// A value as one line of at most 600 characters.
#[must_use]
pub fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(600) {
        Some((end, _)) => format!("{}.. ({} bytes)", text.get(..end).unwrap_or_default(), text.len()),
        None => text,
    }
}

/// Matches a value; captures reach `vars` only when the whole pattern matches.
///
/// # Errors
/// The first place that differs.
pub fn matches(pattern: &Value, value: &Value, vars: &mut Vars) -> Result<(), Mismatch> {
    let mut trial = vars.clone();
    check(pattern, Some(value), &mut trial, "")?;
    *vars = trial;
    Ok(())
}

fn check(pattern: &Value, got: Option<&Value>, vars: &mut Vars, path: &str) -> Result<(), Mismatch> {
    let differs = || Err(Mismatch { path: path.to_owned(), expected: brief(pattern), got: got.map(brief) });
    match (pattern, got) {
        (Value::String(text), None) if text == "$absent" => Ok(()),
        (_, None) => differs(),
        (Value::String(text), Some(got)) => match name_of(text) {
            Some("any") => Ok(()),
            Some("absent") => differs(),
            Some(name) if vars.get(name).is_none() => {
                vars.set(name, got.clone());
                Ok(())
            }
            _ if vars.fill_text(text) == *got => Ok(()),
            _ => differs(),
        },
        (Value::Object(map), Some(got)) if is_operator(map) => {
            let holds = map.iter().all(|(name, operand)| operator(name, operand, got, vars, path));
            if holds { Ok(()) } else { differs() }
        }
        (Value::Object(map), Some(Value::Object(members))) if !map.contains_key("$repeat") => {
            map.iter().try_for_each(|(key, pattern)| check(pattern, members.get(key), vars, &format!("{path}.{key}")))
        }
        (Value::Array(patterns), Some(Value::Array(items))) if patterns.len() == items.len() => patterns
            .iter()
            .zip(items)
            .enumerate()
            .try_for_each(|(index, (pattern, item))| check(pattern, Some(item), vars, &format!("{path}[{index}]"))),
        (pattern, Some(got)) if vars.fill(pattern) == *got => Ok(()),
        _ => differs(),
    }
}

const OPERATORS: [&str; 12] = [
    "contains",
    "not_contains",
    "starts_with",
    "ends_with",
    "at_least",
    "at_most",
    "length",
    "includes",
    "excludes",
    "one_of",
    "not",
    "json",
];

fn is_operator(map: &Map<String, Value>) -> bool {
    !map.is_empty() && map.keys().all(|key| OPERATORS.contains(&key.as_str()))
}

fn operator(name: &str, operand: &Value, got: &Value, vars: &mut Vars, path: &str) -> bool {
    let filled = vars.fill(operand);
    let operand_text = as_text(&filled);
    let text = as_text(got);
    let number = |compare: fn(f64, f64) -> bool| match (got.as_f64(), filled.as_f64()) {
        (Some(got), Some(limit)) => compare(got, limit),
        _ => false,
    };
    let mut any = |items: &Value, pattern: &Value| {
        items.as_array().is_some_and(|items| items.iter().any(|item| check(pattern, Some(item), vars, path).is_ok()))
    };
    match name {
        "contains" => text.contains(&operand_text),
        "not_contains" => !text.contains(&operand_text),
        "starts_with" => text.starts_with(&operand_text),
        "ends_with" => text.ends_with(&operand_text),
        "at_least" => number(|got, limit| got >= limit),
        "at_most" => number(|got, limit| got <= limit),
        "includes" => any(got, operand),
        "excludes" => !any(got, operand),
        "length" => length(got).is_some_and(|length| check(operand, Some(&length.into()), vars, path).is_ok()),
        "one_of" => operand
            .as_array()
            .is_some_and(|patterns| patterns.iter().any(|pattern| check(pattern, Some(got), vars, path).is_ok())),
        "not" => check(operand, Some(got), &mut vars.clone(), path).is_err(),
        "json" => {
            serde_json::from_str::<Value>(&text).is_ok_and(|value| check(operand, Some(&value), vars, path).is_ok())
        }
        _ => false,
    }
}

fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn length(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => Some(text.chars().count()),
        Value::Array(items) => Some(items.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pattern: Value, value: Value, expected: Result<(), &str>) {
        let mut vars = Vars::default();
        vars.set("known", "k");
        let got = matches(&pattern, &value, &mut vars).map_err(|mismatch| mismatch.path);
        assert_eq!(got.as_ref().map_err(String::as_str), expected.as_ref().map_err(|path| *path), "{pattern} {value}");
    }

    #[test]
    fn objects_match_by_subset_and_arrays_by_length() {
        check(json!({"a": 1}), json!({"a": 1, "b": 2}), Ok(()));
        check(json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), Err(".a.b"));
        check(json!([1, {"x": 1}]), json!([1, {"x": 1, "y": 2}]), Ok(()));
        check(json!([1]), json!([1, 2]), Err(""));
        check(json!({"a": null}), json!({}), Err(".a"));
    }

    #[test]
    fn names_capture_once_and_compare_afterwards() {
        check(json!(["$x", "$x"]), json!([7, 7]), Ok(()));
        check(json!(["$x", "$x"]), json!([7, 8]), Err("[1]"));
        check(json!({"a": "$any", "b": "$absent"}), json!({"a": null}), Ok(()));
        check(json!({"b": "$absent"}), json!({"b": 1}), Err(".b"));
        check(json!("see $known now"), json!("see k now"), Ok(()));
    }

    #[test]
    fn a_failed_match_captures_nothing() {
        let mut vars = Vars::default();
        assert!(matches(&json!({"a": "$x", "b": 1}), &json!({"a": 5, "b": 2}), &mut vars).is_err());
        assert!(vars.get("x").is_none());
    }

    #[test]
    fn operators_say_what_equality_cannot() {
        check(json!({"contains": "ell"}), json!("hello"), Ok(()));
        check(json!({"not_contains": "ell"}), json!("hello"), Err(""));
        check(json!({"at_least": 2, "at_most": 3}), json!(2.5), Ok(()));
        check(json!({"at_least": 2}), json!("2"), Err(""));
        check(json!({"includes": {"a": 1}}), json!([{"a": 1, "b": 1}]), Ok(()));
        check(json!({"excludes": {"a": 1}}), json!([{"a": 1}]), Err(""));
        check(json!({"length": {"at_least": 2}}), json!("héé"), Ok(()));
        check(json!({"one_of": ["a", "b"]}), json!("b"), Ok(()));
        check(json!({"not": "$absent"}), json!("b"), Ok(()));
        check(json!({"json": {"p": 1}}), json!("{\"p\": 1}"), Ok(()));
    }

    #[test]
    fn known_names_are_filled_in_and_others_stay() {
        let mut vars = Vars::default();
        vars.set("cwd", "/w");
        vars.set("id", 7);
        let filled = vars.fill(&json!({"a": "$cwd/x $HOME $cwdx", "b": "$id", "c": {"$repeat": ["ab", 2]}, "$cwd": 1}));
        assert_eq!(filled, json!({"a": "/w/x $HOME $cwdx", "b": 7, "c": "abab", "/w": 1}));
    }
}
