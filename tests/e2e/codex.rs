//! The real `codex app-server` runs whole turns, with a scripted Responses server as its model.
//!
//! Codex has a home of its own whose configuration points at the loopback server; nothing here leaves the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::provider::scripted::Script;
use turnd::script::agent::{Agent, Launch};
use turnd::script::client::{Client, Entry, Side};
use turnd::script::model_server::ModelServer;
use turnd::script::stage::Stage;

/// How long any single answer may take; codex starts cold.
const WAIT: Duration = Duration::from_secs(60);

/// A scene with codex as the runtime of every session.
struct Scene {
    stage: Stage,
    model: ModelServer,
    codex_home: tempfile::TempDir,
}

impl Scene {
    async fn new(codex: &Path, replies: Value, config: Value) -> Self {
        let replies: Vec<_> = serde_json::from_value(replies).unwrap();
        let model = ModelServer::start(Script::new(replies), None).await.unwrap();
        let stage = Stage::create().unwrap();
        let mut all = json!({"model": "codex/gpt-scripted", "runtime_command": [codex, "app-server"]});
        all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        stage.write_config(&model.url(), "codex_responses", all.as_object().unwrap()).unwrap();
        // Codex refuses a home below the folder for temporary files.
        let codex_home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let settings = format!(
            "model_provider = \"scripted\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n\
             [features]\nplugins = false\nremote_plugin = false\napps = false\n\
             [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\n\
             request_max_retries = 0\nstream_max_retries = 0\n",
            model.url()
        );
        std::fs::write(codex_home.path().join("config.toml"), settings).unwrap();
        Self { stage, model, codex_home }
    }

    async fn start(&self) -> Client {
        let mut environment = self.stage.environment();
        environment.push(("CODEX_HOME".into(), self.codex_home.path().display().to_string()));
        // What codex would fetch besides goes nowhere.
        for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
            environment.push((name.into(), "http://127.0.0.1:9".into()));
        }
        let launch = Launch { home: self.stage.home(), cwd: self.stage.workspace(), args: Vec::new(), environment };
        let mut client = Client::connect(&turnd(), launch).unwrap();
        client.request(json!(0), "initialize", json!({"protocolVersion": 1}), WAIT).await.unwrap();
        client
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.workspace().join(name)
    }
}

fn turnd() -> Agent {
    Agent::Program(vec![env!("CARGO_BIN_EXE_turnd").into()])
}

async fn session(scene: &Scene, client: &mut Client) -> String {
    let params = json!({"cwd": scene.stage.workspace(), "mcpServers": []});
    let answer = client.request(json!("new"), "session/new", params, WAIT).await.unwrap();
    answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")).to_owned()
}

/// Sends a prompt and gives its answer; questions are answered with `option`, and `act` may cut in on any line.
async fn prompt(
    client: &mut Client,
    session: &str,
    text: &str,
    option: &str,
    mut act: impl FnMut(&Value) -> Option<Value>,
) -> Value {
    let id = json!(format!("prompt-{}", client.entries().len()));
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params})).await.unwrap();
    let mut from = client.entries().len();
    loop {
        let at = client.next_from(from, Instant::now() + WAIT).await.unwrap();
        from = at + 1;
        let message = client.entries()[at].message.clone();
        if let Some(reaction) = act(&message) {
            client.send(&reaction).await.unwrap();
        }
        if message["method"] == "session/request_permission" {
            let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
            client.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": outcome})).await.unwrap();
        }
        if message["id"] == id {
            return message;
        }
    }
}

fn quiet(_: &Value) -> Option<Value> {
    None
}

/// Every update of a kind so far.
fn updates<'a>(client: &'a Client, kind: &str) -> Vec<&'a Value> {
    let entries = client.entries().iter().filter(|entry| entry.from == Side::Agent);
    entries.filter_map(Entry::update).filter(|update| update["sessionUpdate"] == kind).collect()
}

fn said(client: &Client) -> String {
    updates(client, "agent_message_chunk").iter().filter_map(|update| update["content"]["text"].as_str()).collect()
}

