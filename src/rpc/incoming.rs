//! What one line from the client is: a request, a notification, an answer to us, or a mistake.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use turnd_protocol::error_code;

/// A request's id exactly as the client wrote it: a number of any size, a string, or null.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// The id of answers to lines that had none.
    #[must_use]
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The id with this JSON text, if that is a number, a string or null.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        (text == "null" || first == b'"' || first == b'-' || first.is_ascii_digit()).then(|| Self(text.into()))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// One classified line.
#[derive(Debug)]
pub enum Incoming {
    /// Must be answered exactly once.
    Request {
        /// To answer with.
        id: RequestId,
        /// What to do.
        method: String,
        /// With what; `None` when absent.
        params: Option<Box<RawValue>>,
    },
    /// Must not be answered.
    Notification {
        /// What to do.
        method: String,
        /// With what; `None` when absent.
        params: Option<Box<RawValue>>,
    },
    /// The client's answer to one of our calls. Never answered, however broken it is.
    Response {
        /// Which call.
        id: RequestId,
        /// What came back.
        outcome: Result<Box<RawValue>, ClientError>,
    },
    /// An id and nothing said with it: the answer of a client that leaves an empty result out, where it is the id of
    /// one of our calls, else a mistake.
    Bare {
        /// The id.
        id: RequestId,
    },
    /// Not a message. Answered with this error.
    Malformed {
        /// The id, where one could be read.
        id: RequestId,
        /// JSON-RPC error code.
        code: i32,
        /// One line.
        message: &'static str,
        /// What was wrong.
        detail: String,
    },
}

/// An error the client answered one of our calls with, read leniently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client answered with error {code}: {message}")]
pub struct ClientError {
    /// JSON-RPC error code, 0 when it had none.
    pub code: i64,
    /// The text, empty when it had none.
    pub message: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Tells `null` from absent, which `Option<&RawValue>` alone does not.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl RequestId {
    /// The id that a line which is too long to be read answers, when its beginning tells.
    #[must_use]
    pub fn answered_by(head: &[u8]) -> Option<Self> {
        let text = head.utf8_chunks().next()?.valid();
        let at = ["\"result\"", "\"error\""].iter().filter_map(|key| text.find(key)).min()?;
        let before = text.get(..at)?.trim_end().trim_end_matches(',');
        let closed = format!("{before}}}");
        let envelope: Envelope<'_> = serde_json::from_str(&closed).ok()?;
        let id = envelope.id.filter(|_| envelope.method.is_none())?;
        Self::from_json(id.get())
    }
}

impl Incoming {
    /// Classifies one line.
    #[must_use]
    pub fn classify(line: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(line) else {
            return malformed(RequestId::null(), error_code::PARSE_ERROR, "the line is not UTF-8");
        };
        let text = text.trim_start_matches('\u{feff}').trim();
        // A struct also deserialises from an array, so the shape is looked at first.
        if !text.starts_with('{') {
            return match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) if text.starts_with('[') => invalid(RequestId::null(), "batches are not part of the protocol"),
                Ok(_) => invalid(RequestId::null(), "a message is a JSON object"),
                Err(error) => malformed(RequestId::null(), error_code::PARSE_ERROR, error),
            };
        }
        match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(envelope) => envelope.classify(),
            Err(error) => match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) => invalid(RequestId::null(), error),
                Err(error) => malformed(RequestId::null(), error_code::PARSE_ERROR, error),
            },
        }
    }
}

fn malformed(id: RequestId, code: i32, detail: impl fmt::Display) -> Incoming {
    let message = if code == error_code::PARSE_ERROR { "Parse error" } else { "Invalid request" };
    Incoming::Malformed { id, code, message, detail: detail.to_string() }
}

fn invalid(id: RequestId, detail: impl fmt::Display) -> Incoming {
    malformed(id, error_code::INVALID_REQUEST, detail)
}

