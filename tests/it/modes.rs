//! One turn in the three wire formats: what is stored does not depend on how the model was spoken to.

use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value, json};
use turnd::provider::scripted::Script;
use turnd::script::model_server::ModelServer;
use turnd::script::stage::Stage;

use crate::support::lab::{Lab, WAIT, prompt, turnd};

const MODES: [&str; 3] = ["chat_completions", "anthropic_messages", "codex_responses"];

/// A thought and a text, two calls of which one fails, a failed request, and an answer.
fn replies() -> Value {
    json!([
        {
            "reasoning": "let me look", "text": "Reading both.", "chunk": 3,
            "tool_calls": [
                {"id": "call_a", "name": "read_file", "arguments": {"path": "a.txt"}},
                {"id": "call_b", "name": "terminal", "arguments": {"command": "while [ ! -e go ]; do sleep 0.02; done; false"}},
            ],
            // No thinking is counted here: the Messages format does not tell it apart from the answer.
            "usage": {"input_tokens": 900, "output_tokens": 40, "cached_tokens": 300},
        },
        {"status": 503, "error": "busy"},
        {"text": "half of nothing at all", "chunk": 3, "cut_after": 4},
        {
            "tool_calls": [{"id": "call_c", "name": "read_file", "arguments": {"path": "missing.txt"}}],
            "usage": {"input_tokens": 1000, "output_tokens": 10},
        },
        {"reasoning": "so that is it", "text": "One file, \u{1f600} and no other.", "usage": {"input_tokens": 1100, "output_tokens": 20}},
    ])
}

/// Everything stored of the session, without clocks and without what names the provider's own format.
fn stored(lab: &Lab) -> Vec<String> {
    let path = lab.stage.home().join("sessions.db");
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut rows = Vec::new();
    for table in ["messages", "tool_calls", "turns", "usage", "approvals"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY rowid")).unwrap();
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let fields =
                names.iter().enumerate().filter(|(_, name)| !name.ends_with("_at_ms") && !name.ends_with("_ms"));
            let row: Vec<_> =
                fields.map(|(at, name)| format!("{name}={:?}", value(table, name, row.get(at).unwrap()))).collect();
            let place = lab.stage.workspace().to_string_lossy().into_owned();
            rows.push(format!("{table}: {}", row.join(" ")).replace(&place, "WORKSPACE"));
        }
    }
    rows
}

/// A column's value; ids that the daemon makes and the provider's own items are left out.
fn value(table: &str, name: &str, value: rusqlite::types::Value) -> Value {
    match value {
        rusqlite::types::Value::Null => Value::Null,
        rusqlite::types::Value::Integer(number) => json!(number),
        rusqlite::types::Value::Real(number) => json!(number),
        rusqlite::types::Value::Blob(bytes) => json!(bytes.len()),
        rusqlite::types::Value::Text(_) if matches!((table, name), (_, "session_id" | "turn_id") | ("turns", "id")) => {
            json!("made by the daemon")
        }
        rusqlite::types::Value::Text(text) => match serde_json::from_str(&text) {
            Ok(parsed) => without_native(parsed),
            Err(_) => json!(text),
        },
    }
}

fn without_native(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| name != "native");
            Value::Object(kept.map(|(name, value)| (name, without_native(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_native).collect(),
        other => other,
    }
}

/// Plays the turn in one format; a steer arrives while the command runs.
async fn play(mode: &str) -> Vec<String> {
    let replies: Vec<_> = serde_json::from_value(replies()).unwrap();
    let model = ModelServer::start(Script::new(replies), None).await.unwrap();
    let stage = Stage::create().unwrap();
    let config: Map<String, Value> = serde_json::from_value(json!({"mode": "full_access"})).unwrap();
    stage.write_config(&model.url(), mode, &config).unwrap();
    let lab = Lab { stage, model };
    std::fs::write(lab.stage.workspace().join("a.txt"), "alpha\n").unwrap();
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    let turn = json!({"id": "turn", "method": "session/prompt", "params": prompt(&session, "what is there?")});
    client.send(&turn).await.unwrap();
    let mut from = 0;
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let index = client.next_from(from, deadline).await.unwrap();
        from = index + 1;
        let update = &client.entries()[index].message["params"]["update"];
        if update["toolCallId"] == "call_b" && update["status"] == "in_progress" {
            break;
        }
    }
    let steer = json!({"sessionId": session, "prompt": [{"type": "text", "text": "be brief"}]});
    let answer = client.request(json!("steer"), "_session/steering", steer, WAIT).await.unwrap();
    assert_eq!(answer["result"]["outcome"], "injected", "{answer}");
    std::fs::write(lab.stage.workspace().join("go"), "").unwrap();
    loop {
        let index = client.next_from(from, deadline).await.unwrap();
        from = index + 1;
        let message = &client.entries()[index].message;
        if message["id"] == "turn" {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            break;
        }
    }
    client.close_stdin();
    client.process.wait().await.unwrap();
    assert_eq!(lab.refused(), Vec::<String>::new());
    stored(&lab)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_turn_leaves_the_same_rows_in_every_wire_format() {
    let [chat, messages, responses] = futures_util::future::join_all(MODES.map(play)).await.try_into().unwrap();
    let all = chat.join("\n");
    for part in ["let me look", "Reading both.", "call_a", "call_b", "call_c", "be brief", "\u{1f600} and no other"] {
        assert!(all.contains(part), "{part} is not stored:\n{all}");
    }
    assert!(!all.contains("hal"), "text of a failed request is stored:\n{all}");
    assert_eq!(chat, messages);
    assert_eq!(chat, responses);
}
