//! A folder, a scripted model and as many daemons as a test wants.

use std::time::Duration;

use serde_json::{Map, Value, json};
use turnd::provider::scripted::Script;
use turnd::script::agent::{Agent, Launch};
use turnd::script::client::{Client, Entry, Side};
use turnd::script::model_server::ModelServer;
use turnd::script::stage::Stage;

/// How long any single answer may take.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// The built program.
pub(crate) fn turnd() -> Agent {
    Agent::Program(vec![env!("CARGO_BIN_EXE_turnd").into()])
}

/// The scene of one test.
pub(crate) struct Lab {
    pub(crate) stage: Stage,
    pub(crate) model: ModelServer,
}

impl Lab {
    /// `replies` as in the `model` lines of a transcript, `config` laid over the harness's own.
    pub(crate) async fn new(replies: Value, config: Value) -> Self {
        Self::start_with(replies, config, None).await
    }

    /// As [`Lab::new`], for a model that will see rewritten histories.
    pub(crate) async fn compacting(replies: Value, config: Value) -> Self {
        Self::start_with(replies, config, Some("compaction")).await
    }

    async fn start_with(replies: Value, config: Value, prefix_changes: Option<&str>) -> Self {
        let replies: Vec<_> = serde_json::from_value(replies).unwrap();
        let model = ModelServer::start(Script::new(replies), prefix_changes).await.unwrap();
        let stage = Stage::create().unwrap();
        let config: Map<String, Value> = serde_json::from_value(config).unwrap();
        stage.write_config(&model.url(), "chat_completions", &config).unwrap();
        Self { stage, model }
    }

    /// Starts an agent and sends `initialize`.
    pub(crate) async fn start(&self, agent: &Agent) -> Client {
        let launch = Launch {
            home: self.stage.home(),
            cwd: self.stage.workspace(),
            args: Vec::new(),
            environment: self.stage.environment(),
        };
        let mut client = Client::connect(agent, launch).unwrap();
        let answer = client.request(json!(0), "initialize", json!({"protocolVersion": 1}), WAIT).await.unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
        client
    }

    /// A new session.
    pub(crate) async fn session(&self, client: &mut Client) -> String {
        let params = json!({"cwd": self.stage.workspace(), "mcpServers": []});
        let answer = client.request(json!("new"), "session/new", params, WAIT).await.unwrap();
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")).to_owned()
    }

    /// Opens a stored session again.
    pub(crate) async fn load(&self, client: &mut Client, session: &str) -> Value {
        let params = json!({"sessionId": session, "cwd": self.stage.workspace(), "mcpServers": []});
        client.request(json!("load"), "session/load", params, WAIT).await.unwrap()
    }

    /// Every problem the model server saw, with the number of its request.
    pub(crate) fn refused(&self) -> Vec<String> {
        let seen = self.model.seen();
        let all = seen.iter().enumerate();
        all.flat_map(|(index, seen)| seen.problems.iter().map(move |problem| format!("{index}: {problem}"))).collect()
    }
}

/// The parameters of a prompt.
pub(crate) fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Lines of the agent among the entries.
pub(crate) fn from_agent(client: &Client) -> impl Iterator<Item = &Entry> {
    client.entries().iter().filter(|entry| entry.from == Side::Agent)
}

/// Text of all chunks of a kind among the entries from `begin` on.
pub(crate) fn said(client: &Client, begin: usize, kind: &str) -> String {
    let updates = client.entries().iter().skip(begin).filter(|entry| entry.from == Side::Agent);
    let chunks = updates.filter_map(Entry::update).filter(|update| update["sessionUpdate"] == kind);
    chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
}
