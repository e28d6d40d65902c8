//! Runs child agents for a session: the same turn with a record, a prompt and a budget of its own, under
//! the gate of the session it works for, so that a child is never allowed more than its parent.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::delegate::{Assignment, ChildEnd, Children, DelegateTask};
use crate::hook::{HookPoint, HookSet};
use crate::message::{Message, Part};
use crate::prompt::{self, PromptSources};
use crate::store::{Lineage, SessionRow, Write};
use crate::tool::registry::{self, ToolRegistry};
use crate::tool::{Tool, ToolContext};
use crate::turn::{TurnContext, TurnLimits, TurnReport, run_turn};

use super::child_io::{ChildIo, Front};
use super::ledger::Ledger;
use super::open::{Host, fresh_state};
use super::port::{ChildPhase, ClientPort, Replayed, SessionEvent};
use super::questions::Questions;
use super::replay;

/// What a child's prompt says beside what every prompt says.
const CHILD_NOTE: &str = "You are a child agent: another agent gave you the task in the first message and reads only \
your final answer. Nobody can answer questions; decide what you must and say what you assumed. End with what you did, \
what you found and what is left, in as few words as that takes.";

/// Characters of a goal in a hook's payload.
const MAX_HOOK_CHARS: usize = 16_000;

/// The child agents of one agent.
pub(super) struct Nursery {
    host: Arc<Host>,
    /// Who is told and asked, at the session that has a user.
    client: Arc<dyn ClientPort>,
    questions: Arc<Questions>,
    /// The delegating agent's session as the client shows it.
    view: Arc<dyn ClientPort>,
    place: Place,
    seat: Mutex<Option<Seat>>,
}

/// Where an agent stands among agents.
#[derive(Clone, Default)]
struct Place {
    /// Levels below the user's session.
    depth: u32,
    /// The sessions that the agent works for, nearest first; none for the user's own.
    works_for: Vec<Arc<str>>,
    /// In front of the ids of its children's calls in the user's session.
    prefix: String,
    /// What the user knows it by; empty for the user's own.
    label: String,
}

/// The delegating agent's running turn.
#[derive(Clone)]
struct Seat {
    context: TurnContext,
    /// The turn of the user's session.
    front_turn_id: Arc<str>,
    began: Instant,
}

/// Ends the use of a turn for children. Without it the turn's context would live on in the tool it holds.
pub(super) struct Seated(Arc<Nursery>);

impl Drop for Seated {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl fmt::Debug for Nursery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Nursery").field("depth", &self.place.depth).finish_non_exhaustive()
    }
}

impl Nursery {
    /// For the agent of a user's session.
    pub(super) fn new(host: Arc<Host>, client: Arc<dyn ClientPort>, questions: Arc<Questions>) -> Arc<Self> {
        let (view, place) = (Arc::clone(&client), Place::default());
        Arc::new(Self { host, client, questions, view, place, seat: Mutex::new(None) })
    }

    /// The tool that gives tasks to these children, unless they would be too deep.
    pub(super) fn tool(self: &Arc<Self>) -> Option<Arc<dyn Tool>> {
        let config = &self.host.config.delegation;
        let children = Arc::clone(self) as Arc<dyn Children>;
        (self.place.depth < config.max_depth)
            .then(|| Arc::new(DelegateTask::new(children, config.max_concurrent)) as Arc<dyn Tool>)
    }

    /// Lets children run inside this turn for as long as the result lives.
    pub(super) fn seat(self: &Arc<Self>, context: &TurnContext, front_turn_id: &Arc<str>) -> Seated {
        let seat = Seat { context: context.clone(), front_turn_id: Arc::clone(front_turn_id), began: Instant::now() };
        *self.lock() = Some(seat);
        Seated(Arc::clone(self))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Seat>> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn raise(&self, assignment: Assignment, cancel: CancellationToken) -> ChildEnd {
        let seat = self.lock().clone();
        let Some(seat) = seat else {
            return ChildEnd { session_id: None, outcome: Err("no turn is running".into()) };
        };
        Child::new(self, seat, assignment, cancel).run().await
    }
}

impl Children for Nursery {
    fn run(&self, assignment: Assignment, cancel: CancellationToken) -> BoxFuture<'_, ChildEnd> {
        self.raise(assignment, cancel).boxed()
    }
}

/// One child, ready to run.
struct Child {
    context: TurnContext,
    io: ChildIo,
    row: SessionRow,
    goal: String,
    message: Message,
    nursery: Arc<Nursery>,
    /// The hooks of the agent that delegated.
    parent_hooks: HookSet,
    /// What both hooks about the child are told.
    facts: Value,
}

