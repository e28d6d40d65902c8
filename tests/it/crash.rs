//! `kill -9` at any moment: what was acknowledged is there, and the next request is one that a strict
//! provider accepts.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::agent::KILL;
use turnd::script::client::{Client, Entry};

use crate::support::lab::{Lab, WAIT, from_agent, prompt, said, turnd};

/// Kills per sweep.
const POINTS: usize = 200;
/// Kills at a time.
const AT_A_TIME: usize = 4;
/// Lines of the turn after which the process is killed, at least.
const LINES: usize = 10;

fn replies() -> Value {
    let write = json!({"id": "w1", "name": "write_file", "arguments": {"path": "b.txt", "content": "beta"}});
    let read = |id: &str| json!({"id": id, "name": "read_file", "arguments": {"path": "a.txt"}});
    json!([
        {"when": {"user_contains": "sweep"}, "replies": [
            {"reasoning": "first", "text": "reading", "tool_calls": [read("r1"), read("r2")], "chunk": 4},
            {"text": "writing", "tool_calls": [write]},
            {"text": "all done"},
        ]},
        {"when": {"user_contains": "afterwards"}, "text": "still here"},
    ])
}

/// What the client had been told when the process died.
struct Acknowledged {
    /// Any update of the turn, or a request to the model.
    is_begun: bool,
    /// Calls whose end was shown.
    ended_calls: Vec<String>,
    /// The prompt was answered.
    is_answered: bool,
}

fn acknowledged(client: &Client, lab: &Lab) -> Acknowledged {
    let ended = |update: &Value| ["completed", "failed"].contains(&update["status"].as_str().unwrap_or_default());
    let updates = from_agent(client).filter_map(Entry::update);
    let calls = updates.filter(|update| ended(update)).filter_map(|update| update["toolCallId"].as_str());
    Acknowledged {
        is_begun: !lab.model.seen().is_empty(),
        ended_calls: calls.map(str::to_owned).collect(),
        is_answered: from_agent(client).any(|entry| entry.is_response() && entry.message["id"] == "turn"),
    }
}

/// One kill: after `lines` lines of the turn and `delay` more.
async fn kill_at(lines: usize, delay: Duration) -> Result<(), String> {
    let lab = Lab::new(replies(), json!({"mode": "full_access"})).await;
    std::fs::write(lab.stage.workspace().join("a.txt"), "alpha").unwrap();
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": "turn", "method": "session/prompt", "params": prompt(&session, "sweep")})).await.unwrap();
    let mut from = client.entries().len();
    for _ in 0..lines {
        let Ok(index) = client.next_from(from, Instant::now() + Duration::from_secs(1)).await else { break };
        from = index + 1;
        if client.entries()[index].message["id"] == "turn" {
            break;
        }
    }
    tokio::time::sleep(delay).await;
    client.process.signal(KILL).map_err(|error| error.to_string())?;
    client.process.wait().await.unwrap();
    client.drain(Instant::now() + WAIT).await;
    let known = acknowledged(&client, &lab);

    let mut client = lab.start(&turnd()).await;
    let begin = client.entries().len();
    let loaded = lab.load(&mut client, &session).await;
    if loaded.get("result").is_none() {
        return Err(format!("the session does not load: {loaded}"));
    }
    let user = said(&client, begin, "user_message_chunk");
    if known.is_begun && user != "sweep" {
        return Err(format!("the user's message is gone: {user:?}"));
    }
    let answer = client.request(json!("next"), "session/prompt", prompt(&session, "afterwards"), WAIT).await.unwrap();
    if answer["result"]["stopReason"] != "end_turn" {
        return Err(format!("the next prompt failed: {answer}"));
    }
    client.close_stdin();
    client.process.wait().await.unwrap();
    check_history(&lab, &known)
}

fn check_history(lab: &Lab, known: &Acknowledged) -> Result<(), String> {
    let refused = lab.refused();
    if !refused.is_empty() {
        return Err(refused.join("; "));
    }
    let seen = lab.model.seen();
    let view = &seen.last().ok_or("no request")?.view;
    for call in &known.ended_calls {
        let result = view.messages.iter().find(|message| message.answers.as_ref() == Some(call));
        let text = result.map(|message| message.text.as_str()).unwrap_or_default();
        if text.is_empty() || text.contains("unknown") {
            return Err(format!("the result of {call} was shown and is not stored: {text:?}"));
        }
    }
    if known.is_answered && !view.messages.iter().any(|message| message.text == "all done") {
        return Err("the answer was given and is not stored".into());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_of_a_turn_loses_nothing_acknowledged() {
    let points = (0..POINTS).map(|point| (point % LINES, Duration::from_micros((point / LINES * 150) as u64)));
    let failures: Vec<String> = stream::iter(points)
        .map(|(lines, delay)| async move {
            let outcome = kill_at(lines, delay).await;
            outcome.err().map(|problem| format!("{lines} lines + {delay:?}: {problem}"))
        })
        .buffer_unordered(AT_A_TIME)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    assert!(failures.is_empty(), "{} of {POINTS}:\n{}", failures.len(), failures.join("\n"));
}
