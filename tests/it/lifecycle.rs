//! The process and its children, as the system sees them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use turnd::script::agent::{Agent, KILL};
use turnd::script::client::Client;
use turnd::script::stage::processes_in;

use crate::support::lab::{Lab, WAIT, prompt, turnd};
use crate::support::mcp::{Talk, call, program};

async fn running_command(command: &str) -> (Lab, Client) {
    let call = json!({"id": "c1", "name": "terminal", "arguments": {"command": command}});
    let lab =
        Lab::new(json!([{"tool_calls": [call]}, {"text": "done", "repeat": true}]), json!({"mode": "full_access"}));
    let lab = lab.await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": 1, "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();
    begun(&lab).await;
    (lab, client)
}

/// Waits until the program of a test says that it runs.
async fn begun(lab: &Lab) {
    let deadline = Instant::now() + WAIT;
    while !lab.stage.workspace().join("begun").exists() {
        assert!(Instant::now() < deadline, "the program did not begin");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nothing runs in the workspace any more.
async fn is_quiet(lab: &Lab) -> bool {
    let deadline = Instant::now() + WAIT;
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
    assert!(is_quiet(&lab).await, "{:?}", processes_in(&lab.stage.workspace()));
}

#[tokio::test]
async fn a_killed_daemon_takes_its_hooks_along() {
    let script = "touch begun; (setsid sleep 32 &); sleep 31; echo '{}'";
    let hook = json!({"on": "pre_llm_call", "command": ["sh", "-c", script], "timeout_seconds": 60});
    let lab = Lab::new(json!([]), json!({"hooks": [hook]})).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": 1, "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();
    begun(&lab).await;
    client.process.signal(KILL).unwrap();
    client.process.wait().await.unwrap();
    assert!(is_quiet(&lab).await, "{:?}", processes_in(&lab.stage.workspace()));
}

#[tokio::test]
async fn a_cancelled_turn_takes_its_key_command_along() {
    let mock = json!({"api_key": null, "api_key_command": "touch begun; (sleep 32 &); sleep 31; echo key"});
    let lab = Lab::new(json!([]), json!({"providers": {"mock": mock}})).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": 1, "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();
    begun(&lab).await;
    client.send(&json!({"method": "session/cancel", "params": {"sessionId": session}})).await.unwrap();
    let sleeping = || processes_in(&lab.stage.workspace()).into_iter().filter(|line| line.contains("sleep"));
    let deadline = Instant::now() + WAIT;
    while sleeping().next().is_some() {
        assert!(Instant::now() < deadline, "{:?}", sleeping().collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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
    let deadline = Instant::now() + WAIT;
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
    tokio::time::timeout(WAIT, client.process.wait()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (lab, mut client) = running_command("trap '' TERM INT; touch begun; sleep 31; sleep 32").await;
    client.process.signal(15).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The first one may have been enough.
    client.process.signal(15).ok();
    tokio::time::timeout(WAIT, client.process.wait()).await.unwrap().unwrap();
    assert!(is_quiet(&lab).await, "{:?}", processes_in(&lab.stage.workspace()));
}

/// The most memory the daemon ever had, in KiB.
fn peak(client: &Client) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.process.pid().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `OUTPUT_GB` in the environment makes it more than one.
#[tokio::test]
async fn a_gigabyte_of_output_costs_flat_memory() {
    let call = |bytes: u64| {
        let command = format!("head -c {bytes} /dev/zero");
        json!({"tool_calls": [{"name": "terminal", "arguments": {"command": command, "timeout_seconds": 600}}]})
    };
    let gigabytes = std::env::var_os("OUTPUT_GB").map_or(1, |count| count.to_str().unwrap().parse().unwrap());
    let replies = json!([call(1_000_000), {"text": "done"}, call(gigabytes * 1_000_000_000), {"text": "done"}]);
    let lab = Lab::new(replies, json!({"mode": "full_access"})).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.request(json!("small"), "session/prompt", prompt(&session, "go"), WAIT).await.unwrap();
    let before = peak(&client);
    let began = Instant::now();
    let limit = WAIT * 3 * u32::try_from(gigabytes).unwrap();
    let answer = client.request(json!("large"), "session/prompt", prompt(&session, "go"), limit).await.unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    println!("{gigabytes} GB in {:.1} s, {} KiB more", began.elapsed().as_secs_f64(), peak(&client) - before);
    assert!(peak(&client) < before + 16 * 1024, "{} KiB more", peak(&client) - before);
    let seen = lab.model.seen();
    let result = &seen.last().unwrap().view.messages.last().unwrap().text;
    assert!(result.len() < 64 * 1024 && result.contains("left out"), "{} bytes reach the model", result.len());
}

/// A command in the background of a session that has no turn running.
async fn running_in_background(config: serde_json::Value) -> (Lab, Client, String) {
    let arguments = json!({"command": "touch begun; (setsid sleep 35 &); sleep 36", "background": true});
    let call = json!({"name": "terminal", "arguments": arguments});
    let lab = Lab::new(json!([{"tool_calls": [call]}, {"text": "done", "repeat": true}]), config).await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    let answer = client.request(json!(1), "session/prompt", prompt(&session, "go"), WAIT).await.unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let lines = processes_in(&lab.stage.workspace());
    assert!(lines.iter().any(|line| line.contains("sleep 36")), "it outlives the turn: {lines:?}");
    (lab, client, session)
}

#[tokio::test]
async fn a_closed_session_takes_its_background_commands_along() {
    let (lab, mut client, session) = running_in_background(json!({"mode": "full_access"})).await;
    let answer = client.request(json!(2), "session/close", json!({"sessionId": session}), WAIT).await.unwrap();
    assert!(answer.get("result").is_some(), "{answer}");
    // The daemon itself runs there, too.
    let sleeping = || processes_in(&lab.stage.workspace()).into_iter().filter(|line| line.contains("sleep"));
    let deadline = Instant::now() + WAIT;
    while sleeping().next().is_some() {
        assert!(Instant::now() < deadline, "{:?}", sleeping().collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_killed_daemon_takes_its_background_commands_along() {
    for mode in ["full_access", "auto"] {
        let (lab, mut client, _) = running_in_background(json!({"mode": mode})).await;
        client.process.signal(KILL).unwrap();
        client.process.wait().await.unwrap();
        assert!(is_quiet(&lab).await, "{mode}: {:?}", processes_in(&lab.stage.workspace()));
    }
}

#[tokio::test]
async fn an_ended_daemon_leaves_no_background_command_and_no_stand_in() {
    let (lab, mut client, _) = running_in_background(json!({"mode": "auto"})).await;
    client.close_stdin();
    tokio::time::timeout(WAIT, client.process.wait()).await.unwrap().unwrap();
    assert_eq!(processes_in(&lab.stage.workspace()), Vec::<String>::new());
    let left = std::fs::read_dir(lab.stage.workspace()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["begun"]);
}

#[tokio::test]
async fn a_killed_launcher_ends_the_daemon_though_its_pipes_stay_open() {
    let lab = Lab::new(json!([{"text": "hi", "repeat": true}]), json!({})).await;
    let command = format!("{}; true", env!("CARGO_BIN_EXE_turnd"));
    let mut client = lab.start(&Agent::Program(vec!["sh".into(), "-c".into(), command])).await;
    assert!(!processes_in(&lab.stage.workspace()).is_empty());
    client.process.signal(KILL).unwrap();
    client.process.wait().await.unwrap();
    assert!(is_quiet(&lab).await, "{:?}", processes_in(&lab.stage.workspace()));
}

#[tokio::test]
async fn nothing_listens_neither_idle_nor_in_a_turn_nor_with_servers() {
    let command = json!({"command": "touch begun; sleep 31"});
    let lab = Lab::new(json!([call("c1", "terminal", command)]), json!({"mode": "full_access"})).await;
    let client = lab.start(&turnd()).await;
    let pid = client.process.pid().unwrap();
    assert!(!listens(pid), "idle");
    let server = program("git", "ok", &lab.stage.root().join("notes"));
    let mut talk = Talk::open(&lab, client, json!([server])).await;
    talk.begin("go").await;
    begun(&lab).await;
    assert!(!listens(pid), "in a turn with a server");
    talk.leave().await;
}

/// Whether a process has a socket that listens, as far as its descriptors may be looked at.
fn listens(pid: u32) -> bool {
    let listening = |file: &str| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        let rows = table.lines().filter(|row| row.split_whitespace().nth(3) == Some("0A"));
        rows.filter_map(|row| row.split_whitespace().nth(9).map(str::to_owned)).collect::<Vec<_>>()
    };
    let inodes = [listening("tcp"), listening("tcp6")].concat();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links: Vec<_> = open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    links.iter().any(|link| inodes.iter().any(|inode| link.to_string_lossy() == format!("socket:[{inode}]")))
}
