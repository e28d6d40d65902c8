//! `terminal`: runs a shell command.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client_terminal::{self, TerminalCommand};
use super::output::{cap, one_line};
use super::path::{resolve, shown};
use super::process::{Background, CommandLine, Ended, Finished, Processes};
use super::{
    Access, CallPlan, GitCare, Prepared, RunContext, Shell, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput,
    ToolSpec, args,
};
use crate::sandbox::View;

const DESCRIPTION: &str = "Run a bash command. No input, no terminal; each call is a new shell. What it leaves running \
is killed when it ends: for servers set background and use process. Of long output head and tail are kept.";

/// Bytes of output kept from the start, and as many from the end.
const KEEP_BYTES: usize = 16 << 10;

/// Bytes of the newest output shown while the command runs.
const SHOW_BYTES: usize = 8 << 10;

/// The longest a command may run; in the background also the default.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// How long the first output of a background command is awaited, so that one that fails at once shows it.
const FIRST_OUTPUT_WAIT: Duration = Duration::from_secs(1);

/// The longest command, in bytes: Linux takes arguments of 128 KiB.
const MAX_COMMAND_BYTES: usize = 128_000;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    command: String,
    timeout_seconds: Option<f64>,
    /// Default: the working folder
    cwd: Option<String>,
    #[serde(default)]
    background: bool,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("terminal", DESCRIPTION));

/// Runs commands.
#[derive(Debug)]
pub struct Terminal {
    processes: Processes,
    background: Background,
}

impl Terminal {
    /// The tool, starting its processes on this account and keeping those in the background with the session's.
    #[must_use]
    pub fn new(processes: Processes, background: Background) -> Self {
        Self { processes, background }
    }
}

impl Tool for Terminal {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let Arguments { command, timeout_seconds, cwd, background } = args::parse(&SPEC, arguments)?;
            check_command(&command)?;
            let cwd = match cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
                Some(spelled) => resolve(spelled, &context.cwd)?.real,
                None => context.cwd.clone(),
            };
            let mut title = one_line(&command, 120);
            if cwd != context.cwd {
                title.push_str(&format!(" (in {})", shown(&cwd, &context.cwd)));
            }
            if background {
                title.push_str(" (in the background)");
            }
            let plan = CallPlan {
                title,
                kind: ToolKind::Execute,
                access: vec![Access::Execute { command: command.clone(), cwd: cwd.clone() }],
                ..CallPlan::default()
            };
            let keep_bytes = KEEP_BYTES.min(context.limits.max_result_chars / 2);
            let default =
                if background { MAX_TIMEOUT } else { Duration::from_secs(context.limits.terminal_timeout_seconds) };
            let timeout = timeout(timeout_seconds, default)?;
            let secret_env = context.secret_env.clone();
            let workspace = std::iter::once(&context.cwd).chain(&context.additional_roots).cloned().collect();
            let git = GitCare::default();
            let spill = context.spill.clone().filter(|_| !background);
            let line =
                CommandLine { command, cwd, timeout, secret_env, keep_bytes, sandbox: None, spill, workspace, git };
            let max_chars = context.limits.max_result_chars;
            if background {
                let commands = self.background.clone();
                return Ok(Prepared::new(plan, move |run| start(commands, line, max_chars, run)));
            }
            let (processes, terminals) = (self.processes.clone(), context.terminals.clone());
            Ok(Prepared::new(plan, move |run| async move {
                match terminals.filter(|_| is_free(&run)) {
                    Some(terminals) => client_terminal::run(terminals, for_client(line, max_chars), run).await,
                    None => carry_out(processes, line, max_chars, run).await,
                }
            }))
        })
    }
}

/// Whether a command may run where nothing holds it: what is held only to reading is not let pass for that.
fn is_free(run: &RunContext) -> bool {
    run.shell == Shell::Any && run.sandbox.as_ref().is_none_or(|policy| policy.view == View::Shared)
}

