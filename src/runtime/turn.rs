//! One turn inside the runtime: the prompt goes in, what happens comes out, until it says that it is done.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::hook::HookPoint;
use crate::message::{AssistantMessage, Message, Part, Usage};
use crate::provider::ProviderError;
use crate::provider::redact::Redactor;
use crate::tool::process::Capture;
use crate::turn::budget::WRAP_UP_SHARE;
use crate::turn::event::StepTool;
use crate::turn::payload::CallStatus;
use crate::turn::port::{CallState, RecordError, ToolCallRecord};
use crate::turn::{ExitReason, TurnContext, TurnEnd, TurnIo, calls, limit, payload};

use super::connection::{Connection, Heard};
use super::error::RuntimeError;
use super::open::{self, ANSWER_LIMIT, Memory};
use super::question::{Case, Settled};
use super::shape::Shape;
use super::stance::{Stance, Watch};
use super::stream::Streams;
use super::words::Words;
use super::{Live, Runtime, Thread, put, retell};

/// How long the runtime may take to end a turn that was interrupted, before it is ended itself. A daemon whose client
/// is gone waits for it too.
const INTERRUPT_LIMIT: Duration = Duration::from_millis(800);
/// A time that never comes, for waits without a limit.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs one turn in the runtime. The newest message of `history` is the user's, already stored.
///
/// The program is started when it does not run. After a failure it is ended; the next turn starts it again.
pub async fn run_turn<Io: TurnIo>(
    runtime: &mut Runtime,
    context: &TurnContext,
    history: Vec<Message>,
    io: &Io,
    cancel: &CancellationToken,
) -> TurnEnd {
    let sandbox = &runtime.setup.sandbox;
    let is_watched = context.hooks.has(HookPoint::PreToolCall) || context.gate.restricts_something();
    let watch = if is_watched { Watch::EveryCall } else { Watch::Nothing };
    let stance = Stance::of(context.gate.mode(), sandbox, &context.tool_context.additional_roots, watch);
    let mut turn = RuntimeTurn::new(context, history, io, stance);
    // A fault of ours must not leave the turn without an end.
    let exit = match AssertUnwindSafe(turn.run(runtime, cancel)).catch_unwind().await {
        Ok(Ok(exit)) => exit,
        Err(_) => {
            tracing::error!(session = %context.session_id, "a turn of the runtime panicked");
            ExitReason::LocalProcessingError
        }
        Ok(Err(Failure::Record(RecordError(detail)))) => {
            turn.detail = Some(detail);
            ExitReason::SessionPersistenceFailed
        }
        Ok(Err(Failure::Runtime(error))) => {
            turn.detail = Some(Redactor::process().clean(&error.to_string()).into_owned());
            ExitReason::RuntimeFailed
        }
    };
    turn.finish(exit).await
}

/// Why a turn cannot go on.
#[derive(Debug)]
pub(super) enum Failure {
    Runtime(RuntimeError),
    Record(RecordError),
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// A turn while it runs.
pub(super) struct RuntimeTurn<'a, Io> {
    pub(super) context: &'a TurnContext,
    pub(super) io: &'a Io,
    pub(super) stance: Stance,
    pub(super) thread: Thread,
    pub(super) history: Vec<Message>,
    /// The runtime's id of this turn, once it has said it.
    pub(super) turn: Option<String>,
    /// Items that do something and are not done.
    pub(super) calls: Vec<OpenCall>,
    pub(super) used_ids: HashSet<String>,
    /// Words that stream, and which items are done.
    pub(super) streams: Streams,
    /// Reasoning that belongs to the next stored answer.
    pub(super) reasoning: String,
    /// Questions that wait for the one that is open.
    pub(super) waiting: VecDeque<Case>,
    pub(super) open_question: Option<OpenQuestion<'a>>,
    /// Questions that are about no call of the transcript, counted for their ids.
    pub(super) own_questions: u32,
    /// Words on their way into the running turn, by the id of the request that carries them.
    pub(super) steers: HashMap<u64, Words>,
    pub(super) can_steer: bool,
    pub(super) start_request: Option<u64>,
    /// Why it was interrupted, once it was.
    pub(super) stop: Option<ExitReason>,
    deadline: Option<(Instant, Overdue)>,
    /// When the runtime is told that its time runs out, until it was.
    pub(super) wrap_up_at: Option<Instant>,
    pub(super) steps: u32,
    pub(super) step_tools: Vec<StepTool>,
    pub(super) stored_answers: u32,
    pub(super) usage: Usage,
    pub(super) answer: Option<AssistantMessage>,
    pub(super) error: Option<ProviderError>,
    pub(super) detail: Option<String>,
}

