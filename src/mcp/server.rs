//! One server: its task, its state, and the calls to it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::tool::RunContext;

use super::connection::{self, CallFailure, Connection, Life};
use super::definition::{self, Listed};
use super::notes::{Notes, words};
use super::servers::Surroundings;
use super::spec::ServerSpec;

/// How long a server may take from its start to its list of tools. A first start through a package manager
/// downloads the server.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How often in a row a server is started again before it is given up.
const MAX_RESTARTS: u32 = 3;

/// The wait before the first of them; doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// A server that ran this long was sound; its next crash is a first one.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// How long a call waits for a server that is being started again.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// How long the cause of a lost connection is awaited: its process and its last words have their own, shorter times.
const CAUSE_WAIT: Duration = Duration::from_secs(1);

/// Tools of one server that are offered; providers take 128 in all at the least.
const MAX_TOOLS: usize = 100;

/// How long a list of tools may take once the server runs.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// A server of a session.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    state: watch::Sender<State>,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Being started for the first time.
    Starting,
    /// It answers.
    Ready { connection: Connection, tools: Arc<[Listed]> },
    /// It is not there and will be started again; what it had is kept for the model.
    Restarting { tools: Arc<[Listed]>, cause: String },
    /// It was given up.
    Failed { cause: String },
}

/// Why a server's life ended or did not begin.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// In words, with what to do.
    pub(super) cause: String,
    /// Starting it again would change nothing.
    pub(super) is_final: bool,
}

impl Server {
    pub(super) fn new(spec: ServerSpec) -> Self {
        Self { spec, state: watch::Sender::new(State::Starting) }
    }

    /// Waits until the first start has come to something.
    pub(super) async fn settled(&self) {
        // An error means that this server is gone.
        self.state.subscribe().wait_for(|state| !matches!(state, State::Starting)).await.ok();
    }

    /// True while the first start has come to nothing yet.
    pub(super) fn is_starting(&self) -> bool {
        matches!(*self.state.borrow(), State::Starting)
    }

    /// What it offers now. A server that is being started again keeps its tools.
    pub(super) fn tools(&self) -> Arc<[Listed]> {
        match &*self.state.borrow() {
            State::Ready { tools, .. } | State::Restarting { tools, .. } => Arc::clone(tools),
            State::Starting | State::Failed { .. } => Arc::new([]),
        }
    }

    /// What a tool says of itself now; `None` when there is no such tool now.
    pub(super) fn definition_now(&self, tool: &str) -> Option<String> {
        self.tools().iter().find(|listed| listed.name == tool).map(|listed| listed.definition.clone())
    }

