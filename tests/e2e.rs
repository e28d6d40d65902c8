//! Real clients drive the built daemon: the official SDKs, a headless client, and the conformance kit.
//!
//! `tests/e2e/setup.sh` installs the clients below the target folder, where these tests find them; the environment
//! names `TURND_TEST_PYTHON` and `TURND_TEST_NODE_MODULES` point elsewhere. A test whose client is absent says so and
//! passes, unless `TURND_REQUIRE_CLIENTS=1` is set. The clients' own scripts in `tests/e2e/` hold the checks.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics to fail and prints to be read")]

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "e2e/codex.rs"]
#[cfg(test)]
mod codex;

/// What a client must be found for; `None` when it is absent and need not be there.
fn required<T>(client: &str, found: Option<T>) -> Option<T> {
    if found.is_none() {
        assert!(environment("TURND_REQUIRE_CLIENTS").is_none(), "{client} is required but not installed");
        println!("skipped: {client} is not installed, tests/e2e/setup.sh installs it");
    }
    found
}

fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[expect(clippy::disallowed_methods, reason = "these tests are about processes")]
fn command(program: impl AsRef<Path>) -> Command {
    Command::new(program.as_ref())
}

/// A file or folder that the environment names, else the same one below the target folder.
fn installed(variable: &str, below_target: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let path = environment(variable).map_or_else(|| target.join("e2e-clients").join(below_target), PathBuf::from);
    path.exists().then_some(path)
}

/// A Python that has the official SDK and `jsonschema`.
fn python() -> Option<PathBuf> {
    python_with("acp, jsonschema")
}

/// A Python that has these modules.
fn python_with(modules: &str) -> Option<PathBuf> {
    let path = installed("TURND_TEST_PYTHON", "python/bin/python").unwrap_or_else(|| "python3".into());
    let imports = command(&path).args(["-c", &format!("import {modules}")]).stderr(Stdio::null()).status();
    imports.is_ok_and(|status| status.success()).then_some(path)
}

/// The `node_modules` folder that has this package.
fn node_modules(package: &str) -> Option<PathBuf> {
    let modules = installed("TURND_TEST_NODE_MODULES", "node_modules")?;
    let has_node = command("node").arg("--version").stdout(Stdio::null()).status().is_ok();
    (has_node && modules.join(package).exists()).then_some(modules)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e").join(name)
}

/// Runs a client against the daemon with a home of its own, and shows what it printed if it fails.
fn passes(mut client: Command, model: &Path) {
    let home = tempfile::tempdir().unwrap();
    let agent = [env!("CARGO_BIN_EXE_turnd").as_ref(), "--script".as_ref(), model.as_os_str()];
    let output = client.arg("--").args(agent).env("TURND_HOME", home.path()).stdin(Stdio::null()).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    println!("{said}");
}

#[test]
fn the_official_python_sdk_drives_turns() {
    let Some(python) = required("the Python SDK", python()) else { return };
    let mut client = command(python);
    client.arg(script("python_sdk.py"));
    passes(client, &script("model.jsonl"));
}

#[test]
fn the_official_typescript_sdk_drives_turns() {
    let Some(modules) = required("the TypeScript SDK", node_modules("@agentclientprotocol/sdk")) else { return };
    let mut client = command("node");
    client.arg(script("typescript_sdk.mjs")).env("TURND_TEST_NODE_MODULES", modules);
    passes(client, &script("model.jsonl"));
}

#[test]
fn the_headless_client_acpx_drives_turns_over_several_processes() {
    let Some(modules) = required("acpx", node_modules("acpx")) else { return };
    let mut client = command("node");
    client.arg(script("acpx.mjs")).env("TURND_TEST_NODE_MODULES", modules);
    passes(client, &script("model.jsonl"));
}

