//! What a strict provider refuses, and what must hold between the requests of one session.
//!
//! The checks are the union of what real servers answer 400 to, so a history that passes here is
//! accepted by all of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::view::{View, ViewMessage};
use crate::provider::ApiMode;

/// Everything a strict provider would refuse in a request, one line each.
#[must_use]
pub fn refusals(format: ApiMode, body: &Value, view: &View) -> Vec<String> {
    let mut found = Vec::new();
    match format {
        ApiMode::AnthropicMessages => check_messages(body, &mut found),
        ApiMode::CodexResponses => check_responses(body, &mut found),
        _ => check_chat(body, &mut found),
    }
    check_history(&view.messages, &mut found);
    check_tools(view, &mut found);
    if body.to_string().replace("\\\\", "").contains("\\u0000") {
        found.push("the request contains U+0000".into());
    }
    found
}

fn check_history(messages: &[ViewMessage], found: &mut Vec<String>) {
    let mut open: Vec<&str> = Vec::new();
    let mut ids = BTreeSet::new();
    let mut previous = "";
    if messages.first().is_some_and(|message| message.role != "user") {
        found.push("the first message is not the user's".into());
    }
    for (index, message) in messages.iter().enumerate() {
        let role = message.role.as_str();
        if role == "tool" {
            let id = message.answers.as_deref().unwrap_or_default();
            match open.first() {
                Some(first) if *first == id => {
                    open.remove(0);
                }
                _ => found.push(format!("message {index} answers call {id:?}, but {open:?} are open, in this order")),
            }
            if message.text.trim().is_empty() {
                found.push(format!("message {index}: the result of {id} is blank"));
            }
            previous = role;
            continue;
        }
        if !open.is_empty() {
            found.push(format!("message {index} ({role}) comes before the results of {open:?}"));
            open.clear();
        }
        if role == previous {
            found.push(format!("messages {} and {index} are both {role}", index.saturating_sub(1)));
        }
        if role == "user" && previous == "tool" {
            found.push(format!("message {index}: a user message right after a tool result"));
        }
        if message.text.trim().is_empty() && message.calls.is_empty() {
            found.push(format!("message {index} ({role}) is blank"));
        }
        for (id, name, arguments) in &message.calls {
            if id.is_empty() || !ids.insert(id.as_str()) {
                found.push(format!("message {index}: the call id {id:?} is empty or used twice"));
            }
            if !is_tool_name(name) {
                found.push(format!("message {index}: {name:?} is no legal tool name"));
            }
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                found.push(format!("message {index}: the arguments of {name} are not a JSON object: {arguments:?}"));
            }
            open.push(id);
        }
        previous = role;
    }
    if !open.is_empty() {
        found.push(format!("the calls {open:?} have no results"));
    }
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || "_-".contains(character))
}

fn check_tools(view: &View, found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for name in &view.tools {
        if !is_tool_name(name) || !seen.insert(name) {
            found.push(format!("the tool name {name:?} is illegal or used twice"));
        }
    }
    if view.tools_sent.as_array().is_some_and(Vec::is_empty) {
        found.push("an empty list of tools".into());
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn check_chat(body: &Value, found: &mut Vec<String>) {
    for (index, message) in list(body, "messages").iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        match role {
            "system" | "developer" if index == 0 => {}
            "user" | "assistant" | "tool" => {}
            other => found.push(format!("message {index} has the role {other:?}")),
        }
        if message.get("tool_calls").is_some_and(|calls| calls.as_array().is_none_or(Vec::is_empty)) {
            found.push(format!("message {index} has an empty tool_calls"));
        }
        for call in list(message, "tool_calls") {
            if !call.pointer("/function/arguments").is_some_and(Value::is_string) {
                found.push(format!("message {index}: call arguments are not a string"));
            }
            if call.get("type").and_then(Value::as_str) != Some("function") {
                found.push(format!("message {index}: a call without type function"));
            }
        }
        if message.get("content").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            found.push(format!("message {index} has an empty list of parts"));
        }
    }
    if list(body, "messages").last().and_then(|message| message.get("role")).is_some_and(|role| role == "assistant") {
        found.push("the last message is the assistant's".into());
    }
}

fn check_messages(body: &Value, found: &mut Vec<String>) {
    let mut previous = "";
    for (index, message) in list(body, "messages").iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if role == previous || !["user", "assistant"].contains(&role) {
            found.push(format!("message {index} has the role {role:?} after {previous:?}"));
        }
        previous = role;
        let mut results_over = false;
        for block in list(message, "content") {
            let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
            if kind == "text" && block.get("text").and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
                found.push(format!("message {index} has a blank text block"));
            }
            if kind == "tool_result" && results_over {
                found.push(format!("message {index}: a tool result after other content"));
            }
            results_over |= kind != "tool_result";
            if kind == "tool_use" && !block.get("input").is_some_and(Value::is_object) {
                found.push(format!("message {index}: the input of a call is not an object"));
            }
        }
        if message.get("content").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            found.push(format!("message {index} has no content"));
        }
    }
    if body.get("max_tokens").and_then(Value::as_u64).is_none() {
        found.push("max_tokens is missing".into());
    }
}

