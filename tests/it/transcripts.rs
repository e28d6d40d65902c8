//! Every transcript of `tests/transcripts`, against the spawned program and in process.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use futures_util::{StreamExt, stream};
use turnd::config::{Config, ConfigFlags};
use turnd::script::agent::Launch;
use turnd::script::{self, Agent, Way};

use crate::support::lab;

/// Cases at a time: most of a case is waiting, so more than the cores.
const AT_A_TIME: usize = 6;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    config: ConfigFlags,
}

/// Runs all cases; `TRANSCRIPT=text` runs those whose file or case has the text.
async fn run_all(way: Way, agent: Agent) {
    let only = std::env::var_os("TRANSCRIPT").map(|text| text.to_string_lossy().into_owned());
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut planned = Vec::new();
    for file in script::find_files(&[folder]).unwrap() {
        planned.extend(script::plan(&file, way).unwrap());
    }
    assert!(!planned.is_empty());
    planned.retain(|case| only.as_ref().is_none_or(|only| case.name.contains(only)));
    let reports: Vec<String> = stream::iter(&planned)
        .map(|case| case.run(&agent))
        .buffer_unordered(AT_A_TIME)
        .filter_map(async |outcome| outcome.report())
        .collect()
        .await;
    assert!(reports.is_empty(), "{}\n{} of {} failed", reports.join("\n"), reports.len(), planned.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcripts_pass_as_a_process() {
    run_all(Way::Spawned, lab::turnd()).await;
}

/// Serves one connection as the program would.
async fn serve(launch: Launch, stdin: tokio::io::DuplexStream, stdout: tokio::io::DuplexStream) -> i32 {
    let arguments = std::iter::once("turnd".to_owned()).chain(launch.args);
    let config = Config::load(&launch.home, &Flags::parse_from(arguments).config);
    match turnd::app::serve(turnd::app::host(config), stdin, stdout).await {
        Ok(_) => 0,
        Err(_) => 70,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcripts_pass_in_process() {
    let agent = Agent::Function(Arc::new(|launch, stdin, stdout| Box::pin(serve(launch, stdin, stdout))));
    run_all(Way::InProcess, agent).await;
}
