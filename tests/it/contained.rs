//! The mode `auto` from outside: what a command can do to the workspace, the machine and the daemon when nobody is
//! asked. Skipped with a reason where the kernel cannot contain a command.

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::sandbox::Facts;
use turnd::script::agent::Agent;

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
async fn what_the_client_left_open_reaches_no_command_hook_or_server() {
    let list = "ls /proc/self/fd | tr '\\n' ' '";
    let call = json!({"name": "terminal", "arguments": {"command": format!("{list} > of-command")}});
    let hook = json!({"on": "pre_llm_call", "command": ["sh", "-c", format!("{list} > of-hook; echo '{{}}'")]});
    let server = json!({"command": "sh", "args": ["-c", format!("{list} > of-server; exec sleep 30")]});
    let config = json!({"mode": "full_access", "hooks": [hook], "mcp_servers": {"s": server}});
    let lab = Lab::new(json!([{"tool_calls": [call]}, {"text": "done"}]), config).await;
    let open = "for fd in 3 7 9 50 99; do eval \"exec $fd</dev/null\"; done";
    let start = format!("{open}; exec {}", env!("CARGO_BIN_EXE_turnd"));
    let mut client = lab.start(&Agent::Program(vec!["/bin/bash".into(), "-c".into(), start])).await;
    let session = lab.session(&mut client).await;
    client.request(json!("turn"), "session/prompt", prompt(&session, "go"), WAIT).await.unwrap();
    for list in ["of-command", "of-hook", "of-server"] {
        let seen = std::fs::read_to_string(lab.stage.workspace().join(list)).unwrap();
        // The fourth is the listing's own.
        assert_eq!(seen.trim(), "0 1 2 3", "{list}");
    }
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
    let forms = [json!([]), json!([""]), json!(""), json!(0), json!({"allow": []}), json!({"allow": [""]}), json!({})];
    for network in forms {
        let lab = Lab::new(json!([]), json!({"mode": "auto", "sandbox": {"network": network}})).await;
        let mut client = lab.start(&turnd()).await;
        let params = json!({"cwd": lab.stage.workspace(), "mcpServers": []});
        let refused = client.request(json!("new"), "session/new", params, WAIT).await.unwrap();
        assert!(refused["error"]["message"].is_string(), "{network}: {refused}");
    }
}

#[tokio::test]
async fn a_program_that_commands_could_replace_contains_nothing_and_runs_nothing() {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_turnd")).parent().unwrap().to_path_buf();
    let config = json!({"sandbox": {"writable": [folder]}});
    let Some(outcome) = run(config, "touch made", |_| {}).await else { return };
    assert!(outcome.result.contains("which commands may change"), "{}", outcome.result);
    assert!(outcome.questions == 0 && !outcome.lab.stage.workspace().join("made").exists());
}

/// A thread, and so all that it starts, to which the kernel says that it has no Landlock.
fn without_landlock(work: impl FnOnce() + Send + 'static) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    // `landlock_create_ruleset`, `landlock_add_rule` and `landlock_restrict_self`, the same number everywhere.
    let calls = [444, 445, 446].map(|number| (number, Vec::new())).into();
    let missing = SeccompAction::Errno(u32::try_from(rustix::io::Errno::NOSYS.raw_os_error()).unwrap());
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, missing, architecture).unwrap();
    let thread = std::thread::spawn(move || {
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        work();
    });
    thread.join().unwrap();
}

#[test]
fn where_nothing_can_be_contained_auto_runs_nothing_and_says_what_to_do() {
    without_landlock(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let call = json!({"name": "terminal", "arguments": {"command": "touch made"}});
            let look = json!({"name": "terminal", "arguments": {"command": "ls"}});
            let lab = Lab::new(json!([{"tool_calls": [call, look]}, {"text": "done"}]), json!({"mode": "auto"})).await;
            let mut client = lab.start(&turnd()).await;
            let report = from_agent(&client).find(|entry| entry.is_response()).unwrap().message.clone();
            assert_eq!(report.pointer("/result/_meta/turnd/sandbox/contains"), Some(&json!(false)), "{report}");
            let session = lab.session(&mut client).await;
            let answer = client.request(json!("turn"), "session/prompt", prompt(&session, "go"), WAIT).await.unwrap();
            assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
            let seen = lab.model.seen();
            let results: Vec<_> = seen[1].view.messages.iter().filter(|message| message.role == "tool").collect();
            assert!(results[0].text.starts_with("Blocked: sandbox unavailable"), "{}", results[0].text);
            assert!(
                results[0].text.contains("sandbox.mode") && !results[1].text.contains("unavailable"),
                "{results:?}"
            );
            assert!(!lab.stage.workspace().join("made").exists());
        });
    });
}

#[tokio::test]
async fn a_contained_git_starts_no_monitor_of_the_repository() {
    let set_up = |lab: &Lab| {
        let git = lab.stage.workspace().join(".git");
        for folder in ["objects", "refs"] {
            std::fs::create_dir_all(git.join(folder)).unwrap();
        }
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let config = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"touch PWN;\"\n";
        std::fs::write(git.join("config"), config).unwrap();
    };
    let Some(outcome) = run(json!({}), "git status", set_up).await else { return };
    assert!(outcome.result.contains("No commits yet") && outcome.questions == 0, "{}", outcome.result);
    assert!(!outcome.lab.stage.workspace().join("PWN").exists());
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
