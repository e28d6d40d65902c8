//! The store as other programs see it: shared, full, and read from outside.

use futures_util::future::join_all;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use turnd::script::agent::{Agent, KILL};

use crate::support::lab::{Lab, WAIT, prompt, turnd};

const SESSIONS: usize = 20;
const TURNS: usize = 10;

fn ask(lab: &Lab, sql: &str) -> i64 {
    let path = lab.stage.home().join("sessions.db");
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Opens sessions and runs turns in all of them at once; the number of turns that ended well.
async fn run_turns(lab: &Lab) -> usize {
    let mut client = lab.start(&turnd()).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(lab.session(&mut client).await);
    }
    let mut ended = 0;
    for turn in 0..TURNS {
        let mut expected = Vec::new();
        for session in &sessions {
            let id = json!(format!("{session} {turn}"));
            let message = json!({"id": id, "method": "session/prompt", "params": prompt(session, "hello")});
            client.send(&message).await.unwrap();
            expected.push(id);
        }
        let mut from = 0;
        let deadline = tokio::time::Instant::now() + WAIT;
        while !expected.is_empty() {
            let index = client.next_from(from, deadline).await.unwrap();
            from = index + 1;
            let message = &client.entries()[index].message;
            if message["result"]["stopReason"] == "end_turn" {
                let before = expected.len();
                expected.retain(|id| *id != message["id"]);
                ended += before - expected.len();
            }
            assert!(message.get("error").is_none(), "{message}");
        }
    }
    client.close_stdin();
    client.process.wait().await.unwrap();
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_share_a_store_and_lose_nothing() {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    let ended: usize = join_all([run_turns(&lab), run_turns(&lab)]).await.into_iter().sum();
    assert_eq!(ended, 2 * SESSIONS * TURNS);
    assert_eq!(ask(&lab, "select count(*) from turns where status = 'completed'"), 400);
    assert_eq!(ask(&lab, "select count(*) from messages where role = 'user'"), 400);
    assert_eq!(ask(&lab, "select count(*) from messages where role = 'assistant'"), 400);
    assert_eq!(ask(&lab, "select count(*) from pragma_integrity_check where integrity_check <> 'ok'"), 0);
}

#[tokio::test]
async fn a_signal_in_a_turn_is_stored_as_an_interruption() {
    let lab = Lab::new(json!([{"text": "never", "delay_ms": 60000}]), json!({})).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": 1, "method": "session/prompt", "params": prompt(&session, "hello")})).await.unwrap();
    lab.model.wait_for(|seen| (!seen.is_empty()).then_some(())).await;
    client.process.signal(15).unwrap();
    tokio::time::timeout(WAIT, client.process.wait()).await.unwrap().unwrap();
    assert_eq!(ask(&lab, "select count(*) from turns where status = 'interrupted'"), 1);
    assert_eq!(ask(&lab, "select count(*) from messages where role = 'user'"), 1);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_what_was_stored_stays() {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    // A file size limit stands in for the disk; ignoring the signal makes the write itself fail.
    let limited = format!("trap '' XFSZ; ulimit -f 4000; exec {}", env!("CARGO_BIN_EXE_turnd"));
    let mut client = lab.start(&Agent::Program(vec!["sh".into(), "-c".into(), limited])).await;
    let session = lab.session(&mut client).await;
    let mut stored = 0;
    let mut refusal = Value::Null;
    for turn in 0..200 {
        let text = format!("{turn} {}", "filler ".repeat(1000));
        let answer = client.request(json!(turn), "session/prompt", prompt(&session, &text), WAIT).await.unwrap();
        if answer.get("error").is_some() {
            refusal = answer;
            break;
        }
        stored += 1;
    }
    assert!(stored > 0 && refusal["error"]["code"] == -32603, "{stored} stored, then {refusal}");
    let list = client.request(json!("list"), "session/list", json!({}), WAIT).await.unwrap();
    assert!(list.get("result").is_some(), "{list}");
    client.close_stdin();
    client.process.wait().await.unwrap();
    assert!(!client.process.log().contains("panicked"), "{}", client.process.log());

    let mut client = lab.start(&turnd()).await;
    let loaded = lab.load(&mut client, &session).await;
    assert!(loaded.get("result").is_some(), "{loaded}");
    let answer = client.request(json!("more"), "session/prompt", prompt(&session, "more"), WAIT).await.unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(ask(&lab, "select count(*) from messages where role = 'user'") > stored);
    assert_eq!(lab.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_has_one_owner_and_the_other_daemon_says_so() {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    let mut first = lab.start(&turnd()).await;
    let session = lab.session(&mut first).await;
    let answer = first.request(json!(1), "session/prompt", prompt(&session, "hello"), WAIT).await.unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");

    let mut second = lab.start(&turnd()).await;
    let refused = lab.load(&mut second, &session).await;
    assert!(refused["error"]["message"].is_string(), "{refused}");
    first.process.signal(KILL).unwrap();
    first.process.wait().await.unwrap();
    let loaded = lab.load(&mut second, &session).await;
    assert!(loaded.get("result").is_some(), "a dead owner holds nothing: {loaded}");
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_left_alone_and_said_so() {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.close_stdin();
    client.process.wait().await.unwrap();
    let path = lab.stage.home().join("sessions.db");
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9999).unwrap();

    let mut client = lab.start(&turnd()).await;
    let params = json!({"cwd": lab.stage.workspace(), "mcpServers": []});
    let refused = client.request(json!("new"), "session/new", params, WAIT).await.unwrap();
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("9999"), "{refused}");
    let refused = lab.load(&mut client, &session).await;
    assert!(refused.get("error").is_some(), "{refused}");
    assert_eq!(ask(&lab, "select count(*) from sessions"), 1);
}
