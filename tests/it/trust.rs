//! Trust of a workspace from a shell: `turnd trust`, and `turnd run` where nobody can be asked.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use turnd::script::stage::Stage;

const CONFIG: &str = "[[hooks]]\non = \"on_session_start\"\ncommand = [\"sh\", \"./start.sh\"]\n";

/// A workspace with a hook that leaves a mark, and a scripted model.
struct Shell {
    stage: Stage,
}

impl Shell {
    fn new() -> Self {
        let stage = Stage::create().unwrap();
        std::fs::create_dir(stage.workspace().join(".turnd")).unwrap();
        std::fs::write(stage.workspace().join(".turnd/config.toml"), CONFIG).unwrap();
        std::fs::write(stage.workspace().join("start.sh"), "touch ran\n").unwrap();
        std::fs::write(stage.root().join("model.jsonl"), "{\"model\":{\"text\":\"hello\",\"repeat\":true}}\n").unwrap();
        Self { stage }
    }

    #[expect(clippy::disallowed_methods, reason = "the test starts the program as a shell would")]
    fn turnd(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnd"));
        command.args(arguments).current_dir(self.stage.workspace()).stdin(Stdio::null());
        command.env("TURND_HOME", self.stage.home()).env("HOME", self.stage.root().join("user")).env("CI", "true");
        command.output().unwrap()
    }

    fn run(&self) -> Output {
        let script = self.stage.root().join("model.jsonl");
        self.turnd(&["--script", script.to_str().unwrap(), "run", "hi"])
    }

    fn mark(&self) -> PathBuf {
        self.stage.workspace().join("ran")
    }
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn where_nobody_can_be_asked_nothing_is_trusted_and_one_notice_says_so() {
    let shell = Shell::new();
    let output = shell.run();
    assert_eq!((output.status.code(), out(&output).trim()), (Some(0), "hello"));
    assert_eq!(err(&output).matches("not trusted and not in effect").count(), 1, "{}", err(&output));
    assert!(!shell.mark().exists());
}

#[test]
fn a_shell_trusts_exactly_what_it_was_shown() {
    let shell = Shell::new();
    let shown = shell.turnd(&["trust"]);
    assert_eq!(shown.status.code(), Some(1));
    let listed = ["hook on on_session_start: sh ./start.sh", "file: .turnd/config.toml", "file: start.sh (10 bytes)"];
    for line in listed {
        assert!(out(&shown).contains(line), "{line}: {}", out(&shown));
    }
    assert!(err(&shown).contains("--yes"), "{}", err(&shown));
    assert_eq!(shell.turnd(&["trust", "--yes"]).status.code(), Some(0));
    let output = shell.run();
    assert!(shell.mark().exists(), "{}", err(&output));
    assert!(!err(&output).contains("not trusted"), "{}", err(&output));

    std::fs::remove_file(shell.mark()).unwrap();
    std::fs::write(shell.stage.workspace().join("start.sh"), "touch ran \n").unwrap();
    assert!(out(&shell.turnd(&["trust", "--list"])).contains("changed since"));
    assert!(err(&shell.run()).contains("not trusted"));
    assert!(!shell.mark().exists());

    assert_eq!(shell.turnd(&["trust", "--yes"]).status.code(), Some(0));
    assert!(out(&shell.turnd(&["trust", "--revoke"])).contains("no longer decided"));
    assert_eq!(out(&shell.turnd(&["trust", "--list"])), "");
    assert!(err(&shell.run()).contains("not trusted"));
    assert!(!shell.mark().exists());
}
