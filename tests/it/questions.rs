//! Questions of sessions that run side by side: an answer counts where it was asked for.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::client::{Client, Entry};

use crate::support::lab::{Lab, prompt, turnd};

/// Turns of each session, and of each when one of them gives its work to child agents.
const TURNS: usize = 200;
const CHILD_TURNS: usize = 50;

fn write(id: &str, path: &str) -> Value {
    json!([{"tool_calls": [{"id": id, "name": "write_file", "arguments": {"path": path, "content": "x"}}]}, {"text": "ok"}])
}

fn delegate(goal: &str) -> Value {
    json!([{"tool_calls": [{"name": "delegate_task", "arguments": {"goal": goal}}]}, {"text": "ok"}])
}

/// Lets both sessions take their turns at the same time; `answers` holds each session's one answer to every
/// question. Gives how many questions each was asked.
async fn race(client: &mut Client, turns: usize, sessions: [(&str, &str, &str); 2]) -> [usize; 2] {
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut left = [turns; 2];
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
    let (a, b) = (lab.session(&mut client).await, lab.session(&mut client).await);
    let asked = race(&mut client, TURNS, [(&a, "write a", "reject_once"), (&b, "write b", "allow_once")]).await;
    assert_eq!(asked, [TURNS, TURNS]);
    assert!(!lab.stage.workspace().join("a.txt").exists());
    assert!(lab.stage.workspace().join("b.txt").exists());
    assert_eq!(lab.refused(), Vec::<String>::new());
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
    let (a, b) = (lab.session(&mut client).await, lab.session(&mut client).await);
    let asked = race(&mut client, CHILD_TURNS, [(&a, "give away", "reject_once"), (&b, "write b", "allow_once")]).await;
    assert_eq!(asked, [CHILD_TURNS; 2]);
    assert!(!lab.stage.workspace().join("a.txt").exists());
}
