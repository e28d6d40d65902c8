//! The loop: call the model, run the tools it asks for, call it again, until it answers or must stop.

use std::any::Any;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::hook::HookPoint;
use crate::message::{AssistantMessage, FinishReason, Message, ToolResult, Usage};
use crate::provider::{ModelReply, ProviderError, pricing};
use crate::tool::Spent;

use super::answer::{AnswerPolicy, BASE_OUTPUT_TOKENS, NextMove, Retake};
use super::batch::Batch;
use super::budget::{IterationBudget, RunBudget, Taken};
use super::close::Edit;
use super::context::{Scope, TurnContext};
use super::event::{Severity, StepTool, TurnEvent};
use super::exit::{ExitReason, TurnReport};
use super::guardrail::Guardrails;
use super::limit::BatchSize;
use super::port::{Record, RecordError, TurnIo};
use super::step::{Call, CallEnd};
use super::verify::SentBack;
use super::{calls, compact, limit, payload, steer, step};

/// Corrections one turn takes before it stops: each one throws work away.
const MAX_REDIRECTS: u32 = 8;

/// A turn that ended: the history it was lent, longer now, and how it went.
#[derive(Debug)]
pub struct TurnEnd {
    /// The history.
    pub history: Vec<Message>,
    /// How it went.
    pub report: TurnReport,
}

/// Runs one turn. The newest message of `history` is the user's, already stored.
pub async fn run_turn<Io: TurnIo>(
    context: &TurnContext,
    history: Vec<Message>,
    io: &Io,
    cancel: &CancellationToken,
) -> TurnEnd {
    let guardrails = Mutex::new(Guardrails::new(context.strictness));
    let batch_size = BatchSize::default();
    let requests = AtomicU32::new(0);
    let scope = Scope { context, io, cancel, guardrails: &guardrails, batch_size: &batch_size, requests: &requests };
    let mut turn = Turn::new(scope, history);
    // A fault of ours must not take the session with it, nor leave the turn without an end.
    let exit = match AssertUnwindSafe(turn.run()).catch_unwind().await {
        Ok(Ok(exit)) => exit,
        Ok(Err(RecordError(detail))) => {
            turn.detail = Some(detail);
            ExitReason::SessionPersistenceFailed
        }
        Err(panic) => {
            tracing::error!(session = %context.session_id, panic = panic_text(&*panic), "a turn panicked");
            ExitReason::LocalProcessingError
        }
    };
    turn.finish(exit).await
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Which tools a request offers.
#[derive(Clone, Copy)]
pub(super) enum Offered {
    All,
    None,
}

/// A turn while it runs.
pub(super) struct Turn<'a, Io> {
    pub(super) scope: Scope<'a, Io>,
    pub(super) history: Vec<Message>,
    /// Where this turn's user message is.
    pub(super) request_index: usize,
    /// What hooks want the model to know beside the user's words.
    hook_context: Option<String>,
    pub(super) budget: IterationBudget,
    run_budget: RunBudget,
    policy: AnswerPolicy,
    used_call_ids: HashSet<String>,
    redirects: u32,
    pub(super) sent_back: SentBack,
    /// Files that tools changed or failed to change, newest word last.
    pub(super) edits: Vec<Edit>,
    pub(super) steps: u32,
    pub(super) steps_with_tools: u32,
    pub(super) api_calls: u32,
    pub(super) stored_answers: u32,
    pub(super) usage: Usage,
    /// What each call used that no record has told yet.
    pub(super) unrecorded: Vec<Record>,
    /// US dollars, as long as every call's price was known.
    pub(super) cost_usd: Option<f64>,
    has_left_refusal: bool,
    /// Answers that were shown since the newest stored one and are not kept.
    abandoned: u32,
    pub(super) finish: FinishReason,
    pub(super) answer: Option<AssistantMessage>,
    pub(super) error: Option<ProviderError>,
    pub(super) detail: Option<String>,
}

impl<'a, Io: TurnIo> Turn<'a, Io> {
    fn new(scope: Scope<'a, Io>, history: Vec<Message>) -> Self {
        let limits = scope.context.limits;
        Self {
            budget: IterationBudget::new(limits.max_iterations),
            run_budget: RunBudget::new(limits.run_budget_seconds),
            policy: AnswerPolicy::default(),
            used_call_ids: calls::used_ids(&history, scope.context.compactor.gauge.retired_ids()),
            request_index: history.len().saturating_sub(1),
            hook_context: None,
            history,
            scope,
            redirects: 0,
            sent_back: SentBack::default(),
            edits: Vec::new(),
            steps: 0,
            steps_with_tools: 0,
            api_calls: 0,
            stored_answers: 0,
            usage: Usage::default(),
            unrecorded: Vec::new(),
            cost_usd: Some(0.0),
            has_left_refusal: false,
            abandoned: 0,
            finish: FinishReason::Stop,
            answer: None,
            error: None,
            detail: None,
        }
    }