fn check_responses(body: &Value, found: &mut Vec<String>) {
    for (index, item) in list(body, "input").iter().enumerate() {
        match item.get("type").and_then(Value::as_str).unwrap_or("message") {
            "item_reference" => found.push(format!("item {index} is a bare reference")),
            "function_call_output"
                if !item.get("output").is_some_and(|output| output.is_string() || output.is_array()) =>
            {
                found.push(format!("item {index}: the output is neither text nor parts"));
            }
            _ => {}
        }
        if index > 0 && item.get("role").is_some_and(|role| role == "system" || role == "developer") {
            found.push(format!("item {index} is a later system message"));
        }
    }
}

/// What must hold between the requests of one session: a session is told apart by its first user message.
#[derive(Debug, Default)]
pub struct Continuity {
    /// By path, model and first message: another model may need another prompt.
    sessions: BTreeMap<[String; 3], View>,
}

impl Continuity {
    /// Compares a request with the one before it in the same session: the system prompt and the tools keep
    /// their bytes, and the earlier messages stay as they were but for the last one. `is_rewritten` says
    /// that this case changes its history on purpose.
    pub fn check(&mut self, path: &str, view: &View, is_rewritten: bool) -> Vec<String> {
        // A request without tools is a side task (a summary, a title) with a prompt of its own.
        if view.tools.is_empty() {
            return Vec::new();
        }
        let first = view.messages.first().map(|message| message.text.clone()).unwrap_or_default();
        let Some(earlier) = self.sessions.insert([path.to_owned(), view.model.clone(), first], view.clone()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        if earlier.system != view.system {
            found.push("the system prompt's bytes changed within the session".into());
        }
        if earlier.tools_sent != view.tools_sent {
            found.push("the tools' bytes changed within the session".into());
        }
        let kept = earlier.messages.len().saturating_sub(1);
        let changed = earlier.messages.iter().take(kept).zip(&view.messages).position(|(was, is)| was != is);
        if let Some(index) = changed.filter(|_| !is_rewritten) {
            found.push(format!("message {index} is not what it was in the request before"));
        }
        if view.messages.len() < kept && !is_rewritten {
            found.push(format!(
                "the history shrank from {} to {} messages",
                earlier.messages.len(),
                view.messages.len()
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(messages: Value, expected: &[&str]) {
        let body = json!({"messages": messages});
        let found = refusals(ApiMode::ChatCompletions, &body, &View::of(ApiMode::ChatCompletions, &body));
        assert_eq!(found.len(), expected.len(), "{body}: {found:?}");
        for (got, part) in found.iter().zip(expected) {
            assert!(got.contains(part), "{got} lacks {part}");
        }
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "t", "arguments": arguments}})
    }

    #[test]
    fn a_legal_history_passes() {
        check(
            json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                {"role": "assistant", "content": null, "tool_calls": [call("a", "{}"), call("b", "{}")]},
                {"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "tool", "tool_call_id": "b", "content": "2"},
                {"role": "assistant", "content": "x"}, {"role": "user", "content": "v"}]),
            &[],
        );
    }

    #[test]
    fn each_broken_history_is_refused() {
        let user = json!({"role": "user", "content": "u"});
        let calls = |calls: Value| json!({"role": "assistant", "content": "x", "tool_calls": calls});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
        check(json!([user, user]), &["both user"]);
        check(json!([user, calls(json!([call("a", "{}")])), user]), &["before the results"]);
        check(json!([user, calls(json!([call("a", "{}")]))]), &["last message is the assistant's", "have no results"]);
        check(
            json!([user, calls(json!([call("a", "{}"), call("b", "{}")])), result("b"), result("a")]),
            &["answers call \"b\"", "the calls [\"b\"] have no results"],
        );
        check(json!([user, calls(json!([call("a", "{")])), result("a")]), &["not a JSON object"]);
        check(json!([user, calls(json!([])), user]), &["empty tool_calls"]);
        check(json!([user, {"role": "system", "content": "late"}]), &["role \"system\""]);
        check(json!([user, calls(json!([call("a", "{}")])), result("a"), user]), &["right after a tool result"]);
    }

    #[test]
    fn a_changed_system_prompt_or_history_is_noticed() {
        let view = |system: &str, texts: &[&str]| View {
            system: system.into(),
            tools: vec!["t".into()],
            messages: texts
                .iter()
                .map(|text| ViewMessage { role: "user".into(), text: (*text).into(), ..ViewMessage::default() })
                .collect(),
            ..View::default()
        };
        let mut continuity = Continuity::default();
        assert!(continuity.check("/", &view("s", &["a", "b", "c"]), false).is_empty());
        assert!(continuity.check("/", &view("s", &["a", "b", "x", "d"]), false).is_empty());
        assert!(continuity.check("/", &view("s2", &["a", "b", "x", "d"]), false)[0].contains("system prompt"));
        assert!(continuity.check("/", &view("s2", &["a", "B", "x", "d"]), false)[0].contains("message 1"));
        assert!(continuity.check("/", &view("s2", &["a"]), true).is_empty());
    }
}
