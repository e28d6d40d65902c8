//! Keys stay keys: whatever goes wrong, no place but the request to their provider ever shows one.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use turnd::script::agent::Launch;
use turnd::script::client::Client;
use turnd::script::stage::Stage;

use crate::executed::has_strace;
use crate::support::lab::{Lab, WAIT, prompt, turnd};

/// Prints all that a command can learn about its environment and about every process above it.
const SNOOP: &str = "env; set; p=$PPID; while [ \"$p\" -gt 1 ]; do for f in environ cmdline; do \
                     tr '\\0' '\\n' < /proc/$p/$f; done; p=$(sed 's/.*) //' /proc/$p/stat | cut -d ' ' -f 2); done";

/// Where a provider's key comes from, and the key.
const CANARIES: [(&str, &str); 6] = [
    ("environment", "canary-env-3f9a1c"),
    ("configuration", "canary-cfg-7b20de"),
    ("command", "canary-cmd-51c8aa"),
    ("key file", "canary-fil-e04d7b"),
    ("header", "canary-hdr-96f3b1"),
    ("query", "canary-qry-2ad85e"),
];

/// Secrets of the environment that are nobody's key here.
const BYSTANDERS: [(&str, &str); 5] = [
    ("OPENAI_API_KEY", "canary-oai-11aa22"),
    ("GITHUB_TOKEN", "canary-ghb-33bb44"),
    ("PGPASSWORD", "canary-pgp-55cc66"),
    ("MYSQL_PWD", "canary-sql-77dd88"),
    ("AWS_ACCESS_KEY_ID", "canary-aws-99ee00"),
];

/// A model whose every kind of failure quotes the key.
fn replies(canary: &str) -> Value {
    let snoop = json!({"name": "terminal", "arguments": {"command": SNOOP}});
    let quoted = |status: u16| json!({"status": status, "error": format!("Incorrect API key provided: {canary}"), "repeat": true});
    let when = |word: &str, reply: Value| json!({"when": {"user_contains": word}, "replies": [reply]});
    json!([
        {"when": {"user_contains": "snoop"}, "replies": [{"tool_calls": [snoop]}, {"text": "done"}]},
        when("refused", quoted(401)),
        when("forbidden", quoted(403)),
        when("bad", quoted(400)),
        when("broken", quoted(500)),
        when("cut", json!({"text": "half an answer", "cut_after": 1, "repeat": true})),
    ])
}

fn settings(source: &str, canary: &str, url: &str) -> Value {
    let other = "other-key-000111222";
    match source {
        "environment" => json!({"api_key": null, "api_key_env": "WALNUT"}),
        "configuration" => json!({"api_key": canary}),
        "command" => json!({"api_key": null, "api_key_command": format!("printf {canary}")}),
        "key file" => json!({"api_key": null}),
        "header" => {
            json!({"api_key": other, "headers": {"x-canary-key": canary, "authorization": format!("Bearer {canary}")}})
        }
        _ => json!({"api_key": other, "base_url": format!("{url}/v1?key={canary}")}),
    }
}

/// Every file below a folder that has the text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

async fn leaks(source: &str, canary: &str) -> Vec<String> {
    let lab = Lab::new(replies(canary), json!({})).await;
    let mut mock = settings(source, canary, &lab.model.url());
    mock["max_retries"] = json!(1);
    let config = json!({"mode": "full_access", "providers": {"mock": mock}});
    lab.stage.write_config(&lab.model.url(), "chat_completions", config.as_object().unwrap()).unwrap();
    if source == "key file" {
        std::fs::write(lab.stage.home().join("credentials.toml"), format!("[mock]\napi_key = \"{canary}\"\n")).unwrap();
    }
    let mut environment = lab.stage.environment();
    environment.extend(BYSTANDERS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    if source == "environment" {
        environment.push(("WALNUT".into(), canary.into()));
    }
    let args = vec!["--log-level".into(), "trace".into()];
    let launch = Launch { home: lab.stage.home(), cwd: lab.stage.workspace(), args, environment };
    let mut client = Client::connect(&turnd(), launch).unwrap();
    client.request(json!(0), "initialize", json!({"protocolVersion": 1}), WAIT).await.unwrap();
    let session = lab.session(&mut client).await;
    for word in ["snoop", "refused", "forbidden", "bad", "broken", "cut"] {
        client.request(json!(word), "session/prompt", prompt(&session, word), WAIT).await.unwrap();
    }
    client.close_stdin();
    client.process.wait().await.unwrap();

    let seen = lab.model.seen();
    let is_used = seen.iter().any(|seen| seen.headers.to_string().contains(canary));
    assert!(is_used || source == "query", "{source}: the key was not used, so nothing was tried");
    let snooped = seen.iter().any(|seen| seen.body.to_string().contains("TURND_CALL_ID"));
    assert!(snooped, "{source}: the command did not run");

    let secrets = BYSTANDERS.iter().map(|(_, value)| *value).chain([canary]);
    let mut leaks = Vec::new();
    for secret in secrets {
        let mut check = |place: &str, is_there: bool| {
            if is_there {
                leaks.push(format!("{source}: {secret} in {place}"));
            }
        };
        check("the log", client.process.log().contains(secret));
        check("standard output", client.entries().iter().any(|entry| entry.message.to_string().contains(secret)));
        check("a request's body", seen.iter().any(|seen| seen.body.to_string().contains(secret)));
        let files = files_with(&lab.stage.home(), secret);
        let own = files.iter().all(|file| ["config.toml", "credentials.toml"].contains(&file.as_str()));
        check(&format!("{files:?}"), !own);
        check("the workspace", !files_with(&lab.stage.workspace(), secret).is_empty());
    }
    leaks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_seen_by_a_command_or_told_by_an_error() {
    let mut found = Vec::new();
    for (source, canary) in CANARIES {
        found.extend(leaks(source, canary).await);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_stored_key_is_the_users_alone_from_its_first_byte() {
    if !has_strace() {
        println!("skipped: strace is not installed");
        return;
    }
    let stage = Stage::create().unwrap();
    let (trace, file) = (stage.root().join("trace"), stage.home().join("credentials.toml"));
    let elsewhere = stage.root().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    let strace = "strace -f -qq -e trace=open,openat,creat,chmod,fchmod,fchmodat,rename,renameat,renameat2 -o";
    let script = format!("umask 0; exec {strace} \"$1\" \"$0\" login openai");
    #[expect(clippy::disallowed_methods, reason = "the test starts the program as a shell would")]
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_turnd")]).arg(&trace);
    let mut child = command.env("TURND_HOME", stage.home()).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"sk-canary-0a1b2c\n").unwrap();
    assert!(child.wait().unwrap().success());

    assert!(std::fs::read_to_string(&file).unwrap().contains("sk-canary-0a1b2c"));
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "", "a link in its place is replaced, not followed");
    let metadata = std::fs::symlink_metadata(&file).unwrap();
    assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let calls: Vec<&str> = trace.lines().filter(|line| line.contains("credentials.")).collect();
    let made = calls.iter().filter(|call| call.contains("O_CREAT"));
    assert!(made.clone().count() >= 2, "{calls:?}");
    assert!(made.clone().all(|call| call.contains("O_NOFOLLOW") && call.contains("0600")), "{calls:?}");
    assert!(calls.iter().any(|call| call.contains("rename")) && !trace.contains("chmod"), "{calls:?}");
}
