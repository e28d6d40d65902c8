//! What was approved is what is executed, byte for byte, as the kernel sees it.
//!
//! strace is the witness. Where it is not installed the test says so and passes, unless `TURND_REQUIRE_CLIENTS=1`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::agent::Agent;

use crate::support::lab::{Lab, WAIT, prompt};

/// Commands whose bytes are easily lost on the way: quotes, escapes, blanks, odd characters, several lines.
const COMMANDS: [&str; 18] = [
    "touch plain",
    "touch 'single quotes' \"double quotes\"",
    "touch  two  blanks ",
    "\ttouch tab\t",
    "touch line1\ntouch line2\n",
    "touch a\\ b; touch c\\\\d",
    "printf '\\x41\\n' > escapes",
    "echo $HOME \"$HOME\" '$HOME' > variables",
    "echo `touch ticks` $(touch dollars) > nested",
    "touch ünïcödé-日本語",
    "touch e\u{301} \u{e9}",
    "touch -- -x --",
    "echo '{\"a\": [1, \"\\\\\"]}' > json",
    "cat > heredoc <<'END'\n$x `y` \\z\nEND",
    "touch 'it'\\''s'",
    "touch \"\u{1f980}\"",
    "touch last; exit 3 # comment",
    "true && touch and || touch or & touch background; wait",
];

/// One `execve` of the trace.
#[derive(Debug)]
struct Execution {
    words: Vec<String>,
    environment: BTreeMap<String, String>,
    folder: Option<String>,
}

/// The quoted strings of a part of a line; `strace -xx` writes each byte as `\xNN`.
fn strings(part: &str) -> Vec<String> {
    let decode = |hex: &str| {
        let bytes = hex.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        String::from_utf8(bytes).unwrap()
    };
    part.split('"').skip(1).step_by(2).map(decode).collect()
}

fn executions(trace: &str) -> Vec<Execution> {
    let mut folders = BTreeMap::new();
    let mut found = Vec::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(folder) = call.strip_prefix("chdir(") {
            folders.insert(pid.to_owned(), strings(folder).remove(0));
        } else if let Some(call) = call.strip_prefix("execve(") {
            let (words, environment) = call.split_once("], [").unwrap_or((call, ""));
            let environment = strings(environment).into_iter().filter_map(|entry| {
                let (name, value) = entry.split_once('=')?;
                Some((name.to_owned(), value.to_owned()))
            });
            let words = strings(words).split_off(1);
            found.push(Execution { words, environment: environment.collect(), folder: folders.get(pid).cloned() });
        }
    }
    found
}

/// Whether the witness is there.
pub(crate) fn has_strace() -> bool {
    #[expect(clippy::disallowed_methods, reason = "looks for the witness")]
    let found = std::process::Command::new("strace").arg("-V").output().is_ok();
    assert!(found || std::env::var_os("TURND_REQUIRE_CLIENTS").is_none(), "strace is required but not installed");
    found
}

#[tokio::test]
async fn what_was_approved_is_executed_byte_for_byte() {
    if !has_strace() {
        println!("skipped: strace is not installed");
        return;
    }
    let call = |(index, command): (usize, &&str)| json!({"id": format!("c{index}"), "name": "terminal", "arguments": {"command": command}});
    let calls: Vec<Value> = COMMANDS.iter().enumerate().map(call).collect();
    let lab = Lab::new(json!([{"tool_calls": calls}, {"text": "done"}]), json!({"mode": "ask"})).await;
    let trace = lab.stage.root().join("trace");
    let strace = ["strace", "-f", "-qq", "-v", "-xx", "-s", "1000000", "-e", "trace=execve,chdir", "-o"];
    let words = strace.into_iter().map(str::to_owned);
    let agent = words.chain([trace.display().to_string(), env!("CARGO_BIN_EXE_turnd").to_owned()]).collect();
    let mut client = lab.start(&Agent::Program(agent)).await;
    let session = lab.session(&mut client).await;
    client.send(&json!({"id": "turn", "method": "session/prompt", "params": prompt(&session, "go")})).await.unwrap();

    let mut approved = Vec::new();
    let mut from = 0;
    loop {
        let index = client.next_from(from, Instant::now() + WAIT).await.unwrap();
        from = index + 1;
        let message = client.entries()[index].message.clone();
        if message["id"] == "turn" {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            break;
        }
        if message["method"] == "session/request_permission" {
            approved.push(message.pointer("/params/toolCall/rawInput/command").unwrap().as_str().unwrap().to_owned());
            let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
            client.send(&json!({"id": message["id"], "result": {"outcome": outcome}})).await.unwrap();
        }
    }
    client.close_stdin();
    client.process.wait().await.unwrap();
    assert_eq!(approved, COMMANDS);

    let trace = std::fs::read_to_string(trace).unwrap();
    let shells =
        executions(&trace).into_iter().filter(|execution| execution.words.get(1).is_some_and(|word| word == "-c"));
    let mut executed = Vec::new();
    let mut expected: BTreeMap<String, String> = lab.stage.environment().into_iter().collect();
    expected.remove("TURND_HOME");
    expected.insert("PATH".into(), std::env::var_os("PATH").unwrap().into_string().unwrap());
    for (name, value) in [
        ("PAGER", "cat"),
        ("TERM", "dumb"),
        ("NO_COLOR", "1"),
        ("GIT_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_CONFIG_COUNT", "3"),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
        ("GIT_CONFIG_VALUE_0", "false"),
        ("GIT_CONFIG_KEY_1", "core.pager"),
        ("GIT_CONFIG_VALUE_1", "cat"),
        ("GIT_CONFIG_KEY_2", "safe.bareRepository"),
        ("GIT_CONFIG_VALUE_2", "explicit"),
    ] {
        expected.insert(name.into(), value.into());
    }
    for mut shell in shells {
        assert!(shell.environment.remove("TURND_CALL_ID").is_some(), "{shell:?}");
        assert_eq!(shell.environment, expected, "{:?}", shell.words);
        assert_eq!(shell.folder.as_deref(), lab.stage.workspace().to_str(), "{:?}", shell.words);
        executed.push(shell.words.remove(2));
    }
    executed.sort();
    approved.sort();
    assert_eq!(executed, approved);
}
