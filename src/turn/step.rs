//! One model call: built, streamed to the client, tried again where that makes sense.
//!
//! Nothing partial is kept: a call ends as one whole reply or as nothing. Text that was shown before a
//! failure stays on the client's screen, and a notice says that the answer begins again.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::time::Instant;

use crate::hook::HookPoint;
use crate::message::{Message, Part};
use crate::provider::auxiliary::SideTask;
use crate::provider::endpoint::Endpoint;
use crate::provider::models::learn_window;
use crate::provider::normalize::{Target, normalize};
use crate::provider::recovery::{self, Action, Recovery, Visible};
use crate::provider::{ErrorKind, ModelEvent, ModelReply, ModelRequest, ProviderError};
use crate::tool::ToolSpec;

use super::context::Scope;
use super::event::{Severity, TurnEvent};
use super::payload::{self, Asked};
use super::pictures::has_picture;
use super::port::TurnIo;

/// What is asked of the model.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) history: &'a [Message],
    /// Where this turn's user message is.
    pub(super) request_index: usize,
    /// Put in front of that message, for this request only.
    pub(super) hook_context: Option<&'a str>,
    /// Messages that only this request carries.
    pub(super) scaffold: &'a [Message],
    /// Empty answers in a row before this request.
    pub(super) silences: u32,
    pub(super) tools: &'a [Arc<ToolSpec>],
    pub(super) output_cap: Option<u64>,
    /// Under which the answer is stored.
    pub(super) answer_id: Arc<str>,
    /// Answers in its place that were shown before and are not kept.
    pub(super) shown_before: u32,
    /// Requests of the turn so far.
    pub(super) requests_before: u32,
}

/// How a call ended.
#[derive(Debug)]
pub(super) enum CallEnd {
    /// A whole answer.
    Reply(ModelReply),
    /// The turn was cancelled.
    Cancelled,
    /// The user corrected the request.
    Redirected,
    /// It failed for good.
    Failed(ProviderError),
    /// The history must be shorter first.
    TooLong(ProviderError),
    /// The model takes no pictures, and another one can say what they show.
    Blind(ProviderError),
    /// The history does not fit the model, however short it was made.
    Exhausted(ProviderError),
}

/// What a call has sent and shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Requests of this call.
    pub(super) requests: u32,
    /// Answers that were shown and are not kept, those before this call among them.
    pub(super) shown: u32,
}

/// Calls the model until it answers or nothing is left to try.
pub(super) async fn call_model<Io: TurnIo>(scope: &Scope<'_, Io>, call: Call<'_>) -> (CallEnd, Sent) {
    let shown = call.shown_before;
    let mut attempts =
        Attempts { scope, call, recovery: Recovery::new(), requests: 0, shown, visible: Visible::Nothing };
    let end = tokio::select! {
        biased;
        () = scope.cancel.cancelled() => CallEnd::Cancelled,
        () = scope.io.redirected() => CallEnd::Redirected,
        end = attempts.run() => end,
        never = learn(scope) => match never {},
    };
    let is_kept = matches!(end, CallEnd::Reply(_));
    if !is_kept {
        attempts.abandon();
    }
    (end, Sent { requests: attempts.requests, shown: attempts.shown })
}

/// The id of an answer that begins again after `abandoned` others: another message to the client.
pub(super) fn shown_id(answer_id: &Arc<str>, abandoned: u32) -> Arc<str> {
    match abandoned {
        0 => Arc::clone(answer_id),
        count => format!("{answer_id}.retry{count}").into(),
    }
}

/// Learns about the model while it is called; ends never, so that only the call decides.
async fn learn<Io: TurnIo>(scope: &Scope<'_, Io>) -> Infallible {
    learn_window(&scope.context.chain, &scope.context.http).await;
    std::future::pending().await
}

struct Attempts<'a, Io> {
    scope: &'a Scope<'a, Io>,
    call: Call<'a>,
    recovery: Recovery,
    requests: u32,
    /// Answers that were shown and are not kept.
    shown: u32,
    /// Whether the attempt under way has shown something.
    visible: Visible,
}

