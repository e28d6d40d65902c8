//! What a running turn sees of the outside: the store, the client, and the user's words in between.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::compression::Change;
use crate::provider::pricing;
use crate::store::{ApprovalRow, Store, ToolCallRow, TurnRow, Write};
use crate::tool::Display;
use crate::turn::event::TurnEvent;
use crate::turn::port::{Answer, Ask, Record, RecordError, ToolCallRecord};
use crate::turn::{TurnIo, TurnReport};

use super::port::{Choice, ClientPort, PermissionQuestion, SessionEvent};
use super::replay;

/// What the user says while a turn runs, and what the turn says about itself.
#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<DeskState>,
    steered: Notify,
    redirected: Notify,
}

#[derive(Debug, Default)]
struct DeskState {
    steers: Vec<String>,
    redirect: Option<String>,
    compaction: Option<String>,
    progress: TurnProgress,
    context_tokens: Option<u64>,
    /// Tool calls that the client has been shown and not seen end.
    open_calls: BTreeSet<String>,
}

/// Where a running turn is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TurnProgress {
    pub(super) step: u32,
    pub(super) budget_left: u32,
    pub(super) is_asking: bool,
}

impl Desk {
    /// Adds a steer behind those that wait. Blank words are refused.
    pub(super) fn steer(&self, text: &str) -> bool {
        let text = text.trim();
        if !text.is_empty() {
            self.lock().steers.push(text.to_owned());
            self.steered.notify_one();
        }
        !text.is_empty()
    }

    /// Sets the correction; several are joined. Blank words are refused.
    pub(super) fn redirect(&self, text: &str) -> bool {
        let text = text.trim();
        if text.is_empty() {
            return false;
        }
        let mut state = self.lock();
        let joined = match state.redirect.take() {
            Some(before) => format!("{before}\n{text}"),
            None => text.to_owned(),
        };
        state.redirect = Some(joined);
        drop(state);
        self.redirected.notify_one();
        true
    }

    /// Asks for a compaction before the next model call.
    pub(super) fn compact(&self, focus: Option<&str>) {
        self.lock().compaction = Some(focus.unwrap_or_default().to_owned());
    }

    /// Takes the wish for a compaction that no model call came for.
    pub(super) fn take_compaction(&self) -> Option<String> {
        self.lock().compaction.take()
    }

    /// Tokens in the context after the newest model call, if there was one.
    pub(super) fn context_tokens(&self) -> Option<u64> {
        self.lock().context_tokens
    }

    pub(super) fn progress(&self) -> TurnProgress {
        self.lock().progress
    }

