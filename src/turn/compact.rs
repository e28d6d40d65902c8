//! Compaction as part of a turn: when it is due, what the client hears of it, what is stored.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::compression::{self, Change, Gain, Plan, Request, Summary, Urgency, Writer, summarise};
use crate::hook::HookPoint;
use crate::message::{Message, Usage};
use crate::provider::auxiliary::SideTask;
use crate::provider::recovery::{Action, Pictures, Recovery};
use crate::provider::{ProviderError, pricing};

use super::answer::Retake;
use super::context::TurnContext;
use super::event::{CompactionState, Severity, TurnEvent};
use super::payload;
use super::pictures::has_picture;
use super::port::{Record, RecordError, TurnIo};
use super::run::Turn;
use super::step::CallEnd;

/// A compaction of a session that runs no turn.
#[derive(Debug)]
pub struct CompactionEnd {
    /// The history, shorter now unless nothing could be made shorter.
    pub history: Vec<Message>,
    /// What came of it.
    pub outcome: CompactionOutcome,
    /// US dollars, where prices are known.
    pub cost_usd: Option<f64>,
    /// Tokens of all calls.
    pub usage: Usage,
}

/// What came of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// Tokens of the context before and after, as far as they are known.
    Done {
        /// Before.
        tokens_before: u64,
        /// After.
        tokens_after: u64,
    },
    /// Nothing could be made shorter.
    Nothing,
    /// It was cancelled.
    Cancelled,
}

/// Compacts the history of a session that runs no turn.
///
/// # Errors
/// The new history could not be stored, so the old one is still the session's.
pub async fn compact_idle<Io: TurnIo>(
    context: &TurnContext,
    history: Vec<Message>,
    io: &Io,
    cancel: &CancellationToken,
    focus: Option<&str>,
) -> Result<CompactionEnd, RecordError> {
    context.compactor.gauge.begin_turn();
    let compaction = Compaction { context, io, cancel, history: &history, urgency: Urgency::Asked, focus };
    let end = match Box::pin(compaction.run()).await? {
        Compacted::Done(done) => {
            let (usage, cost_usd) = done.spent();
            io.emit(done.usage_event(context, usage, cost_usd)).await;
            let outcome =
                CompactionOutcome::Done { tokens_before: done.tokens_before, tokens_after: done.tokens_after };
            CompactionEnd { history: done.history, outcome, cost_usd, usage }
        }
        Compacted::Nothing => {
            CompactionEnd { history, outcome: CompactionOutcome::Nothing, cost_usd: Some(0.0), usage: Usage::default() }
        }
        Compacted::Cancelled | Compacted::Redirected => CompactionEnd {
            history,
            outcome: CompactionOutcome::Cancelled,
            cost_usd: Some(0.0),
            usage: Usage::default(),
        },
    };
    Ok(end)
}