    /// Calls a tool and waits for its answer, its failure, its time limit or the cancel.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        run: &RunContext,
    ) -> Result<Value, CallFailure> {
        let connection = tokio::select! {
            biased;
            () = run.cancel.cancelled() => return Err(CallFailure::CutOff("cancelled before the call was sent".into())),
            connection = self.connection() => connection?,
        };
        match connection.call(tool, arguments, self.spec.timeout(), run).await {
            Err(CallFailure::Unreachable(seen)) => {
                let (name, cause) = (self.spec.name(), self.cause().await.unwrap_or(seen));
                Err(CallFailure::CutOff(format!(
                    "The MCP server {name} gave no answer: {cause}. Whether the call had an effect is unknown. The \
                     server is being started again."
                )))
            }
            answer => answer,
        }
    }

    /// Why the connection ended, once its end is known.
    async fn cause(&self) -> Option<String> {
        let mut state = self.state.subscribe();
        let is_over = |state: &State| !matches!(state, State::Ready { .. });
        tokio::time::timeout(CAUSE_WAIT, state.wait_for(is_over)).await.ok();
        match &*self.state.borrow() {
            State::Restarting { cause, .. } | State::Failed { cause } => Some(cause.clone()),
            State::Starting | State::Ready { .. } => None,
        }
    }

    /// The connection, as soon as there is one.
    async fn connection(&self) -> Result<Connection, CallFailure> {
        let mut state = self.state.subscribe();
        let is_decided = |state: &State| matches!(state, State::Ready { .. } | State::Failed { .. });
        tokio::time::timeout(CALL_WAIT, state.wait_for(is_decided)).await.ok();
        let cause = match &*self.state.borrow() {
            State::Ready { connection, .. } => return Ok(connection.clone()),
            State::Failed { cause } | State::Restarting { cause, .. } => cause.clone(),
            State::Starting => "it is still starting".to_owned(),
        };
        let name = self.spec.name();
        Err(CallFailure::Unreachable(format!("The MCP server {name} is not there, so nothing was called: {cause}")))
    }

    /// Starts the server and starts it again when it ends, until told to stop or until it is given up.
    pub(super) async fn keep(self: Arc<Self>, around: Arc<Surroundings>, notes: Arc<Notes>, stop: CancellationToken) {
        let mut failures = 0_u32;
        let mut is_told = false;
        loop {
            let mut sound_since = None;
            let life = self.live(&around, &notes, &stop, &mut sound_since);
            let Err(trouble) = life.await else { break };
            if sound_since.is_some() {
                is_told = false;
            }
            if sound_since.is_some_and(|since: Instant| since.elapsed() >= SOUND_AFTER) {
                failures = 0;
            }
            failures += 1;
            let is_given_up = trouble.is_final || failures > MAX_RESTARTS;
            tracing::debug!(server = self.spec.name(), cause = trouble.cause, failures, "an MCP server is not there");
            // A crash that a restart mends is nobody's business but the caller's.
            if !is_told && (sound_since.is_none() || is_given_up) {
                is_told = true;
                notes.add(self.notice(&trouble.cause, is_given_up));
            }
            if is_given_up {
                self.state.send_replace(State::Failed { cause: trouble.cause });
                return;
            }
            self.state.send_replace(State::Restarting { tools: self.tools(), cause: trouble.cause });
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(FIRST_BACKOFF * 2_u32.pow(failures.saturating_sub(1))) => {}
            }
        }
        self.state.send_replace(State::Failed { cause: "the session was closed".into() });
    }

    fn notice(&self, cause: &str, is_given_up: bool) -> String {
        let address = words(&self.spec.address().describe(), self.spec.address(), 120);
        let next = if is_given_up { "" } else { " It will be tried again a few times." };
        format!("The MCP server {} ({address}) cannot be used: {cause}.{next}", self.spec.name())
    }

    /// One life of the server, from its start to its end. `Ok` when it was told to stop.
    async fn live(
        &self,
        around: &Surroundings,
        notes: &Notes,
        stop: &CancellationToken,
        sound_since: &mut Option<Instant>,
    ) -> Result<(), Trouble> {
        let start = async {
            let (connection, life) = connection::open(&self.spec, around).await?;
            let tools = self.list(&connection, notes).await;
            let tools = tools.map_err(|cause| Trouble { cause, is_final: false })?;
            Ok((connection, life, tools))
        };
        let started = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            started = tokio::time::timeout(START_LIMIT, start) => started,
        };
        let (connection, mut life, tools) = started.unwrap_or_else(|_| {
            let seconds = START_LIMIT.as_secs();
            Err(Trouble { cause: format!("it did not answer within {seconds} s of its start"), is_final: false })
        })?;
        *sound_since = Some(Instant::now());
        self.state.send_replace(State::Ready { connection: connection.clone(), tools });
        self.serve(&connection, &mut life, notes, stop).await
    }

    /// While it answers: follows changes of its list.
    async fn serve(
        &self,
        connection: &Connection,
        life: &mut Life,
        notes: &Notes,
        stop: &CancellationToken,
    ) -> Result<(), Trouble> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    life.close().await;
                    return Ok(());
                }
                cause = life.ended() => return Err(Trouble { cause, is_final: false }),
                () = connection.list_changed() => {
                    let listed = tokio::select! {
                        biased;
                        () = stop.cancelled() => continue,
                        listed = tokio::time::timeout(LIST_LIMIT, self.list(connection, notes)) => listed,
                    };
                    match listed {
                        Ok(Ok(tools)) => {
                            self.state.send_replace(State::Ready { connection: connection.clone(), tools });
                        }
                        Ok(Err(cause)) => tracing::warn!(server = self.spec.name(), cause, "the list of tools cannot be read again"),
                        Err(_) => tracing::warn!(server = self.spec.name(), "the list of tools did not come in time"),
                    }
                }
            }
        }
    }

    /// The tools the server offers and the configuration lets through.
    async fn list(&self, connection: &Connection, notes: &Notes) -> Result<Arc<[Listed]>, String> {
        let entries = connection.list_tools().await?;
        let mut tools: Vec<Listed> = Vec::new();
        let mut left_out = Vec::new();
        for entry in &entries {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            if !self.spec.offers(name) || tools.iter().any(|tool| tool.name == name) {
                continue;
            }
            match definition::read(&self.spec, entry) {
                _ if tools.len() >= MAX_TOOLS => left_out.push(format!("there are more than {MAX_TOOLS}")),
                Ok(listed) => tools.push(listed),
                Err(problem) => left_out.push(format!("{}: {problem}", words(name, self.spec.address(), 40))),
            }
        }
        if let Some(first) = left_out.first() {
            let (count, name) = (left_out.len(), self.spec.name());
            notes.add(format!("{count} tools of the MCP server {name} are not offered ({first})."));
        }
        Ok(tools.into())
    }
}