    async fn run(&mut self) -> Result<ExitReason, RecordError> {
        self.begin().await;
        let mut retake = Retake::default();
        loop {
            if let Some(exit) = self.apply_redirect(&mut retake).await? {
                return Ok(exit);
            }
            if let Some(exit) = self.must_stop() {
                return Ok(exit);
            }
            if let Some(exit) = self.spend() {
                return self.summarise(exit).await;
            }
            self.place_words(&mut retake).await?;
            let reply = match self.call(std::mem::take(&mut retake), Offered::All).await? {
                CallEnd::Reply(reply) => reply,
                CallEnd::Cancelled => return Ok(ExitReason::InterruptedDuringApiCall),
                CallEnd::Redirected => {
                    self.budget.refund();
                    continue;
                }
                CallEnd::Failed(error) => {
                    self.error = Some(error);
                    return Ok(ExitReason::ProviderFailed);
                }
                CallEnd::TooLong(error) | CallEnd::Blind(error) | CallEnd::Exhausted(error) => {
                    self.error = Some(error);
                    return Ok(ExitReason::ContextCompressionExhausted);
                }
            };
            let follows_tools = matches!(self.history.last(), Some(Message::Tool(_)));
            // Where nobody has set a limit, a long answer shows what the server grants.
            let granted = Some(reply.usage.output_tokens).filter(|granted| *granted > BASE_OUTPUT_TOKENS);
            let output_limit = self.scope.context.chain.current().output_limit(None).or(granted);
            match self.policy.judge(&reply.message, follows_tools, output_limit) {
                NextMove::RunTools => {
                    if let Some(exit) = self.run_tools(reply).await? {
                        return Ok(exit);
                    }
                }
                NextMove::Finish(message, ExitReason::Refused) if self.leave_refusal().await => {
                    self.abandon(&message);
                    self.budget.refund();
                }
                NextMove::Fail(ExitReason::EmptyResponseExhausted) if self.leave_silence().await => {}
                NextMove::Finish(message, exit) => match self.send_back(&message).await? {
                    Some(again) => {
                        self.steps += 1;
                        retake = again;
                    }
                    // Corrected while hooks looked at it: it answers another request.
                    None if self.is_corrected() => {
                        self.abandon(&message);
                        self.budget.refund();
                    }
                    None => {
                        self.steps += 1;
                        self.answer = Some(*message);
                        return Ok(exit);
                    }
                },
                NextMove::Again(again) => {
                    if !self.policy.is_continuing() {
                        self.abandon(&reply.message);
                    }
                    if again.is_refunded {
                        self.budget.refund();
                    } else {
                        self.budget.grant_grace();
                    }
                    retake = again;
                }
                NextMove::Fail(exit) => return Ok(exit),
            }
        }
    }

    /// Hooks of the turn's beginning.
    async fn begin(&mut self) {
        self.scope.context.compactor.gauge.begin_turn();
        let hooks = &self.scope.context.hooks;
        let is_first_turn = self.scope.context.is_first_turn;
        if is_first_turn {
            hooks.observe(HookPoint::OnSessionStart, || payload::session_start(&self.request_text())).await;
        }
        let fields = || payload::user_message(&self.request_text(), is_first_turn, &self.history);
        let pieces = hooks.context(fields).await;
        self.hook_context = limit::hook_context(&self.scope.context.tool_context, pieces).await;
    }

    /// What the user asked, with corrections.
    pub(super) fn request_text(&self) -> String {
        self.history.get(self.request_index).map(Message::plain_text).unwrap_or_default()
    }

    fn must_stop(&self) -> Option<ExitReason> {
        if self.scope.cancel.is_cancelled() {
            return Some(ExitReason::InterruptedByUser);
        }
        let limit = self.scope.context.limits.input_tokens?;
        (self.usage.input_tokens >= limit).then_some(ExitReason::ReviewInputBudgetExhausted)
    }

    /// Takes one model call from the budgets, or says which one is spent.
    fn spend(&mut self) -> Option<ExitReason> {
        if let Some(exit) = self.run_budget.spent() {
            return Some(exit);
        }
        if self.budget.take() == Taken::Spent {
            return Some(ExitReason::MaxIterationsReached);
        }
        self.scope.io.progress(self.steps + 1, self.budget.remaining());
        None
    }

