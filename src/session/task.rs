//! The task that owns a session: idle with the history, or running the one turn that has been lent it.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnd_protocol::ext::StatusResult;

use crate::clock;
use crate::config::Mode;
use crate::mcp::ServerSpec;
use crate::message::{Message, Part};
use crate::store::Write;

use super::chain;
use super::command::{Command, Opened, Prompt, PromptEnd, PromptOutcome, ReplayWish, SessionError};
use super::compacting::{AfterTurn, Compacting, CompactionDone};
use super::handle::Mailbox;
use super::io::{Desk, Occasion, SessionIo, Unstored};
use super::ledger::Ledger;
use super::open::{self, Host, OpenRequest, Session};
use super::port::{SessionEvent, SessionOptions};
use super::slash;
use super::titling::{Title, Titling};
use super::turn_plan::{self, TurnDone, TurnPlan};

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

/// Tells requests that were sent behind a failed open why nothing will come of them.
fn refuse_waiting(mailbox: &mut Mailbox, error: &SessionError) {
    mailbox.commands.close();
    while let Ok(command) = mailbox.commands.try_recv() {
        match command {
            Command::Prompt(prompt) => drop(prompt.reply.send(Err(error.clone()))),
            Command::Reopen(_, _, reply) => drop(reply.send(Err(error.clone()))),
            Command::SetModel(_, reply) => drop(reply.send(Err(error.clone()))),
            // Their answers tell nothing of errors: the end of the session is all there is to say.
            Command::SetMode(..) | Command::Steer(..) | Command::Redirect(..) | Command::Status(_) => {}
        }
    }
}

/// A session and everything that waits on it.
pub(super) struct Task {
    pub(super) session: Session,
    pub(super) mailbox: Mailbox,
    pub(super) phase: Phase,
    pub(super) waiting: VecDeque<Prompt>,
    /// A title that a model is writing.
    pub(super) titling: Option<Titling>,
    /// What is left to do once the answer of a turn is on its way.
    pub(super) after_turn: Option<AfterTurn>,
    /// Resolves when the answer that the next thing must not overtake is queued.
    delivery: Option<oneshot::Receiver<()>>,
    is_announced: bool,
    pub(super) remarks: u64,
    /// Tokens in the context after the newest model call; 0 before the first since the session was opened.
    pub(super) context_tokens: u64,
    pub(super) is_closing: bool,
    /// The MCP servers a client wants from the next turn on; a running one keeps its own.
    wanted_servers: Option<Vec<ServerSpec>>,
}

/// Who has the history.
pub(super) enum Phase {
    Idle(Vec<Message>),
    Running(Running),
    Compacting(Compacting),
}

/// The turn that has been lent the history.
pub(super) struct Running {
    turn: BoxFuture<'static, TurnDone>,
    pub(super) turn_id: Arc<str>,
    pub(super) desk: Arc<Desk>,
    pub(super) cancel: CancellationToken,
    /// Whether this turn gave the session its first title.
    has_new_title: bool,
    reply: Option<oneshot::Sender<Result<PromptEnd, SessionError>>>,
}

/// What woke the task.
enum Wake {
    Command(Option<Command>),
    TurnDone(Box<TurnDone>),
    CompactionDone(Box<CompactionDone>),
    Title(Title),
    Delivered,
    WaitingCancelled,
    Closing,
}

impl Task {
    fn new(session: Session, history: Vec<Message>, mailbox: Mailbox, announce: oneshot::Receiver<()>) -> Self {
        Self {
            session,
            mailbox,
            phase: Phase::Idle(history),
            waiting: VecDeque::new(),
            titling: None,
            after_turn: None,
            delivery: Some(announce),
            is_announced: false,
            remarks: 0,
            context_tokens: 0,
            is_closing: false,
            wanted_servers: None,
        }
    }

    async fn serve(&mut self) {
        loop {
            match self.next_wake().await {
                Wake::Command(Some(command)) => self.obey(command).await,
                Wake::TurnDone(done) => self.turn_done(*done).await,
                Wake::CompactionDone(done) => self.compaction_done(*done).await,
                Wake::Title(title) => self.title_done(title).await,
                Wake::Delivered => self.delivered().await,
                Wake::WaitingCancelled => self.drop_cancelled(),
                Wake::Command(None) | Wake::Closing => self.begin_closing(),
            }
            if self.is_quiet_and_closing() {
                return;
            }
            self.start_next();
        }
    }

