//! The mode `auto` from outside: what a command can do to the workspace, the machine and the daemon when nobody is
//! asked. Skipped with a reason where the kernel cannot contain a command.

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::sandbox::Facts;

use crate::support::lab::{Lab, WAIT, from_agent, prompt, turnd};

/// What became of one command.
struct Outcome {
    lab: Lab,
    /// The text the model got.
    result: String,
    /// Questions to the client.
    questions: usize,
}

/// Runs a command in a workspace that `set_up` made ready; `None` where nothing can be contained.
async fn run(config: Value, command: &str, set_up: impl FnOnce(&Lab)) -> Option<Outcome> {
    if !Facts::here().can_contain() {
        println!("skipped: {}", Facts::here().describe());
        return None;
    }
    let call = json!({"name": "terminal", "arguments": {"command": command}});
    let mut settings = json!({"mode": "auto"});
    settings.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let lab = Lab::new(json!([{"tool_calls": [call]}, {"text": "done"}]), settings).await;
    set_up(&lab);
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": "turn", "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();
    let mut questions = 0;
    let mut from = 0;
    loop {
        let index = client.next_from(from, Instant::now() + WAIT).await.unwrap();
        from = index + 1;
        let message = client.entries()[index].message.clone();
        if message["id"] == "turn" {
            break;
        }
        if message["method"] == "session/request_permission" {
            questions += 1;
            let outcome = json!({"outcome": "selected", "optionId": "reject_once"});
            client.send(&json!({"id": message["id"], "result": {"outcome": outcome}})).await.unwrap();
        }
    }
    client.close_stdin();
    client.process.wait().await.unwrap();
    let result = lab.model.seen().last().unwrap().view.messages.last().unwrap().text.clone();
    Some(Outcome { lab, result, questions })
}

#[tokio::test]
async fn settings_that_do_not_exist_yet_cannot_be_made() {
    // Spelled so that no reader of text finds the name.
    let command = "d=$(printf .tur)nd; mkdir -p $d; (echo x > $d/config.toml); test -e $d/config.toml || echo refused";
    let Some(outcome) = run(json!({}), command, |_| {}).await else { return };
    assert!(outcome.result.contains("refused") && outcome.questions == 0, "{}", outcome.result);
    assert!(!outcome.lab.stage.workspace().join(".turnd").exists(), "nothing stays behind");
}

#[tokio::test]
async fn settings_behind_a_link_cannot_be_changed() {
    let command =
        "d=$(printf .tur)nd; (echo x > $d/config.toml); rm $d; mkdir $d && echo replaced; ls decoy; echo tried";
    let set_up = |lab: &Lab| {
        std::fs::create_dir(lab.stage.workspace().join("decoy")).unwrap();
        std::os::unix::fs::symlink("decoy", lab.stage.workspace().join(".turnd")).unwrap();
    };
    let Some(outcome) = run(json!({}), command, set_up).await else { return };
    assert!(outcome.result.contains("tried") && !outcome.result.contains("replaced"), "{}", outcome.result);
    assert!(!outcome.lab.stage.workspace().join("decoy/config.toml").exists());
}

#[tokio::test]
async fn nothing_is_resolved_or_reached() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    let command =
        format!("f=$(printf /dev/udp/127.0.0.1/{port}); (echo canary > $f); getent hosts example.org || echo tried");
    let Some(outcome) = run(json!({}), &command, |_| {}).await else { return };
    assert!(outcome.result.contains("tried") || outcome.questions == 1, "{}", outcome.result);
    assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn only_standard_descriptors_reach_a_command() {
    let Some(outcome) = run(json!({}), "x=$(printf y); ls /proc/self/fd | tr '\\n' ' '; echo $x", |_| {}).await else {
        return;
    };
    // The fourth is the listing's own.
    assert!(outcome.result.starts_with("0 1 2 3 y\n"), "{}", outcome.result);
}

#[tokio::test]
async fn a_sandbox_that_only_reads_lets_nothing_be_written() {
    let config = json!({"sandbox": {"mode": "read_only", "writable": ["", "."]}});
    let command = "x=y; echo $x > made; test -e made || echo refused";
    let Some(outcome) = run(config, command, |_| {}).await else { return };
    assert!(outcome.result.contains("refused"), "{}", outcome.result);
}

#[tokio::test]
async fn an_empty_list_in_place_of_a_switch_opens_nothing() {
    for network in [json!([]), json!([""]), json!("")] {
        let lab = Lab::new(json!([]), json!({"mode": "auto", "sandbox": {"network": network}})).await;
        let mut client = lab.start(&turnd()).await;
        let params = json!({"cwd": lab.stage.workspace(), "mcpServers": []});
        let refused = client.request(json!("new"), "session/new", params, WAIT).await.unwrap();
        assert!(refused["error"]["message"].is_string(), "{network}: {refused}");
    }
}

#[tokio::test]
async fn a_program_that_commands_could_replace_contains_nothing_and_asks() {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_turnd")).parent().unwrap().to_path_buf();
    let lab = Lab::new(
        json!([{"tool_calls": [{"name": "terminal", "arguments": {"command": "touch made"}}]}, {"text": "done"}]),
        json!({"mode": "auto", "sandbox": {"writable": [folder]}}),
    )
    .await;
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": "turn", "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();
    let mut from = 0;
    let question = loop {
        let index = client.next_from(from, Instant::now() + WAIT).await.unwrap();
        from = index + 1;
        let message = client.entries()[index].message.clone();
        assert_ne!(message["id"], "turn", "it ran without a question: {message}");
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    if Facts::here().can_restrict() {
        assert!(question.to_string().contains("which commands may change"), "{question}");
    }
}

#[tokio::test]
async fn a_client_is_told_what_holds_commands_here() {
    let lab = Lab::new(json!([]), json!({})).await;
    let client = lab.start(&turnd()).await;
    let answer = from_agent(&client).find(|entry| entry.is_response()).unwrap();
    let report = answer.message.pointer("/result/_meta/turnd/sandbox").unwrap();
    let facts = Facts::here();
    assert_eq!(report["contains"], facts.can_contain());
    assert_eq!((&report["mode"], &report["network"]), (&json!("workspace_write"), &json!(false)));
    assert_eq!((&report["seccomp"], &report["landlock"]), (&json!(facts.seccomp), &json!(facts.landlock)));
}