fn check_command(command: &str) -> Result<(), ToolFailure> {
    if command.trim().is_empty() {
        return Err(ToolFailure::new("the command is empty"));
    }
    if command.contains('\0') {
        return Err(ToolFailure::new("the command holds a NUL character; write \\0 where a program understands it"));
    }
    if command.len() > MAX_COMMAND_BYTES {
        let text = format!("the command has {} bytes, the limit is {MAX_COMMAND_BYTES}; write a script", command.len());
        return Err(ToolFailure::new(text));
    }
    Ok(())
}

fn timeout(asked: Option<f64>, default: Duration) -> Result<Duration, ToolFailure> {
    match asked {
        None => Ok(default),
        Some(seconds) if seconds > 0.0 => Ok(Duration::from_secs_f64(seconds.min(MAX_TIMEOUT.as_secs_f64()))),
        Some(seconds) => Err(ToolFailure::new(format!("`timeout_seconds` must be above 0, found {seconds}"))),
    }
}

fn for_client(line: CommandLine, max_chars: usize) -> TerminalCommand {
    let CommandLine { command, cwd, timeout, keep_bytes, .. } = line;
    TerminalCommand { command, cwd, timeout, keep_bytes, max_chars }
}

async fn carry_out(processes: Processes, line: CommandLine, max_chars: usize, run: RunContext) -> ToolOutput {
    if !is_folder(line.cwd.clone()).await {
        return ToolOutput::error(format!("{} is not a folder that exists; nothing was run", line.cwd.display()));
    }
    let line = CommandLine { sandbox: run.sandbox.clone(), git: run.git, ..line };
    let progress = run.progress.clone();
    let finished = processes.run(&line, &run.cancel, |output| progress.show(output.newest(SHOW_BYTES))).await;
    match finished {
        Ok(finished) => report(&finished, line.timeout, max_chars),
        Err(error) => ToolOutput::error(format!("the shell could not be started: {error}")),
    }
}

async fn start(commands: Background, line: CommandLine, max_chars: usize, run: RunContext) -> ToolOutput {
    if !is_folder(line.cwd.clone()).await {
        return ToolOutput::error(format!("{} is not a folder that exists; nothing was run", line.cwd.display()));
    }
    let line = CommandLine { sandbox: run.sandbox.clone(), git: run.git, ..line };
    let id = match commands.start(line) {
        Ok(id) => id,
        Err(error) => return ToolOutput::error(error.to_string()),
    };
    tokio::select! {
        _ = commands.wait(id, FIRST_OUTPUT_WAIT) => {}
        () = run.cancel.cancelled() => {}
    }
    match commands.read(id) {
        Some((status, news)) => ToolOutput::text(super::background::report(&status, &news, max_chars)),
        None => ToolOutput::error(format!("process {id} is gone")),
    }
}

async fn is_folder(path: PathBuf) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|metadata| metadata.is_dir())
}

