//! Hooks that are programs: JSON on standard input, JSON on standard output.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::config::HookConfig;
use crate::tool::process::{Errand, Processes, search_path};
use crate::vault;

use super::{Hook, HookFailure, HookPoint};

/// The longest answer that is read. A decision is a few words.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// How long the end of a hook's output is awaited once the hook itself has ended.
const END_GRACE: Duration = Duration::from_millis(100);

/// A program that is run at a point.
#[derive(Clone, Debug)]
pub struct CommandHook {
    point: HookPoint,
    command: Vec<String>,
    timeout: Duration,
    cwd: PathBuf,
    /// Environment variables it does not get.
    hidden_env: Vec<String>,
    processes: Processes,
}

impl CommandHook {
    /// The hook of a configuration entry.
    #[must_use]
    pub fn new(config: &HookConfig, cwd: PathBuf, hidden_env: Vec<String>, processes: Processes) -> Self {
        let timeout = Duration::try_from_secs_f64(config.timeout_seconds).unwrap_or(Duration::MAX);
        Self { point: config.on, command: config.command.clone(), timeout, cwd, hidden_env, processes }
    }

    fn name(&self) -> String {
        format!("`{}` on {}", self.command.join(" "), self.point.as_str())
    }

    fn failure(&self, problem: impl ToString) -> HookFailure {
        HookFailure { name: self.name(), problem: problem.to_string() }
    }

    #[expect(clippy::disallowed_methods, reason = "a hook is the user's own program, not a tool's")]
    fn start(&self) -> std::io::Result<Errand> {
        let (program, arguments) = self.command.split_first().ok_or(std::io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.cwd);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            let virtual_env = std::env::var_os("VIRTUAL_ENV");
            command.env("PATH", search_path(&path, std::slice::from_ref(&self.cwd), virtual_env.as_deref()));
        }
        command.envs(vault::all());
        for name in &self.hidden_env {
            command.env_remove(name);
        }
        self.processes.start_errand(&mut command)
    }

    async fn run(&self, payload: &Value) -> Result<Value, HookFailure> {
        // What a hook leaves behind has no business staying: its group ends with this.
        let mut errand = self.start().map_err(|error| self.failure(error))?;
        let answer = tokio::time::timeout(self.timeout, self.converse(&mut errand.child, payload)).await;
        answer.unwrap_or_else(|_| Err(self.failure(format!("no answer within {:?}", self.timeout))))
    }

    async fn converse(&self, child: &mut Child, payload: &Value) -> Result<Value, HookFailure> {
        let mut answer = Vec::new();
        let status = listen(child, payload.to_string(), &mut answer).await.map_err(|error| self.failure(error))?;
        if !status.success() {
            return Err(self.failure(format!("it ended with {status}")));
        }
        if answer.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| self.failure(format!("its answer is not JSON: {error}")))
    }
}

/// Gives a hook its payload and takes down its answer until it has ended.
async fn listen(child: &mut Child, payload: String, answer: &mut Vec<u8>) -> std::io::Result<ExitStatus> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A hook need not read what it does not need.
            stdin.write_all(payload.as_bytes()).await.ok();
        }
    };
    let read = async move {
        match stdout {
            Some(stdout) => stdout.take(MAX_ANSWER_BYTES).read_to_end(answer).await.map(drop),
            None => Ok(()),
        }
    };
    let mut talk = std::pin::pin!(async { tokio::join!(write, read).1 });
    let ended = tokio::select! {
        whole = &mut talk => {
            whole?;
            return child.wait().await;
        }
        ended = child.wait() => ended?,
    };
    // What it left in the background may hold its output open; what it said itself is there by now.
    tokio::time::timeout(END_GRACE, talk).await.unwrap_or(Ok(()))?;
    Ok(ended)
}

impl Hook for CommandHook {
    fn point(&self) -> HookPoint {
        self.point
    }

    fn call<'a>(&'a self, payload: &'a Value) -> BoxFuture<'a, Result<Value, HookFailure>> {
        self.run(payload).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    async fn call(script: &str, seconds: f64) -> Result<Value, HookFailure> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let config = HookConfig { on: HookPoint::PreToolCall, command, timeout_seconds: seconds };
        let hook = CommandHook::new(&config, std::env::temp_dir(), vec!["SECRET".into()], Processes::default());
        hook.call(&json!({ "tool": "terminal" })).await
    }

    #[tokio::test]
    async fn the_payload_goes_in_and_json_comes_out() {
        assert_eq!(call("cat", 5.0).await.unwrap(), json!({ "tool": "terminal" }));
        assert_eq!(call("true", 5.0).await.unwrap(), Value::Null);
    }

    #[tokio::test]
    async fn what_a_hook_leaves_in_the_background_is_not_waited_for() {
        assert_eq!(call("sleep 600 & echo '{}'", 60.0).await.unwrap(), json!({}));
    }

    #[tokio::test]
    async fn a_hook_that_fails_hangs_or_babbles_is_a_failure() {
        for (script, seconds, problem) in [
            ("exit 3", 5.0, "exit status: 3"),
            ("echo nonsense", 5.0, "not JSON"),
            ("sleep 600", 0.05, "no answer within"),
        ] {
            let failure = call(script, seconds).await.unwrap_err();
            assert!(failure.problem.contains(problem), "{failure}");
        }
    }
}
