//! The task that owns a session: idle with the history, or running the one turn that has been lent it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnd_protocol::ext::{StatusResult, SteeringOutcome, SteeringResult};

use crate::clock;
use crate::config::Mode;
use crate::message::{Message, Part, Usage, UserMessage, plain_text};
use crate::prompt::{self, PromptSources};
use crate::store::{TurnRow, Write};
use crate::turn::{ExitReason, Strictness, TurnContext, TurnEnd, TurnLimits, TurnReport, run_turn};

use super::command::{Command, Opened, Prompt, PromptEnd, PromptOutcome, ReplayWish, SessionError, Steer};
use super::handle::Mailbox;
use super::io::{Desk, SessionIo};
use super::open::{self, Host, OpenRequest, Session};
use super::port::{SessionEvent, SessionOptions};
use super::slash::{self, Slash};
use super::{replay, slash as commands};

/// Prompts that may wait beside the running one.
const MAX_WAITING: usize = 16;

/// Opens the session, serves it until it is closed, and lets it go in the store.
pub(super) async fn run(
    host: Arc<Host>,
    request: OpenRequest,
    mut mailbox: Mailbox,
    ready: oneshot::Sender<Result<Opened, SessionError>>,
) {
    match Session::open(host, request).await {
        Ok((session, history)) => {
            let (delivered, announce) = oneshot::channel();
            let opened = Opened { options: session.options(), delivered };
            let is_awaited = ready.send(Ok(opened)).is_ok();
            let mut task = Task::new(session, history, mailbox, announce);
            if is_awaited {
                task.serve().await;
            }
            task.let_go().await;
        }
        Err(error) => {
            refuse_waiting(&mut mailbox, &error);
            // Whoever asked may be gone.
            drop(ready.send(Err(error)));
        }
    }
}

/// Tells prompts that were sent behind a failed open why nothing will come of them.
fn refuse_waiting(mailbox: &mut Mailbox, error: &SessionError) {
    mailbox.commands.close();
    while let Ok(command) = mailbox.commands.try_recv() {
        if let Command::Prompt(prompt) = command {
            drop(prompt.reply.send(Err(error.clone())));
        }
    }
}

struct Task {
    session: Session,
    mailbox: Mailbox,
    phase: Phase,
    waiting: VecDeque<Prompt>,
    /// Resolves when the answer that the next thing must not overtake is queued.
    delivery: Option<oneshot::Receiver<()>>,
    is_announced: bool,
    remarks: u64,
    usage: Usage,
    context: (u64, u64),
    closing: Option<oneshot::Sender<()>>,
}

enum Phase {
    Idle(Vec<Message>),
    Running(Running),
}

struct Running {
    turn: BoxFuture<'static, TurnDone>,
    turn_id: Arc<str>,
    desk: Arc<Desk>,
    cancel: CancellationToken,
    reply: Option<oneshot::Sender<Result<PromptEnd, SessionError>>>,
}

/// What a turn's future gives: the history back, unless it panicked, and how it went.
struct TurnDone {
    history: Option<Vec<Message>>,
    result: Result<TurnReport, SessionError>,
    system_prompt: Option<String>,
}

/// What woke the task.
enum Wake {
    Command(Option<Command>),
    TurnDone(Box<TurnDone>),
    Delivered,
    WaitingCancelled,
    Shutdown,
}

impl Task {
    fn new(session: Session, history: Vec<Message>, mailbox: Mailbox, announce: oneshot::Receiver<()>) -> Self {
        Self {
            session,
            mailbox,
            phase: Phase::Idle(history),
            waiting: VecDeque::new(),
            delivery: Some(announce),
            is_announced: false,
            remarks: 0,
            usage: Usage::default(),
            context: (0, 0),
            closing: None,
        }
    }

    async fn serve(&mut self) {
        loop {
            match self.next_wake().await {
                Wake::Command(Some(command)) => self.obey(command).await,
                Wake::TurnDone(done) => self.turn_done(*done).await,
                Wake::Delivered => self.delivered().await,
                Wake::WaitingCancelled => self.drop_cancelled(),
                Wake::Command(None) | Wake::Shutdown => self.begin_closing(None),
            }
            if self.is_quiet_and_closing() {
                return;
            }
            self.start_next();
        }
    }