#[test]
fn the_conformance_kit_finds_nothing() {
    let schema =
        node_modules("@agentclientprotocol/sdk").map(|m| m.join("@agentclientprotocol/sdk/schema/v1/schema.json"));
    let Some((python, schema)) = required("the conformance kit's schema", python().zip(schema)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.jsonl");
    let script_lines = std::fs::read_to_string(script("model.jsonl")).unwrap();
    std::fs::write(&model, format!("{}\n{script_lines}", big_answer())).unwrap();

    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/conformance/conformance.py");
    let mut client = command(python);
    client.arg(kit).arg("--schema").arg(schema).args(["--big-prompt", "big"]);
    passes(client, &model);
}

/// A model line that answers `big` with 300 KB in one piece, far above what one line of the wire may hold.
fn big_answer() -> serde_json::Value {
    let text = "0123456789abcdef ".repeat(18_000);
    serde_json::json!({"model": {"when": {"user_contains": "big"}, "text": text}})
}

#[test]
fn the_fault_server_llmock_finds_nothing_to_blame_in_any_wire_format() {
    let Some(python) = required("llmock", python_with("llmock")) else { return };
    let mut judge = command(python);
    let output = judge.arg(script("llmock.py")).arg(env!("CARGO_BIN_EXE_turnd")).stdin(Stdio::null()).output().unwrap();
    let verdicts = String::from_utf8_lossy(&output.stdout);
    println!("{verdicts}");
    assert!(output.status.success(), "{verdicts}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs one of the one-file clients in a folder of its own and gives what it printed.
fn example(mut client: Command, folder: &Path, words: &[&str], typed: &str) -> String {
    let model = script("model.jsonl");
    let agent = [env!("CARGO_BIN_EXE_turnd").as_ref(), "--script".as_ref(), model.as_os_str()];
    client.args(words).arg("--").args(agent).current_dir(folder).env("TURND_HOME", folder.join("home"));
    let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {}\n{said}", output.status);
    said
}

/// The three examples that every one-file client in `clients/` has.
fn plays_its_examples(client: impl Fn() -> Command) {
    let folder = tempfile::tempdir().unwrap();
    let said = example(client(), folder.path(), &["turn", "hello"], "");
    assert!(said.contains("Hello, this is a scripted answer.\n(end_turn)"), "{said}");
    let said = example(client(), folder.path(), &["approve", "write greeting"], "1\n");
    assert!(said.contains("[completed]") && folder.path().join("greeting.txt").exists(), "{said}");
    let said = example(client(), folder.path(), &["approve", "perm"], "no such option\n");
    assert!(said.contains("(cancelled)") && !folder.path().join("stamp.txt").exists(), "{said}");
    let said = example(client(), folder.path(), &["cancel", "slow"], "");
    assert!(said.contains("tick 000") && said.contains("(cancelled)"), "{said}");
}

#[test]
fn the_one_file_python_client_plays_its_examples() {
    let works = command("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    let Some(()) = required("python3", works.then_some(())) else { return };
    plays_its_examples(|| {
        let mut client = command("python3");
        client.arg(script("../../clients/python/turnd_client.py"));
        client
    });
}

#[test]
fn the_one_file_node_client_plays_its_examples() {
    let works = command("node").arg("--version").stdout(Stdio::null()).status().is_ok();
    let Some(()) = required("node", works.then_some(())) else { return };
    plays_its_examples(|| {
        let mut client = command("node");
        client.arg(script("../../clients/node/turnd_client.mjs"));
        client
    });
}

/// The program `codex`.
fn codex_program() -> Option<PathBuf> {
    let modules = required("codex", node_modules("@openai/codex"))?;
    Some(modules.join(".bin/codex"))
}

#[tokio::test]
async fn the_real_codex_runs_whole_turns_and_takes_its_thread_up_again() {
    let Some(program) = codex_program() else { return };
    codex::runs_whole_turns(&program).await;
}

#[tokio::test]
async fn the_real_codex_does_nothing_that_the_gate_forbids() {
    let Some(program) = codex_program() else { return };
    codex::obeys_the_gate(&program).await;
}

#[tokio::test]
async fn the_real_codex_is_cancelled_with_all_that_it_started() {
    let Some(program) = codex_program() else { return };
    codex::is_cancelled(&program).await;
}
