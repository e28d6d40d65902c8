//! The commands of a shell: what they say, where they say it, and how they end.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use turnd::script::stage::Stage;

/// A home folder and a workspace without any key in the environment.
struct Shell(Stage);

impl Shell {
    fn new() -> Self {
        Self(Stage::create().unwrap())
    }

    #[expect(clippy::disallowed_methods, reason = "the test starts the program as a shell would")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnd"));
        command.args(arguments).current_dir(self.0.workspace()).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("TURND_HOME", self.0.home()).env("HOME", self.0.root().join("user"));
        command
    }

    /// The exit code, standard output and standard error.
    fn turnd(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        said(&self.command(arguments).output().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::create_dir_all(self.0.home()).unwrap();
        let path = self.0.home().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A file of answers of the model.
    fn script(&self, lines: &[&str]) -> String {
        self.write("model.jsonl", &lines.join("\n")).display().to_string()
    }
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_doctor_fails_for_whatever_is_configured_in_vain_and_says_it_once() {
    let shell = Shell::new();
    shell.write(
        "config.toml",
        "model = \"scripted/x\"\nfallback_providers = [\"nobody/x\"]\nreasoning_effort = \"huge\"\nsoul = \"me.md\"\n\
         rules = [{ effect = \"deny\", tool = \"terminl\" }]\ntools.disabled = [\"x\"]\ncompression.threshold = 7\n\
         [profiles.review]\nmax_iteration = 5\n",
    );
    let (code, out, err) = shell.turnd(&["doctor"]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert!(out.contains("FAIL configuration"), "{out}");
    for part in [
        "`nobody/x` cannot be used",
        "`huge`",
        "me.md",
        "did you mean `terminal`?",
        "tools.disabled",
        "threshold: 7",
        "`profiles.review.max_iteration`, did you mean `max_iterations`?",
    ] {
        assert_eq!(out.matches(part).count(), 1, "{part}: {out}");
    }
}

#[test]
fn the_doctor_fails_for_a_configuration_and_files_that_cannot_be_used() {
    for (file, text, failed, part) in [
        ("config.toml", "[[hooks]]\non = \"pre_tool\"\ncommand = [\"x\"]", "configuration", "`pre_tool_call`"),
        ("config.toml", "tools.terminal = \"mine\"", "configuration", "line 1, column 18"),
        ("config.toml", "max_iterations = 0", "configuration", "at least 1"),
        ("credentials.toml", "x = ", "stored keys", "credentials.toml"),
        ("rules.toml", "x = ", "remembered rules", "rules.toml"),
        ("sessions.db", "no database, but long enough to be read as one", "store", "sessions.db.corrupt-"),
    ] {
        let shell = Shell::new();
        let script = shell.script(&[]);
        shell.write(file, text);
        let (code, out, _) = shell.turnd(&["doctor", "--script", &script]);
        let problem = out.split(&format!("FAIL {failed}: ")).nth(1).unwrap_or_else(|| panic!("{file}: {out}"));
        assert!(code == Some(1) && problem.contains(part), "{file}: {out}");
    }
    let shell = Shell::new();
    let script = shell.script(&[]);
    assert_eq!(shell.turnd(&["doctor", "--script", &script]).0, Some(0));
}

#[test]
fn a_slash_command_alone_ends_with_a_line_and_leaves_no_session() {
    let shell = Shell::new();
    let script = shell.script(&[]);
    let (code, out, _) = shell.turnd(&["run", "--script", &script, "/model"]);
    assert_eq!((code, out.as_str()), (Some(0), "The model is `scripted/script`.\n"));
    let (code, out, err) = shell.turnd(&["sessions", "list"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "", "turnd: there is no session\n"));
}

#[test]
fn lists_without_an_entry_say_so_beside_the_output() {
    let shell = Shell::new();
    for list in [&["sessions", "list"][..], &["rules", "list"], &["trust", "--list"]] {
        let (code, out, err) = shell.turnd(list);
        assert!((code, out.as_str()) == (Some(0), "") && err.lines().count() == 1, "{list:?}: {out}{err}");
    }
}

#[test]
fn a_command_takes_only_the_options_it_uses() {
    let shell = Shell::new();
    for command in ["rules list", "trust --list", "sessions list", "logout x", "schema", "script x.jsonl"] {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(shell.turnd(&[&["--model", "x/y"], &words[..]].concat()).0, Some(2), "{command}");
        assert_eq!(shell.turnd(&[&words[..], &["--model", "x/y"]].concat()).0, Some(2), "{command}");
        assert!(!shell.turnd(&[words[0], "--help"]).1.contains("--run-budget"), "{command}");
    }
    assert_eq!(shell.turnd(&["run", "--max-iterations", "0", "hi"]).0, Some(2));
}

#[test]
fn the_demo_plays_the_script_and_the_mode_it_is_given() {
    let shell = Shell::new();
    let script = shell.script(&[
        r#"{"model":{"tool_calls":[{"name":"terminal","arguments":{"command":"touch x"}}]}}"#,
        r#"{"model":{"text":"my own words"}}"#,
    ]);
    let (code, out, _) = shell.turnd(&["--mode", "full_access", "demo", "--script", &script]);
    assert!(code == Some(0) && out.contains("my own words") && !out.contains("may it do this?"), "{out}");
}

#[test]
fn a_filter_that_fits_no_case_is_a_failure_and_the_agents_command_may_be_quoted() {
    let shell = Shell::new();
    let file = shell.write("case.jsonl", "{\"case\":\"hello\",\"start\":\"initialize\"}\n").display().to_string();
    let folder = shell.0.root().join("a b");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_turnd"), folder.join("turnd")).unwrap();
    let agent = format!("'{}/turnd' --log-level \"off\"", folder.display());
    let (code, out, err) = shell.turnd(&["script", "--agent", &agent, &file]);
    assert_eq!((code, out.as_str()), (Some(0), "1 passed, 0 failed\n"), "{err}");
    let (code, out, err) = shell.turnd(&["script", "--agent", &agent, "--only", "zzz", &file]);
    assert!(code == Some(1) && err.contains("no case was played"), "{out}{err}");
}

#[test]
fn a_reader_that_has_gone_away_is_no_failure() {
    let shell = Shell::new();
    let mut child = shell.command(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, err) = said(&child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

#[test]
fn a_key_is_taken_for_a_provider_that_exists_only() {
    let shell = Shell::new();
    let config = shell.write("other.toml", "[providers.mine]\nbase_url = \"http://127.0.0.1:1/v1\"\n");
    let login = |arguments: &[&str]| {
        let mut child = shell.command(arguments).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The command may end before it reads.
        child.stdin.take().unwrap().write_all(b"test-key\n").ok();
        said(&child.wait_with_output().unwrap())
    };
    let (code, _, err) = login(&["login", "nobody"]);
    assert!(code == Some(1) && err.contains("no provider `nobody`") && err.contains("anthropic"), "{err}");
    assert!(!shell.0.home().join("credentials.toml").exists());
    assert_eq!(login(&["login", "openai"]).0, Some(0));
    assert_eq!(login(&["login", "mine", "--config", config.to_str().unwrap()]).0, Some(0));
}

#[test]
fn what_needs_a_question_nobody_can_be_asked_is_told_as_that() {
    let shell = Shell::new();
    let script = shell.script(&[
        r#"{"model":{"tool_calls":[{"name":"terminal","arguments":{"command":"touch x"}}]}}"#,
        r#"{"model":{"text":"fine"}}"#,
    ]);
    let (code, out, _) = shell.turnd(&["run", "--json", "--script", &script, "go"]);
    assert!(code == Some(0) && out.contains("nobody can be asked here") && !out.contains("the user refused"), "{out}");
}

#[test]
fn a_server_that_cannot_be_reached_is_named_once() {
    let shell = Shell::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    shell.write("config.toml", &format!("model = \"p/m\"\n[providers.p]\nbase_url = \"{url}\"\nmax_retries = 0\n"));
    let (code, _, err) = shell.turnd(&["run", "hi"]);
    assert_eq!((code, err.matches(&format!("cannot reach {url}")).count()), (Some(1), 1), "{err}");
    assert!(!err.contains("ProviderError") && !err.contains("timeout"), "{err}");
}
