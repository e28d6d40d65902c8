//! Commands in a terminal of the client, for users who want to see and share the shell their agent works in.
//!
//! The gate is the same; the sandbox, the clean environment and the end of the whole process tree are not:
//! those are the client's business there. So a command that passed only because the sandbox holds it never
//! comes here.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::output::cap;
use super::process::{COMMAND_ENV, Capture, shell};
use super::{Display, RunContext, ToolFailure, ToolOutput};

/// Bytes of output the client is asked to keep.
const KEEP_BYTES: u64 = 1 << 20;

/// How long a killed command and its output are awaited.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// How long the output is awaited when the turn was cancelled: a cancelled call is abandoned soon after.
const CANCEL_GRACE: Duration = Duration::from_millis(40);

/// How long the output of an ended command is awaited.
const OUTPUT_LIMIT: Duration = Duration::from_secs(30);

/// The terminals of the client.
pub trait ClientTerminals: Send + Sync + fmt::Debug {
    /// Starts a program in a new terminal and gives its id.
    ///
    /// # Errors
    /// What the client said, or that its answer made no sense.
    fn create(&self, start: TerminalStart) -> BoxFuture<'_, Result<String, ToolFailure>>;
    /// Waits for the program's end.
    ///
    /// # Errors
    /// What the client said.
    fn wait<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<TerminalExit, ToolFailure>>;
    /// The output so far.
    ///
    /// # Errors
    /// What the client said, or that its answer made no sense.
    fn output<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<String, ToolFailure>>;
    /// Asks for the program's end, and waits for nothing.
    fn kill(&self, id: &str);
    /// Gives the terminal back, and waits for nothing.
    fn release(&self, id: &str);
}

/// What is to run in a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalStart {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables over those of the client.
    pub environment: Vec<(String, String)>,
    /// Where it runs, absolute.
    pub cwd: PathBuf,
    /// Bytes of output to keep.
    pub keep_bytes: u64,
}

/// How a program in a terminal ended, as far as the client says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code.
    pub code: Option<i64>,
    /// The signal that ended it, by the client's name for it.
    pub signal: Option<String>,
}

/// A command for a terminal of the client.
#[derive(Clone, Debug)]
pub(super) struct TerminalCommand {
    pub(super) command: String,
    pub(super) cwd: PathBuf,
    pub(super) timeout: Duration,
    /// Bytes for the model from the start, and as many from the end.
    pub(super) keep_bytes: usize,
    pub(super) max_chars: usize,
}

/// How a command ended here.
enum Ending {
    Ended(TerminalExit),
    TimedOut,
    Cancelled,
}

/// A terminal that is given back when this is dropped, whatever became of the call.
struct Lease {
    terminals: Arc<dyn ClientTerminals>,
    id: String,
    is_running: bool,
}

impl Lease {
    fn kill(&mut self) {
        if std::mem::take(&mut self.is_running) {
            self.terminals.kill(&self.id);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.kill();
        self.terminals.release(&self.id);
    }
}

/// Runs a command to its end, its limit or the turn's.
pub(super) async fn run(terminals: Arc<dyn ClientTerminals>, command: TerminalCommand, run: RunContext) -> ToolOutput {
    match carry_out(terminals, &command, &run).await {
        Ok(output) => output,
        Err(failure) => ToolOutput::error(failure.text),
    }
}

async fn carry_out(
    terminals: Arc<dyn ClientTerminals>,
    command: &TerminalCommand,
    run: &RunContext,
) -> Result<ToolOutput, ToolFailure> {
    let start = TerminalStart {
        program: shell().into(),
        arguments: vec!["-c".into(), command.command.clone()],
        environment: COMMAND_ENV.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        cwd: command.cwd.clone(),
        keep_bytes: KEEP_BYTES,
    };
    let created = tokio::select! {
        biased;
        () = run.cancel.cancelled() => return Ok(ToolOutput { is_cut_off: true, ..ToolOutput::error("cancelled") }),
        created = terminals.create(start) => created?,
    };
    let mut lease = Lease { terminals: Arc::clone(&terminals), id: created, is_running: true };
    run.progress.show_terminal(lease.id.clone());
    let mut ending = tokio::select! {
        biased;
        () = run.cancel.cancelled() => Ending::Cancelled,
        exit = terminals.wait(&lease.id) => Ending::Ended(exit?),
        () = tokio::time::sleep(command.timeout) => Ending::TimedOut,
    };
    let patience = match &ending {
        Ending::Ended(_) => {
            lease.is_running = false;
            OUTPUT_LIMIT
        }
        Ending::TimedOut => {
            lease.kill();
            let killed = tokio::time::timeout(KILL_GRACE, terminals.wait(&lease.id));
            tokio::select! {
                biased;
                () = run.cancel.cancelled() => ending = Ending::Cancelled,
                // Whether it says so or not, its time is over.
                _ = killed => {}
            }
            KILL_GRACE
        }
        Ending::Cancelled => {
            lease.kill();
            CANCEL_GRACE
        }
    };
    let output = tokio::select! {
        output = tokio::time::timeout(patience, terminals.output(&lease.id)) => output,
        () = cancelled_and(run, CANCEL_GRACE) => Ok(Ok(String::new())),
    };
    let output = match (&ending, output) {
        (_, Ok(Ok(output))) => output,
        (Ending::Ended(_), Ok(Err(failure))) => return Err(failure),
        (Ending::Ended(_), Err(_)) => return Err(ToolFailure::new("The editor's terminal gave no output.")),
        (Ending::TimedOut | Ending::Cancelled, _) => String::new(),
    };
    Ok(report(&output, &ending, command, &lease.id))
}

async fn cancelled_and(run: &RunContext, grace: Duration) {
    run.cancel.cancelled().await;
    tokio::time::sleep(grace).await;
}

fn report(output: &str, ending: &Ending, command: &TerminalCommand, id: &str) -> ToolOutput {
    let mut capture = Capture::new(command.keep_bytes);
    capture.push(output.as_bytes());
    let text = capture.text();
    let text = text.trim_end_matches('\n');
    let text = if text.trim().is_empty() { "(no output)" } else { text };
    let text = cap(text, command.max_chars, "redirect the output to a file and read that");
    let exit = match ending {
        Ending::Ended(exit) => exit.clone(),
        Ending::TimedOut | Ending::Cancelled => TerminalExit::default(),
    };
    let ended = match (ending, &exit) {
        (Ending::TimedOut, _) => {
            let seconds = command.timeout.as_secs_f64();
            format!("killed after the time limit of {seconds} s; ask for more with timeout_seconds")
        }
        (Ending::Cancelled, _) => "killed, because the user cancelled".into(),
        (Ending::Ended(_), TerminalExit { code: Some(code), .. }) => format!("exit code {code}"),
        (Ending::Ended(_), TerminalExit { signal: Some(signal), .. }) => {
            format!("killed by signal {}", super::output::one_line(signal, 40))
        }
        (Ending::Ended(_), _) => "ended; the editor did not say how".into(),
    };
    ToolOutput {
        display: vec![Display::Terminal(id.to_owned())],
        raw: Some(json!({
            "exitCode": exit.code,
            "signal": exit.signal,
            "timedOut": matches!(ending, Ending::TimedOut),
            "outputBytes": capture.total_bytes(),
            "truncated": capture.omitted_bytes() > 0,
        })),
        is_cut_off: !matches!(ending, Ending::Ended(_)),
        ..ToolOutput::text(format!("{text}\n[{ended}]"))
    }
}
