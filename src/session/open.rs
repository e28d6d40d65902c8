//! What sessions share, and how one is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::approval::{Gate, GateSetup, Places, RememberedRules};
use crate::clock;
use crate::compression::{Compactor, Gauge, text_tokens};
use crate::config::{Config, Mode, TerminalPlace};
use crate::hook::command::CommandHook;
use crate::hook::{Hook, HookSet};
use crate::mcp::{McpServers, ServerSpec};
use crate::memory::{Memory, Notes, SessionSearch};
use crate::message::{Message, Usage};
use crate::provider::auxiliary::Auxiliary;
use crate::provider::catalog;
use crate::provider::http::Http;
use crate::provider::recovery::FallbackChain;
use crate::runtime::{Runtime, RuntimeSetup};
use crate::store::{LoadedSession, SessionRow, Store, StoreError, Write};
use crate::tool::clarify::Clarify;
use crate::tool::process::Processes;
use crate::tool::registry::{self, ToolRegistry};
use crate::tool::spill::Spill;
use crate::tool::state::HiddenFiles;
use crate::tool::todo::TodoList;
use crate::tool::{SessionState, Tool, ToolContext, ToolLimits};
use crate::turn::event::TurnEvent;

use super::at_work::AtWork;
use super::chain::{chain, models};
use super::children::Nursery;
use super::command::{Opened, ReplayWish, SessionError};
use super::io::Unstored;
use super::mcp;
use super::objections::idle_entries;
use super::port::{ClientPort, Replayed, SessionEvent, SessionOptions};
use super::questions::Questions;
use super::workspace::Workspace;
use super::{replay, wall};

/// What all sessions of the process share.
#[derive(Debug)]
pub struct Host {
    /// The configuration.
    pub config: Config,
    /// The store.
    pub store: Store,
    /// The way to the network.
    pub http: Http,
    /// Approvals that were given for good.
    pub remembered: Arc<RememberedRules>,
    /// Every process that tools have started.
    pub processes: Processes,
    /// The sessions in which child agents work.
    pub at_work: AtWork,
    /// Fires when the process is to end.
    pub shutdown: CancellationToken,
}

/// How a session comes to be open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenKind {
    /// A new one.
    New,
    /// A new one with the history of this one.
    Fork(Arc<str>),
    /// A stored one.
    Stored(ReplayWish),
}

/// A session to open.
#[derive(Debug)]
pub struct OpenRequest {
    /// Its id.
    pub id: Arc<str>,
    /// New or stored.
    pub kind: OpenKind,
    /// Working folder, absolute; it was checked to exist.
    pub cwd: PathBuf,
    /// Other folders of the client, absolute.
    pub additional_roots: Vec<PathBuf>,
    /// Who shows it.
    pub client: Arc<dyn ClientPort>,
    /// MCP servers the client wants in it.
    pub mcp_servers: Vec<ServerSpec>,
    /// What a person should know once it is open.
    pub notices: Vec<String>,
}

/// Gets how opening went.
pub(super) type Opening = oneshot::Receiver<Result<Opened, SessionError>>;

/// An open session, idle.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: Arc<str>,
    pub(super) host: Arc<Host>,
    pub(super) client: Arc<dyn ClientPort>,
    pub(super) row: SessionRow,
    pub(super) gate: Arc<Gate>,
    pub(super) chain: Arc<FallbackChain>,
    pub(super) tools: Arc<ToolRegistry>,
    pub(super) tool_context: ToolContext,
    pub(super) compactor: Arc<Compactor>,
    pub(super) questions: Arc<Questions>,
    pub(super) children: Arc<Nursery>,
    hooks: Vec<Arc<dyn Hook>>,
    pub(super) workspace: Arc<Workspace>,
    pub(super) mcp: Arc<McpServers>,
    /// The program that runs this session's turns in our place, while no turn has it.
    pub(super) runtime: Option<Runtime>,
    /// What is told in the first turn: before it, a client without notices has no place for them.
    pub(super) notices: Vec<String>,
    /// The problem with the remembered rules that was told last.
    rules_problem: Option<String>,
    /// Tokens of all its model calls.
    pub(super) usage: Usage,
    /// US dollars it has cost, as long as every price was known.
    pub(super) spent_usd: Option<f64>,
}

