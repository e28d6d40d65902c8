//! Servers of tools: programs over pipes and services over HTTP, well-behaved and not.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::agent::Agent;
use turnd::script::client::Client;
use turnd::script::stage::processes_in;

use crate::support::lab::{Lab, WAIT, turnd};
use crate::support::mcp::{Talk, call, last_result, offered, program};
use crate::support::mcp_http::{Flavour, Service};

async fn lab(replies: Value, config: Value) -> (Lab, Client) {
    let lab = Lab::new(replies, config).await;
    let client = lab.start(&turnd()).await;
    (lab, client)
}

/// One call of one tool of a well-behaved server in a session of its own; what the model read of it.
async fn result_of(tool: &str, arguments: Value) -> (Lab, Talk, String) {
    let (lab, client) = lab(json!([call("c1", tool, arguments), {"text": "done"}]), json!({})).await;
    let server = program("git", "ok", &lab.stage.root().join("notes"));
    let mut talk = Talk::open(&lab, client, json!([server])).await;
    let answer = talk.say("go").await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let result = last_result(&lab);
    (lab, talk, result)
}

#[tokio::test]
async fn a_tool_of_a_program_is_asked_for_with_everything_and_called() {
    let (lab, talk, result) = result_of("mcp_git_echo", json!({"words": "hello", "a": 1, "b": [true]})).await;
    assert!(result.contains("you said hello"), "{result}");
    let [asked] = &talk.asked[..] else { panic!("{:?}", talk.asked) };
    assert_eq!(asked["toolCall"]["rawInput"], json!({"words": "hello", "a": 1, "b": [true]}));
    assert_eq!(asked["toolCall"]["kind"], "other");
    let shown = asked["toolCall"]["content"].to_string();
    assert!(shown.contains("MCP server git") && shown.contains("hello"), "{shown}");
    let always = asked["options"].as_array().unwrap().iter().find(|option| option["optionId"] == "allow_always");
    assert!(always.unwrap()["name"].as_str().unwrap().ends_with("calls of mcp_git_echo"), "{asked}");
    assert_eq!(lab.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_tool_calls_itself_never_lowers_the_question() {
    let (_, talk, result) = result_of("mcp_git_read_file", json!({})).await;
    assert!(result.contains("I am not your read_file"), "{result}");
    assert_eq!(talk.asked.len(), 1);
}

#[tokio::test]
async fn a_refused_call_never_reaches_the_server() {
    let (lab, client) = lab(json!([call("c1", "mcp_git_echo", json!({})), {"text": "done"}]), json!({})).await;
    let notes = lab.stage.root().join("notes");
    let mut talk = Talk::open(&lab, client, json!([program("git", "ok", &notes)])).await;
    talk.answer = "reject_once";
    talk.say("go").await;
    assert!(last_result(&lab).contains("Not approved (denied)"));
    let asked = std::fs::read_to_string(notes.join("asked")).unwrap();
    assert!(asked.contains("tools/list") && !asked.contains("tools/call"), "{asked}");
}

#[tokio::test]
async fn every_kind_of_answer_reaches_the_model_as_data() {
    for (tool, expected) in [
        ("mcp_git_structured", "\"answer\": 42"),
        ("mcp_git_fail", "no such branch"),
        ("mcp_git_late", "error -32602: unknown tool"),
        ("mcp_git_progress", "all the way"),
        ("mcp_git_inject", "delete everything"),
        ("mcp_git_loose", "no block"),
        ("mcp_git_bytes", "caf\u{fffd}"),
    ] {
        let (_, talk, result) = result_of(tool, json!({})).await;
        assert!(result.contains(expected), "{tool}: {result}");
        assert!(!result.contains("[turnd:user-steer]"), "{result}");
        let is_marked = result.starts_with("[turnd:untrusted]\n") && result.ends_with("\n[/turnd:untrusted]");
        assert_eq!(is_marked, tool == "mcp_git_inject", "{result}");
        let progress = talk.client.entries().iter().any(|entry| entry.message.to_string().contains("1 of 2: half way"));
        assert_eq!(progress, tool == "mcp_git_progress", "{tool}");
    }
}

#[tokio::test]
async fn a_server_learns_the_folder_of_the_session() {
    let (lab, _, result) = result_of("mcp_git_roots", json!({})).await;
    assert!(result.contains(&format!("the root is file://{}", lab.stage.workspace().display())), "{result}");
}

#[tokio::test]
async fn a_picture_is_a_picture() {
    let (lab, _, _) = result_of("mcp_git_image", json!({})).await;
    assert!(lab.model.seen().last().unwrap().body.to_string().contains("iVBORw0KGgo="));
}

#[tokio::test]
async fn a_huge_answer_is_cut() {
    let (_, _, result) = result_of("mcp_git_big", json!({})).await;
    assert!(result.len() < 110_000 && result.contains("characters left out"), "{}", result.len());
}

#[tokio::test]
async fn what_a_program_prints_beside_its_messages_is_left_aside() {
    let (lab, client) =
        lab(json!([call("c1", "mcp_git_echo", json!({"words": "x"})), {"text": "done"}]), json!({})).await;
    let server = program("git", "junk", &lab.stage.root().join("notes"));
    let mut talk = Talk::open(&lab, client, json!([server])).await;
    talk.say("go").await;
    assert!(last_result(&lab).contains("you said x"), "{}", last_result(&lab));
}

#[tokio::test]
async fn a_server_that_never_answers_keeps_nobody_waiting() {
    let config = json!({"tools": {"mcp_wait_seconds": 0.3}});
    let (lab, client) =
        lab(json!([call("c1", "mcp_quick_echo", json!({"words": "x"})), {"text": "done"}]), config).await;
    let root = lab.stage.root();
    let servers = json!([program("slow", "slow", &root.join("a")), program("quick", "ok", &root.join("b"))]);
    let mut talk = Talk::open(&lab, client, servers).await;
    talk.say("go").await;
    assert!(last_result(&lab).contains("you said x"));
    assert!(talk.told().contains("Still starting") && talk.told().contains("slow"), "{}", talk.told());
}

#[tokio::test]
async fn a_server_that_cannot_start_is_told_once_with_its_cause_and_fails_nothing() {
    let (lab, client) = lab(json!([{"text": "one"}, {"text": "two"}]), json!({})).await;
    let servers = json!([
        program("broken", "silent", &lab.stage.root().join("a")),
        {"name": "gone", "command": "no-such-program", "args": [], "env": []},
    ]);
    let mut talk = Talk::open(&lab, client, servers).await;
    assert_eq!(talk.say("go").await["result"]["stopReason"], "end_turn");
    assert_eq!(talk.say("on").await["result"]["stopReason"], "end_turn");
    let told = talk.told();
    assert_eq!(told.matches("The MCP server broken").count(), 1, "{told}");
    assert_eq!(told.matches("The MCP server gone").count(), 1, "{told}");
    assert!(told.contains("exit status: 3") && told.contains("the database is locked"), "{told}");
    assert!(told.contains("no program `no-such-program` in PATH") && told.contains("install it"), "{told}");
}

#[tokio::test]
async fn a_message_without_end_is_told_as_what_it_is() {
    let (_lab, _talk, result) = result_of("mcp_git_flood", json!({})).await;
    assert!(result.contains("gave no answer: it sent a message of more than 16 MiB"), "{result}");
}

#[tokio::test]
async fn a_crashed_server_is_started_again_and_the_other_one_lives_on() {
    let replies = json!([
        {"tool_calls": [
            {"id": "c1", "name": "mcp_bad_echo", "arguments": {"words": "x"}},
            {"id": "c2", "name": "mcp_good_echo", "arguments": {"words": "fine"}},
        ]},
        call("c3", "mcp_bad_echo", json!({"words": "again"})),
        {"text": "done"},
    ]);
    let (lab, client) = lab(replies, json!({"mode": "full_access"})).await;
    let root = lab.stage.root();
    let servers = json!([program("bad", "crash_once", &root.join("a")), program("good", "ok", &root.join("b"))]);
    let mut talk = Talk::open(&lab, client, servers).await;
    talk.say("go").await;
    let seen = lab.model.seen();
    let results: Vec<_> = seen[1].view.messages.iter().filter(|message| message.role == "tool").collect();
    let cause = "MCP server bad gave no answer: it ended (exit status: 139); its last words: segmentation fault";
    assert!(results[0].text.contains(cause), "{}", results[0].text);
    assert!(results[1].text.contains("you said fine"), "{}", results[1].text);
    assert!(last_result(&lab).contains("you said again"), "{}", last_result(&lab));
    assert_eq!(offered(&lab, 0), offered(&lab, 2), "the tools of a turn stay as they are");
}

#[tokio::test]
async fn a_call_that_hangs_is_called_off_in_time_and_on_cancel() {
    let script = program("git", "ok", &std::env::temp_dir());
    let replies =
        json!([call("c1", "mcp_git_hang", json!({})), {"text": "one"}, call("c2", "mcp_git_hang", json!({}))]);
    let lab = Lab::new(replies, json!({"mode": "full_access"})).await;
    let notes = lab.stage.root().join("notes");
    std::fs::create_dir_all(&notes).unwrap();
    let mut config = std::fs::read_to_string(lab.stage.home().join("config.toml")).unwrap();
    config.push_str(&format!(
        "\n[mcp_servers.git]\ncommand = \"/bin/sh\"\nargs = [{}, \"ok\", \"{}\"]\ntimeout_seconds = 1\n",
        script["args"][0],
        notes.display()
    ));
    std::fs::write(lab.stage.home().join("config.toml"), config).unwrap();
    let client = lab.start(&turnd()).await;
    let mut talk = Talk::open(&lab, client, json!([])).await;
    talk.say("go").await;
    assert!(last_result(&lab).contains("No answer within 1 s"), "{}", last_result(&lab));

    let id = talk.begin("again").await;
    talk.until(|entry| {
        entry.update().is_some_and(|update| update["status"] == "in_progress" && update["toolCallId"] == "c2")
    })
    .await;
    let cancel = json!({"method": "session/cancel", "params": {"sessionId": talk.session}});
    talk.client.send(&cancel).await.unwrap();
    assert_eq!(talk.end(&id).await["result"]["stopReason"], "cancelled");
    let ended = talk
        .client
        .entries()
        .iter()
        .filter_map(|entry| entry.update())
        .find(|update| update["toolCallId"] == "c2" && update["status"] == "failed");
    let ended = ended.map(ToString::to_string).unwrap_or_default();
    assert!(ended.contains("ancelled") && !ended.contains("No answer within"), "{ended}");
    let deadline = Instant::now() + WAIT;
    while std::fs::read_to_string(notes.join("asked")).unwrap().matches("notifications/cancelled").count() < 2 {
        assert!(Instant::now() < deadline, "the server was not told of the cancels");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_tool_that_changed_asks_again_with_the_change_and_only_from_the_next_turn_on() {
    let echo = |id: &str| call(id, "mcp_git_echo", json!({"words": id}));
    let replies = json!([
        echo("c1"), {"text": "one"},
        echo("c2"), call("c3", "mcp_git_turn", json!({})), {"text": "two"},
        echo("c4"), {"text": "three"},
        echo("c5"), {"text": "four"},
    ]);
    let (lab, client) = lab(replies, json!({})).await;
    let mut talk = Talk::open(&lab, client, json!([program("git", "rug", &lab.stage.root().join("notes"))])).await;
    talk.answer = "allow_always";
    talk.say("one").await;
    assert_eq!(talk.asked.len(), 1);
    talk.say("two").await;
    assert_eq!(talk.asked.len(), 2, "the remembered approval held, the other tool was asked for");
    talk.answer = "allow_once";
    talk.say("three").await;
    assert_eq!(talk.asked.len(), 3, "a changed tool asks again");
    let shown = talk.asked[2]["toolCall"]["content"].to_string();
    assert!(shown.contains("Echoes words.") && shown.contains("~/.ssh/id_rsa"), "{shown}");
    talk.answer = "allow_always";
    talk.say("four").await;
    assert_eq!(talk.asked.len(), 4, "once is not for good");
    let said = |request: usize| lab.model.seen()[request].view.tools_sent.to_string().contains("id_rsa");
    assert_eq!((said(4), said(5)), (false, true), "the words change between turns only");
    let rules = std::fs::read_to_string(lab.stage.home().join("rules.toml")).unwrap();
    assert_eq!(rules.matches("tool = \"mcp_git_echo\"").count(), 2, "{rules}");
}

#[tokio::test]
async fn a_rule_of_the_user_does_not_cover_a_tool_that_turned() {
    let echo = |id: &str| call(id, "mcp_git_echo", json!({"words": id}));
    let replies =
        json!([echo("c1"), call("c2", "mcp_git_turn", json!({})), {"text": "one"}, echo("c3"), {"text": "two"}]);
    let config = json!({"rules": [{"effect": "allow", "tool": "mcp_git_*"}]});
    let (lab, client) = lab(replies, config).await;
    let mut talk = Talk::open(&lab, client, json!([program("git", "rug", &lab.stage.root().join("notes"))])).await;
    talk.answer = "reject_once";
    talk.say("one").await;
    assert_eq!(talk.asked.len(), 0);
    talk.say("two").await;
    assert_eq!(talk.asked.len(), 1);
    assert!(last_result(&lab).contains("Not approved"));
}

#[tokio::test]
async fn plan_mode_calls_no_foreign_tool_and_auto_asks() {
    for (mode, asked, text) in
        [("plan", 0, "plan mode only reads"), ("auto", 1, "you said x"), ("full_access", 0, "you said x")]
    {
        let replies = json!([call("c1", "mcp_git_echo", json!({"words": "x"})), {"text": "done"}]);
        let (lab, client) = lab(replies, json!({"mode": mode})).await;
        let mut talk = Talk::open(&lab, client, json!([program("git", "ok", &lab.stage.root().join("notes"))])).await;
        talk.say("go").await;
        assert_eq!(talk.asked.len(), asked, "{mode}");
        assert!(last_result(&lab).contains(text), "{mode}: {}", last_result(&lab));
    }
}

#[tokio::test]
async fn names_that_clash_are_told_apart_and_the_clients_server_wins() {
    let (lab, client) =
        lab(json!([{"text": "done"}]), json!({"mcp_servers": {"git": {"command": "no-such-program"}}})).await;
    let root = lab.stage.root();
    let servers = json!([
        program("git", "twice", &root.join("a")),
        program("g t", "ok", &root.join("b")),
        program("g/t", "ok", &root.join("c")),
    ]);
    let mut talk = Talk::open(&lab, client, servers).await;
    talk.say("go").await;
    let names = offered(&lab, 0);
    let count = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    assert_eq!((count("mcp_git_"), count("mcp_g_t_2_")), (18, 16), "{names:?}");
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    assert!(!talk.told().contains("no-such-program"), "{}", talk.told());
}

#[tokio::test]
async fn an_environment_that_makes_other_code_run_is_refused() {
    let (lab, client) = lab(json!([{"text": "done"}]), json!({})).await;
    let mut servers = Vec::new();
    for name in ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "PATH"] {
        let mut server = program(name, "ok", &lab.stage.root().join(name));
        server["env"] = json!([{"name": name, "value": "/tmp/evil"}]);
        servers.push(server);
    }
    let mut talk = Talk::open(&lab, client, json!(servers)).await;
    assert_eq!(talk.say("go").await["result"]["stopReason"], "end_turn");
    assert_eq!(offered(&lab, 0), Vec::<String>::new());
    for name in ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "PATH"] {
        assert!(talk.told().contains(&format!("its environment sets {name}")), "{}", talk.told());
        assert!(!lab.stage.root().join(name).join("asked").exists(), "{name} was started");
    }
}

#[tokio::test]
async fn a_bare_name_is_no_program_that_the_workspace_planted() {
    let lab = Lab::new(json!([{"text": "done"}]), json!({})).await;
    let planted = lab.stage.workspace().join("planted-server");
    std::fs::write(&planted, "#!/bin/sh\ntouch PWN\n").unwrap();
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!("PATH=\"$PWD:.:$PATH\" exec {}", env!("CARGO_BIN_EXE_turnd"));
    let client = lab.start(&Agent::Program(vec!["/bin/sh".into(), "-c".into(), script])).await;
    let server = json!({"name": "git", "command": "planted-server", "args": [], "env": []});
    let mut talk = Talk::open(&lab, client, json!([server])).await;
    talk.say("go").await;
    assert!(talk.told().contains("there is no program `planted-server`"), "{}", talk.told());
    assert!(!lab.stage.workspace().join("PWN").exists());
}

#[tokio::test]
async fn a_server_that_refuses_to_begin_is_told_with_its_own_words() {
    let (lab, client) = lab(json!([{"text": "done"}]), json!({})).await;
    let script = "read line; echo '{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-7,\"message\":\"no licence\"}}'";
    let server = json!({"name": "strict", "command": "/bin/sh", "args": ["-c", script], "env": []});
    let mut talk = Talk::open(&lab, client, json!([server])).await;
    talk.say("go").await;
    assert!(talk.told().contains("error -7: no licence"), "{}", talk.told());
}

#[tokio::test]
async fn a_closed_session_and_an_ended_daemon_leave_no_server_behind() {
    let (lab, client) = lab(json!([{"text": "done", "repeat": true}]), json!({})).await;
    let workspace = lab.stage.workspace();
    let server = program("git", "ok", &lab.stage.root().join("notes"));
    let mut talk =
        Talk::open(&lab, client, json!([server, program("slow", "slow", &lab.stage.root().join("b"))])).await;
    let id = talk.begin("go").await;
    talk.end(&id).await;
    assert_eq!(servers(&lab).len(), 2, "both run: {:?}", servers(&lab));
    let params = json!({"sessionId": talk.session});
    talk.client.request(json!("close"), "session/close", params, WAIT).await.unwrap();
    quiet(&lab).await;

    let params = json!({"sessionId": talk.session, "cwd": workspace, "mcpServers": [server]});
    let loaded = talk.client.request(json!("load"), "session/load", params, WAIT).await.unwrap();
    assert!(loaded.get("result").is_some(), "{loaded}");
    talk.say("again").await;
    assert_eq!(offered(&lab, 1).len(), 16, "the loaded session is connected again");
    talk.leave().await;
    quiet(&lab).await;
}

#[tokio::test]
async fn a_session_that_is_loaded_twice_has_the_servers_of_the_second_time() {
    let (lab, client) = lab(json!([{"text": "done", "repeat": true}]), json!({})).await;
    let (a, b) = (program("a", "ok", &lab.stage.root().join("a")), program("b", "ok", &lab.stage.root().join("b")));
    let mut talk = Talk::open(&lab, client, json!([a])).await;
    talk.say("go").await;
    let params = json!({"sessionId": talk.session, "cwd": lab.stage.workspace(), "mcpServers": [b]});
    talk.client.request(json!("load"), "session/load", params, WAIT).await.unwrap();
    talk.say("again").await;
    assert!(offered(&lab, 1).iter().all(|name| name.starts_with("mcp_b_")), "{:?}", offered(&lab, 1));
}

#[tokio::test]
async fn a_workspaces_own_server_runs_as_long_as_exactly_it_is_trusted() {
    let (lab, client) = lab(json!([{"text": "done", "repeat": true}]), json!({})).await;
    let (workspace, notes) = (lab.stage.workspace(), lab.stage.root().join("notes"));
    let server = program("theirs", "ok", &notes);
    let config = format!("[mcp_servers.theirs]\ncommand = \"/bin/sh\"\nargs = {}\n", server["args"]);
    std::fs::create_dir(workspace.join(".turnd")).unwrap();
    std::fs::write(workspace.join(".turnd/config.toml"), &config).unwrap();
    let own = program("own", "ok", &lab.stage.root().join("own"));

    let mut talk = Talk::open(&lab, client, json!([own])).await;
    assert!(!notes.join("asked").exists(), "nothing of a workspace runs before it is trusted");
    talk.say("go").await;
    let asked = talk.asked[0]["toolCall"]["content"].to_string();
    assert!(asked.contains("MCP server theirs"), "{asked}");
    let count =
        |request: usize, start: &str| offered(&lab, request).iter().filter(|name| name.starts_with(start)).count();
    assert_eq!((count(0, "mcp_own_"), count(0, "mcp_theirs_")), (16, 16));

    std::fs::write(workspace.join(".turnd/config.toml"), config + "# changed\n").unwrap();
    talk.answer = "reject_once";
    talk.say("again").await;
    assert_eq!(talk.asked.len(), 2, "a changed byte is asked about again");
    assert_eq!((count(1, "mcp_own_"), count(1, "mcp_theirs_")), (16, 0));
    let deadline = Instant::now() + WAIT;
    while servers(&lab).len() > 1 {
        assert!(Instant::now() < deadline, "left: {:?}", servers(&lab));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_service_over_http_is_used_like_a_program() {
    for flavour in [Flavour::Streamable, Flavour::StreamableJson, Flavour::Sse] {
        let service = Service::start(flavour).await;
        let kind = if flavour == Flavour::Sse { "sse" } else { "http" };
        let replies = json!([call("c1", "mcp_web_echo", json!({"words": "over http"})), {"text": "done"}]);
        let (lab, client) = lab(replies, json!({})).await;
        let headers = json!([{"name": "Authorization", "value": "Bearer secret-of-the-service"}]);
        let server = json!({"type": kind, "name": "web", "url": service.url(), "headers": headers});
        let mut talk = Talk::open(&lab, client, json!([server])).await;
        talk.say("go").await;
        assert!(last_result(&lab).contains("you said over http"), "{flavour:?}: {} {}", last_result(&lab), talk.told());
        assert_eq!(talk.asked.len(), 1);
        assert!(service.authorizations().iter().all(|value| value == "Bearer secret-of-the-service"));
        let client = talk.leave().await;
        assert!(!client.process.log().contains("secret-of-the-service"), "{flavour:?}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_or_wants_messages_elsewhere_is_told() {
    let service = Service::start(Flavour::SseElsewhere).await;
    let (lab, client) = lab(json!([{"text": "done"}]), json!({})).await;
    let servers = json!([
        {"type": "http", "name": "down", "url": "http://127.0.0.1:9/mcp", "headers": []},
        {"type": "sse", "name": "elsewhere", "url": service.url(), "headers": []},
        {"type": "http", "name": "odd", "url": "ftp://127.0.0.1/", "headers": []},
    ]);
    let mut talk = Talk::open(&lab, client, servers).await;
    assert_eq!(talk.say("go").await["result"]["stopReason"], "end_turn");
    let told = talk.told();
    assert!(told.contains("MCP server down") && told.contains("127.0.0.1:9"), "{told}");
    assert!(told.contains("MCP server elsewhere") && told.contains("another host"), "{told}");
    assert!(told.contains("MCP server odd") && told.contains("http://"), "{told}");
}

#[tokio::test]
async fn no_key_of_a_provider_reaches_a_server() {
    let replies = json!([{"text": "done"}]);
    let lab = Lab::new(replies, json!({})).await;
    let client = lab.start(&turnd()).await;
    let script = "tr '\\0' '\\n' </proc/$$/environ >\"$0/environ\"; exec sleep 30";
    let server = json!({"name": "spy", "command": "/bin/sh", "args": ["-c", script, lab.stage.root()],
        "env": [{"name": "OWN_TOKEN", "value": "given to it"}]});
    let mut talk = Talk::open(&lab, client, json!([server])).await;
    talk.say("go").await;
    let environment = std::fs::read_to_string(lab.stage.root().join("environ")).unwrap();
    assert!(environment.contains("OWN_TOKEN=given to it"), "{environment}");
    assert!(!environment.contains("TURND_HOME") && !environment.contains("sk-harness"), "{environment}");
}

/// The processes in the workspace beside the daemon.
fn servers(lab: &Lab) -> Vec<String> {
    let all = processes_in(&lab.stage.workspace()).into_iter();
    all.filter(|process| !process.contains(env!("CARGO_BIN_EXE_turnd"))).collect()
}

/// Waits until no server is left.
async fn quiet(lab: &Lab) {
    let deadline = Instant::now() + WAIT;
    while !servers(lab).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", servers(lab));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
