//! Input without measure: memory stays bounded and the connection lives.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::client::Client;

use crate::support::lab::{Lab, WAIT, prompt, turnd};

/// The documented limit of one line.
const LIMIT: usize = 64 << 20;

async fn lab() -> (Lab, Client) {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    let client = lab.start(&turnd()).await;
    (lab, client)
}

/// A valid request whose line is exactly `length` bytes long.
fn line(id: &str, length: usize) -> Vec<u8> {
    let head =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"session/list\",\"params\":{{\"_meta\":{{\"x\":\"");
    let end = "\"}}}";
    let mut line = head.into_bytes();
    line.resize(length - end.len(), b'a');
    line.extend_from_slice(end.as_bytes());
    line.push(b'\n');
    line
}

async fn answer(client: &mut Client, from: usize, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let (mut from, deadline) = (from, Instant::now() + Duration::from_secs(60));
    loop {
        let index = client.next_from(from, deadline).await.unwrap();
        from = index + 1;
        if is_wanted(&client.entries()[index].message) {
            return client.entries()[index].message.clone();
        }
    }
}

/// The most memory the process ever had, in KiB.
fn peak(client: &Client) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.process.pid().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_line_at_the_limit_is_served_and_one_above_it_is_refused() {
    let (_lab, mut client) = lab().await;
    for (id, length, is_served) in [("at", LIMIT, true), ("above", LIMIT + 1, false), ("after", 200, true)] {
        let from = client.entries().len();
        client.send_bytes(&line(id, length)).await.unwrap();
        let answer = answer(&mut client, from, |message| message["id"] == id || message["id"].is_null()).await;
        assert_eq!(answer.get("result").is_some(), is_served, "{id}: {answer}");
        if !is_served {
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
        }
    }
}

#[tokio::test]
async fn a_line_without_end_costs_bounded_memory() {
    let (_lab, mut client) = lab().await;
    let from = client.entries().len();
    let piece = vec![b'a'; 8 << 20];
    for _ in 0..32 {
        client.send_bytes(&piece).await.unwrap();
    }
    client.send_bytes(b"\n").await.unwrap();
    let refused = answer(&mut client, from, |message| message["id"].is_null()).await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let served = client.request(json!(1), "session/list", json!({}), WAIT).await.unwrap();
    assert!(served.get("result").is_some(), "{served}");
    assert!(peak(&client) < 160 * 1024, "{} KiB at most", peak(&client));
}

#[tokio::test]
async fn a_thousand_open_sessions_answer_and_one_prompt_each_still_works() {
    let (lab, mut client) = lab().await;
    let mut sessions = Vec::new();
    for _ in 0..1000 {
        sessions.push(lab.session(&mut client).await);
    }
    let last = sessions.last().unwrap().clone();
    let answer = client.request(json!("p"), "session/prompt", prompt(&last, "hello"), WAIT).await.unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}
