//! `process`: looks after the commands that `terminal` started in the background.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::output::{cap, one_line};
use super::process::{Background, Ended, Status};
use super::{
    Access, CallPlan, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec, args,
};

const DESCRIPTION: &str = "Background commands of terminal: list them, read new output (waiting for it up to \
wait_seconds), write input as it is, kill.";

/// The longest a read may wait, in seconds.
const MAX_WAIT_SECONDS: f64 = 300.0;

/// The longest input, in bytes; what a pipe takes without anybody reading.
const MAX_INPUT_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    action: Action,
    id: Option<u32>,
    input: Option<String>,
    wait_seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Read,
    Write,
    Kill,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("process", DESCRIPTION));

/// Looks after background commands.
#[derive(Debug)]
pub struct ProcessTool {
    background: Background,
}

impl ProcessTool {
    /// The tool, for the commands of this session.
    #[must_use]
    pub fn new(background: Background) -> Self {
        Self { background }
    }
}

/// What a call does, checked.
enum Work {
    List,
    Read { id: u32, wait: Duration },
    Write { id: u32, input: String },
    Kill { id: u32 },
}

impl Arguments {
    fn work(self) -> Result<Work, ToolFailure> {
        let id = || self.id.ok_or_else(|| ToolFailure::new("`id` is missing; list gives the numbers"));
        match self.action {
            Action::List => Ok(Work::List),
            Action::Read => {
                let seconds = self.wait_seconds.unwrap_or(0.0).clamp(0.0, MAX_WAIT_SECONDS);
                Ok(Work::Read { id: id()?, wait: Duration::from_secs_f64(seconds) })
            }
            Action::Write => {
                let id = id()?;
                let input = self.input.filter(|input| !input.is_empty());
                let input = input.ok_or_else(|| ToolFailure::new("`input` is missing"))?;
                if input.len() > MAX_INPUT_BYTES {
                    return Err(ToolFailure::new(format!("`input` is longer than {MAX_INPUT_BYTES} bytes")));
                }
                Ok(Work::Write { id, input })
            }
            Action::Kill => Ok(Work::Kill { id: id()? }),
        }
    }
}

impl Tool for ProcessTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let work = args::parse::<Arguments>(&SPEC, arguments)?.work()?;
            let plan = plan(&work, &self.background, context);
            let background = self.background.clone();
            let max_chars = context.limits.max_result_chars;
            Ok(Prepared::new(plan, move |run: RunContext| async move {
                tokio::select! {
                    biased;
                    () = run.cancel.cancelled() => ToolOutput { is_cut_off: true, ..ToolOutput::error("cancelled") },
                    result = carry_out(&background, work, max_chars) => match result {
                        Ok(text) => ToolOutput::text(text),
                        Err(text) => ToolOutput::error(text),
                    }
                }
            }))
        })
    }
}

fn plan(work: &Work, background: &Background, context: &ToolContext) -> CallPlan {
    let (title, access) = match work {
        Work::List => ("List background commands".into(), Vec::new()),
        Work::Read { id, .. } => (format!("Read output of process {id}"), Vec::new()),
        Work::Kill { id } => (format!("Kill process {id}"), Vec::new()),
        // The program may be a shell, so its input is judged as a command would be.
        Work::Write { id, input } => (
            format!("Write to process {id}: {}", one_line(input, 100)),
            vec![
                Access::Execute { command: input.clone(), cwd: context.cwd.clone() },
                Access::Feed(background.hold(*id)),
            ],
        ),
    };
    CallPlan { title, kind: ToolKind::Execute, access, ..CallPlan::default() }
}

async fn carry_out(background: &Background, work: Work, max_chars: usize) -> Result<String, String> {
    match work {
        Work::List => {
            let lines: Vec<String> = background.list().iter().map(summary).collect();
            Ok(if lines.is_empty() { "there are no background commands".into() } else { lines.join("\n") })
        }
        Work::Read { id, wait } => {
            background.wait(id, wait).await;
            let (status, news) = background.read(id).ok_or_else(|| format!("there is no process {id}"))?;
            Ok(report(&status, &news, max_chars))
        }
        Work::Write { id, input } => {
            background.write(id, &input).await?;
            Ok(format!("wrote {} bytes to process {id}", input.len()))
        }
        Work::Kill { id } => {
            background.kill(id).await?;
            let (status, news) = background.read(id).ok_or_else(|| format!("there is no process {id}"))?;
            Ok(report(&status, &news, max_chars))
        }
    }
}