impl Session {
    /// Opens a session and, when it is a stored one, shows it again if that is wished.
    ///
    /// # Errors
    /// [`SessionError`]; nothing stays open then.
    pub(super) async fn open(host: Arc<Host>, request: OpenRequest) -> Result<(Self, Vec<Message>), SessionError> {
        if let Some(problem) = &host.config.problem {
            return Err(SessionError::Config(problem.clone()));
        }
        let loaded = match &request.kind {
            OpenKind::New => None,
            OpenKind::Fork(from) => Some(fork(&host.store, from, &request).await?),
            OpenKind::Stored(_) if host.at_work.has(&request.id) => return Err(SessionError::AtWork(request.id)),
            OpenKind::Stored(_) => Some(load(&host.store, &request.id).await?),
        };
        let is_shown = matches!(request.kind, OpenKind::Stored(ReplayWish::Replay));
        let model = loaded.as_ref().map(|loaded| loaded.row.model.clone());
        let chain = chain(&host.config, model.as_deref())?;
        let mut row = match &loaded {
            Some(loaded) => loaded.row.clone(),
            None => new_row(&host.config, &request, &chain),
        };
        row.cwd = request.cwd.to_string_lossy().into_owned();
        row.model = chain.current().id();
        let mut session = Self::assemble(host, request, row, chain);
        session.spent_usd = loaded.as_ref().map_or(Some(0.0), spent_usd);
        let Some(loaded) = loaded else {
            session.store(vec![Write::CreateSession(session.row.clone())]).await?;
            return Ok((session, Vec::new()));
        };
        loaded.usage.iter().for_each(|row| session.usage.add(&row.usage));
        session.remember(&loaded);
        session.notices.extend(unread(&loaded));
        let history = history(&loaded);
        if is_shown {
            session.show_again(&loaded, None).await;
            session.tell_context_level(session.estimated_level(&history)).await;
        }
        Ok((session, history))
    }

    fn assemble(host: Arc<Host>, mut request: OpenRequest, row: SessionRow, chain: FallbackChain) -> Self {
        let config = &host.config;
        let mode = Mode::from_id(&row.mode).unwrap_or(config.mode);
        let spill = Spill::new(&config.home, &request.id);
        let gate = Arc::new(Gate::new(GateSetup {
            mode,
            rules: config.rules.clone(),
            remembered: Arc::clone(&host.remembered),
            places: places(config, &request.cwd, &request.additional_roots).with_results(spill.folder()),
            sandbox: wall::sandbox(config, &request.cwd, &request.additional_roots),
        }));
        let tool_context = ToolContext {
            cwd: request.cwd,
            additional_roots: request.additional_roots,
            limits: ToolLimits {
                max_result_chars: config.tools.max_result_chars,
                terminal_timeout_seconds: config.tools.terminal_timeout_seconds,
            },
            editor: request.client.editor(),
            spill: Some(spill),
            terminals: if config.tools.terminal == TerminalPlace::Client { request.client.terminals() } else { None },
            secret_env: catalog::secret_env_names(config).into(),
            state: fresh_state(&gate),
        };
        let workspace = Workspace::new(&host, tool_context.cwd.clone(), Arc::clone(&tool_context.secret_env));
        let servers = std::mem::take(&mut request.mcp_servers);
        let servers = mcp::specs(config, servers, &mut request.notices);
        request.notices.extend(idle_entries(config));
        let mcp = mcp::start(config, &host.processes, &tool_context, servers);
        let questions = Arc::new(Questions::new(Arc::clone(&request.client), config.approval_timeout_seconds));
        let children = Nursery::new(Arc::clone(&host), Arc::clone(&request.client), Arc::clone(&questions));
        let mut tools = registry::built_in(&host.processes);
        tools.extend(own_tools(&host, &request.id, &questions, &children));
        Self {
            id: request.id,
            workspace: Arc::new(workspace),
            client: request.client,
            notices: request.notices,
            rules_problem: None,
            usage: Usage::default(),
            mcp,
            spent_usd: Some(0.0),
            row,
            gate,
            chain: Arc::new(chain),
            tools: Arc::new(ToolRegistry::new(tools, &config.tools)),
            questions,
            children,
            compactor: Arc::new(compactor(config)),
            hooks: command_hooks(&host, &tool_context),
            runtime: None,
            tool_context,
            host,
        }
    }

    /// Takes over what compaction has left out of the history but not out of the session.
    fn remember(&self, loaded: &LoadedSession) {
        let all: Vec<Message> = loaded.shown().map(|stored| stored.message.clone()).collect();
        TodoList.hydrate(&self.tool_context.state, &all);
        let compacted = loaded.messages.iter().filter(|stored| !stored.standing.is_sent());
        self.compactor.gauge.retire_ids(compacted.flat_map(|stored| call_ids(&stored.message)));
    }

    /// Shows the stored history and the task list to a client that asked to load it. `running`: what a running
    /// turn has shown beside the store.
    pub(super) async fn show_again(&self, loaded: &LoadedSession, running: Option<&Unstored>) {
        for replayed in replay::replay(loaded, running) {
            self.client.tell(SessionEvent::Replay(replayed)).await;
        }
        let tasks = self.tool_context.state.todos();
        if !tasks.is_empty() {
            self.client.tell(SessionEvent::Replay(Replayed::Plan(tasks))).await;
        }
    }