/// What a deadline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overdue {
    /// The turn was asked for and did not begin.
    Start,
    /// The turn was interrupted and did not end.
    Interrupt,
}

/// The question that the user, the hooks or the gate have now.
pub(super) struct OpenQuestion<'a> {
    /// The runtime's id of it.
    pub(super) request: Value,
    pub(super) shape: Shape,
    /// Our id of the call it is about.
    pub(super) call: String,
    pub(super) settled: BoxFuture<'a, Settled>,
}

/// An item that does something.
#[derive(Debug)]
pub(super) struct OpenCall {
    /// The runtime's id, ours is in the record; `None` for a question that is a call of its own.
    pub(super) item: Option<String>,
    pub(super) record: ToolCallRecord,
    pub(super) output: Capture,
    pub(super) output_shown_at: Instant,
    /// A question about it was asked.
    pub(super) is_settled: bool,
    /// Why it does not run.
    pub(super) refusal: Option<Refusal>,
}

/// Why a call does not run.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: CallStatus,
    pub(super) text: String,
}

/// What woke the turn.
enum Wake {
    Cancelled,
    Settled(Box<Settled>),
    Heard(Result<Heard, RuntimeError>),
    Steered,
    Redirected,
    WrapUp,
    RunBudget,
    Overdue(Overdue),
}

impl<'a, Io: TurnIo> RuntimeTurn<'a, Io> {
    fn new(context: &'a TurnContext, history: Vec<Message>, io: &'a Io, stance: Stance) -> Self {
        Self {
            context,
            io,
            stance,
            thread: Thread { id: String::new(), model: context.chain.current().model.clone() },
            used_ids: calls::used_ids(&history, context.compactor.gauge.retired_ids()),
            history,
            turn: None,
            calls: Vec::new(),
            streams: Streams::default(),
            reasoning: String::new(),
            waiting: VecDeque::new(),
            open_question: None,
            own_questions: 0,
            steers: HashMap::new(),
            can_steer: true,
            start_request: None,
            stop: None,
            deadline: None,
            wrap_up_at: None,
            steps: 0,
            step_tools: Vec::new(),
            stored_answers: 0,
            usage: Usage::default(),
            answer: None,
            error: None,
            detail: None,
        }
    }

    async fn run(&mut self, runtime: &mut Runtime, cancel: &CancellationToken) -> Result<ExitReason, Failure> {
        let (began, budget) = (Instant::now(), self.budget());
        let budget_ends = began + budget;
        self.wrap_up_at = Some(began + budget.mul_f64(WRAP_UP_SHARE));
        let hook_context = self.begin().await;
        let was_running = runtime.live.is_some();
        match self.attempt(runtime, cancel, budget_ends, hook_context.clone()).await {
            // It has ended since the last turn, which is no failure of this one.
            Err(Failure::Runtime(RuntimeError::Ended { .. })) if was_running && self.turn.is_none() => {
                self.attempt(runtime, cancel, budget_ends, hook_context).await
            }
            ended => ended,
        }
    }