fn report(finished: &Finished, timeout: Duration, max_chars: usize) -> ToolOutput {
    let output = finished.output.text();
    let output = output.trim_end_matches('\n');
    let output = if output.trim().is_empty() { "(no output)" } else { output };
    let output = cap(output, max_chars, "redirect the output to a file and read that");
    let whole = finished.whole.as_ref().map_or(String::new(), |kept| format!("[{}]\n", kept.note()));
    let seconds = timeout.as_secs_f64();
    let (ending, code, signal) = match finished.ended {
        Ended::Exited(code) => (format!("exit code {code}"), Some(code), None),
        Ended::Signalled(signal) => (format!("killed by signal {signal}"), None, Some(signal)),
        Ended::TimedOut => {
            (format!("killed after the time limit of {seconds} s; ask for more with timeout_seconds"), None, None)
        }
        Ended::Cancelled => ("killed, because the user cancelled".into(), None, None),
    };
    let raw = json!({
        "exitCode": code,
        "signal": signal,
        "timedOut": finished.ended == Ended::TimedOut,
        "outputBytes": finished.output.total_bytes(),
        "truncated": finished.output.omitted_bytes() > 0,
    });
    ToolOutput {
        raw: Some(raw),
        is_cut_off: matches!(finished.ended, Ended::TimedOut | Ended::Cancelled),
        whole: finished.whole.clone(),
        ..ToolOutput::text(format!("{output}\n{whole}[{ending}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::testing::{Workspace, run_context, text};

    fn terminal() -> Terminal {
        let processes = Processes::default();
        Terminal::new(processes.clone(), Background::new(processes))
    }

    async fn run(workspace: &Workspace, arguments: Value) -> ToolOutput {
        workspace.call(&terminal(), arguments).await
    }

    #[tokio::test]
    async fn a_command_that_ran_is_a_success_whatever_its_end() {
        let workspace = Workspace::new();
        let check = async |command: &str, expected: &str| {
            let output = run(&workspace, json!({"command": command})).await;
            assert_eq!((text(&output).as_str(), output.is_error), (expected, false));
        };
        check("echo hi", "hi\n[exit code 0]").await;
        check("true", "(no output)\n[exit code 0]").await;
        check("echo no; exit 3", "no\n[exit code 3]").await;
        check("kill -9 $$", "(no output)\n[killed by signal 9]").await;
        check("nonexistent-program 2>/dev/null", "(no output)\n[exit code 127]").await;
        let output = run(&workspace, json!({"command": "sleep 60", "timeout_seconds": "0.2"})).await;
        assert_eq!(
            text(&output),
            "(no output)\n[killed after the time limit of 0.2 s; ask for more with timeout_seconds]"
        );
        assert_eq!((output.is_error, output.is_cut_off), (false, true));
    }

    #[tokio::test]
    async fn the_plan_holds_the_exact_command_and_folder() {
        let workspace = Workspace::new();
        std::fs::create_dir(workspace.path("sub")).unwrap();
        let tool = terminal();
        let command = "echo  a\necho b";
        let prepared = workspace.prepare(&tool, json!({"command": command, "cwd": "sub"})).await.unwrap();
        assert_eq!(prepared.plan.title, "echo a echo b (in sub)");
        let access = Access::Execute { command: command.into(), cwd: workspace.path("sub") };
        assert_eq!(prepared.plan.access, [access]);
        let output = run(&workspace, json!({"command": "pwd", "cwd": "sub"})).await;
        assert_eq!(text(&output), format!("{}\n[exit code 0]", workspace.path("sub").display()));
    }

    #[tokio::test]
    async fn what_cannot_be_run_is_refused() {
        let workspace = Workspace::new();
        let check = async |arguments: Value, part: &str| {
            let output = run(&workspace, arguments).await;
            assert!(output.is_error && text(&output).contains(part), "{output:?}");
        };
        check(json!({"command": " "}), "empty").await;
        check(json!({"command": "echo a\0b"}), "NUL").await;
        check(json!({"command": "x".repeat(200_000)}), "limit is 128000").await;
        check(json!({"command": "true", "timeout_seconds": 0}), "must be above 0").await;
        check(json!({"command": "true", "timeout_seconds": -1}), "must be above 0").await;
        check(json!({"command": "true", "cwd": "nowhere"}), "not a folder").await;
        check(json!({"cmd": "true"}), "unknown parameter `cmd`").await;
    }

    #[tokio::test]
    async fn a_cancelled_command_gives_what_it_said_so_far() {
        let workspace = Workspace::new();
        let tool = terminal();
        let prepared = workspace.prepare(&tool, json!({"command": "echo so far; sleep 60"})).await.unwrap();
        let (progress, mut shown) = crate::tool::Progress::channel();
        let run = RunContext { progress, ..run_context() };
        let cancel = run.cancel.clone();
        let cancel_when_shown = async {
            shown.wait_for(|shown| *shown == crate::tool::Display::Text("so far\n".into())).await.unwrap();
            cancel.cancel();
        };
        let (output, ()) = tokio::join!(prepared.run(run), cancel_when_shown);
        assert_eq!(text(&output), "so far\n[killed, because the user cancelled]");
        assert_eq!((output.is_cut_off, output.is_error), (true, false));
        tool.processes.settled().await;
    }
}