impl<Io: TurnIo> Attempts<'_, Io> {
    async fn run(&mut self) -> CallEnd {
        if self.call.silences > 0 {
            tokio::time::sleep(recovery::pause(&self.scope.context.chain.current(), self.call.silences)).await;
        }
        loop {
            let endpoint = self.scope.context.chain.current();
            self.requests += 1;
            let number = self.call.requests_before + self.requests;
            let hooks = &self.scope.context.hooks;
            let asked = Asked { turn_id: &self.scope.context.turn_id, endpoint: &endpoint, number };
            let began = Instant::now();
            let mut error = match self.attempt(asked).await {
                Ok(reply) => {
                    let fields = || payload::reply(asked, &reply, began.elapsed());
                    hooks.observe(HookPoint::PostApiRequest, fields).await;
                    return CallEnd::Reply(reply);
                }
                Err(error) => error,
            };
            self.reclassify(asked, &mut error).await;
            // Nothing is gained by leaving out what is not there.
            if error.kind == ErrorKind::ImageTooLarge && !self.call.history.iter().any(has_picture) {
                error.kind = ErrorKind::FormatError;
            }
            tracing::debug!(%error, kind = error.kind.as_str(), "a model call failed");
            let visible = self.abandon();
            if self.sees_for_it(&error) {
                return CallEnd::Blind(error);
            }
            match self.recovery.next(&self.scope.context.chain, &error, visible) {
                Action::Fail => return CallEnd::Failed(error),
                Action::Compact { .. } => return CallEnd::TooLong(error),
                Action::Again { after, notice } => {
                    if let Some(text) = notice {
                        self.scope.io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
                    }
                    tokio::time::sleep(after).await;
                }
            }
        }
    }

    /// Whatever the attempt has shown is not kept. Says whether that was something.
    fn abandon(&mut self) -> Visible {
        let visible = std::mem::replace(&mut self.visible, Visible::Nothing);
        if visible == Visible::Something {
            self.shown += 1;
        }
        visible
    }

    /// True once when the model does not take a picture and another model is there to describe it.
    fn sees_for_it(&self, error: &ProviderError) -> bool {
        let context = self.scope.context;
        error.kind == ErrorKind::ImageTooLarge
            && context.compactor.auxiliary.has_own(SideTask::Vision)
            && context.chain.adjust(|adjustments| adjustments.drop_images = true)
    }

    /// Lets hooks see a failure and call it by another name before anything is done about it. Names that are none
    /// leave the classifier's.
    async fn reclassify(&self, asked: Asked<'_>, error: &mut ProviderError) {
        let hooks = &self.scope.context.hooks;
        let retries = self.recovery.failed_requests();
        let fields = || payload::request_error(asked, retries, error);
        hooks.observe(HookPoint::ApiRequestError, fields).await;
        let names = hooks.reasons(fields).await;
        if let Some(kind) = names.iter().find_map(|name| ErrorKind::named(name)) {
            error.kind = kind;
        } else if let Some(name) = names.first() {
            tracing::warn!(name, "a hook called a failed request by a name that is none");
        }
    }

    /// The history as this request carries it.
    fn messages(&self, endpoint: &Endpoint) -> Vec<Message> {
        let target = Target { api_mode: endpoint.mode, provider: &endpoint.provider, model: &endpoint.model };
        if self.call.scaffold.is_empty() && self.call.hook_context.is_none() {
            return normalize(self.call.history, target);
        }
        let mut messages = [self.call.history, self.call.scaffold].concat();
        if let (Some(context), Some(Message::User(user))) =
            (self.call.hook_context, messages.get_mut(self.call.request_index))
        {
            user.content.insert(0, Part::text(context));
        }
        normalize(&messages, target)
    }

    async fn attempt(&mut self, asked: Asked<'_>) -> Result<ModelReply, ProviderError> {
        let endpoint = asked.endpoint;
        let messages = self.messages(endpoint);
        let hooks = &self.scope.context.hooks;
        let (tools, max_tokens) = (self.call.tools.len(), endpoint.output_limit(self.call.output_cap));
        hooks.observe(HookPoint::PreApiRequest, || payload::request(asked, &messages, tools, max_tokens)).await;
        let request = ModelRequest {
            system: &self.scope.context.system_prompt,
            messages: &messages,
            tools: self.call.tools,
            max_output_tokens: self.call.output_cap,
            session_id: &self.scope.context.session_id,
        };
        let mut stream = endpoint.open(&self.scope.context.http, &request).await?;
        let message_id = shown_id(&self.call.answer_id, self.shown);
        let mut events = Vec::new();
        loop {
            let done = stream.next(&mut events).await;
            for event in events.drain(..) {
                self.visible = Visible::Something;
                self.emit(&message_id, event).await;
            }
            if let Some(reply) = done? {
                self.tell_passed_over(endpoint, stream.passed_over()).await;
                return Ok(reply);
            }
        }
    }

    /// Says once that a server writes what belongs to no format.
    async fn tell_passed_over(&self, endpoint: &Endpoint, pieces: u32) {
        if pieces == 0 {
            return;
        }
        let text = format!("{} sent {pieces} pieces that are no JSON; they were passed over.", endpoint.id());
        tracing::warn!(provider = endpoint.provider, pieces, "pieces of an answer are no JSON and were passed over");
        self.scope.io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
    }

    async fn emit(&self, message_id: &Arc<str>, event: ModelEvent) {
        let message_id = Arc::clone(message_id);
        match event {
            ModelEvent::Text(text) => self.scope.io.emit(TurnEvent::Text { message_id, text }).await,
            ModelEvent::Reasoning(text) => self.scope.io.emit(TurnEvent::Reasoning { message_id, text }).await,
            ModelEvent::ToolCallStarted { .. } => {}
        }
    }
}
