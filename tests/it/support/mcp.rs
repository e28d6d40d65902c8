//! Sessions with servers of tools: the script of a server over pipes, and questions that are answered.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::client::{Client, Entry, Side};

use super::lab::{Lab, WAIT, prompt};

/// A server over pipes: `tests/mcp/server.sh`, misbehaving as `mode` says, with its notes in `folder`.
pub(crate) fn program(name: &str, mode: &str, folder: &Path) -> Value {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.sh");
    std::fs::create_dir_all(folder).unwrap();
    json!({"name": name, "command": "/bin/sh", "args": [script, mode, folder], "env": []})
}

/// A model's call of a tool.
pub(crate) fn call(id: &str, tool: &str, arguments: Value) -> Value {
    json!({"tool_calls": [{"id": id, "name": tool, "arguments": arguments}]})
}

/// One client that talks in one session and answers every question in the same way.
pub(crate) struct Talk {
    pub(crate) client: Client,
    pub(crate) session: String,
    /// The option's id, or `cancelled`.
    pub(crate) answer: &'static str,
    /// Every question so far.
    pub(crate) asked: Vec<Value>,
    prompts: usize,
}

impl Talk {
    /// Opens a session with these servers.
    pub(crate) async fn open(lab: &Lab, mut client: Client, servers: Value) -> Self {
        let params = json!({"cwd": lab.stage.workspace(), "mcpServers": servers});
        let answer = client.request(json!("new"), "session/new", params, WAIT).await.unwrap();
        let session = answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}"));
        Self { session: session.to_owned(), client, answer: "allow_once", asked: Vec::new(), prompts: 0 }
    }

    /// Sends a prompt and gives the answer to it.
    pub(crate) async fn say(&mut self, text: &str) -> Value {
        let id = self.begin(text).await;
        self.end(&id).await
    }

    /// Sends a prompt.
    pub(crate) async fn begin(&mut self, text: &str) -> Value {
        self.prompts += 1;
        let id = json!(format!("prompt {}", self.prompts));
        let message = json!({"id": id, "method": "session/prompt", "params": prompt(&self.session, text)});
        self.client.send(&message).await.unwrap();
        id
    }

    /// Answers questions until the request with this id is answered.
    pub(crate) async fn end(&mut self, id: &Value) -> Value {
        self.until(|entry| entry.is_response() && entry.message["id"] == *id).await
    }

    /// Answers questions until there is such a line.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Entry) -> bool) -> Value {
        let deadline = Instant::now() + WAIT;
        let mut from = self.client.entries().iter().rposition(|entry| entry.from == Side::Client).unwrap_or(0);
        loop {
            let index = self.client.next_from(from, deadline).await;
            let index = index.unwrap_or_else(|silence| {
                let told: Vec<_> = self.client.entries().iter().map(|entry| entry.message.to_string()).collect();
                panic!("{silence}\n{}\n{}", told.join("\n"), self.client.process.log())
            });
            from = index + 1;
            let entry = self.client.entries()[index].clone();
            if entry.method() == Some("session/request_permission") {
                let outcome = match self.answer {
                    "cancelled" => json!({"outcome": "cancelled"}),
                    option => json!({"outcome": "selected", "optionId": option}),
                };
                let answer = json!({"id": entry.message["id"], "result": {"outcome": outcome}});
                self.asked.push(entry.message["params"].clone());
                self.client.send(&answer).await.unwrap();
            }
            if wanted(&entry) {
                return entry.message;
            }
        }
    }

    /// Everything the client was told beside the answer: notices, for a client without them.
    pub(crate) fn told(&self) -> String {
        super::lab::said(&self.client, 0, "agent_thought_chunk")
    }

    /// Ends the connection and waits for the daemon's end.
    pub(crate) async fn leave(mut self) -> Client {
        self.client.close_stdin();
        tokio::time::timeout(WAIT, self.client.process.wait()).await.unwrap().unwrap();
        self.client
    }
}

/// The text of the newest tool result in the model's newest request.
pub(crate) fn last_result(lab: &Lab) -> String {
    let seen = lab.model.seen();
    let messages = &seen.last().unwrap().view.messages;
    messages.iter().rev().find(|message| message.role == "tool").map(|message| message.text.clone()).unwrap_or_default()
}

/// Names of the tools offered in a request, from the first one of a server on.
pub(crate) fn offered(lab: &Lab, request: usize) -> Vec<String> {
    let seen = lab.model.seen();
    seen[request].view.tools.iter().filter(|name| name.starts_with("mcp_")).cloned().collect()
}
