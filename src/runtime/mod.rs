//! Another agent takes whole turns over: a program that speaks the protocol of `codex app-server`.
//!
//! [`run_turn`] stands beside [`crate::turn::run_turn`] and has the same ports: the prompt goes to the program,
//! its items become our messages and tool calls, its questions go through our gate and to our client, and the
//! store keeps the transcript. The program has its own model, tools, sandbox and compaction; ours are not used.
//!
//! The program is started with the session's first prompt and ends with the session. Its thread is named in
//! each stored answer, so that a later process takes it up again. Deliberately absent: its experimental
//! methods, its forms and its child threads, of which only the questions are answered.

mod asked;
mod call;
mod connection;
mod diff;
mod error;
mod failure;
mod finish;
mod hear;
mod item;
mod open;
mod question;
mod retell;
mod script;
mod shape;
mod stance;
mod stream;
mod turn;
mod words;

use std::sync::Arc;

use serde_json::Value;

use crate::config::{RuntimeCommand, SandboxConfig};
use crate::tool::process::Processes;

use connection::Connection;

pub use error::RuntimeError;
pub use turn::run_turn;

/// Marks stored answers as the runtime's, in the place of a wire format.
const NATIVE_MODE: &str = "codex_app_server";

/// What a runtime is made from.
#[derive(Clone, Debug)]
pub struct RuntimeSetup {
    /// The program and what it may see of the environment.
    pub command: RuntimeCommand,
    /// What commands may reach.
    pub sandbox: SandboxConfig,
    /// Who starts and ends it.
    pub processes: Processes,
    /// Environment variables that it must not inherit.
    pub secret_env: Arc<[String]>,
}

/// The runtime of one session: not started, or running between two turns. Dropping it ends the program.
#[derive(Debug)]
pub struct Runtime {
    setup: RuntimeSetup,
    live: Option<Live>,
}

/// A program that has been greeted.
#[derive(Debug)]
struct Live {
    connection: Connection,
    thread: Option<Thread>,
}

/// A conversation inside the program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    id: String,
    /// The model as the program names it.
    model: String,
}

impl Runtime {
    /// A runtime that is started when it is needed.
    #[must_use]
    pub fn new(setup: RuntimeSetup) -> Self {
        Self { setup, live: None }
    }

    /// The command it was made from.
    #[must_use]
    pub fn command(&self) -> &RuntimeCommand {
        &self.setup.command
    }
}

/// Adds a member to the parameters of a request.
fn put(params: &mut Value, name: &str, value: impl Into<Value>) {
    if let Value::Object(members) = params {
        members.insert(name.to_owned(), value.into());
    }
}