    async fn next_wake(&mut self) -> Wake {
        let shutdown = self.session.host.shutdown.clone();
        let is_closing = self.closing_begun();
        let running = async {
            match &mut self.phase {
                Phase::Running(running) => (&mut running.turn).await,
                Phase::Idle(_) => std::future::pending().await,
            }
        };
        let delivered = async {
            match &mut self.delivery {
                // An error means that the sender was dropped, which is the signal.
                Some(delivery) => drop(delivery.await),
                None => std::future::pending().await,
            }
        };
        let cancelled = any_cancelled(&self.waiting);
        tokio::select! {
            biased;
            done = running => Wake::TurnDone(Box::new(done)),
            () = delivered => Wake::Delivered,
            command = self.mailbox.commands.recv(), if !is_closing => Wake::Command(command),
            () = cancelled => Wake::WaitingCancelled,
            () = shutdown.cancelled(), if !is_closing => Wake::Shutdown,
        }
    }

    async fn delivered(&mut self) {
        self.delivery = None;
        if !std::mem::replace(&mut self.is_announced, true) {
            self.session.client.tell(SessionEvent::Commands(slash::COMMANDS.to_vec())).await;
            for notice in std::mem::take(&mut self.session.notices) {
                self.session.client.tell(SessionEvent::Notice(notice)).await;
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Prompt(prompt) => self.take_prompt(prompt).await,
            Command::Reopen(wish, reply) => {
                let opened = self.reopen(wish).await;
                drop(reply.send(opened));
            }
            Command::SetMode(mode, reply) => {
                self.set_mode(mode).await;
                drop(reply.send(self.session.options()));
            }
            Command::SetModel(model, reply) => {
                let result = self.set_model(model).await;
                drop(reply.send(result));
            }
            Command::Steer(steer, reply) => {
                let result = self.steer(&steer);
                drop(reply.send(result));
            }
            Command::Redirect(steer, reply) => {
                let result = self.redirect(&steer);
                drop(reply.send(result));
            }
            Command::Status(reply) => drop(reply.send(self.status())),
            Command::Close(reply) => self.begin_closing(Some(reply)),
        }
    }

    /// Shows the session again to a client that opens it twice. What is shown comes from the store, so
    /// it works while a turn runs and changes nothing.
    async fn reopen(&mut self, wish: ReplayWish) -> Result<Opened, SessionError> {
        if wish == ReplayWish::Replay {
            let loaded = self.session.host.store.load_session(&self.session.id).await;
            match loaded.map_err(|error| open::store_error(&self.session.id, &error))? {
                Some(loaded) => self.session.show_again(&loaded).await,
                None => return Err(SessionError::Unknown(Arc::clone(&self.session.id))),
            }
        }
        let (delivered, announce) = oneshot::channel();
        self.delivery = Some(announce);
        self.is_announced = false;
        Ok(Opened { options: self.session.options(), delivered })
    }

    // ---- prompts

    async fn take_prompt(&mut self, prompt: Prompt) {
        if let [Part::Text { text }] = prompt.parts.as_slice()
            && let Some(command) = slash::parse(text)
        {
            self.obey_slash(command, prompt).await;
        } else {
            self.enqueue(prompt);
        }
    }

    fn enqueue(&mut self, prompt: Prompt) {
        if self.waiting.len() >= MAX_WAITING {
            drop(prompt.reply.send(Err(SessionError::Overloaded)));
        } else {
            self.waiting.push_back(prompt);
        }
    }

    /// Starts the next turn when nothing is in its way.
    fn start_next(&mut self) {
        self.drop_cancelled();
        if self.delivery.is_some() || self.closing_begun() {
            return;
        }
        let Phase::Idle(history) = &mut self.phase else { return };
        let Some(prompt) = self.waiting.pop_front() else { return };
        let history = std::mem::take(history);
        self.phase = Phase::Running(self.start_turn(history, prompt));
    }

    fn drop_cancelled(&mut self) {
        let (cancelled, waiting) =
            self.waiting.drain(..).partition::<VecDeque<_>, _>(|prompt| prompt.cancel.is_cancelled());
        self.waiting = waiting;
        for prompt in cancelled {
            answer(prompt.reply, PromptOutcome::NotStarted);
        }
    }

    fn start_turn(&mut self, history: Vec<Message>, prompt: Prompt) -> Running {
        let turn_id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        let desk = Arc::new(Desk::default());
        let io = SessionIo {
            store: self.session.host.store.clone(),
            session_id: Arc::clone(&self.session.id),
            turn_id: Arc::clone(&turn_id),
            started_at_ms: clock::now_ms(),
            client: Arc::clone(&self.session.client),
            desk: Arc::clone(&desk),
            cancel: prompt.cancel.clone(),
            approval_timeout: approval_timeout(self.session.host.config.approval_timeout_seconds),
        };
        let plan = TurnPlan::new(&mut self.session, &turn_id, &prompt.parts);
        let cancel = prompt.cancel.clone();
        let turn = run_guarded(plan, history, prompt.parts, io, cancel.clone());
        Running { turn: turn.boxed(), turn_id, desk, cancel, reply: Some(prompt.reply) }
    }

    async fn turn_done(&mut self, done: TurnDone) {
        let Phase::Running(running) = &mut self.phase else { return };
        let reply = running.reply.take();
        let is_torn = done.result.as_ref().is_ok_and(|report| report.exit == ExitReason::SessionPersistenceFailed);
        let history = match done.history {
            Some(history) if !is_torn => history,
            _ => self.session.reload().await,
        };
        if let Some(prompt) = done.system_prompt {
            self.session.row.system_prompt = Some(prompt);
        }
        // Idle before the answer: clients send the next prompt the moment it arrives.
        self.phase = Phase::Idle(history);
        if let Ok(report) = &done.result {
            self.usage.add(&report.usage);
            self.session.client.tell(SessionEvent::TurnEnded(Box::new(report.clone()))).await;
        }
        let Some(reply) = reply else { return };
        let (delivered, delivery) = oneshot::channel();
        let end = done.result.map(|report| PromptEnd { outcome: PromptOutcome::Turn(Box::new(report)), delivered });
        if reply.send(end).is_ok() {
            self.delivery = Some(delivery);
            self.is_announced = true;
        }
    }

    // ---- slash commands

    async fn obey_slash(&mut self, command: Slash, prompt: Prompt) {
        let remark = match command {
            Slash::Queue(text) if text.is_empty() => Some("Nothing to queue: write the prompt after `/queue`.".into()),
            Slash::Queue(text) => {
                self.enqueue(Prompt { parts: vec![Part::text(text)], ..prompt });
                return;
            }
            Slash::Help => Some(commands::help()),
            Slash::Steer(text) => Some(self.steer_remark(&text)),
            Slash::Redirect(text) => Some(self.redirect_remark(&text)),
            Slash::Stop => {
                self.mailbox.handle.cancel();
                None
            }
            Slash::Mode(mode) => Some(self.mode_remark(mode).await),
            Slash::Model(model) => Some(self.model_remark(model).await),
            Slash::Tools => Some(self.tools_remark()),
            Slash::Context => Some(self.context_remark()),
            Slash::Usage => Some(self.usage_remark()),
        };
        if let Some(text) = remark {
            self.remarks += 1;
            let message_id = format!("remark-{}", self.remarks).into();
            self.session.client.tell(SessionEvent::Remark { message_id, text }).await;
        }
        answer(prompt.reply, PromptOutcome::Obeyed);
    }

    fn steer_remark(&self, text: &str) -> String {
        match &self.phase {
            Phase::Running(running) if running.desk.steer(text) => {
                "Noted; the agent will read it with its next step.".into()
            }
            Phase::Running(_) => "Nothing to tell: write it after `/steer`.".into(),
            Phase::Idle(_) => "No turn is running: send it as a prompt.".into(),
        }
    }

    fn redirect_remark(&self, text: &str) -> String {
        match &self.phase {
            Phase::Running(running) if running.desk.redirect(text) => "The request is corrected.".into(),
            Phase::Running(_) => "Nothing to correct: write it after `/redirect`.".into(),
            Phase::Idle(_) => "No turn is running: send it as a prompt.".into(),
        }
    }

    async fn mode_remark(&mut self, mode: Option<String>) -> String {
        match mode {
            None => format!("The mode is `{}`.", self.session.gate.mode().as_str()),
            Some(id) => match Mode::from_id(&id) {
                Some(mode) => {
                    self.set_mode(mode).await;
                    format!("The mode is `{}` now.", mode.as_str())
                }
                None => format!("There is no mode `{id}`: ask, accept_edits, plan, auto, full_access."),
            },
        }
    }

    async fn model_remark(&mut self, model: Option<String>) -> String {
        match model {
            None => format!("The model is `{}`.", self.session.row.model),
            Some(model) => match self.set_model(model).await {
                Ok(options) => format!("The model is `{}` now.", options.model),
                Err(error) => format!("The model was not changed: {error}."),
            },
        }
    }

    fn tools_remark(&self) -> String {
        self.session.tools.catalogue()
    }

    fn context_remark(&self) -> String {
        let window = self.session.chain.current().window();
        format!("About {} of {window} tokens are in use.", self.context.0)
    }

    fn usage_remark(&self) -> String {
        let Usage { input_tokens, output_tokens, cached_tokens, .. } = self.usage;
        format!("Since the session was opened: {input_tokens} tokens in ({cached_tokens} cached), {output_tokens} out.")
    }

    // ---- mode, model, steer, status

    async fn set_mode(&mut self, mode: Mode) {
        if self.session.gate.mode() == mode {
            return;
        }
        self.session.gate.set_mode(mode);
        self.session.row.mode = mode.as_str().into();
        self.session.save_options().await;
        self.session.client.tell(SessionEvent::Mode(mode)).await;
        self.session.client.tell(SessionEvent::Options(self.session.options())).await;
    }

    async fn set_model(&mut self, model: String) -> Result<SessionOptions, SessionError> {
        let chain = open::chain(&self.session.host.config, Some(&model))?;
        self.session.row.model = chain.current().id();
        self.session.chain = Arc::new(chain);
        self.session.save_options().await;
        let options = self.session.options();
        self.session.client.tell(SessionEvent::Options(options.clone())).await;
        Ok(options)
    }

    fn steer(&mut self, steer: &Steer) -> SteeringResult {
        let text = plain_text(&steer.parts);
        match &self.phase {
            Phase::Running(running) => match refusal(running, steer) {
                Some(reason) => failed(reason),
                None if running.desk.steer(&text) => outcome(SteeringOutcome::Injected),
                None => failed("emptyPrompt"),
            },
            Phase::Idle(_) if steer.wants_prompt_when_idle || steer.expected_turn_id.is_some() => {
                SteeringResult { outcome: SteeringOutcome::PromptRequired, reason: Some("noRunningTurn".into()) }
            }
            Phase::Idle(_) if text.trim().is_empty() => failed("emptyPrompt"),
            Phase::Idle(_) => {
                let (reply, _) = oneshot::channel();
                let cancel = self.mailbox.handle.prompt_token();
                self.enqueue(Prompt { parts: steer.parts.clone(), cancel, reply });
                outcome(SteeringOutcome::StartedNewTurn)
            }
        }
    }

    fn redirect(&self, steer: &Steer) -> SteeringResult {
        match &self.phase {
            Phase::Running(running) => match refusal(running, steer) {
                Some(reason) => failed(reason),
                None if running.desk.redirect(&plain_text(&steer.parts)) => outcome(SteeringOutcome::Injected),
                None => failed("emptyPrompt"),
            },
            Phase::Idle(_) => {
                SteeringResult { outcome: SteeringOutcome::PromptRequired, reason: Some("noRunningTurn".into()) }
            }
        }
    }

    fn status(&self) -> StatusResult {
        let queue_length = self.waiting.len();
        match &self.phase {
            Phase::Idle(_) => StatusResult { phase: "idle".into(), queue_length, ..StatusResult::default() },
            Phase::Running(running) => {
                let progress = running.desk.progress();
                let phase = if progress.is_asking { "waiting_for_approval" } else { "running" };
                StatusResult {
                    phase: phase.into(),
                    queue_length,
                    turn_id: Some(running.turn_id.to_string()),
                    step: Some(progress.step),
                    budget_left: Some(progress.budget_left),
                }
            }
        }
    }

    // ---- the end

    fn closing_begun(&self) -> bool {
        self.closing.is_some()
    }

    fn begin_closing(&mut self, reply: Option<oneshot::Sender<()>>) {
        self.closing = Some(reply.unwrap_or_else(|| oneshot::channel().0));
        self.mailbox.handle.cancel();
        self.mailbox.commands.close();
        if let Phase::Running(running) = &self.phase {
            running.cancel.cancel();
        }
        for prompt in self.waiting.drain(..) {
            answer(prompt.reply, PromptOutcome::NotStarted);
        }
    }

    fn is_quiet_and_closing(&self) -> bool {
        self.closing_begun() && matches!(self.phase, Phase::Idle(_))
    }

    /// Releases the session in the store and tells whoever asked for the end.
    async fn let_go(mut self) {
        refuse_waiting(&mut self.mailbox, &SessionError::Closed);
        let release = Write::ReleaseSession { id: self.session.id.to_string() };
        if let Err(error) = self.session.host.store.write(vec![release]).await {
            tracing::debug!(session = %self.session.id, %error, "the session could not be released");
        }
        if let Some(reply) = self.closing.take() {
            // Whoever asked may be gone.
            reply.send(()).ok();
        }
    }
}

fn answer(reply: oneshot::Sender<Result<PromptEnd, SessionError>>, outcome: PromptOutcome) {
    let (delivered, _) = oneshot::channel();
    drop(reply.send(Ok(PromptEnd { outcome, delivered })));
}

fn outcome(outcome: SteeringOutcome) -> SteeringResult {
    SteeringResult { outcome, reason: None }
}

fn failed(reason: &str) -> SteeringResult {
    SteeringResult { outcome: SteeringOutcome::Failed, reason: Some(reason.into()) }
}

/// Why a running turn does not take these words.
fn refusal(running: &Running, steer: &Steer) -> Option<&'static str> {
    let is_other = steer.expected_turn_id.as_deref().is_some_and(|expected| expected != &*running.turn_id);
    if is_other {
        Some("otherTurnRunning")
    } else if running.cancel.is_cancelled() {
        Some("turnIsEnding")
    } else {
        None
    }
}