impl<Io: TurnIo> Turn<'_, Io> {
    /// Makes room before a request that is likely to be too long, or because the user asks for it. Gives the
    /// call's end when there will be no call.
    pub(super) async fn make_room(&mut self, retake: &mut Retake) -> Result<Option<CallEnd>, RecordError> {
        let context = self.scope.context;
        let gauge = &context.compactor.gauge;
        if let Some(focus) = self.scope.io.take_compaction() {
            gauge.forgive();
            let focus = (!focus.is_empty()).then_some(focus);
            return Ok(self.compact(Urgency::Asked, focus.as_deref(), retake).await?.end());
        }
        if !gauge.may_begin() || gauge.level(&self.history, || fixed_tokens(context)) < trigger(context) {
            return Ok(None);
        }
        Ok(self.compact(Urgency::Due, None, retake).await?.end())
    }

    /// Makes room after the model refused a request as too long. Gives the call's end when there is none to be
    /// made.
    pub(super) async fn recover_room(
        &mut self,
        error: ProviderError,
        retake: &mut Retake,
    ) -> Result<Option<CallEnd>, RecordError> {
        let context = self.scope.context;
        let room = match context.compactor.gauge.next_of_turn() {
            Some(attempt) => self.compact(Urgency::Refused(attempt), None, retake).await?,
            None => Room::NotMade,
        };
        match room {
            Room::Made => Ok(None),
            Room::NotMade => Ok(self.do_without_room(error).await),
            room => Ok(room.end()),
        }
    }

    /// Asks for less than the history, or another model. Gives the call's end when neither is left to try.
    async fn do_without_room(&self, error: ProviderError) -> Option<CallEnd> {
        let context = self.scope.context;
        let failed = context.chain.current().id();
        let pictures = if self.history.iter().any(has_picture) { Pictures::Some } else { Pictures::None };
        let Action::Again { notice, .. } = Recovery::new().cannot_compact(&context.chain, &error, pictures) else {
            return Some(CallEnd::Exhausted(error));
        };
        if context.chain.current().id() != failed {
            context.compactor.gauge.note_fallback();
        }
        if let Some(text) = notice {
            self.scope.io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
        }
        None
    }

    /// `retake`: what the request that comes next asks beside the history.
    async fn compact(
        &mut self,
        urgency: Urgency,
        focus: Option<&str>,
        retake: &mut Retake,
    ) -> Result<Room, RecordError> {
        let context = self.scope.context;
        let (io, cancel) = (self.scope.io, self.scope.cancel);
        let compaction = Compaction { context, io, cancel, history: &self.history, urgency, focus };
        let done = match Box::pin(compaction.run()).await? {
            Compacted::Done(done) => done,
            Compacted::Nothing => return Ok(Room::NotMade),
            Compacted::Cancelled => return Ok(Room::Cancelled),
            Compacted::Redirected => return Ok(Room::Redirected),
        };
        let (usage, cost) = done.spent();
        self.usage.add(&usage);
        self.cost_usd = self.cost_usd.zip(cost).map(|(before, cost)| before + cost);
        self.api_calls += done.summary.as_ref().map_or(0, |summary| summary.requests);
        io.emit(done.usage_event(context, self.usage, self.cost_usd)).await;
        self.history = done.history;
        self.request_index = self.history.iter().rposition(Message::is_request).unwrap_or_default();
        // What the user said meanwhile goes out with the next request.
        self.place_words(retake).await?;
        Ok(Room::Made)
    }
}

/// What came of a try to make room.
enum Room {
    /// The history is shorter now.
    Made,
    /// Nothing could be made shorter.
    NotMade,
    /// The user stopped the turn meanwhile.
    Cancelled,
    /// The user corrected the request meanwhile.
    Redirected,
}

impl Room {
    /// The end of the call, when there will be none.
    fn end(self) -> Option<CallEnd> {
        match self {
            Self::Cancelled => Some(CallEnd::Cancelled),
            Self::Redirected => Some(CallEnd::Redirected),
            Self::Made | Self::NotMade => None,
        }
    }
}

/// Tokens from which the model's context counts as full.
pub(super) fn trigger(context: &TurnContext) -> u64 {
    let endpoint = context.chain.current();
    context.compactor.config.trigger(endpoint.window(), endpoint.output_limit(None))
}

/// Tokens of what every request holds beside the history.
fn fixed_tokens(context: &TurnContext) -> u64 {
    let tools = context.tools.specs().iter();
    let tools = tools.map(|spec| {
        serde_json::to_string(&spec.parameters).map_or(0, |schema| schema.len())
            + spec.name.len()
            + spec.description.len()
    });
    let bytes: usize = tools.sum();
    compression::text_tokens(&context.system_prompt) + u64::try_from(bytes / 4).unwrap_or_default()
}

/// One compaction.
struct Compaction<'a, Io> {
    context: &'a TurnContext,
    io: &'a Io,
    cancel: &'a CancellationToken,
    history: &'a [Message],
    urgency: Urgency,
    focus: Option<&'a str>,
}

/// How one compaction ended.
enum Compacted {
    Done(Box<Done>),
    Nothing,
    Cancelled,
    Redirected,
}

struct Done {
    history: Vec<Message>,
    summary: Option<Summary>,
    tokens_before: u64,
    tokens_after: u64,
}

impl Done {
    /// Tokens and US dollars that the summary took.
    fn spent(&self) -> (Usage, Option<f64>) {
        let (mut usage, mut cost) = (Usage::default(), Some(0.0));
        for (provider, model, spent) in self.summary.iter().flat_map(|summary| &summary.spent) {
            usage.add(spent);
            cost = cost.zip(pricing::cost_usd(provider, model, spent)).map(|(before, cost)| before + cost);
        }
        (usage, cost)
    }

    fn usage_event(&self, context: &TurnContext, turn: Usage, cost_usd: Option<f64>) -> TurnEvent {
        let context_window = context.chain.current().window();
        TurnEvent::Usage { turn, context_tokens: self.tokens_after, context_window, cost_usd }
    }
}

