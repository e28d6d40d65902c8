//! The shapes of a chunk, borrowed from its text, and readers that accept what servers really send.
//!
//! The fields of every chunk are typed and borrowed; the rare ones stay raw and are read when they occur, so
//! that an odd one of them cannot cost the answer.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::provider::loose::Loose;

/// One chunk of a stream, or a whole answer.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) object: Loose<'a>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) detail: Option<&'a RawValue>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Loose<'a>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

impl Choice<'_> {
    /// False for the empty choices by which servers only show that they are still there.
    pub(super) fn brings_something(&self) -> bool {
        !self.finish_reason.as_str().is_empty()
            || [&self.delta, &self.message].into_iter().flatten().any(Delta::brings_something)
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Content<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionDelta<'a>>,
}

impl Delta<'_> {
    fn brings_something(&self) -> bool {
        [&self.content, &self.reasoning_content, &self.reasoning, &self.refusal].iter().any(|text| !text.is_empty())
            || self.tool_calls.iter().flatten().any(CallDelta::brings_arguments)
            || self.function_call.is_some()
            || self.reasoning_details.is_some_and(|details| details.get() != "[]")
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    #[serde(borrow)]
    pub(super) index: Loose<'a>,
    #[serde(borrow)]
    pub(super) id: Loose<'a>,
    #[serde(borrow)]
    pub(super) function: Option<FunctionDelta<'a>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

impl CallDelta<'_> {
    /// That a call begins is seen elsewhere: some servers tell its name again and again.
    fn brings_arguments(&self) -> bool {
        self.function.as_ref().is_some_and(|function| !function.arguments.as_str().is_empty())
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub(super) name: Loose<'a>,
    #[serde(borrow)]
    pub(super) arguments: Loose<'a>,
}

/// The text of a `content` field: a string, a list of parts, or nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content<'a> {
    pub(super) text: Cow<'a, str>,
    /// Text of parts that are reasoning.
    pub(super) thought: String,
}

impl Content<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.thought.is_empty()
    }

    fn add_part(&mut self, part: &Value) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
        let is_thought = matches!(kind, "thinking" | "reasoning" | "thought");
        for name in ["text", "thinking", "reasoning", "content", "refusal"] {
            let Some(value) = part.get(name) else { continue };
            let text = part_text(value);
            if is_thought {
                self.thought.push_str(&text);
            } else {
                self.text.to_mut().push_str(&text);
            }
            return;
        }
        if let Some(text) = part.as_str() {
            self.text.to_mut().push_str(text);
        }
    }
}

fn part_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| part_text(part.get("text").unwrap_or(part))).collect(),
        _ => String::new(),
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content { text: Cow::Borrowed(text), thought: String::new() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content { text: Cow::Owned(text.to_owned()), thought: String::new() })
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut content = Content::default();
        while let Some(part) = parts.next_element::<Value>()? {
            content.add_part(&part);
        }
        Ok(content)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let part = Value::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        let mut content = Content::default();
        content.add_part(&part);
        Ok(content)
    }
}

/// True when `text` is one complete object or list.
pub(super) fn is_complete_json(text: &str) -> bool {
    matches!(text.trim_end().as_bytes().last(), Some(b'}' | b']')) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(json: &str) -> (String, String) {
        let content: Content<'_> = serde_json::from_str(json).unwrap();
        (content.text.into_owned(), content.thought)
    }

    #[test]
    fn content_is_read_in_every_shape() {
        let check =
            |json, text: &str, thought: &str| assert_eq!(content(json), (text.into(), thought.into()), "{json}");
        check(r#""a""#, "a", "");
        check(r#""a\n""#, "a\n", "");
        check("null", "", "");
        check("7", "", "");
        check(r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "ab", "");
        check(r#"[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"a"}]"#, "a", "t");
        check(r#"{"type":"text","text":"a"}"#, "a", "");
        check(r#"["a",{"type":"image"}]"#, "a", "");
    }

    #[test]
    fn plain_text_is_borrowed() {
        let loose: Loose<'_> = serde_json::from_str(r#""abc""#).unwrap();
        assert!(matches!(loose.0, Cow::Borrowed("abc")));
    }

    #[test]
    fn loose_text_takes_any_type() {
        for (json, expect) in
            [("\"a\"", "a"), ("3", "3"), ("null", ""), ("true", "true"), (r#"{"b": 1}"#, r#"{"b":1}"#)]
        {
            let loose: Loose<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(loose.0, expect, "{json}");
        }
    }
}
