//! The client's terminals, as the tool for commands sees them.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use turnd_protocol::acp;

use crate::rpc::Pending;
use crate::tool::ToolFailure;
use crate::tool::client_terminal::{ClientTerminals, TerminalExit, TerminalStart};

/// Calls about terminals for one session.
#[derive(Debug)]
pub(super) struct EditorTerminals {
    pub(super) pending: Pending,
    pub(super) session: Arc<str>,
}

impl EditorTerminals {
    async fn call(&self, verb: &str, method: &str, params: &impl Serialize) -> Result<Value, ToolFailure> {
        let answer = self.pending.call(method, params).await.map_err(|error| failure(verb, &error.to_string()))?;
        serde_json::from_str(answer.get()).map_err(|error| failure(verb, &error.to_string()))
    }

    /// Ends a terminal that was opened after nobody wanted it any more.
    fn give_back(&self, created: &RawValue) {
        if let Some(id) = terminal_id(created) {
            self.kill(&id);
            self.release(&id);
        }
    }
}

fn terminal_id(created: &RawValue) -> Option<String> {
    let created: Value = serde_json::from_str(created.get()).ok()?;
    text(&created, "terminalId").filter(|id| !id.is_empty())
}

fn failure(verb: &str, problem: &str) -> ToolFailure {
    ToolFailure::new(format!("The editor could not {verb}: {problem}"))
}

fn text(answer: &Value, key: &str) -> Option<String> {
    answer.get(key).and_then(Value::as_str).map(str::to_owned)
}

impl ClientTerminals for EditorTerminals {
    fn create(&self, start: TerminalStart) -> BoxFuture<'_, Result<String, ToolFailure>> {
        async move {
            let environment = start.environment.into_iter().map(|(name, value)| acp::EnvVariable::new(name, value));
            let params = acp::CreateTerminalRequest::new(Arc::clone(&self.session), start.program)
                .args(start.arguments)
                .env(environment.collect())
                .cwd(start.cwd)
                .output_byte_limit(start.keep_bytes);
            let late = Self { pending: self.pending.clone(), session: Arc::clone(&self.session) };
            let give_back = move |answer: &RawValue| late.give_back(answer);
            let answer = self.pending.call_or_undo("terminal/create", &params, give_back).await;
            let answer = answer.map_err(|error| failure("open a terminal", &error.to_string()))?;
            terminal_id(&answer).ok_or_else(|| failure("open a terminal", "its answer names none"))
        }
        .boxed()
    }

    fn wait<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<TerminalExit, ToolFailure>> {
        async move {
            let params = acp::WaitForTerminalExitRequest::new(Arc::clone(&self.session), id.to_owned());
            let answer = self.call("wait for the command", "terminal/wait_for_exit", &params).await?;
            // Clients of the field put it at the root, below `exitStatus`, or say nothing.
            let status = answer.get("exitStatus").filter(|status| status.is_object()).unwrap_or(&answer);
            let code = status.get("exitCode").and_then(Value::as_i64);
            Ok(TerminalExit { code, signal: text(status, "signal") })
        }
        .boxed()
    }

    fn output<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<String, ToolFailure>> {
        async move {
            let params = acp::TerminalOutputRequest::new(Arc::clone(&self.session), id.to_owned());
            let answer = self.call("give the output", "terminal/output", &params).await?;
            text(&answer, "output").ok_or_else(|| failure("give the output", "its answer holds none"))
        }
        .boxed()
    }

    fn kill(&self, id: &str) {
        self.pending.send("terminal/kill", &acp::KillTerminalRequest::new(Arc::clone(&self.session), id.to_owned()));
    }

    fn release(&self, id: &str) {
        let params = acp::ReleaseTerminalRequest::new(Arc::clone(&self.session), id.to_owned());
        self.pending.send("terminal/release", &params);
    }
}
