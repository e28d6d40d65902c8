//! Turns that an external runtime takes over, against a scripted one; `tests/runtime/README.md` has its steps.

use std::path::PathBuf;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use turnd::script::{format, run};

use crate::support::{fake_runtime, lab};

/// Cases at a time: each has three processes.
const AT_A_TIME: usize = 4;

/// The cases of a file as a transcript: `runtime` lines are prompts whose text is what the runtime does.
fn transcript(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let lines = lines.map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if let Some(steps) = line.get("runtime") {
            return json!({"prompt": steps.to_string()});
        }
        if line.get("case").is_some() {
            let mut config = json!({"model": "codex/scripted", "runtime_command": "$runtime"});
            let own = line.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
            config.as_object_mut().unwrap().extend(own);
            let command = json!(fake_runtime::command()).to_string();
            line["config"] = serde_json::from_str(&config.to_string().replace("\"$runtime\"", &command)).unwrap();
            line["only"] = json!("spawned");
        }
        line
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_takes_whole_turns_over() {
    let only = std::env::var_os("TRANSCRIPT").unwrap_or_default().to_string_lossy().into_owned();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/runtime");
    let files = turnd::script::find_files(&[folder]).unwrap();
    assert!(!files.is_empty());
    let mut cases = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let parsed = format::parse(&transcript(&std::fs::read_to_string(&file).unwrap())).unwrap();
        cases.extend(parsed.into_iter().map(|case| (format!("{name}: {}", case.name), case)));
    }
    cases.retain(|(name, _)| name.contains(&only));
    let agent = lab::turnd();
    let failed: Vec<_> = stream::iter(&cases)
        .map(async |(name, case)| {
            let outcome = run::run_case(case, &agent, "chat_completions").await;
            outcome.err().map(|failure| format!("{name}\n  {}\n{}", failure.message, failure.log))
        })
        .buffer_unordered(AT_A_TIME)
        .filter_map(async |failed| failed)
        .collect()
        .await;
    assert!(failed.is_empty(), "{}\n{} of {} failed", failed.join("\n"), failed.len(), cases.len());
}