    /// Tells how full the context is.
    pub(super) async fn tell_context_level(&self, context_tokens: u64) {
        let (turn, context_window) = (Usage::default(), self.chain.current().window());
        let event = TurnEvent::Usage { turn, context_tokens, context_window, cost_usd: self.spent_usd };
        self.client.tell(SessionEvent::BetweenTurns(event)).await;
    }

    /// Tokens in the context with this history: estimated, as far as no model has counted them.
    pub(super) fn estimated_level(&self, history: &[Message]) -> u64 {
        let prompt = self.row.system_prompt.as_deref().unwrap_or_default();
        self.compactor.gauge.level(history, || text_tokens(prompt))
    }

    /// The user's hooks, with what each of their payloads holds in this turn.
    pub(super) fn hooks(&self, turn_id: &str) -> HookSet {
        let base = json!({
            "session_id": &*self.id,
            "task_id": &*self.id,
            "turn_id": turn_id,
            "model": self.row.model,
            "cwd": self.row.cwd,
            "platform": "turnd",
        });
        HookSet::new(self.hooks.clone(), base.as_object().cloned().unwrap_or_default())
    }

    /// What is to be told in the turn that begins. Remembered rules that cannot be read are told once.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.notices);
        let (_, problem) = self.gate.remembered().list();
        if problem != self.rules_problem {
            notices.extend(problem.as_ref().map(|problem| {
                format!("What was refused or allowed for good is not known, so every call is asked about: {problem}.")
            }));
            self.rules_problem = problem;
        }
        notices
    }

    /// The tools as they stand now, with those of MCP servers that are there.
    pub(super) fn tools_now(&self) -> Arc<ToolRegistry> {
        if self.mcp.is_empty() {
            return Arc::clone(&self.tools);
        }
        Arc::new(self.tools.with(self.mcp.tools(), &self.host.config.tools))
    }

    /// Takes the MCP servers that a client wants which opens the session once more. The same ones stay as they
    /// are.
    pub(super) fn reconnect(&mut self, wanted: Vec<ServerSpec>) {
        let config = &self.host.config;
        let mut notices = Vec::new();
        let specs = mcp::specs(config, wanted, &mut notices);
        if self.mcp.are(&specs) {
            return;
        }
        self.notices.append(&mut notices);
        self.mcp = mcp::start(config, &self.host.processes, &self.tool_context, specs);
    }

    /// The runtime that takes this provider's turns over: the one that runs already, or one that is not started.
    pub(super) fn lend_runtime(&mut self, provider: &str) -> Option<Runtime> {
        let running = self.runtime.take();
        let command = self.host.config.runtime_of(provider)?;
        let same = running.filter(|runtime| *runtime.command() == command);
        Some(same.unwrap_or_else(|| {
            Runtime::new(RuntimeSetup {
                command,
                sandbox: self.host.config.sandbox.clone(),
                processes: self.host.processes.clone(),
                secret_env: Arc::clone(&self.tool_context.secret_env),
            })
        }))
    }

    /// What can be chosen, and what is chosen.
    pub(super) fn options(&self) -> SessionOptions {
        SessionOptions {
            mode: self.gate.mode(),
            model: self.row.model.clone(),
            models: models(&self.host.config, &self.row.model),
        }
    }

    /// The history as it is stored, with what a torn turn left open closed; `None` when it cannot be read.
    pub(super) async fn reload(&self) -> Option<Vec<Message>> {
        match self.host.store.open_session(&self.id).await {
            Ok(loaded) => loaded.as_ref().map(history),
            Err(error) => {
                tracing::error!(session = %self.id, %error, "the history could not be read again");
                None
            }
        }
    }

    /// Stores mode and model.
    pub(super) async fn save_options(&self) {
        let write = Write::UpdateSession {
            id: self.id.to_string(),
            title: None,
            mode: Some(self.row.mode.clone()),
            model: Some(self.row.model.clone()),
            system_prompt: None,
            updated_at_ms: clock::now_ms(),
        };
        if let Err(error) = self.store(vec![write]).await {
            tracing::warn!(session = %self.id, %error, "a choice could not be stored");
        }
    }

    pub(super) async fn store(&self, writes: Vec<Write>) -> Result<(), SessionError> {
        self.host.store.write(writes).await.map_err(|error| store_error(&self.id, &error))
    }
}

/// Words that a turn which died was told and never read.
fn unread(loaded: &LoadedSession) -> Option<String> {
    let words: Vec<&str> = loaded.unread_words().collect();
    (!words.is_empty()).then(|| {
        format!("turnd ended before the model could read this; say it again if it still counts: {}", words.join("\n"))
    })
}