    fn note(&self, event: &TurnEvent) {
        match event {
            TurnEvent::ToolCallPending { id, .. } => {
                self.lock().open_calls.insert(id.clone());
            }
            TurnEvent::ToolCallEnded { id, .. } => {
                self.lock().open_calls.remove(id);
            }
            TurnEvent::Usage { context_tokens, .. } => self.lock().context_tokens = Some(*context_tokens),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port of one turn.
#[derive(Debug)]
pub(super) struct SessionIo {
    pub(super) store: Store,
    pub(super) session_id: Arc<str>,
    pub(super) turn_id: Arc<str>,
    pub(super) started_at_ms: i64,
    pub(super) client: Arc<dyn ClientPort>,
    pub(super) desk: Arc<Desk>,
    pub(super) cancel: CancellationToken,
    /// How long a question stays open; `None`: for ever.
    pub(super) approval_timeout: Option<Duration>,
    /// US dollars that the session cost before this turn, where prices are known.
    pub(super) spent_usd: Option<f64>,
    /// Whether a prompt waits for what happens.
    pub(super) occasion: Occasion,
}

/// On what occasion something happens in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A prompt is being answered.
    Prompt,
    /// Nobody waits.
    BetweenTurns,
}

impl TurnIo for SessionIo {
    async fn emit(&self, mut event: TurnEvent) {
        self.desk.note(&event);
        if let TurnEvent::Usage { cost_usd, .. } = &mut event {
            *cost_usd = self.spent_usd.zip(*cost_usd).map(|(before, turn)| before + turn);
        }
        let told = self.client.tell(match self.occasion {
            Occasion::Prompt => SessionEvent::Turn { turn_id: Arc::clone(&self.turn_id), event },
            Occasion::BetweenTurns => SessionEvent::BetweenTurns(event),
        });
        // A client that does not read must not keep a cancelled turn from ending.
        let mut told = std::pin::pin!(told);
        if futures_util::poll!(&mut told).is_ready() {
            return;
        }
        tokio::select! {
            () = &mut told => {}
            () = self.overdue() => {}
        }
    }

    async fn ask(&self, ask: Ask<'_>) -> Answer {
        let question = PermissionQuestion {
            tool_call_id: ask.tool_call_id.to_owned(),
            tool: ask.tool.to_owned(),
            plan: ask.plan.clone(),
            arguments: ask.arguments.clone(),
            reasons: ask.question.reasons.clone(),
            choices: choices(ask.question),
        };
        self.put(question).await
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), RecordError> {
        let writes = records.into_iter().map(|record| self.write(record)).collect();
        self.store.write(writes).await.map_err(|error| RecordError(error.to_string()))
    }

    fn take_steer(&self) -> Option<String> {
        let steers = std::mem::take(&mut self.desk.lock().steers);
        (!steers.is_empty()).then(|| steers.join("\n"))
    }

    async fn steered(&self) {
        while self.desk.lock().steers.is_empty() {
            self.desk.steered.notified().await;
        }
    }

    fn return_steer(&self, text: String) {
        self.desk.lock().steers.insert(0, text);
    }

    fn take_redirect(&self) -> Option<String> {
        self.desk.lock().redirect.take()
    }

    fn take_compaction(&self) -> Option<String> {
        self.desk.take_compaction()
    }

    async fn redirected(&self) {
        while self.desk.lock().redirect.is_none() {
            self.desk.redirected.notified().await;
        }
    }

    fn progress(&self, step: u32, budget_left: u32) {
        let mut state = self.desk.lock();
        state.progress.step = step;
        state.progress.budget_left = budget_left;
    }
}

/// How long a cancelled turn waits for a client that does not read.
const LAGGING_CLIENT_GRACE: Duration = Duration::from_millis(50);

impl SessionIo {
    /// Shows the end of calls that a torn turn left open on the client's screen.
    pub(super) async fn end_open_calls(&self) {
        let open = std::mem::take(&mut self.desk.lock().open_calls);
        for id in open {
            let display =
                vec![Display::Text("Interrupted: the turn failed; whether this had an effect is unknown.".into())];
            self.emit(TurnEvent::ToolCallEnded { id, is_failed: true, display, raw: None }).await;
        }
    }

    /// Puts a question to the user and waits for the answer, a cancel or the time limit.
    pub(super) async fn put(&self, question: PermissionQuestion) -> Answer {
        self.desk.lock().progress.is_asking = true;
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => Answer::Cancelled,
            answer = self.client.ask(question) => answer,
            () = expired(self.approval_timeout) => Answer::TimedOut,
        };
        self.desk.lock().progress.is_asking = false;
        answer
    }

    async fn overdue(&self) {
        self.cancel.cancelled().await;
        tokio::time::sleep(LAGGING_CLIENT_GRACE).await;
    }

    fn write(&self, record: Record) -> Write {
        let session_id = self.session_id.to_string();
        let turn_id = self.turn_id.to_string();
        match record {
            Record::Message(message) => Write::AppendMessage { session_id, turn_id: Some(turn_id), message },
            Record::Amended(message) => Write::AmendMessage { session_id, turn_id: Some(turn_id), message },
            Record::Compacted(Change { before, dropped, rewritten, summary }) => {
                Write::Compact { session_id, before, dropped, rewritten, summary }
            }
            Record::ToolCall(call) => Write::PutToolCall { session_id, row: tool_call_row(turn_id, call) },
            Record::Approval { tool_call_id, answer, remembered } => Write::RecordApproval {
                session_id,
                row: ApprovalRow { tool_call_id, turn_id, outcome: answer.as_str().into(), remembered },
            },
            Record::Usage { provider, model, usage } => {
                let cost_micros = pricing::cost_usd(&provider, &model, &usage).map(micros);
                Write::AddUsage { session_id, provider, model, usage, cost_micros }
            }
            Record::End(report) => Write::FinishTurn(self.finished_row(&report)),
        }
    }

    fn finished_row(&self, report: &TurnReport) -> TurnRow {
        TurnRow {
            id: report.turn_id.clone(),
            session_id: self.session_id.to_string(),
            status: report.status().as_str().into(),
            exit_reason: Some(report.exit.as_str().into()),
            steps: report.steps,
            api_calls: report.api_calls,
            usage: report.usage,
            started_at_ms: self.started_at_ms,
            ended_at_ms: Some(clock::now_ms()),
        }
    }
}

fn tool_call_row(turn_id: String, call: ToolCallRecord) -> ToolCallRow {
    ToolCallRow {
        id: call.id.clone(),
        turn_id,
        name: call.name.clone(),
        status: call.state.as_str().into(),
        display: replay::stored_display(&call),
    }
}

/// US dollars as the store counts them.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cost is small and not negative")]
pub(super) fn micros(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}

async fn expired(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

fn choices(question: &crate::approval::Question) -> Vec<Choice> {
    let choice = |answer, name: String| Choice { answer, name };
    let mut choices = vec![choice(Answer::AllowOnce, "Allow once".into())];
    if let Some(offer) = &question.remember {
        choices.push(choice(Answer::AllowSession, offer.session_name()));
        choices.push(choice(Answer::AllowAlways, offer.always_name()));
    }
    choices.push(choice(Answer::RejectOnce, "Reject".into()));
    if let Some(offer) = &question.remember {
        choices.push(choice(Answer::RejectAlways, offer.refuse_name()));
    }
    choices
}