fn approval_timeout(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

async fn any_cancelled(waiting: &VecDeque<Prompt>) {
    if waiting.is_empty() {
        return std::future::pending().await;
    }
    let cancelled = waiting.iter().map(|prompt| Box::pin(prompt.cancel.cancelled()));
    futures_util::future::select_all(cancelled).await;
}

/// What one turn is built from, taken from the session when it starts.
struct TurnPlan {
    context: TurnContext,
    title: Option<String>,
    is_prompt_new: bool,
}

impl TurnPlan {
    fn new(session: &mut Session, turn_id: &Arc<str>, parts: &[Part]) -> Self {
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
            http: session.host.http.clone(),
            hooks: session.hooks(turn_id),
            is_first_turn: stored.is_none(),
            strictness: if config.tools.guardrail_hard_stop { Strictness::HardStop } else { Strictness::Warn },
            limits: TurnLimits {
                max_iterations: config.max_iterations,
                run_budget_seconds: config.run_budget_seconds,
                input_tokens: None,
            },
        };
        Self { context, title, is_prompt_new }
    }

    /// What is stored before the first model call: the user's words, the turn, and what changed of the
    /// session.
    fn first_writes(&self, io: &SessionIo, message: &Message) -> Vec<Write> {
        let session_id = io.session_id.to_string();
        let turn = TurnRow {
            id: io.turn_id.to_string(),
            session_id: session_id.clone(),
            status: "running".into(),
            exit_reason: None,
            steps: 0,
            api_calls: 0,
            usage: Usage::default(),
            started_at_ms: io.started_at_ms,
            ended_at_ms: None,
        };
        let update = Write::UpdateSession {
            id: session_id.clone(),
            title: self.title.clone(),
            mode: None,
            model: None,
            system_prompt: self.is_prompt_new.then(|| self.context.system_prompt.to_string()),
            updated_at_ms: io.started_at_ms,
        };
        let turn_id = Some(io.turn_id.to_string());
        vec![update, Write::StartTurn(turn), Write::AppendMessage { session_id, turn_id, message: message.clone() }]
    }
}