/// Tools that belong to one session and its user. A child agent has none of them.
fn own_tools(
    host: &Arc<Host>,
    id: &Arc<str>,
    questions: &Arc<Questions>,
    children: &Arc<Nursery>,
) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(Memory::new(Notes::new(&host.config.home))),
        Arc::new(SessionSearch::new(host.store.clone(), Arc::clone(id))),
        Arc::new(Clarify::new(Arc::clone(questions) as Arc<dyn crate::tool::clarify::Inquirer>)),
    ];
    tools.extend(children.tool());
    tools
}

/// What tools keep for one agent, with nothing in it yet.
pub(super) fn fresh_state(gate: &Arc<Gate>) -> Arc<SessionState> {
    let (state, gate) = (SessionState::default(), Arc::clone(gate));
    state.hide_from_search(HiddenFiles::new(move |path| gate.hides_from_search(path)));
    Arc::new(state)
}

fn compactor(config: &Config) -> Compactor {
    let (auxiliary, problems) = Auxiliary::resolve(config, &catalog::process_env);
    problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    Compactor { config: config.compression.clone(), auxiliary: Arc::new(auxiliary), gauge: Gauge::default() }
}

/// The folders of a session and the places that need care.
fn places(config: &Config, cwd: &Path, additional_roots: &[PathBuf]) -> Places {
    let user_home = std::env::home_dir();
    Places::new(cwd, additional_roots, &config.home, user_home.as_deref(), &config.sandbox.deny_read)
}

fn command_hooks(host: &Host, context: &ToolContext) -> Vec<Arc<dyn Hook>> {
    let (cwd, hidden_env) = (&context.cwd, &context.secret_env);
    let hook = |entry| CommandHook::new(entry, cwd.clone(), hidden_env.to_vec(), host.processes.clone());
    host.config.hooks.iter().map(|entry| Arc::new(hook(entry)) as Arc<dyn Hook>).collect()
}

/// What a stored session has cost; unknown as soon as one model's price was.
#[expect(clippy::cast_precision_loss, reason = "a cost is small")]
fn spent_usd(loaded: &LoadedSession) -> Option<f64> {
    loaded.usage.iter().map(|row| row.cost_micros.map(|micros| micros as f64 / 1e6)).sum()
}

fn new_row(config: &Config, request: &OpenRequest, chain: &FallbackChain) -> SessionRow {
    let now = clock::now_ms();
    SessionRow {
        id: request.id.to_string(),
        parent_id: None,
        lineage: None,
        cwd: request.cwd.to_string_lossy().into_owned(),
        additional_roots: texts(&request.additional_roots),
        model: chain.current().id(),
        mode: config.mode.as_str().into(),
        title: None,
        system_prompt: None,
        created_at_ms: now,
        updated_at_ms: now,
    }
}

fn history(loaded: &LoadedSession) -> Vec<Message> {
    loaded.history().map(|stored| stored.message.clone()).collect()
}

fn call_ids(message: &Message) -> Vec<String> {
    match message {
        Message::Assistant(assistant) => assistant.tool_calls.iter().map(|call| call.id.clone()).collect(),
        Message::User(_) | Message::Tool(_) => Vec::new(),
    }
}

/// Copies a session and opens the copy.
async fn fork(store: &Store, from: &Arc<str>, request: &OpenRequest) -> Result<LoadedSession, SessionError> {
    let source = store.load_session(from).await.map_err(|error| store_error(from, &error))?;
    let source = source.ok_or_else(|| SessionError::Unknown(Arc::clone(from)))?.row;
    let now = clock::now_ms();
    let row = SessionRow {
        id: request.id.to_string(),
        cwd: request.cwd.to_string_lossy().into_owned(),
        additional_roots: texts(&request.additional_roots),
        parent_id: None,
        lineage: None,
        created_at_ms: now,
        updated_at_ms: now,
        ..source
    };
    let write = Write::ForkSession { from: from.to_string(), row };
    store.write(vec![write]).await.map_err(|error| store_error(from, &error))?;
    load(store, &request.id).await
}

fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

async fn load(store: &Store, id: &Arc<str>) -> Result<LoadedSession, SessionError> {
    match store.open_session(id).await {
        Ok(Some(loaded)) => Ok(loaded),
        Ok(None) => Err(SessionError::Unknown(Arc::clone(id))),
        Err(error) => Err(store_error(id, &error)),
    }
}

pub(super) fn store_error(id: &Arc<str>, error: &StoreError) -> SessionError {
    match error {
        StoreError::Owned { pid } => SessionError::Owned { id: Arc::clone(id), pid: *pid },
        other => SessionError::Store(other.to_string()),
    }
}