    async fn next_wake(&mut self) -> Wake {
        let closing = self.mailbox.handle.closing();
        let is_closing = self.is_closing;
        let working = async {
            match &mut self.phase {
                Phase::Running(running) => Wake::TurnDone(Box::new((&mut running.turn).await)),
                Phase::Compacting(compacting) => Wake::CompactionDone(Box::new((&mut compacting.work).await)),
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
        let titled = async {
            match &mut self.titling {
                Some(titling) => titling.await,
                None => std::future::pending().await,
            }
        };
        let cancelled = any_cancelled(&self.waiting);
        tokio::select! {
            biased;
            wake = working => wake,
            () = delivered => Wake::Delivered,
            command = self.mailbox.commands.recv(), if !is_closing => Wake::Command(command),
            () = cancelled => Wake::WaitingCancelled,
            title = titled => Wake::Title(title),
            () = closing, if !is_closing => Wake::Closing,
        }
    }

    async fn delivered(&mut self) {
        self.delivery = None;
        if !std::mem::replace(&mut self.is_announced, true) {
            self.session.client.tell(SessionEvent::Commands(slash::COMMANDS.to_vec())).await;
        }
        self.compact_between_turns();
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Prompt(prompt) => self.take_prompt(prompt).await,
            Command::Reopen(wish, servers, reply) => {
                self.wanted_servers = servers.or_else(|| self.wanted_servers.take());
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
                drop(reply.send(self.kept(&steer, result).await));
            }
            Command::Redirect(steer, reply) => {
                let result = self.redirect(&steer);
                drop(reply.send(self.kept(&steer, result).await));
            }
            Command::Status(reply) => drop(reply.send(self.status())),
        }
    }

    /// Shows the session again to a client that opens it twice. What is shown comes from the store, so
    /// it works while a turn runs and changes nothing.
    async fn reopen(&mut self, wish: ReplayWish) -> Result<Opened, SessionError> {
        if wish == ReplayWish::Replay {
            let loaded = self.session.host.store.load_session(&self.session.id).await;
            match loaded.map_err(|error| open::store_error(&self.session.id, &error))? {
                Some(loaded) => {
                    self.session.show_again(&loaded, self.unstored().as_ref()).await;
                    // A running turn tells it with every model call, with what the turn has cost so far.
                    if let Phase::Idle(_) | Phase::Compacting(_) = self.phase {
                        self.session.tell_context_level(self.context_level()).await;
                    }
                }
                None => return Err(SessionError::Unknown(Arc::clone(&self.session.id))),
            }
        }
        let (delivered, announce) = oneshot::channel();
        self.delivery = Some(announce);
        self.is_announced = false;
        Ok(Opened { options: self.session.options(), delivered })
    }

    /// What the running turn has shown beside the store, if one runs.
    fn unstored(&self) -> Option<Unstored> {
        match &self.phase {
            Phase::Running(running) => Some(running.desk.unstored()),
            Phase::Idle(_) | Phase::Compacting(_) => None,
        }
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

    pub(super) fn enqueue(&mut self, prompt: Prompt) {
        if self.has_room() {
            self.waiting.push_back(prompt);
        } else {
            drop(prompt.reply.send(Err(SessionError::Overloaded)));
        }
    }

    /// Whether one more prompt may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Starts the next turn when nothing is in its way.
    fn start_next(&mut self) {
        self.drop_cancelled();
        if self.delivery.is_some() || self.is_closing {
            return;
        }
        let Phase::Idle(history) = &mut self.phase else { return };
        if let Some(servers) = self.wanted_servers.take() {
            self.session.reconnect(servers);
        }
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
        let io = self.io(&turn_id, &desk, &prompt.cancel);
        let plan = TurnPlan::new(&mut self.session, &turn_id, &prompt.parts);
        let has_new_title = plan.has_new_title();
        let cancel = prompt.cancel.clone();
        let turn = turn_plan::run(plan, history, prompt.parts, io, cancel.clone());
        Running { turn: turn.boxed(), turn_id, desk, cancel, has_new_title, reply: Some(prompt.reply) }
    }

    /// The port of a turn.
    pub(super) fn io(&self, turn_id: &Arc<str>, desk: &Arc<Desk>, cancel: &CancellationToken) -> SessionIo {
        SessionIo {
            ledger: Ledger {
                store: self.session.host.store.clone(),
                session_id: Arc::clone(&self.session.id),
                turn_id: Arc::clone(turn_id),
                started_at_ms: clock::now_ms(),
                also_counted_in: Vec::new(),
            },
            client: Arc::clone(&self.session.client),
            desk: Arc::clone(desk),
            cancel: cancel.clone(),
            spent_usd: self.session.spent_usd,
            questions: Arc::clone(&self.session.questions),
            occasion: Occasion::Prompt,
        }
    }

    async fn turn_done(&mut self, done: TurnDone) {
        let Phase::Running(running) = &mut self.phase else { return };
        let (reply, has_new_title) = (running.reply.take(), running.has_new_title);
        self.after_turn = Some(AfterTurn { compaction: running.desk.take_compaction() });
        self.context_tokens = running.desk.context_tokens().unwrap_or(self.context_tokens);
        let history = match &done.result {
            Ok(report) if report.exit.is_torn() => self.session.reload().await.unwrap_or(done.history),
            _ => done.history,
        };
        self.session.runtime = done.runtime;
        if let Some(prompt) = done.system_prompt {
            self.session.row.system_prompt = Some(prompt);
        }
        // Idle before the answer: clients send the next prompt the moment it arrives.
        self.phase = Phase::Idle(history);
        if let Ok(report) = &done.result {
            self.session.usage.add(&report.usage);
            self.session.spent_usd = self.session.spent_usd.zip(report.cost_usd).map(|(before, turn)| before + turn);
            self.session.client.tell(SessionEvent::TurnEnded(Box::new(report.clone()))).await;
            if has_new_title {
                self.begin_title(report);
            }
        }
        let Some(reply) = reply else { return };
        let (delivered, delivery) = oneshot::channel();
        let end = done.result.map(|report| PromptEnd { outcome: PromptOutcome::Turn(Box::new(report)), delivered });
        if reply.send(end).is_ok() {
            self.delivery = Some(delivery);
            self.is_announced = true;
        } else {
            self.compact_between_turns();
        }
    }

    // ---- mode, model, status

    pub(super) async fn set_mode(&mut self, mode: Mode) {
        if self.session.gate.mode() == mode {
            return;
        }
        self.session.gate.set_mode(mode);
        self.session.row.mode = mode.as_str().into();
        self.session.save_options().await;
        self.session.client.tell(SessionEvent::Mode(mode)).await;
        self.session.client.tell(SessionEvent::Options(self.session.options())).await;
    }

    pub(super) async fn set_model(&mut self, model: String) -> Result<SessionOptions, SessionError> {
        let chain = chain::chain(&self.session.host.config, Some(&model))?;
        self.session.row.model = chain.current().id();
        self.session.chain = Arc::new(chain);
        self.session.save_options().await;
        let options = self.session.options();
        self.session.client.tell(SessionEvent::Options(options.clone())).await;
        Ok(options)
    }

    fn status(&self) -> StatusResult {
        let queue_length = self.waiting.len();
        let rate_limits = self.session.rate_limits();
        let status = match &self.phase {
            Phase::Idle(_) => StatusResult { phase: "idle".into(), queue_length, ..StatusResult::default() },
            Phase::Compacting(_) => {
                StatusResult { phase: "compacting".into(), queue_length, ..StatusResult::default() }
            }
            Phase::Running(running) => {
                let progress = running.desk.progress();
                let phase = if self.session.questions.is_open() { "waiting_for_approval" } else { "running" };
                StatusResult {
                    phase: phase.into(),
                    queue_length,
                    turn_id: Some(running.turn_id.to_string()),
                    step: Some(progress.step),
                    budget_left: Some(progress.budget_left),
                    rate_limits: None,
                }
            }
        };
        StatusResult { rate_limits, ..status }
    }

    // ---- the end

    fn begin_closing(&mut self) {
        self.is_closing = true;
        self.mailbox.handle.cancel();
        self.mailbox.commands.close();
        match &self.phase {
            Phase::Running(running) => running.cancel.cancel(),
            Phase::Compacting(compacting) => compacting.cancel.cancel(),
            Phase::Idle(_) => {}
        }
        for prompt in self.waiting.drain(..) {
            answer(prompt.reply, PromptOutcome::NotStarted);
        }
    }

    fn is_quiet_and_closing(&self) -> bool {
        self.is_closing && matches!(self.phase, Phase::Idle(_))
    }

    /// Releases the session in the store.
    async fn let_go(mut self) {
        refuse_waiting(&mut self.mailbox, &SessionError::Closed);
        self.session.mcp.close().await;
        let release = Write::ReleaseSession { id: self.session.id.to_string() };
        if let Err(error) = self.session.host.store.write(vec![release]).await {
            tracing::debug!(session = %self.session.id, %error, "the session could not be released");
        }
    }
}

/// Tells whoever waits for a prompt that runs no turn.
pub(super) fn answer(reply: oneshot::Sender<Result<PromptEnd, SessionError>>, outcome: PromptOutcome) {
    let (delivered, _) = oneshot::channel();
    drop(reply.send(Ok(PromptEnd { outcome, delivered })));
}

async fn any_cancelled(waiting: &VecDeque<Prompt>) {
    if waiting.is_empty() {
        return std::future::pending().await;
    }
    let cancelled = waiting.iter().map(|prompt| Box::pin(prompt.cancel.cancelled()));
    futures_util::future::select_all(cancelled).await;
}
