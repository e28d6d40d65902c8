//! The workspace's own configuration in a session: nothing of it counts before the user trusted exactly it.
//!
//! It is first looked at when the session's first turn begins, never while a session opens. What counts is
//! looked at again at each later turn: a changed byte takes it out of force until the user is asked anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use crate::approval::Gate;
use crate::config::McpServerConfig;
use crate::hook::Hook;
use crate::hook::command::CommandHook;
use crate::tool::process::Processes;
use crate::tool::{CallPlan, Display, ToolKind};
use crate::trust::{Decision, GuardedHook, Ledger, Project, ProjectError, Seal};
use crate::turn::TurnIo;
use crate::turn::event::{Severity, TurnEvent};
use crate::turn::port::Answer;

use super::io::SessionIo;
use super::objections::idle_rules;
use super::open::Host;
use super::port::{Choice, PermissionQuestion};

/// The name the question's tool call has.
const TOOL_NAME: &str = "workspace_trust";

/// What of the workspace counts in a session. Shared by the session and its running turn.
#[derive(Debug)]
pub(super) struct Workspace {
    cwd: PathBuf,
    turnd_home: PathBuf,
    /// Environment variables that hooks do not get.
    hidden_env: Arc<[String]>,
    processes: Processes,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
enum State {
    /// Nobody looked, or what counted changed.
    #[default]
    Open,
    /// Nothing counts, for the rest of the session.
    Nothing,
    /// This counts.
    InForce(Arc<InForce>),
}

/// What was trusted.
#[derive(Debug)]
struct InForce {
    hooks: Vec<Arc<dyn Hook>>,
    mcp_servers: BTreeMap<String, McpServerConfig>,
    seal: Seal,
}

/// What a look at the workspace gave.
enum Found {
    Nothing,
    Problem(String),
    Project(Box<Project>, Option<Decision>),
}

impl Workspace {
    /// The configuration of a session's working folder. Nothing is read yet.
    pub(super) fn new(host: &Host, cwd: PathBuf, hidden_env: Arc<[String]>) -> Self {
        let (turnd_home, processes) = (host.config.home.clone(), host.processes.clone());
        Self { cwd, turnd_home, hidden_env, processes, state: Mutex::default() }
    }

    /// Finds out what counts in this turn, asking the user where nothing was decided yet, and puts it in
    /// force. Gives the workspace's hooks.
    pub(super) async fn settle(&self, io: &SessionIo, gate: &Gate) -> Vec<Arc<dyn Hook>> {
        let state = self.lock().clone();
        match state {
            State::Nothing => return Vec::new(),
            State::InForce(in_force) if self.is_whole(&in_force).await => return in_force.hooks.clone(),
            State::InForce(_) => {
                gate.set_workspace_rules(&[]);
                self.set(State::Open);
                notice(io, "The workspace's own configuration changed since it was trusted.".into()).await;
            }
            State::Open => {}
        }
        match self.look().await {
            Found::Nothing => self.set(State::Nothing),
            Found::Problem(text) => {
                self.set(State::Nothing);
                notice(io, format!("The workspace's own configuration is not in effect: {text}.")).await;
            }
            Found::Project(project, decision) => return self.judge(io, gate, *project, decision).await,
        }
        Vec::new()
    }

    /// The MCP servers of the workspace that count in this turn.
    pub(super) fn mcp_servers(&self) -> BTreeMap<String, McpServerConfig> {
        match &*self.lock() {
            State::InForce(in_force) => in_force.mcp_servers.clone(),
            State::Open | State::Nothing => BTreeMap::new(),
        }
    }

    async fn is_whole(&self, in_force: &Arc<InForce>) -> bool {
        let in_force = Arc::clone(in_force);
        tokio::task::spawn_blocking(move || in_force.seal.is_whole()).await.unwrap_or(false)
    }

    async fn look(&self) -> Found {
        let (cwd, home) = (self.cwd.clone(), self.turnd_home.clone());
        let look = move || -> Result<Found, ProjectError> {
            let Some(project) = Project::read(&cwd, &home)? else { return Ok(Found::Nothing) };
            Ok(match Ledger::new(&home).decision(&project) {
                Ok(decision) => Found::Project(Box::new(project), decision),
                Err(error) => Found::Problem(error.to_string()),
            })
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => Found::Problem(error.to_string()),
            Err(error) => Found::Problem(error.to_string()),
        }
    }

