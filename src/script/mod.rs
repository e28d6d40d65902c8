//! Transcripts: scripted conversations with an ACP agent, as data files.
//!
//! A transcript scripts both sides of the agent: what the client sends and expects, and what the model
//! answers. `turnd script` runs them against any agent, the test suite runs them against the spawned
//! program and in process. After each case the closing [`rules`] hold for every line on the wire, and
//! every request to the model has passed [`invariants`]. [`mod@format`] is the file format, [`matching`] the
//! pattern language.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub mod agent;
pub mod client;
mod ending;
mod expect;
mod files;
pub mod format;
mod http;
pub mod invariants;
pub mod matching;
pub mod model_server;
pub mod rules;
pub mod run;
pub mod stage;
pub mod view;
pub mod wire;

pub use agent::Agent;
pub use format::Way;
pub use run::Failure;

/// Arguments of `turnd script`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScriptArgs {
    /// Transcript files, or folders of them (*.jsonl)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Program to test, with its arguments, as a shell reads it; default: this program
    #[arg(long, value_name = "CMD")]
    pub agent: Option<String>,
    /// Run only cases whose file or name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

/// One run of one case.
#[derive(Debug)]
pub struct Outcome {
    /// File, case and API mode.
    pub name: String,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// The failure as text for a person.
    #[must_use]
    pub fn report(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let log = if failure.log.is_empty() { "empty" } else { &failure.log };
        Some(format!(
            "FAIL {}\n  line {}: {}\n  log: {}\n",
            self.name,
            failure.line,
            failure.message,
            log.replace('\n', "\n       ")
        ))
    }
}

/// One case that can be run.
#[derive(Debug)]
pub struct Planned {
    /// File, case and API mode.
    pub name: String,
    case: std::sync::Arc<format::Case>,
    api_mode: String,
}

impl Planned {
    /// Runs it.
    pub async fn run(&self, agent: &Agent) -> Outcome {
        let result = run::run_case(&self.case, agent, &self.api_mode).await;
        Outcome { name: self.name.clone(), failure: result.err() }
    }
}

/// Every `*.jsonl` file at or under the paths, sorted.
///
/// # Errors
/// A path cannot be read.
pub fn find_files(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut waiting = paths.to_vec();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                let path = entry?.path();
                if path.is_dir() || path.extension().is_some_and(|extension| extension == "jsonl") {
                    waiting.push(path);
                }
            }
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The cases of a file that can be run in this way.
///
/// # Errors
/// The file cannot be read or is no transcript.
pub fn plan(path: &Path, way: Way) -> Result<Vec<Planned>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let cases = format::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut planned = Vec::new();
    for case in cases.into_iter().filter(|case| run::is_possible(case, way)) {
        let case = std::sync::Arc::new(case);
        let modes =
            if case.setup.api.is_empty() { vec!["chat_completions".to_owned()] } else { case.setup.api.clone() };
        for api_mode in modes {
            let name = format!("{}:{} {} [{api_mode}]", path.display(), case.line, case.name);
            planned.push(Planned { name, case: case.clone(), api_mode });
        }
    }
    Ok(planned)
}

/// Runs transcripts one after another and writes failures and the closing line; true when all passed.
///
/// # Errors
/// A file is no transcript, no case was played, or the report cannot be written.
pub async fn command(args: &ScriptArgs, out: &mut (dyn Write + Send)) -> io::Result<bool> {
    let program = match &args.agent {
        // What the harness adds stands behind it.
        Some(command) => ["sh", "-c", &format!("exec {command} \"$@\""), "sh"].map(str::to_owned).to_vec(),
        None => vec![std::env::current_exe()?.display().to_string()],
    };
    let agent = Agent::Program(program);
    let (mut passed, mut failed) = (0_usize, 0_usize);
    for file in find_files(&args.files)? {
        for planned in plan(&file, Way::Spawned).map_err(io::Error::other)? {
            if args.only.as_ref().is_some_and(|only| !planned.name.contains(only)) {
                continue;
            }
            match planned.run(&agent).await.report() {
                None => passed += 1,
                Some(report) => {
                    failed += 1;
                    out.write_all(report.as_bytes())?;
                }
            }
        }
    }
    writeln!(out, "{passed} passed, {failed} failed")?;
    if passed + failed == 0 {
        return Err(io::Error::other("no case was played: none is in these files, or --only fits none"));
    }
    Ok(failed == 0)
}