/// Stores the user's words, runs the turn, and survives a panic in it.
async fn run_guarded(
    plan: TurnPlan,
    mut history: Vec<Message>,
    parts: Vec<Part>,
    io: SessionIo,
    cancel: CancellationToken,
) -> TurnDone {
    let message = Message::User(UserMessage { content: parts });
    if let Err(error) = io.store.write(plan.first_writes(&io, &message)).await {
        let result = Err(SessionError::Store(error.to_string()));
        return TurnDone { history: Some(history), result, system_prompt: None };
    }
    history.push(message);
    let system_prompt = plan.is_prompt_new.then(|| plan.context.system_prompt.to_string());
    io.client.tell(SessionEvent::TurnStarted { turn_id: Arc::clone(&io.turn_id) }).await;
    if let Some(title) = &plan.title {
        io.client.tell(SessionEvent::Title(title.clone())).await;
    }
    let turn = run_turn(&plan.context, history, &io, &cancel);
    match AssertUnwindSafe(turn).catch_unwind().await {
        Ok(TurnEnd { history, report }) => TurnDone { history: Some(history), result: Ok(report), system_prompt },
        Err(panic) => {
            tracing::error!(session = %io.session_id, panic = panic_text(&*panic), "a turn panicked");
            let result = Err(SessionError::Internal("the turn failed inside turnd; see the log".into()));
            TurnDone { history: None, result, system_prompt }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