    /// Calls the model, with a shorter history where the whole one is too long.
    pub(super) async fn call(&mut self, mut retake: Retake, offered: Offered) -> Result<CallEnd, RecordError> {
        if let Some(end) = self.make_room(&mut retake).await? {
            return Ok(end);
        }
        loop {
            if let Some(end) = self.describe_pictures().await? {
                return Ok(end);
            }
            match self.request(&retake, offered).await {
                CallEnd::TooLong(error) => {
                    if let Some(end) = self.recover_room(error, &mut retake).await? {
                        return Ok(end);
                    }
                }
                CallEnd::Blind(_) => {}
                end => return Ok(end),
            }
        }
    }

    async fn request(&mut self, retake: &Retake, offered: Offered) -> CallEnd {
        let call = Call {
            history: &self.history,
            request_index: self.request_index,
            hook_context: self.hook_context.as_deref(),
            scaffold: &retake.scaffold,
            silences: retake.silences,
            tools: match offered {
                Offered::All => self.scope.context.tools.specs(),
                Offered::None => &[],
            },
            output_cap: retake.output_cap,
            answer_id: self.answer_id(),
            shown_before: self.abandoned,
            requests_before: self.api_calls,
        };
        let (end, sent) = step::call_model(&self.scope, call).await;
        self.api_calls += sent.requests;
        self.scope.requests.store(self.api_calls, Ordering::Relaxed);
        self.abandoned = sent.shown;
        if let CallEnd::Reply(reply) = &end {
            self.count(reply).await;
        }
        end
    }

    async fn count(&mut self, reply: &ModelReply) {
        let (tokens, messages) = (reply.usage.total(), self.history.len() + 1);
        self.scope.context.compactor.gauge.note_usage(tokens, messages, compact::trigger(self.scope.context));
        self.finish = reply.message.finish;
        self.usage.add(&reply.usage);
        let endpoint = self.scope.context.chain.current();
        let (provider, model) = (endpoint.provider.clone(), endpoint.model.clone());
        self.unrecorded.push(Record::Usage { provider, model, usage: reply.usage });
        let cost = pricing::cost_usd(&endpoint.provider, &endpoint.model, &reply.usage);
        self.cost_usd = self.cost_usd.zip(cost).map(|(before, cost)| before + cost);
        let event = TurnEvent::Usage {
            turn: self.usage,
            context_tokens: reply.usage.total(),
            context_window: endpoint.window(),
            cost_usd: self.cost_usd,
        };
        self.scope.io.emit(event).await;
    }

    /// Counts model calls that tools made; they are stored already.
    fn add_spent(&mut self, spent: &Spent) {
        self.usage.add(&spent.usage);
        self.cost_usd = self.cost_usd.zip(spent.cost_usd).map(|(before, cost)| before + cost);
    }

    async fn run_tools(&mut self, reply: ModelReply) -> Result<Option<ExitReason>, RecordError> {
        let mut message = self.policy.joined(reply.message);
        calls::repair(&mut message, &self.scope.context.tools, &mut self.used_call_ids);
        let batch = Batch::prepare(&self.scope, &message.tool_calls).await;
        let is_all_unknown = batch.is_all_unknown(&self.scope);
        let mut records = vec![Record::Message(Message::Assistant(message.clone()))];
        records.append(&mut self.unrecorded);
        records.extend(batch.records());
        self.scope.io.record(records).await?;
        self.note_stored();
        self.steps += 1;
        self.steps_with_tools += 1;
        self.history.push(Message::Assistant(message.clone()));
        let end = batch.run(&self.scope).await?;
        self.emit_step(&message, &end.results).await;
        self.history.extend(end.results.into_iter().map(Message::Tool));
        self.edits.extend(end.edits);
        end.spent.iter().for_each(|spent| self.add_spent(spent));
        if end.stop.is_some() {
            return Ok(end.stop);
        }
        if self.scope.guardrails().is_halted() {
            return Ok(Some(ExitReason::GuardrailHalt));
        }
        Ok(self.policy.note_batch(is_all_unknown))
    }

    async fn emit_step(&self, message: &AssistantMessage, results: &[ToolResult]) {
        let tools = message.tool_calls.iter().zip(results).map(|(call, result)| StepTool {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            result: crate::message::plain_text(&result.content),
        });
        self.scope.io.emit(TurnEvent::Step { step: self.steps, tools: tools.collect() }).await;
    }

