//! One view of a model request for all wire formats, so that a transcript is written once.

use serde_json::{Map, Value, json};

use crate::provider::ApiMode;

/// A model request in neutral words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The model asked for.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The messages in order; a tool result is a message of its own.
    pub messages: Vec<ViewMessage>,
    /// Names of the tools offered.
    pub tools: Vec<String>,
    /// The tools as sent.
    pub tools_sent: Value,
}

/// One message of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViewMessage {
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// All text.
    pub text: String,
    /// Reasoning that is sent back.
    pub reasoning: String,
    /// Calls: id, name, arguments as text.
    pub calls: Vec<(String, String, String)>,
    /// For a tool result: the call it answers.
    pub answers: Option<String>,
}

impl View {
    /// Reads a request body.
    #[must_use]
    pub fn of(format: ApiMode, body: &Value) -> Self {
        let mut view = Self {
            model: text(body.get("model")),
            tools: items(body, "tools").iter().map(tool_name).collect(),
            tools_sent: body.get("tools").cloned().unwrap_or_default(),
            ..Self::default()
        };
        match format {
            ApiMode::AnthropicMessages => view.read_messages(body),
            ApiMode::CodexResponses => view.read_responses(body),
            _ => view.read_chat(body),
        }
        view
    }

    /// Text of the newest user message.
    #[must_use]
    pub fn newest_user(&self) -> &str {
        self.messages.iter().rev().find(|message| message.role == "user").map_or("", |message| &message.text)
    }

    /// Answers of the model since the newest user message.
    #[must_use]
    pub fn step(&self) -> usize {
        let since = self.messages.iter().rev().take_while(|message| message.role != "user");
        since.filter(|message| message.role == "assistant").count()
    }

    /// What patterns of transcripts are matched against, without what only the server knows.
    #[must_use]
    pub fn to_value(&self) -> Map<String, Value> {
        let messages: Vec<Value> = self.messages.iter().map(ViewMessage::to_value).collect();
        let results: Vec<&str> = {
            let tail = self.messages.iter().rev().take_while(|message| message.role != "assistant");
            let mut results: Vec<_> =
                tail.filter(|message| message.role == "tool").map(|message| message.text.as_str()).collect();
            results.reverse();
            results
        };
        let whole = json!({
            "model": self.model, "system": self.system, "messages": messages, "tools": self.tools,
            "last_user": self.newest_user(), "last_tool_result": results.last(), "tool_results": results,
            "last_role": self.messages.last().map(|message| message.role.as_str()),
        });
        whole.as_object().cloned().unwrap_or_default()
    }

    fn read_chat(&mut self, body: &Value) {
        for message in items(body, "messages") {
            let role = text(message.get("role"));
            let content = content_text(message.get("content"));
            if role == "system" || role == "developer" {
                self.system.push_str(&content);
                continue;
            }
            let calls = items(message, "tool_calls").iter().map(|call| {
                let function = call.get("function");
                let part = |key: &str| text(function.and_then(|function| function.get(key)));
                (text(call.get("id")), part("name"), part("arguments"))
            });
            self.messages.push(ViewMessage {
                text: content,
                reasoning: text(message.get("reasoning_content")) + &text(message.get("reasoning")),
                calls: calls.collect(),
                answers: message.get("tool_call_id").map(|id| text(Some(id))),
                role,
            });
        }
    }

    fn read_messages(&mut self, body: &Value) {
        self.system = content_text(body.get("system"));
        for message in items(body, "messages") {
            let role = text(message.get("role"));
            let content = message.get("content").cloned().unwrap_or_default();
            let blocks = match content {
                Value::Array(blocks) => blocks,
                other => vec![json!({"type": "text", "text": other})],
            };
            let mut rest = ViewMessage { role: role.clone(), ..ViewMessage::default() };
            let mut has_rest = blocks.is_empty();
            for block in &blocks {
                match text(block.get("type")).as_str() {
                    "tool_result" => self.messages.push(ViewMessage {
                        role: "tool".into(),
                        text: content_text(block.get("content")),
                        answers: Some(text(block.get("tool_use_id"))),
                        ..ViewMessage::default()
                    }),
                    "tool_use" => {
                        let input = block.get("input").map(Value::to_string).unwrap_or_default();
                        rest.calls.push((text(block.get("id")), text(block.get("name")), input));
                        has_rest = true;
                    }
                    "thinking" => {
                        rest.reasoning.push_str(&text(block.get("thinking")));
                        has_rest = true;
                    }
                    _ => {
                        rest.text.push_str(&text(block.get("text")));
                        has_rest = true;
                    }
                }
            }
            if has_rest {
                self.messages.push(rest);
            }
        }
    }