    async fn attempt(
        &mut self,
        runtime: &mut Runtime,
        cancel: &CancellationToken,
        budget_ends: Instant,
        hook_context: Option<String>,
    ) -> Result<ExitReason, Failure> {
        let opened = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ExitReason::InterruptedByUser),
            () = sleep_until(budget_ends) => Err(ExitReason::RunBudgetExhausted),
            opened = runtime.open(self.context, &self.history, &self.stance) => Ok(opened),
        };
        // Taken out here and put back only when all went well: a runtime in doubt is ended.
        let live = runtime.live.take();
        let memory = match opened {
            Ok(opened) => opened?,
            Err(exit) => return Ok(exit),
        };
        let Some(mut live) = live else { return Ok(ExitReason::LocalProcessingError) };
        if let Some(thread) = live.thread.clone() {
            self.thread = thread;
        }
        let connection = &mut live.connection;
        let input = self.input(memory, hook_context);
        self.start_request = Some(connection.request("turn/start", self.start_params(input)));
        self.deadline = Some((Instant::now() + ANSWER_LIMIT, Overdue::Start));
        self.io.progress(1, self.context.limits.max_iterations);
        let exit = match (self.follow(&mut live, cancel, budget_ends).await, self.stop) {
            // However the runtime takes the end of its turn: it was ended for this.
            (Err(Failure::Runtime(error)), Some(exit)) => {
                tracing::info!(%error, "the runtime failed at the end of an interrupted turn");
                return Ok(exit);
            }
            (followed, _) => followed?,
        };
        // The runtime lets the commands of an interrupted turn run on; ended with it, they end too.
        let runs = |call: &OpenCall| call.item.is_some() && call.record.state == CallState::InProgress;
        let has_leftovers = self.stop.is_some() && self.calls.iter().any(runs);
        if self.deadline.is_none() && !has_leftovers {
            runtime.live = Some(live);
        }
        Ok(exit)
    }

    fn budget(&self) -> Duration {
        match self.context.limits.run_budget_seconds {
            0 => NEVER,
            seconds => Duration::from_secs(seconds).min(NEVER),
        }
    }

    /// Hooks of the turn's beginning; gives what they want the model to know.
    async fn begin(&mut self) -> Option<String> {
        let hooks = &self.context.hooks;
        let is_first_turn = self.context.is_first_turn;
        let request = self.request_text();
        if is_first_turn {
            hooks.observe(HookPoint::OnSessionStart, || payload::session_start(&request)).await;
        }
        let pieces = hooks.context(|| payload::user_message(&request, is_first_turn, &self.history)).await;
        limit::hook_context(&self.context.tool_context, pieces).await
    }

    /// What the user asked, with corrections.
    pub(super) fn request_text(&self) -> String {
        let request = self.history.iter().rev().find(|message| matches!(message, Message::User(_)));
        request.map(Message::plain_text).unwrap_or_default()
    }

    fn input(&self, memory: Memory, hook_context: Option<String>) -> Vec<Value> {
        let (newest, before) = match self.history.split_last() {
            Some((Message::User(user), before)) => (user.content.as_slice(), before),
            _ => ([].as_slice(), [].as_slice()),
        };
        let story = if memory == Memory::Missing { retell::of(before) } else { None };
        let front = story.into_iter().chain(hook_context).map(|text| text_input(&text));
        front.chain(newest.iter().map(part_input)).collect()
    }

    fn start_params(&self, input: Vec<Value>) -> Value {
        let mut params = json!({
            "threadId": self.thread.id,
            "input": input,
            "approvalPolicy": self.stance.policy,
            "approvalsReviewer": "user",
            "sandboxPolicy": self.stance.sandbox,
        });
        if let Some(model) = open::model_name(self.context) {
            put(&mut params, "model", model);
        }
        if let Some(effort) = &self.context.chain.current().reasoning_effort {
            put(&mut params, "effort", effort.as_str());
        }
        params
    }

    async fn follow(
        &mut self,
        live: &mut Live,
        cancel: &CancellationToken,
        budget_ends: Instant,
    ) -> Result<ExitReason, Failure> {
        let connection = &mut live.connection;
        loop {
            let wake = self.next_wake(connection, cancel, budget_ends).await;
            match wake {
                Wake::Cancelled => self.interrupt(connection, ExitReason::InterruptedByUser),
                Wake::WrapUp => self.send_wrap_up(connection),
                Wake::RunBudget => self.interrupt(connection, ExitReason::RunBudgetExhausted),
                Wake::Settled(settled) => self.settle(connection, *settled).await?,
                Wake::Steered => self.send_steer(connection),
                Wake::Redirected => self.send_redirect(connection),
                Wake::Overdue(Overdue::Start) => return Err(connection.silent("turn/start").into()),
                Wake::Overdue(Overdue::Interrupt) => {
                    tracing::warn!("the runtime did not end an interrupted turn, so it is ended itself");
                    return Ok(self.stop.unwrap_or(ExitReason::InterruptedByUser));
                }
                Wake::Heard(heard) => {
                    if let Some(exit) = self.hear(connection, heard?).await? {
                        self.deadline = None;
                        return Ok(exit);
                    }
                }
            }
            self.next_question();
        }
    }

    async fn next_wake(
        &mut self,
        connection: &mut Connection,
        cancel: &CancellationToken,
        budget_ends: Instant,
    ) -> Wake {
        let is_running = self.stop.is_none();
        let takes_words = is_running && self.turn.is_some() && self.can_steer;
        let (deadline, overdue) = self.deadline.unwrap_or((budget_ends + NEVER, Overdue::Start));
        let settled = async {
            match &mut self.open_question {
                Some(question) => (&mut question.settled).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled(), if is_running => Wake::Cancelled,
            // Before what the runtime says: one that never falls silent has its limits too.
            () = sleep_until(deadline), if self.deadline.is_some() => Wake::Overdue(overdue),
            () = sleep_until(budget_ends), if is_running => Wake::RunBudget,
            () = sleep_until(self.wrap_up_at.unwrap_or(budget_ends)), if takes_words && self.wrap_up_at.is_some() => {
                Wake::WrapUp
            }
            settled = settled => Wake::Settled(Box::new(settled)),
            () = self.io.redirected(), if takes_words => Wake::Redirected,
            () = self.io.steered(), if takes_words => Wake::Steered,
            heard = connection.hear() => Wake::Heard(heard),
        }
    }

    /// Ends the turn inside the runtime; its own word that it ended is still waited for.
    pub(super) fn interrupt(&mut self, connection: &mut Connection, exit: ExitReason) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(exit);
        self.deadline = Some((Instant::now() + INTERRUPT_LIMIT, Overdue::Interrupt));
        self.withdraw_questions(connection);
        self.send_interrupt(connection);
    }

    pub(super) fn send_interrupt(&self, connection: &mut Connection) {
        if let (Some(turn), Some(_)) = (&self.turn, self.stop) {
            connection.request("turn/interrupt", json!({ "threadId": self.thread.id, "turnId": turn }));
        }
    }

    /// The runtime has said that the turn runs.
    pub(super) fn began(&mut self, connection: &mut Connection, turn: &str) {
        if self.turn.is_none() && !turn.is_empty() {
            self.turn = Some(turn.to_owned());
            if self.stop.is_none() {
                self.deadline = None;
            }
            self.send_interrupt(connection);
        }
    }

    /// An answer to one of our requests.
    pub(super) async fn answered(
        &mut self,
        connection: &mut Connection,
        id: u64,
        result: Result<Value, String>,
    ) -> Result<(), Failure> {
        if self.start_request.take_if(|request| *request == id).is_some() {
            let command = connection.command();
            let started = result.map_err(|message| RuntimeError::Refused { command, method: "turn/start", message })?;
            let turn = started.pointer("/turn/id").and_then(Value::as_str);
            let turn = turn.ok_or_else(|| connection.protocol("turn/start gave no turn.id"))?.to_owned();
            // Another turn may have begun by itself: this one is ours.
            self.turn.take_if(|own| *own != turn);
            self.began(connection, &turn);
        } else if let Some(words) = self.steers.remove(&id) {
            self.words_answered(words, result).await?;
        }
        Ok(())
    }

    /// Under which the next answer is shown; a replay gives it the same id.
    pub(super) fn message_id(&self) -> Arc<str> {
        format!("{}.{}", self.context.turn_id, self.stored_answers).into()
    }
}

pub(super) fn text_input(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn part_input(part: &Part) -> Value {
    match part {
        Part::Image { mime_type, data } => {
            json!({ "type": "image", "url": format!("data:{mime_type};base64,{data}") })
        }
        other => text_input(&other.as_text().unwrap_or_default()),
    }
}
