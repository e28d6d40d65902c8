//! Questions of sessions that run side by side: an answer counts where it was asked for.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::client::{Client, Entry};

use crate::support::lab::{Lab, prompt, turnd};

/// Turns of each session. Ten pairs of sessions make 200 turns on each side; short histories keep them quick.
const TURNS: usize = 20;
const PAIRS: usize = 10;
/// The same where each turn has a child agent's in it.
const CHILD_PAIRS: usize = 3;

fn write(id: &str, path: &str) -> Value {
    json!([{"tool_calls": [{"id": id, "name": "write_file", "arguments": {"path": path, "content": "x"}}]}, {"text": "ok"}])
}

fn delegate(goal: &str) -> Value {
    json!([{"tool_calls": [{"name": "delegate_task", "arguments": {"goal": goal}}]}, {"text": "ok"}])
}

/// Lets both sessions take their turns at the same time; `answers` holds each session's one answer to every
/// question. Gives how many questions each was asked.
async fn race(client: &mut Client, sessions: [(&str, &str, &str); 2]) -> [usize; 2] {
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut left = [TURNS; 2];
    let mut asked = [0; 2];
    let mut from = client.entries().len();
    for (place, (session, words, _)) in sessions.iter().enumerate() {
        next_turn(client, place, session, words).await;
    }
    while left != [0, 0] {
        let index = client.next_from(from, deadline).await.unwrap();
        from = index + 1;
        let entry = client.entries()[index].clone();
        let place = |id: Option<&str>| sessions.iter().position(|(session, ..)| id == Some(*session));
        if entry.method() == Some("session/request_permission") {
            let place = place(entry.session()).unwrap();
            asked[place] += 1;
            let outcome = json!({"outcome": "selected", "optionId": sessions[place].2});
            let answer = json!({"id": entry.message["id"], "result": {"outcome": outcome}});
            client.send(&answer).await.unwrap();
        } else if let Some(place) = ended(&entry) {
            left[place] -= 1;
            if left[place] > 0 {
                let (session, words, _) = sessions[place];
                next_turn(client, place, session, words).await;
            }
        }
    }
    asked
}

async fn next_turn(client: &mut Client, place: usize, session: &str, words: &str) {
    let message = json!({"id": format!("turn{place}"), "method": "session/prompt", "params": prompt(session, words)});
    client.send(&message).await.unwrap();
}

fn ended(entry: &Entry) -> Option<usize> {
    let id = entry.message["id"].as_str().filter(|_| entry.is_response())?;
    assert_eq!(entry.message["result"]["stopReason"], "end_turn", "{}", entry.message);
    id.strip_prefix("turn")?.parse().ok()
}

#[tokio::test]
async fn what_one_session_approves_never_runs_in_another() {
    let replies = json!([
        {"when": {"user_contains": "write a"}, "replies": write("a", "a.txt")},
        {"when": {"user_contains": "write b"}, "replies": write("b", "b.txt")},
    ]);
    let lab = Lab::new(replies, json!({})).await;
    let mut client = lab.start(&turnd()).await;
    for _ in 0..PAIRS {
        let (a, b) = (lab.session(&mut client).await, lab.session(&mut client).await);
        let asked = race(&mut client, [(&a, "write a", "reject_once"), (&b, "write b", "allow_once")]).await;
        assert_eq!(asked, [TURNS; 2]);
        // The next session has not read the file, and would not be asked about changing it.
        std::fs::remove_file(lab.stage.workspace().join("b.txt")).unwrap();
    }
    assert!(!lab.stage.workspace().join("a.txt").exists());
}

#[tokio::test]
async fn what_one_session_approves_never_runs_in_a_child_agent_of_another() {
    let replies = json!([
        {"when": {"user_contains": "write a"}, "replies": write("a", "a.txt")},
        {"when": {"user_contains": "write b"}, "replies": write("b", "b.txt")},
        {"when": {"user_contains": "give away"}, "replies": delegate("write a")},
    ]);
    let lab = Lab::new(replies, json!({})).await;
    let mut client = lab.start(&turnd()).await;
    for _ in 0..CHILD_PAIRS {
        let (a, b) = (lab.session(&mut client).await, lab.session(&mut client).await);
        let asked = race(&mut client, [(&a, "give away", "reject_once"), (&b, "write b", "allow_once")]).await;
        assert_eq!(asked, [TURNS; 2]);
        // The next session has not read the file, and would not be asked about changing it.
        std::fs::remove_file(lab.stage.workspace().join("b.txt")).unwrap();
    }
    assert!(!lab.stage.workspace().join("a.txt").exists());
}