    fn read_responses(&mut self, body: &Value) {
        self.system = text(body.get("instructions"));
        for item in items(body, "input") {
            match text(item.get("type")).as_str() {
                "function_call" => {
                    let call = (text(item.get("call_id")), text(item.get("name")), text(item.get("arguments")));
                    self.answer(|message| message.calls.push(call));
                }
                "function_call_output" => self.messages.push(ViewMessage {
                    role: "tool".into(),
                    text: content_text(item.get("output")),
                    answers: Some(text(item.get("call_id"))),
                    ..ViewMessage::default()
                }),
                "reasoning" => {
                    let summary = content_text(item.get("summary"));
                    self.answer(|message| message.reasoning.push_str(&summary));
                }
                _ => {
                    let (role, content) = (text(item.get("role")), content_text(item.get("content")));
                    match role.as_str() {
                        "system" | "developer" => self.system.push_str(&content),
                        "assistant" => self.answer(|message| message.text.push_str(&content)),
                        _ => self.messages.push(ViewMessage { role, text: content, ..ViewMessage::default() }),
                    }
                }
            }
        }
    }

    /// Adds to the assistant message under way, as items of one answer arrive one by one.
    fn answer(&mut self, add: impl FnOnce(&mut ViewMessage)) {
        let under_way = self.messages.pop_if(|message| message.role == "assistant");
        let mut message =
            under_way.unwrap_or_else(|| ViewMessage { role: "assistant".into(), ..ViewMessage::default() });
        add(&mut message);
        self.messages.push(message);
    }
}

impl ViewMessage {
    fn to_value(&self) -> Value {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments}))
            .collect();
        json!({
            "role": self.role, "text": self.text, "reasoning": self.reasoning, "tool_calls": calls,
            "tool_call_id": self.answers,
        })
    }
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// The text of a content that is a string or a list of parts.
fn content_text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Array(parts)) => parts.iter().map(|part| text(part.get("text"))).collect(),
        other => text(other),
    }
}

fn tool_name(tool: &Value) -> String {
    text(tool.get("function").and_then(|function| function.get("name")).or_else(|| tool.get("name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: ApiMode, body: Value) {
        let view = View::of(format, &body);
        assert_eq!(view.system, "S");
        let roles: Vec<_> =
            view.messages.iter().map(|message| (message.role.as_str(), message.text.as_str())).collect();
        assert_eq!(roles, [("user", "u"), ("assistant", "a"), ("tool", "r1"), ("tool", "r2")]);
        assert_eq!(view.messages[1].calls[1], ("c2".into(), "t".into(), "{\"a\":1}".into()));
        assert_eq!((view.newest_user(), view.step(), view.tools.as_slice()), ("u", 1, ["t".to_owned()].as_slice()));
        assert_eq!(view.to_value()["tool_results"], json!(["r1", "r2"]));
    }

    #[test]
    fn the_same_history_reads_the_same_in_every_format() {
        let function = json!({"name": "t", "arguments": "{\"a\":1}"});
        check(
            ApiMode::ChatCompletions,
            json!({"tools": [{"type": "function", "function": {"name": "t"}}], "messages": [
                {"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": "a", "tool_calls": [{"id": "c1", "function": function}, {"id": "c2", "function": function}]},
                {"role": "tool", "tool_call_id": "c1", "content": "r1"}, {"role": "tool", "tool_call_id": "c2", "content": "r2"}]}),
        );
        check(
            ApiMode::AnthropicMessages,
            json!({"tools": [{"name": "t"}], "system": [{"type": "text", "text": "S"}], "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": [{"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1}}, {"type": "tool_use", "id": "c2", "name": "t", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "r2"}]}]}]}),
        );
        let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "{\"a\":1}"});
        check(
            ApiMode::CodexResponses,
            json!({"tools": [{"type": "function", "name": "t"}], "instructions": "S", "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}, call("c1"), call("c2"),
                {"type": "function_call_output", "call_id": "c1", "output": "r1"}, {"type": "function_call_output", "call_id": "c2", "output": "r2"}]}),
        );
    }
}