    /// Lets one other model see a refused request. A refusal is never asked for twice.
    async fn leave_refusal(&mut self) -> bool {
        if std::mem::replace(&mut self.has_left_refusal, true) {
            return false;
        }
        self.ask_another("refused").await
    }

    /// Asks the next model once this one answered nothing, whatever was tried.
    async fn leave_silence(&mut self) -> bool {
        let is_left = self.ask_another("answered nothing").await;
        if is_left {
            self.policy.forget_silence();
        }
        is_left
    }

    async fn ask_another(&self, did: &str) -> bool {
        let Some(endpoint) = self.scope.context.chain.fall_back(None) else { return false };
        let text = format!("The model {did}; asking {} instead.", endpoint.id());
        self.scope.io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
        true
    }

    /// Whether a correction waits.
    fn is_corrected(&self) -> bool {
        self.scope.io.redirected().now_or_never().is_some()
    }

    /// Corrects the request where the user wishes so. What was to be asked again was about the request as it was.
    pub(super) async fn apply_redirect(&mut self, retake: &mut Retake) -> Result<Option<ExitReason>, RecordError> {
        let Some(text) = self.scope.io.take_redirect() else { return Ok(None) };
        if self.redirects >= MAX_REDIRECTS {
            self.scope.io.return_steer(text);
            return Ok(Some(ExitReason::RedirectLimitExceeded));
        }
        self.redirects += 1;
        *retake = Retake::default();
        self.policy.forget_pieces();
        let mut records = Vec::new();
        records.extend(steer::correct_request(&mut self.history, &text).map(Record::Amended));
        // The words must also be the newest ones the model reads, when something has been said or done since.
        if matches!(self.history.last(), Some(Message::Assistant(_))) {
            let words = Message::user(format!("{} {text}", steer::CORRECTION_LABEL));
            self.history.push(words.clone());
            records.push(Record::Message(words));
        } else {
            let amended = steer::append_to_newest_result(&mut self.history, &steer::steer_text(&text));
            records.extend(amended.map(Record::Amended));
        }
        self.scope.io.record(records).await?;
        Ok(None)
    }

    /// Places what the user or the clock has to say, now that the newest result is known.
    pub(super) async fn place_words(&mut self, retake: &mut Retake) -> Result<(), RecordError> {
        if let Some(text) = self.scope.io.take_steer() {
            let records = self.place_steer(&text, retake);
            if records.is_empty() {
                self.scope.io.return_steer(text);
            } else {
                self.scope.io.record(records).await?;
            }
        }
        if self.run_budget.is_wrap_up_due() {
            let notice = steer::notice_text(steer::WRAP_UP);
            if let Some(amended) = steer::append_to_newest_result(&mut self.history, &notice) {
                self.scope.io.record(vec![Record::Amended(amended)]).await?;
                self.run_budget.wrap_up_placed();
            }
        }
        Ok(())
    }

    /// Puts a steer where the model reads it next; gives what to store, nothing where there is no place yet.
    fn place_steer(&mut self, text: &str, retake: &mut Retake) -> Vec<Record> {
        if let Some(amended) = steer::append_to_newest_result(&mut self.history, &steer::steer_text(text)) {
            return vec![Record::Amended(amended)];
        }
        let mut said = Vec::new();
        if let Some(cut) = self.policy.take_cut_answer() {
            // The words follow what was said so far: it is kept as far as it came, and they are asked with it.
            retake.scaffold.clear();
            self.note_stored();
            said.push(Message::Assistant(cut));
        } else if !matches!(self.history.last(), Some(Message::Assistant(_))) {
            return Vec::new();
        }
        said.push(Message::user(text));
        self.history.extend_from_slice(&said);
        said.into_iter().map(Record::Message).collect()
    }

    /// An answer was stored: the next one is another message to the client.
    pub(super) fn note_stored(&mut self) {
        self.stored_answers += 1;
        self.abandoned = 0;
    }

    /// An answer that was shown is not kept: the next one is another message to the client.
    fn abandon(&mut self, message: &AssistantMessage) {
        if !message.text.is_empty() || !message.reasoning.is_empty() {
            self.abandoned += 1;
        }
    }

    /// Under which the next answer is stored; a replay shows it under this id.
    fn answer_id(&self) -> Arc<str> {
        format!("{}.{}", self.scope.context.turn_id, self.stored_answers).into()
    }

    /// Under which the next words are shown.
    pub(super) fn message_id(&self) -> Arc<str> {
        step::shown_id(&self.answer_id(), self.abandoned)
    }
}