impl Child {
    fn new(parents: &Nursery, seat: Seat, assignment: Assignment, cancel: CancellationToken) -> Self {
        let parent = &seat.context;
        let id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        let turn_id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        let place = parents.place.below(parent, &assignment);
        let view = parents.view.child(&id);
        let nursery = Arc::new(Nursery {
            host: Arc::clone(&parents.host),
            client: Arc::clone(&parents.client),
            questions: Arc::clone(&parents.questions),
            view: view.clone().unwrap_or_else(|| Arc::clone(&parents.view)),
            place: place.clone(),
            seat: Mutex::new(None),
        });
        let context = context(&nursery, &seat, [&id, &turn_id]);
        let now = clock::now_ms();
        let message = Message::user(assignment.message());
        let row = row(&context, parent, now);
        let io = ChildIo {
            ledger: Ledger {
                store: parents.host.store.clone(),
                session_id: id,
                turn_id,
                started_at_ms: now,
                also_counted_in: place.works_for,
            },
            front: Front {
                client: Arc::clone(&parents.client),
                questions: Arc::clone(&parents.questions),
                turn_id: Arc::clone(&seat.front_turn_id),
            },
            parent_view: Arc::clone(&parents.view),
            view,
            call_id: assignment.call_id,
            prefix: place.prefix,
            label: place.label,
            approvals: parents.host.config.delegation.approvals,
            slot: assignment.slot,
            cancel,
            shown: Mutex::new(HashSet::new()),
        };
        let facts = facts(parents, parent, &io, &assignment.goal);
        let parent_hooks = parent.hooks.clone();
        Self { context, io, row, goal: assignment.goal, message, nursery, parent_hooks, facts }
    }

    async fn run(mut self) -> ChildEnd {
        let session_id = Some(Arc::clone(&self.io.ledger.session_id));
        let _working = self.nursery.host.at_work.begin(&self.io.ledger.session_id);
        self.row.title = replay::title_of(&[Part::text(self.goal.clone())]);
        let writes = std::iter::once(Write::CreateSession(self.row.clone())).chain(self.io.ledger.begin(&self.message));
        if let Err(error) = self.io.ledger.store.write(writes.collect()).await {
            return ChildEnd { session_id: None, outcome: Err(error.to_string()) };
        }
        self.begin().await;
        let report = self.turn().await;
        self.end(&report).await;
        ChildEnd { session_id, outcome: Ok(report) }
    }

    async fn begin(&self) {
        self.parent_hooks.observe(HookPoint::SubagentStart, || self.facts.clone()).await;
        let title = self.row.title.clone().unwrap_or_default();
        self.io.tell_phase(ChildPhase::Began { title }).await;
        if let (Some(view), Message::User(user)) = (&self.io.view, &self.message) {
            let message_id = format!("{}.task", self.io.ledger.turn_id).into();
            view.tell(SessionEvent::Replay(Replayed::User { message_id, parts: user.content.clone() })).await;
        }
    }

    async fn turn(&self) -> TurnReport {
        let _seated = self.nursery.seat(&self.context, &self.io.front.turn_id);
        let end = run_turn(&self.context, vec![self.message.clone()], &self.io, &self.io.cancel).await;
        self.io.end_shown_calls().await;
        end.report
    }

    async fn end(&self, report: &TurnReport) {
        let release = Write::ReleaseSession { id: self.io.ledger.session_id.to_string() };
        if let Err(error) = self.io.ledger.store.write(vec![release]).await {
            tracing::debug!(%error, "a child agent's session could not be released");
        }
        self.io.tell_phase(ChildPhase::Ended(Box::new(report.clone()))).await;
        let outcome = || {
            let mut facts = self.facts.clone();
            if let Some(facts) = facts.as_object_mut() {
                facts.insert("outcome".into(), report.status().as_str().into());
                facts.insert("exit_reason".into(), report.exit.as_str().into());
                facts.insert("steps".into(), report.steps.into());
                facts.insert("api_calls".into(), report.api_calls.into());
            }
            facts
        };
        self.parent_hooks.observe(HookPoint::SubagentStop, outcome).await;
    }
}