/// What the model reads of a background command: its new output and where it stands.
pub(super) fn report(status: &Status, news: &str, max_chars: usize) -> String {
    let news = news.trim_end_matches('\n');
    let news = if news.trim().is_empty() { "(no new output)" } else { news };
    let news = cap(news, max_chars, "redirect the output to a file and read that");
    format!("{news}\n[process {} {}]", status.id, state(status.ended))
}

fn summary(status: &Status) -> String {
    format!("{}: {} [{}]", status.id, one_line(&status.command, 100), state(status.ended))
}

fn state(ended: Option<Ended>) -> String {
    match ended {
        None => "is running".into(),
        Some(Ended::Exited(code)) => format!("ended with exit code {code}"),
        Some(Ended::Signalled(signal)) => format!("was killed by signal {signal}"),
        Some(Ended::TimedOut) => "was killed after its time limit".into(),
        Some(Ended::Cancelled) => "was killed".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::Hold;
    use crate::tool::process::Processes;
    use crate::tool::terminal::Terminal;
    use crate::tool::testing::Workspace;

    struct Desk {
        workspace: Workspace,
        processes: Processes,
        terminal: Terminal,
        tool: ProcessTool,
    }

    fn desk() -> Desk {
        let processes = Processes::default();
        let background = Background::new(processes.clone());
        let terminal = Terminal::new(processes.clone(), background.clone());
        Desk { workspace: Workspace::new(), processes, terminal, tool: ProcessTool::new(background) }
    }

    impl Desk {
        async fn start(&self, command: &str) -> String {
            let arguments = json!({"command": command, "background": true});
            self.workspace.succeed(&self.terminal, arguments).await
        }

        async fn process(&self, arguments: Value) -> String {
            self.workspace.succeed(&self.tool, arguments).await
        }
    }

    #[tokio::test]
    async fn a_background_command_can_be_talked_to_and_killed() {
        let desk = desk();
        assert_eq!(desk.process(json!({"action": "list"})).await, "there are no background commands");
        let started = desk.start("echo ready; while read x; do echo got $x; done; sleep 60").await;
        assert_eq!(started, "ready\n[process 1 is running]");
        assert_eq!(
            desk.process(json!({"action": "write", "id": 1, "input": "hello\n"})).await,
            "wrote 6 bytes to process 1"
        );
        let read = desk.process(json!({"action": "read", "id": 1, "wait_seconds": 20})).await;
        assert_eq!(read, "got hello\n[process 1 is running]");
        let list = desk.process(json!({"action": "list"})).await;
        assert!(list.starts_with("1: echo ready; while") && list.ends_with("[is running]"), "{list}");
        let killed = desk.process(json!({"action": "kill", "id": 1})).await;
        assert_eq!(killed, "(no new output)\n[process 1 was killed]");
        desk.processes.settled().await;
    }

    #[tokio::test]
    async fn a_background_command_that_ends_says_so() {
        let desk = desk();
        let started = desk.start("echo oops >&2; exit 3").await;
        assert_eq!(started, "oops\n[process 1 ended with exit code 3]");
        assert_eq!(
            desk.process(json!({"action": "read", "id": 1})).await,
            "(no new output)\n[process 1 ended with exit code 3]"
        );
    }

    #[tokio::test]
    async fn input_is_judged_like_a_command() {
        let desk = desk();
        let arguments = json!({"action": "write", "id": 1, "input": "rm -rf /\n"});
        let prepared = desk.workspace.prepare(&desk.tool, arguments).await.unwrap();
        let access = Access::Execute { command: "rm -rf /\n".into(), cwd: desk.workspace.context.cwd.clone() };
        assert_eq!(prepared.plan.access, [access, Access::Feed(Hold::Nothing)]);
    }

    #[tokio::test]
    async fn a_call_that_makes_no_sense_says_why() {
        let desk = desk();
        let check = async |arguments: Value, expected: &str| {
            let text = desk.workspace.fail(&desk.tool, arguments).await;
            assert!(text.contains(expected), "{text}");
        };
        check(json!({"action": "read"}), "`id` is missing").await;
        check(json!({"action": "read", "id": 7}), "there is no process 7").await;
        check(json!({"action": "kill", "id": 7}), "there is no process 7").await;
        check(json!({"action": "write", "id": 7, "input": "x"}), "there is no process 7").await;
        check(json!({"action": "write", "id": 7}), "`input` is missing").await;
        check(json!({"action": "stop"}), "one of list | read | write | kill").await;
    }
}
