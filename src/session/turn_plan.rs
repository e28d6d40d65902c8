//! One turn as its session's task sees it: what it is built from, and the future that runs it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::ToolsConfig;
use crate::mcp::McpServers;
use crate::message::{Message, Part, UserMessage};
use crate::prompt::{self, PromptSources};
use crate::runtime::{self, Runtime};
use crate::store::Write;
use crate::turn::event::{Severity, TurnEvent};
use crate::turn::{Strictness, TurnContext, TurnEnd, TurnIo, TurnLimits, TurnReport, Unanswered, run_turn};

use super::children::Nursery;
use super::command::SessionError;
use super::io::SessionIo;
use super::mcp;
use super::open::Session;
use super::port::SessionEvent;
use super::replay;
use super::workspace::Workspace;

/// What a turn's future gives: the history back, and how it went.
pub(super) struct TurnDone {
    pub(super) history: Vec<Message>,
    pub(super) result: Result<TurnReport, SessionError>,
    pub(super) system_prompt: Option<String>,
    /// The runtime back.
    pub(super) runtime: Option<Runtime>,
}

/// What one turn is built from, taken from the session when it starts.
pub(super) struct TurnPlan {
    context: TurnContext,
    title: Option<String>,
    is_prompt_new: bool,
    notices: Vec<String>,
    workspace: Arc<Workspace>,
    /// The servers whose tools join.
    mcp: Arc<McpServers>,
    /// Which tools are disabled.
    tools_config: ToolsConfig,
    /// Who runs the turn in our place.
    runtime: Option<Runtime>,
    children: Arc<Nursery>,
}

impl TurnPlan {
    pub(super) fn new(session: &mut Session, turn_id: &Arc<str>, parts: &[Part]) -> Self {
        let notices = session.take_notices();
        session.chain.begin_turn();
        let endpoint = session.chain.current();
        let config = &session.host.config;
        let stored = session.row.system_prompt.as_deref();
        let system_prompt = prompt::restore_or_build(
            stored,
            &PromptSources {
                home: &config.home,
                soul: &config.soul,
                cwd: &session.tool_context.cwd,
                additional_roots: &session.tool_context.additional_roots,
                provider: &endpoint.provider,
                model: &endpoint.model,
                tools: session.tools.specs().iter().map(|spec| spec.name.as_str()).collect(),
                note: None,
                date: clock::date(clock::now_ms()),
            },
        );
        let is_prompt_new = stored != Some(system_prompt.as_str());
        let title = if session.row.title.is_none() { replay::title_of(parts) } else { None };
        if title.is_some() {
            session.row.title.clone_from(&title);
        }
        let context = TurnContext {
            session_id: Arc::clone(&session.id),
            turn_id: Arc::clone(turn_id),
            system_prompt: system_prompt.into(),
            tools: Arc::clone(&session.tools),
            tool_context: session.tool_context.clone(),
            gate: Arc::clone(&session.gate),
            chain: Arc::clone(&session.chain),
            compactor: Arc::clone(&session.compactor),
            http: session.host.http.clone(),
            hooks: session.hooks(turn_id),
            is_first_turn: stored.is_none(),
            strictness: if config.tools.guardrail_hard_stop { Strictness::HardStop } else { Strictness::Warn },
            unanswered: if config.halt_on_timeout { Unanswered::Halt } else { Unanswered::GoOn },
            limits: TurnLimits {
                max_iterations: config.max_iterations,
                run_budget_seconds: config.run_budget_seconds,
                input_tokens: (config.max_input_tokens > 0).then_some(config.max_input_tokens),
            },
        };
        let workspace = Arc::clone(&session.workspace);
        let (mcp, tools_config) = (Arc::clone(&session.mcp), config.tools.clone());
        let runtime = session.lend_runtime(&endpoint.provider);
        Self {
            context,
            title,
            is_prompt_new,
            notices,
            workspace,
            mcp,
            tools_config,
            runtime,
            children: Arc::clone(&session.children),
        }
    }

    /// True when this turn gives the session its title.
    pub(super) fn has_new_title(&self) -> bool {
        self.title.is_some()
    }

    /// What is settled before a turn, for work that is none.
    /// What a person should know stays for the next turn.
    pub(super) fn into_context(self, session: &mut Session) -> TurnContext {
        session.notices = self.notices;
        self.context
    }

    /// Adds the tools of the servers, and tells what a person should know about these.
    async fn join_servers(&mut self, io: &SessionIo, cancel: &CancellationToken) {
        let mut notices = mcp::follow_workspace(&self.mcp, &self.workspace.mcp_servers());
        let (tools, news) = mcp::join(&self.mcp, &self.context.tools, &self.tools_config, cancel).await;
        if let Some(tools) = tools {
            self.context.tools = tools;
        }
        notices.extend(news);
        for text in notices {
            io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
        }
    }

    /// What is stored before the first model call: the user's words, the turn, and what changed of the
    /// session.
    fn first_writes(&self, io: &SessionIo, message: &Message) -> Vec<Write> {
        let update = Write::UpdateSession {
            id: io.ledger.session_id.to_string(),
            title: self.title.clone(),
            mode: None,
            model: None,
            system_prompt: self.is_prompt_new.then(|| self.context.system_prompt.to_string()),
            updated_at_ms: io.ledger.started_at_ms,
        };
        std::iter::once(update).chain(io.ledger.begin(message)).collect()
    }
}

/// Stores the user's words and runs the turn.
pub(super) async fn run(
    mut plan: TurnPlan,
    mut history: Vec<Message>,
    parts: Vec<Part>,
    io: SessionIo,
    cancel: CancellationToken,
) -> TurnDone {
    let message = Message::User(UserMessage { content: parts, ..UserMessage::default() });
    if let Err(error) = io.ledger.store.write(plan.first_writes(&io, &message)).await {
        let result = Err(SessionError::Store(error.to_string()));
        return TurnDone { history, result, system_prompt: None, runtime: plan.runtime };
    }
    history.push(message);
    let system_prompt = plan.is_prompt_new.then(|| plan.context.system_prompt.to_string());
    io.client.tell(SessionEvent::TurnStarted { turn_id: Arc::clone(&io.ledger.turn_id) }).await;
    if let Some(title) = &plan.title {
        io.client.tell(SessionEvent::Title(title.clone())).await;
    }
    for text in std::mem::take(&mut plan.notices) {
        io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
    }
    plan.context.hooks.end_with(&cancel);
    plan.context.hooks.extend(plan.workspace.settle(&io, &plan.context.gate).await);
    // An external runtime has tools of its own and waits for no others.
    if plan.runtime.is_none() {
        plan.join_servers(&io, &cancel).await;
    }
    let _seated = plan.children.seat(&plan.context, &io.ledger.turn_id);
    let TurnEnd { history, report } = match &mut plan.runtime {
        Some(runtime) => runtime::run_turn(runtime, &plan.context, history, &io, &cancel).await,
        None => run_turn(&plan.context, history, &io, &cancel).await,
    };
    io.end_open_calls().await;
    TurnDone { history, result: Ok(report), system_prompt, runtime: plan.runtime }
}