fn questions(client: &Client) -> usize {
    let entries = client.entries().iter();
    entries.filter(|entry| entry.method() == Some("session/request_permission")).count()
}

fn call(id: &str, command: &str) -> Value {
    json!({"tool_calls": [{"id": id, "name": "exec_command", "arguments": {"cmd": command}}]})
}

const PATCH: &str = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\nEOF";

/// Commands, a patch, approvals, text and tokens of one turn; then a later process goes on with the thread.
pub(super) async fn runs_whole_turns(codex: &Path) {
    let replies = json!([
        call("c1", "touch made.txt && echo hi"),
        call("c2", PATCH),
        {"reasoning": "Nearly there.", "text": "All done.", "usage": {"input_tokens": 100, "output_tokens": 7}},
        {"text": "I remember."},
    ]);
    let scene = Scene::new(codex, replies, json!({})).await;
    let mut client = scene.start().await;
    let id = session(&scene, &mut client).await;
    let answer = prompt(&mut client, &id, "do it", "allow_once", quiet).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(answer["result"]["_meta"]["turnd"]["steps"], 3, "{answer}");
    assert!(scene.file("made.txt").exists());
    assert_eq!(std::fs::read_to_string(scene.file("new.txt")).unwrap(), "hello\n");
    assert_eq!(said(&client), "All done.");
    assert_eq!(questions(&client), 2);
    let calls = updates(&client, "tool_call");
    assert_eq!(calls[0]["rawInput"]["command"], "touch made.txt && echo hi");
    assert_eq!((&calls[0]["kind"], &calls[1]["kind"]), (&json!("execute"), &json!("edit")));
    assert_eq!(calls[1]["content"][0]["newText"], "hello\n", "{}", calls[1]);
    drop(client);

    let mut client = scene.start().await;
    let params = json!({"sessionId": id, "cwd": scene.stage.workspace(), "mcpServers": []});
    let loaded = client.request(json!("load"), "session/load", params, WAIT).await.unwrap();
    assert!(loaded.get("result").is_some(), "{loaded}");
    assert_eq!(said(&client), "All done.");
    let answer = prompt(&mut client, &id, "and now?", "allow_once", quiet).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let newest = scene.model.seen().last().unwrap().body.to_string();
    assert!(newest.contains("do it") && newest.contains("All done."), "the thread was not taken up again");
}

/// What our gate forbids or the user refuses does not run.
pub(super) async fn obeys_the_gate(codex: &Path) {
    let replies = json!([call("c1", "touch refused.txt"), call("c2", "rm -f kept.txt"), {"text": "Then not."}]);
    let rules = json!({"rules": [{"effect": "deny", "tool": "terminal", "command": "rm *"}]});
    let scene = Scene::new(codex, replies, rules).await;
    std::fs::write(scene.file("kept.txt"), "x").unwrap();
    let mut client = scene.start().await;
    let id = session(&scene, &mut client).await;
    let answer = prompt(&mut client, &id, "do it", "reject_once", quiet).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(!scene.file("refused.txt").exists() && scene.file("kept.txt").exists());
    assert_eq!(questions(&client), 1, "a deny rule is no question");
    let ends = updates(&client, "tool_call_update");
    assert_eq!(ends.iter().filter(|update| update["status"] == "failed").count(), 2);
}

/// A cancel ends the turn and what it started, and the next prompt works.
pub(super) async fn is_cancelled(codex: &Path) {
    let replies = json!([call("c1", "touch began; sleep 300"), {"text": "Here again."}]);
    let scene = Scene::new(codex, replies, json!({})).await;
    let mut client = scene.start().await;
    let id = session(&scene, &mut client).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}});
    let on_start = |message: &Value| (message["params"]["update"]["status"] == "in_progress").then(|| cancel.clone());
    let answer = prompt(&mut client, &id, "do it", "allow_once", on_start).await;
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    let answer = prompt(&mut client, &id, "again", "allow_once", quiet).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(said(&client), "Here again.");
    client.close_stdin();
    client.drain(Instant::now() + WAIT).await;
    let left = turnd::script::stage::processes_in(scene.stage.root());
    assert!(left.iter().all(|line| !line.contains("sleep 300")), "{left:?}");
}