impl<Io: TurnIo> Compaction<'_, Io> {
    async fn run(self) -> Result<Compacted, RecordError> {
        let compactor = &self.context.compactor;
        let fixed_tokens = fixed_tokens(self.context);
        let request = Request {
            history: self.history,
            fixed_tokens,
            level_tokens: compactor.gauge.level(self.history, || fixed_tokens),
            trigger_tokens: trigger(self.context),
            config: &compactor.config,
            urgency: self.urgency,
        };
        let Some(plan) = Plan::make(&request) else { return Ok(Compacted::Nothing) };
        let tokens_before = plan.tokens_before();
        let id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        self.tell(&id, CompactionState::Started { tokens: tokens_before }).await;
        let summary = match self.summarise(&plan).await {
            Ok(summary) => summary,
            Err(stopped) => {
                self.tell(&id, CompactionState::Cancelled).await;
                return Ok(stopped);
            }
        };
        let change = plan.change(summary.as_ref().map(|summary| summary.message.clone()));
        let history = change.apply(self.history);
        let tokens_after = plan.tokens_after(&history);
        let gain = match (plan.gain(&history), &summary) {
            (Gain::Good, Some(Summary { writer: Writer::Fallback, .. })) => Gain::Poor,
            (gain, _) => gain,
        };
        if gain == Gain::None {
            self.tell(&id, CompactionState::Failed("nothing could be made shorter".into())).await;
            return Ok(Compacted::Nothing);
        }
        let done = Done { history, summary, tokens_before, tokens_after };
        if let Err(error) = self.store(change, &done).await {
            self.tell(&id, CompactionState::Failed(error.to_string())).await;
            return Err(error);
        }
        compactor.gauge.note_compaction(gain);
        let record = done.summary.as_ref().map(|summary| summary.message.plain_text());
        self.tell(&id, CompactionState::Completed { tokens_before, tokens_after, summary: record }).await;
        let fields = || payload::compaction(&self.counts(&done));
        self.context.hooks.observe(HookPoint::PostCompaction, fields).await;
        Ok(Compacted::Done(Box::new(done)))
    }

    async fn tell(&self, id: &Arc<str>, state: CompactionState) {
        self.io.emit(TurnEvent::Compaction { id: Arc::clone(id), state }).await;
    }

    /// The summary, where one is needed; an error when the user stopped or corrected the turn meanwhile.
    async fn summarise(&self, plan: &Plan<'_>) -> Result<Option<Summary>, Compacted> {
        if !plan.needs_summary() {
            return Ok(None);
        }
        let compactor = &self.context.compactor;
        let chain = compactor.auxiliary.chain(SideTask::Compression, &self.context.chain);
        let todos = self.context.tool_context.state.todos();
        let desk = compression::Desk {
            chain: &chain,
            http: &self.context.http,
            gauge: &compactor.gauge,
            session_id: &self.context.session_id,
            todos: &todos,
            focus: self.focus,
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Compacted::Cancelled),
            () = self.io.redirected() => Err(Compacted::Redirected),
            summary = summarise(plan, &desk) => Ok(Some(summary)),
        }
    }

    async fn store(&self, change: Change, done: &Done) -> Result<(), RecordError> {
        let gone: Vec<String> = change
            .dropped
            .iter()
            .filter_map(|place| match self.history.get(*place) {
                Some(Message::Assistant(assistant)) => Some(assistant.tool_calls.iter().map(|call| call.id.clone())),
                _ => None,
            })
            .flatten()
            .collect();
        let spent = done.summary.iter().flat_map(|summary| summary.spent.clone());
        let mut records = vec![Record::Compacted(change)];
        records.extend(spent.map(|(provider, model, usage)| Record::Usage { provider, model, usage }));
        self.io.record(records).await?;
        self.context.compactor.gauge.retire_ids(gone);
        Ok(())
    }

    fn counts(&self, done: &Done) -> payload::CompactionCounts {
        payload::CompactionCounts {
            reason: match self.urgency {
                Urgency::Due => "due",
                Urgency::Asked => "asked",
                Urgency::Refused(_) => "refused",
            },
            messages_before: self.history.len(),
            messages_after: done.history.len(),
            tokens_before: done.tokens_before,
            tokens_after: done.tokens_after,
            summary_by: done.summary.as_ref().map(|summary| match summary.writer {
                Writer::Model => "model",
                Writer::Fallback => "fallback",
            }),
        }
    }
}
