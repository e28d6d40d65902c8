//! In place of connections, in a build without them: every server says so and fails.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::tool::RunContext;

use super::server::Trouble;
use super::servers::Surroundings;
use super::spec::ServerSpec;

/// Why a call gave no result.
#[derive(Clone, Debug)]
pub(super) enum CallFailure {
    /// The server said so.
    #[expect(dead_code, reason = "nothing answers in this build")]
    Answered(String),
    /// It could not be asked.
    Unreachable(String),
    /// It was asked, and what came of it is unknown.
    CutOff(String),
}

/// There is none.
#[derive(Clone, Debug)]
pub(super) enum Connection {}

impl Connection {
    pub(super) async fn list_tools(&self) -> Result<Vec<Value>, String> {
        match *self {}
    }

    pub(super) async fn list_changed(&self) {
        match *self {}
    }

    pub(super) async fn call(
        &self,
        _tool: &str,
        _arguments: Map<String, Value>,
        _limit: Duration,
        _run: &RunContext,
    ) -> Result<Value, CallFailure> {
        match *self {}
    }
}

/// There is none.
#[derive(Debug)]
pub(super) enum Life {}

impl Life {
    pub(super) async fn ended(&mut self) -> String {
        match *self {}
    }

    pub(super) async fn close(&mut self) {
        match *self {}
    }
}

#[expect(clippy::unused_async, reason = "stands in for what waits")]
pub(super) async fn open(_spec: &ServerSpec, _around: &Surroundings) -> Result<(Connection, Life), Trouble> {
    Err(Trouble { cause: "this turnd was built without MCP".into(), is_final: true })
}
