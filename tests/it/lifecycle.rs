//! The process and its children, as the system sees them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use turnd::script::agent::{Agent, KILL};
use turnd::script::client::Client;
use turnd::script::stage::processes_in;

use crate::support::lab::{Lab, WAIT, prompt, turnd};

async fn running_command(command: &str) -> (Lab, Client) {
    let call = json!({"id": "c1", "name": "terminal", "arguments": {"command": command}});
    let lab =
        Lab::new(json!([{"tool_calls": [call]}, {"text": "done", "repeat": true}]), json!({"mode": "full_access"}));
    let lab = lab.await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": 1, "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();
    let deadline = Instant::now() + WAIT;
    while !lab.stage.workspace().join("begun").exists() {
        assert!(Instant::now() < deadline, "the command did not begin");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (lab, client)
}

/// Waits until nothing runs in the workspace any more.
async fn is_quiet(lab: &Lab, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if processes_in(&lab.stage.workspace()).is_empty() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn a_killed_daemon_takes_its_commands_along() {
    let (lab, mut client) = running_command("touch begun; sleep 31; touch late").await;
    client.process.signal(KILL).unwrap();
    client.process.wait().await.unwrap();
    assert!(is_quiet(&lab, Duration::from_secs(2)).await, "{:?}", processes_in(&lab.stage.workspace()));
}

#[tokio::test]
async fn commands_leave_no_zombies_behind() {
    let call = |id: usize| json!({"id": format!("c{id}"), "name": "terminal", "arguments": {"command": "(sleep 0.01 &) ; true"}});
    let calls: Vec<_> = (0..10).map(call).collect();
    let replies = json!([{"tool_calls": calls}, {"text": "done", "repeat": true}]);
    let lab = Lab::new(replies, json!({"mode": "full_access"})).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    let answer = client.request(json!(1), "session/prompt", prompt(&session, "go"), WAIT).await.unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let children = format!("/proc/{0}/task/{0}/children", client.process.pid().unwrap());
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let left = std::fs::read_to_string(&children).unwrap();
        if left.trim().is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "children left: {left}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    // A named pipe that is open for reading and never read: it takes 64 KiB and then no more.
    let command = format!("mkfifo log; exec {} --log-level trace 2<>log", env!("CARGO_BIN_EXE_turnd"));
    let mut client = lab.start(&Agent::Program(vec!["sh".into(), "-c".into(), command])).await;
    let session = lab.session(&mut client).await;
    for turn in 0..100 {
        let text = "words ".repeat(200);
        let answer = client.request(json!(turn), "session/prompt", prompt(&session, &text), WAIT).await.unwrap();
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    client.close_stdin();
    tokio::time::timeout(Duration::from_secs(5), client.process.wait()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (lab, mut client) = running_command("trap '' TERM INT; touch begun; sleep 31; sleep 32").await;
    client.process.signal(15).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The first one may have been enough.
    client.process.signal(15).ok();
    tokio::time::timeout(Duration::from_secs(3), client.process.wait()).await.unwrap().unwrap();
    assert!(is_quiet(&lab, Duration::from_secs(2)).await, "{:?}", processes_in(&lab.stage.workspace()));
}
