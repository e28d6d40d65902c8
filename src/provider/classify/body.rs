//! Error bodies in the shapes servers use.

use serde_json::Value;

/// The most of a provider's words that is kept, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// What an error body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// The message for a person, at most 500 characters; empty when there is none. Not yet free of secrets.
    pub message: String,
    /// The machine's word: `error.code`, else `error.type`.
    pub code: String,
    /// A status inside the body.
    inner_status: Option<u16>,
    /// What an aggregator quotes from the provider behind it.
    quoted: String,
}

impl ErrorBody {
    /// Reads a JSON body, one `data:` line of a stream, or plain text.
    #[must_use]
    pub fn parse(body: &str) -> Self {
        let text = body.trim();
        let json = text.lines().find_map(|line| line.strip_prefix("data:")).map_or(text, str::trim);
        match serde_json::from_str::<Value>(json) {
            Ok(value) => Self::from_json(&value),
            Err(_) => Self { message: shorten(&plain(text)), ..Self::default() },
        }
    }

    fn from_json(value: &Value) -> Self {
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        // Responses wraps its error once more, and a gateway may wrap all of it in `detail`.
        let error = ["/error", "/response/error", "/detail/error", "/errors/0"]
            .iter()
            .find_map(|path| value.pointer(path))
            .filter(|error| !error.is_null())
            .unwrap_or(value);
        let text = |name: &str| error.get(name).or_else(|| value.get(name)).and_then(Value::as_str);
        let named = || ["message", "msg", "Message", "detail"].into_iter().find_map(text);
        let found = value.get("detail").and_then(findings);
        let message = error.as_str().or_else(named).or(found.as_deref()).unwrap_or_default();
        let code = ["code", "type", "error_code", "status"]
            .iter()
            .filter_map(|name| error.get(name).and_then(Value::as_str))
            .find(|code| !code.is_empty() && code.parse::<u16>().is_err())
            .unwrap_or_default();
        let status = ["code", "status", "status_code"].iter().find_map(|name| {
            let value = error.get(name).or_else(|| value.get(name))?;
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            u16::try_from(number).ok().filter(|status| (400..600).contains(status))
        });
        let quoted =
            error.pointer("/metadata/raw").map(|raw| raw.as_str().map_or_else(|| raw.to_string(), str::to_owned));
        let mut body = Self {
            message: shorten(message),
            code: code.to_owned(),
            inner_status: status,
            quoted: quoted.unwrap_or_default(),
        };
        body.unwrap_nested(message);
        body
    }

    /// A message that is itself a JSON error replaces the shell around it.
    fn unwrap_nested(&mut self, message: &str) {
        let nested = message.find('{').and_then(|start| message.get(start..)).unwrap_or_default();
        if let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(nested)
            && (value.get("error").is_some() || value.get("message").is_some())
        {
            let inner = Self::from_json(&value);
            if !inner.message.is_empty() {
                self.message = inner.message;
            }
            if !inner.code.is_empty() {
                self.code = inner.code;
            }
        }
        if !self.quoted.is_empty() {
            let inner = Self::parse(&self.quoted);
            if !inner.message.is_empty() {
                self.message = shorten(&format!("{}: {}", self.message, inner.message));
            }
        }
    }

    /// The status inside the body.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.inner_status
    }

    /// Everything that may be matched, lower case.
    pub(super) fn match_text(&self, body: &str) -> String {
        let mut text = self.message.to_lowercase();
        for part in [&self.code, &self.quoted] {
            if !part.is_empty() {
                text.push(' ');
                text.push_str(&part.to_lowercase());
            }
        }
        let is_whole = self.message.chars().count() < MAX_MESSAGE_CHARS && !self.message.is_empty();
        if !is_whole {
            text.push(' ');
            text.push_str(&body.to_lowercase());
        }
        text
    }
}

/// What FastAPI's servers find wrong with a request, each with its place.
fn findings(detail: &Value) -> Option<String> {
    let finding = |finding: &Value| {
        let said = finding.get("msg")?.as_str()?;
        let place: Vec<_> = finding.get("loc").and_then(Value::as_array).into_iter().flatten().map(word).collect();
        Some(if place.is_empty() { said.to_owned() } else { format!("{}: {said}", place.join(".")) })
    };
    let found: Vec<_> = detail.as_array()?.iter().filter_map(finding).collect();
    (!found.is_empty()).then(|| found.join("; "))
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Text without markup and line breaks: some gateways answer in HTML.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut in_tag = false;
    for character in text.chars().take(4 * MAX_MESSAGE_CHARS) {
        match character {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                plain.push(' ');
            }
            _ if !in_tag => plain.push(character),
            _ => {}
        }
    }
    plain
}

fn shorten(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, message: &str, code: &str, status: Option<u16>) {
        let parsed = ErrorBody::parse(body);
        assert_eq!((parsed.message.as_str(), parsed.code.as_str(), parsed.status()), (message, code, status), "{body}");
    }

    #[test]
    fn the_message_is_found_in_every_shape() {
        check(r#"{"error":{"message":"m","type":"t","code":null}}"#, "m", "t", None);
        check(r#"{"error":{"message":"m","type":"t","code":"c"}}"#, "m", "c", None);
        check(r#"{"error":{"message":"m","type":"t","code":"400"}}"#, "m", "t", Some(400));
        check(
            r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
            "m",
            "RESOURCE_EXHAUSTED",
            Some(429),
        );
        check(r#"[{"error":{"code":404,"message":"m"}}]"#, "m", "", Some(404));
        check(r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, "m", "overloaded_error", None);
        check(r#"{"type":"response.failed","response":{"error":{"code":"c","message":"m"}}}"#, "m", "c", None);
        check(r#"{"object":"error","message":"m","code":40003}"#, "m", "", None);
        check(r#"{"error":"m"}"#, "m", "", None);
        check(r#"{"detail":"m"}"#, "m", "", None);
        check(r#"{"detail":[{"loc":["body","tools",0],"msg":"m"},{"msg":"n"}]}"#, "body.tools.0: m; n", "", None);
        check(r#"{"code":1302,"msg":"m"}"#, "m", "", None);
        check(r#"{"Message":"m"}"#, "m", "", None);
        check("data: {\"error\":{\"message\":\"m\"}}\n\n", "m", "", None);
        check("<html><h1>Bad\n Gateway</h1></html>", "Bad Gateway", "", None);
        check("", "", "", None);
    }

    #[test]
    fn what_is_wrapped_is_unwrapped() {
        check(
            r#"{"error":{"message":"AnthropicError - {\"error\":{\"message\":\"inner\",\"type\":\"x\"}}","code":"400"}}"#,
            "inner",
            "x",
            Some(400),
        );
        check(
            r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"{\"error\":{\"message\":\"slow\"}}"}}}"#,
            "Provider returned error: slow",
            "",
            Some(429),
        );
    }
}