impl Envelope<'_> {
    fn classify(self) -> Incoming {
        let id = self.id.map(|raw| RequestId::from_json(raw.get()));
        if self.method.is_none() && (self.result.is_some() || self.error.is_some()) {
            let id = id.flatten().unwrap_or_else(RequestId::null);
            return Incoming::Response { id, outcome: self.outcome() };
        }
        let Some(id) = id.map_or(Some(None), |id| id.map(Some)) else {
            return invalid(RequestId::null(), "an id is a number, a string or null");
        };
        let echo = || id.clone().unwrap_or_else(RequestId::null);
        let Some(method) = self.method else {
            return id.map_or_else(|| invalid(RequestId::null(), "there is no method"), |id| Incoming::Bare { id });
        };
        let Ok(method) = serde_json::from_str::<String>(method.get()) else {
            return invalid(echo(), "the method is not a string");
        };
        if self.jsonrpc.as_deref() != Some("2.0") {
            return invalid(echo(), "jsonrpc is not \"2.0\"");
        }
        let params = self.params.map(RawValue::to_owned);
        match id {
            Some(id) => Incoming::Request { id, method, params },
            None => Incoming::Notification { method, params },
        }
    }

    fn outcome(&self) -> Result<Box<RawValue>, ClientError> {
        let error = self.error.filter(|error| error.get() != "null");
        match (error, self.result) {
            (None, Some(result)) => Ok(result.to_owned()),
            (error, _) => Err(read_error(error)),
        }
    }
}

fn read_error(error: Option<&RawValue>) -> ClientError {
    let value: serde_json::Value = error.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let code = value.get("code").and_then(serde_json::Value::as_i64).unwrap_or_default();
    let message = value.get("message").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    ClientError { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `REQUEST id method`, `NOTE method`, `ANSWER id ok|code`, or `CODE id`.
    fn check(line: &str, expected: &str) {
        let got = match Incoming::classify(line.as_bytes()) {
            Incoming::Request { id, method, .. } => format!("REQUEST {id:?} {method}"),
            Incoming::Notification { method, .. } => format!("NOTE {method}"),
            Incoming::Response { id, outcome } => {
                format!("ANSWER {id:?} {}", outcome.map_or_else(|error| error.code.to_string(), |_| "ok".into()))
            }
            Incoming::Bare { id } => format!("BARE {id:?}"),
            Incoming::Malformed { id, code, .. } => format!("{code} {id:?}"),
        };
        assert_eq!(got, expected, "{line}");
    }

    #[test]
    fn the_beginning_of_a_long_answer_tells_whose_it_is() {
        let id = |head: &str| RequestId::answered_by(head.as_bytes()).map(|id| id.as_json().to_owned());
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"result":{"content":"aaa"#).as_deref(), Some("7"));
        assert_eq!(id(r#"{ "id" : 7 , "result" : "ü"#).as_deref(), Some("7"));
        assert_eq!(id(r#"{"jsonrpc":"2.0","result":{"content":"aaa"#), None);
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"result":"#), None);
        assert_eq!(id("[1,2"), None);
    }

    #[test]
    fn ids_are_kept_as_written() {
        for id in ["0", "-3", "18446744073709551616", "1.50", "\"a\\u0062\"", "null"] {
            check(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#), &format!("REQUEST {id} m"));
        }
    }

    #[test]
    fn what_is_no_json_is_told_from_what_is_no_request() {
        check("not json", "-32700 null");
        check(r#"{"jsonrpc":"2.0","id":1,"#, "-32700 null");
        check(r#"{"id":{},"method":"m"} x"#, "-32700 null");
        check("42", "-32600 null");
        check("[]", "-32600 null");
        check(r#"["2.0",1,"session/new",{}]"#, "-32600 null");
        check("{}", "-32600 null");
        check(r#"{"jsonrpc":"2.0","id":8,"method":5}"#, "-32600 8");
        check(r#"{"jsonrpc":"1.0","id":9,"method":"m"}"#, "-32600 9");
        check(r#"{"id":9,"method":"m"}"#, "-32600 9");
        check(r#"{"jsonrpc":"2.0","id":{"a":1},"method":"m"}"#, "-32600 null");
        check(r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "-32600 null");
        check(r#"{"jsonrpc":2,"id":1,"method":"m"}"#, "-32600 null");
        check(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, "-32600 null");
        assert!(matches!(Incoming::classify(b"\xff\xfe"), Incoming::Malformed { code: -32700, .. }));
    }

    #[test]
    fn answers_are_recognised_however_broken() {
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "ANSWER 1 ok");
        check(r#"{"id":1,"result":{},"error":null,"_meta":1}"#, "ANSWER 1 ok");
        check(r#"{"id":1,"error":{"code":-5,"extra":1}}"#, "ANSWER 1 -5");
        check(r#"{"id":[],"error":"no"}"#, "ANSWER null 0");
        check(r#"{"jsonrpc":"2.0","id":7}"#, "BARE 7");
    }

    #[test]
    fn a_notification_has_no_id_and_a_byte_order_mark_is_no_harm() {
        check("\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"m\"}", "NOTE m");
    }

    #[test]
    fn deep_nesting_in_params_is_skipped_over() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        check(&deep, "REQUEST 1 m");
    }
}