    async fn judge(
        &self,
        io: &SessionIo,
        gate: &Gate,
        project: Project,
        decision: Option<Decision>,
    ) -> Vec<Arc<dyn Hook>> {
        if !project.ignored.is_empty() {
            let keys = project.ignored.join(", ");
            notice(io, format!("A workspace may not set this, so it is ignored in its .turnd/config.toml: {keys}."))
                .await;
        }
        if project.config.is_empty() {
            self.set(State::Nothing);
            return Vec::new();
        }
        let is_trusted = match decision {
            Some(Decision::Trusted) => true,
            Some(Decision::Refused) => false,
            None if io.client.can_ask() => match self.ask(io, &project).await {
                Some(is_trusted) => is_trusted,
                None => return Vec::new(),
            },
            None => false,
        };
        if !is_trusted {
            self.set(State::Nothing);
            let summary = project.summary();
            notice(
                io,
                format!(
                    "The workspace's own configuration ({summary}) is not trusted and not in effect. `turnd trust` shows \
                     what it would do and trusts it."
                ),
            )
            .await;
            return Vec::new();
        }
        for objection in idle_rules(&project.config.rules) {
            notice(io, format!("Of the workspace's own configuration, {objection}")).await;
        }
        self.put_in_force(gate, &project)
    }

    fn put_in_force(&self, gate: &Gate, project: &Project) -> Vec<Arc<dyn Hook>> {
        let seal = Seal::new(project, self.turnd_home.clone());
        let (cwd, hidden_env) = (&project.workspace, &self.hidden_env);
        let hook = |entry| CommandHook::new(entry, cwd.clone(), hidden_env.to_vec(), self.processes.clone());
        let guarded = |entry| Arc::new(GuardedHook::new(Arc::new(hook(entry)), seal.clone())) as Arc<dyn Hook>;
        let hooks: Vec<Arc<dyn Hook>> = project.config.hooks.iter().map(guarded).collect();
        gate.set_workspace_rules(&project.config.rules);
        self.set(State::InForce(Arc::new(InForce {
            hooks: hooks.clone(),
            mcp_servers: project.config.mcp_servers.clone(),
            seal,
        })));
        hooks
    }

    /// Asks the user, as about a tool call. `None`: the question was called off, which ends the turn.
    async fn ask(&self, io: &SessionIo, project: &Project) -> Option<bool> {
        let id = format!("{}.trust", io.ledger.turn_id);
        let question = question(&id, project);
        let (plan, arguments) = (question.plan.clone(), question.arguments.clone());
        io.emit(TurnEvent::ToolCallPending { id: id.clone(), name: TOOL_NAME.into(), arguments, plan }).await;
        let answer = io.questions.ask(question, &io.cancel).await;
        if let Some(decision) = kept(answer) {
            self.keep(io, project, decision).await;
        }
        if answer.allows() {
            io.emit(TurnEvent::ToolCallStarted { id: id.clone() }).await;
        }
        let text = if answer.allows() { "Trusted, and in effect." } else { "Not trusted, and not in effect." };
        let display = vec![Display::Text(text.into())];
        io.emit(TurnEvent::ToolCallEnded { id, is_failed: !answer.allows(), display, raw: None }).await;
        if answer == Answer::Cancelled {
            io.cancel.cancel();
            return None;
        }
        Some(answer.allows())
    }

    async fn keep(&self, io: &SessionIo, project: &Project, decision: Decision) {
        let (home, project) = (self.turnd_home.clone(), project.clone());
        let kept = tokio::task::spawn_blocking(move || Ledger::new(&home).decide(&project, decision)).await;
        let problem = match kept {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        notice(io, format!("The decision holds for this session only: {problem}.")).await;
    }

    fn set(&self, state: State) {
        *self.lock() = state;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn notice(io: &SessionIo, text: String) {
    io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
}

/// What is remembered of an answer.
fn kept(answer: Answer) -> Option<Decision> {
    match answer {
        Answer::AllowAlways => Some(Decision::Trusted),
        Answer::RejectAlways => Some(Decision::Refused),
        _ => None,
    }
}

fn question(id: &str, project: &Project) -> PermissionQuestion {
    let choice = |answer, name: &str| Choice { answer, name: name.into() };
    PermissionQuestion {
        tool_call_id: id.to_owned(),
        tool: TOOL_NAME.into(),
        plan: CallPlan {
            title: format!("Trust this workspace's own configuration: {}", project.summary()),
            kind: ToolKind::Other,
            preview: vec![Display::Text(project.description().join("\n"))],
            ..CallPlan::default()
        },
        arguments: json!({
            "workspace": project.workspace.to_string_lossy(),
            "fingerprint": project.fingerprint.to_string(),
        }),
        reasons: vec![
            "Its hooks and servers run as you, outside the sandbox; a changed byte is asked about again.".into(),
        ],
        choices: vec![
            choice(Answer::AllowOnce, "Trust for this session"),
            choice(Answer::AllowAlways, "Always trust exactly this content here"),
            choice(Answer::RejectOnce, "Do not trust"),
            choice(Answer::RejectAlways, "Never trust exactly this content here"),
        ],
    }
}
