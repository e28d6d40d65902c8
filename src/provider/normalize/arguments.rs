//! The arguments of a call as every provider accepts them: one JSON object in compact form.

use serde_json::{Map, Value};

/// Characters of broken arguments shown to the model again.
const EXCERPT_CHARS: usize = 200;

/// Makes the arguments a compact JSON object, key order and number spelling as written. What cannot
/// be read becomes `{}`, and the text to put in front of the call's result is returned.
pub(super) fn mend(arguments: &mut String) -> Option<String> {
    if arguments.trim().is_empty() {
        *arguments = "{}".into();
        return None;
    }
    if is_object(arguments) {
        if let Some(compact) = compacted(arguments) {
            *arguments = compact;
        }
        return None;
    }
    let broken = std::mem::replace(arguments, "{}".into());
    let mut excerpt: String = broken.chars().take(EXCERPT_CHARS).collect();
    if excerpt.len() < broken.len() {
        excerpt.push('…');
    }
    Some(format!(
        "[The arguments of this call were not a valid JSON object and are shown as {{}}. Written was: {excerpt}]"
    ))
}

/// True for the text of a JSON object that a strict reader takes.
pub(super) fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// Valid JSON without space between its tokens; `None` when there is none to remove.
pub(super) fn compacted(json: &str) -> Option<String> {
    let mut in_string = false;
    let mut is_escaped = false;
    let mut compact = String::with_capacity(json.len());
    for character in json.chars() {
        if in_string {
            in_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
        } else if character.is_ascii_whitespace() {
            continue;
        } else {
            in_string = character == '"';
        }
        compact.push(character);
    }
    (compact.len() < json.len()).then_some(compact)
}

#[cfg(test)]
mod tests {
    use super::mend;

    #[track_caller]
    fn check(written: &str, sent: &str, is_marked: bool) {
        let mut arguments = written.to_owned();
        let marker = mend(&mut arguments);
        assert_eq!(arguments, sent);
        assert_eq!(marker.is_some(), is_marked, "{marker:?}");
    }

    #[test]
    fn valid_objects_keep_their_keys_and_numbers_as_written() {
        check(r#"{"b":1,"a":2}"#, r#"{"b":1,"a":2}"#, false);
        check("{ \"b\" : 1.50,\n\t\"a\": [1, 2] }\n", r#"{"b":1.50,"a":[1,2]}"#, false);
        check(
            r#"{"n": 123456789012345678901234567890, "e": 1E5}"#,
            r#"{"n":123456789012345678901234567890,"e":1E5}"#,
            false,
        );
    }

    #[test]
    fn space_inside_strings_stays() {
        check(r#"{"a": "x \" y \\", "b": " "}"#, r#"{"a":"x \" y \\","b":" "}"#, false);
    }

    #[test]
    fn no_arguments_are_an_empty_object() {
        check("", "{}", false);
        check(" \n", "{}", false);
    }

    #[test]
    fn what_is_no_object_is_marked_not_guessed() {
        for broken in ["{", "{\"path\":\"/a", "null", "[1]", "\"x\"", "7", "{}{}", "{'a':1}", "{\"a\":\"\u{1}\"}"] {
            check(broken, "{}", true);
        }
    }

    #[test]
    fn a_long_broken_text_is_cut_between_characters() {
        let mut arguments = "é".repeat(1000);
        let marker = mend(&mut arguments).expect("broken");
        assert!(marker.contains(&"é".repeat(200)) && marker.chars().count() < 320, "{marker}");
    }
}
