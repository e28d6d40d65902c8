//! `turnd run` without a terminal: nobody can be asked, and nothing waits for an answer.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the program in a folder of its own.
fn turnd(home: &Path, arguments: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the test is about the program without a terminal")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnd"));
    command.args(arguments).current_dir(home).env("TURND_HOME", home.join("home")).stdin(Stdio::null());
    command.output().unwrap()
}

fn script(folder: &Path, lines: &[&str]) {
    std::fs::write(folder.join("model.jsonl"), lines.join("\n")).unwrap();
}

#[test]
fn a_question_without_a_terminal_is_told_to_the_model_at_once() {
    let folder = tempfile::tempdir().unwrap();
    script(
        folder.path(),
        &[
            r#"{"model":{"tool_calls":[{"name":"clarify","arguments":{"question":"Which?","options":["a","b"]}}]}}"#,
            r#"{"model":{"text":"went on"}}"#,
        ],
    );
    let output = turnd(folder.path(), &["run", "--json", "--script", "model.jsonl", "choose"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("(unavailable): there is no terminal") && text.contains("went on"), "{text}");
}

#[test]
fn a_childs_session_is_listed_on_request_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    script(
        folder.path(),
        &[
            r#"{"model":{"tool_calls":[{"name":"delegate_task","arguments":{"goal":"count the files"}}]}}"#,
            r#"{"model":{"text":"three files"}}"#,
            r#"{"model":{"text":"done"}}"#,
        ],
    );
    let run = turnd(folder.path(), &["run", "--script", "model.jsonl", "go"]);
    assert!(run.status.success(), "{run:?}");
    let listed = |more: &[&str]| {
        let output = turnd(folder.path(), &[&["sessions", "list", "--json"], more].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let (own, all) = (listed(&[]), listed(&["--children"]));
    assert_eq!((own.len(), all.len()), (1, 2), "{all:?}");
    let child = all.iter().find(|row| row["lineage"] == "child").unwrap();
    assert_eq!(child["parentId"], own[0]["id"]);
    let shown = turnd(folder.path(), &["sessions", "show", child["id"].as_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for part in ["child of", "count the files", "three files", "completed (text_response)"] {
        assert!(shown.contains(part), "{shown}");
    }
}