impl Place {
    fn below(&self, parent: &TurnContext, assignment: &Assignment) -> Self {
        let (number, goal) = (assignment.number, crate::tool::output::one_line(&assignment.goal, 60));
        let above = if self.label.is_empty() { String::new() } else { format!("{} > ", self.label) };
        Self {
            depth: self.depth + 1,
            works_for: std::iter::once(Arc::clone(&parent.session_id)).chain(self.works_for.iter().cloned()).collect(),
            prefix: format!("{}{}.{number}.", self.prefix, assignment.call_id),
            label: format!("{above}child agent {number} ({goal})"),
        }
    }
}

/// A child's surroundings: the parent's, but for what is its own.
fn context(nursery: &Arc<Nursery>, seat: &Seat, [id, turn_id]: [&Arc<str>; 2]) -> TurnContext {
    let (host, parent) = (&nursery.host, &seat.context);
    let chain = Arc::new(parent.chain.fork());
    let tools = Arc::new(tools(nursery, &parent.tools));
    let tool_context = ToolContext { state: fresh_state(&parent.gate), ..parent.tool_context.clone() };
    let endpoint = chain.current();
    let system_prompt = prompt::restore_or_build(
        None,
        &PromptSources {
            home: &host.config.home,
            soul: &host.config.soul,
            cwd: &tool_context.cwd,
            additional_roots: &tool_context.additional_roots,
            provider: &endpoint.provider,
            model: &endpoint.model,
            tools: tools.specs().iter().map(|spec| spec.name.as_str()).collect(),
            note: Some(CHILD_NOTE),
            date: clock::date(clock::now_ms()),
        },
    );
    let base = json!({ "session_id": &**id, "task_id": &**id, "turn_id": &**turn_id });
    TurnContext {
        session_id: Arc::clone(id),
        turn_id: Arc::clone(turn_id),
        system_prompt: system_prompt.into(),
        tools,
        tool_context,
        hooks: parent.hooks.with_base(base.as_object().cloned().unwrap_or_default()),
        chain,
        is_first_turn: true,
        limits: limits(nursery, seat),
        ..parent.clone()
    }
}

/// A child's budgets: its own model calls, and no more time than its parent has left.
fn limits(nursery: &Nursery, seat: &Seat) -> TurnLimits {
    let seconds = seat.context.limits.run_budget_seconds;
    let left = seconds.saturating_sub(seat.began.elapsed().as_secs()).max(1);
    TurnLimits {
        max_iterations: nursery.host.config.delegation.max_iterations,
        run_budget_seconds: if seconds == 0 { 0 } else { left },
        ..seat.context.limits
    }
}

/// A child's tools: fresh ones for the machine, the parent's foreign ones and its search, and nothing that
/// talks to the user or outlives the task.
fn tools(nursery: &Arc<Nursery>, parents: &ToolRegistry) -> ToolRegistry {
    let host = &nursery.host;
    let is_shared = |name: &str| name.starts_with("mcp_") || name == "session_search";
    let mut tools = registry::built_in(&host.processes);
    tools.extend(parents.tools().iter().filter(|tool| is_shared(&tool.spec().name)).cloned());
    tools.extend(nursery.tool());
    ToolRegistry::new(tools, &host.config.tools)
}

fn row(context: &TurnContext, parent: &TurnContext, now: i64) -> SessionRow {
    let tools = &context.tool_context;
    SessionRow {
        id: context.session_id.to_string(),
        parent_id: Some(parent.session_id.to_string()),
        lineage: Some(Lineage::Child),
        cwd: tools.cwd.to_string_lossy().into_owned(),
        additional_roots: tools.additional_roots.iter().map(|root| root.to_string_lossy().into_owned()).collect(),
        model: context.chain.current().id(),
        mode: context.gate.mode().as_str().into(),
        title: None,
        system_prompt: Some(context.system_prompt.to_string()),
        created_at_ms: now,
        updated_at_ms: now,
    }
}

fn facts(parents: &Nursery, parent: &TurnContext, io: &ChildIo, goal: &str) -> Value {
    let place = &parents.place;
    let may_delegate = place.depth + 1 < parents.host.config.delegation.max_depth;
    let goal: String = goal.chars().take(MAX_HOOK_CHARS).collect();
    json!({
        "parent_session_id": &*parent.session_id,
        "parent_turn_id": &*parent.turn_id,
        "parent_subagent_id": (place.depth > 0).then_some(&*parent.session_id),
        "child_session_id": &*io.ledger.session_id,
        "child_subagent_id": &*io.ledger.session_id,
        "child_role": if may_delegate { "orchestrator" } else { "leaf" },
        "child_goal": goal,
    })
}
