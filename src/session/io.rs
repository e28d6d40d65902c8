//! What a running turn sees of the outside: the store, the client, and the user's words in between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::message::{AssistantMessage, Message};
use crate::tool::Display;
use crate::turn::TurnIo;
use crate::turn::event::TurnEvent;
use crate::turn::port::{Answer, Ask, CallState, Record, RecordError};

use super::ledger::Ledger;
use super::port::{ClientPort, SessionEvent};
use super::questions::{self, Questions};

/// What the user says while a turn runs, and what the turn says about itself.
#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<DeskState>,
    steered: Notify,
    redirected: Notify,
}

/// What a running turn has shown to the client and the store does not hold yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Unstored {
    /// Where the calls are that have not ended.
    pub(super) calls: BTreeMap<String, CallState>,
    /// The id under which the answer is shown.
    pub(super) message_id: Arc<str>,
    /// The text and reasoning of the answer that streams.
    pub(super) answer: AssistantMessage,
}

impl Unstored {
    fn add(&mut self, piece: Piece) {
        if self.message_id != piece.message_id {
            (self.message_id, self.answer) = (piece.message_id, AssistantMessage::default());
        }
        let so_far = if piece.is_reasoning { &mut self.answer.reasoning } else { &mut self.answer.text };
        so_far.push_str(&piece.text);
    }
}

/// A piece of an answer that streams.
struct Piece {
    message_id: Arc<str>,
    is_reasoning: bool,
    text: String,
}

impl Piece {
    fn of(event: &TurnEvent) -> Option<Self> {
        let (message_id, is_reasoning, text) = match event {
            TurnEvent::Text { message_id, text } => (message_id, false, text),
            TurnEvent::Reasoning { message_id, text } => (message_id, true, text),
            _ => return None,
        };
        Some(Self { message_id: Arc::clone(message_id), is_reasoning, text: text.clone() })
    }
}

#[derive(Debug, Default)]
struct DeskState {
    steers: Vec<String>,
    redirect: Option<String>,
    /// The turn has spoken its last word, so nothing said now would reach the model.
    is_closed: bool,
    compaction: Option<String>,
    progress: TurnProgress,
    context_tokens: Option<u64>,
    unstored: Unstored,
}

/// Where a running turn is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TurnProgress {
    pub(super) step: u32,
    pub(super) budget_left: u32,
}

/// What became of words for a running turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    /// They go to the model, or back to the user when the turn ends before.
    Taken,
    /// There were none.
    Blank,
    /// The turn has spoken its last word.
    TooLate,
}

impl Desk {
    /// Adds a steer behind those that wait.
    pub(super) fn steer(&self, text: &str) -> Hearing {
        self.hear(text, &self.steered, |state, text| state.steers.push(text.to_owned()))
    }

    /// Sets the correction; several are joined.
    pub(super) fn redirect(&self, text: &str) -> Hearing {
        self.hear(text, &self.redirected, |state, text| {
            let before = state.redirect.take().map(|before| before + "\n").unwrap_or_default();
            state.redirect = Some(before + text);
        })
    }

    fn hear(&self, text: &str, heard: &Notify, keep: impl FnOnce(&mut DeskState, &str)) -> Hearing {
        let text = text.trim();
        if text.is_empty() {
            return Hearing::Blank;
        }
        let mut state = self.lock();
        if state.is_closed {
            return Hearing::TooLate;
        }
        keep(&mut state, text);
        heard.notify_one();
        Hearing::Taken
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

    pub(super) fn unstored(&self) -> Unstored {
        self.lock().unstored.clone()
    }

    fn note(&self, event: &TurnEvent) {
        match event {
            TurnEvent::ToolCallPending { id, .. } => {
                self.lock().unstored.calls.insert(id.clone(), CallState::Pending);
            }
            TurnEvent::ToolCallStarted { id } => {
                self.lock().unstored.calls.insert(id.clone(), CallState::InProgress);
            }
            TurnEvent::ToolCallEnded { id, .. } => {
                self.lock().unstored.calls.remove(id);
            }
            TurnEvent::Usage { context_tokens, .. } => self.lock().context_tokens = Some(*context_tokens),
            _ => {}
        }
    }

    /// The answer that streamed is stored, or is none any more.
    fn forget_answer(&self) {
        self.lock().unstored.answer = AssistantMessage::default();
    }

    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port of one turn.
#[derive(Debug)]
pub(super) struct SessionIo {
    pub(super) ledger: Ledger,
    pub(super) client: Arc<dyn ClientPort>,
    pub(super) desk: Arc<Desk>,
    pub(super) cancel: CancellationToken,
    pub(super) questions: Arc<Questions>,
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
        let piece = Piece::of(&event);
        if let TurnEvent::Usage { cost_usd, .. } = &mut event {
            *cost_usd = self.spent_usd.zip(*cost_usd).map(|(before, turn)| before + turn);
        }
        let event = match self.occasion {
            Occasion::Prompt => SessionEvent::Turn { turn_id: Arc::clone(&self.ledger.turn_id), event },
            Occasion::BetweenTurns => SessionEvent::BetweenTurns(event),
        };
        tell(&*self.client, event, &self.cancel).await;
        // Only now: what is still on its way would be shown twice by a load that comes in between.
        if let Some(piece) = piece {
            self.desk.lock().unstored.add(piece);
        }
    }

    async fn ask(&self, ask: Ask<'_>) -> Answer {
        self.questions.ask(questions::question(&ask), &self.cancel).await
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), RecordError> {
        let has_answer = records.iter().any(|record| matches!(record, Record::Message(Message::Assistant(_))));
        if has_answer {
            // The store works in order: a load from now on reads the answer there.
            self.desk.forget_answer();
        }
        self.ledger.record(records).await
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

    fn close_words(&self) -> Option<String> {
        let mut state = self.desk.lock();
        state.is_closed = true;
        let mut words = std::mem::take(&mut state.steers);
        words.extend(state.redirect.take());
        (!words.is_empty()).then(|| words.join("\n"))
    }

    fn take_redirect(&self) -> Option<String> {
        let redirect = self.desk.lock().redirect.take();
        if redirect.is_some() {
            self.desk.forget_answer();
        }
        redirect
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
        let open = std::mem::take(&mut self.desk.lock().unstored.calls);
        for id in open.into_keys() {
            let display =
                vec![Display::Text("Interrupted: the turn failed; whether this had an effect is unknown.".into())];
            self.emit(TurnEvent::ToolCallEnded { id, is_failed: true, display, raw: None }).await;
        }
    }
}

/// Tells a client, but lets one that does not read keep a cancelled turn from ending for a moment only.
pub(super) async fn tell(client: &dyn ClientPort, event: SessionEvent, cancel: &CancellationToken) {
    let mut told = client.tell(event);
    if futures_util::poll!(&mut told).is_ready() {
        return;
    }
    let overdue = async {
        cancel.cancelled().await;
        tokio::time::sleep(LAGGING_CLIENT_GRACE).await;
    };
    tokio::select! {
        () = told => {}
        () = overdue => {}
    }
}
