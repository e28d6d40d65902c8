//! Questions to the user: one open at a time in a session, whoever asks (the session's turn or one of its
//! child agents), answered in the order they were asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::tool::clarify::{Inquirer, Inquiry, InquiryEnd};
use crate::turn::port::{Answer, Ask};

use super::port::{Choice, ClientPort, PermissionQuestion};

/// The way to the user.
#[derive(Debug)]
pub(super) struct Questions {
    client: Arc<dyn ClientPort>,
    /// How long a question stays open; `None`: for ever.
    limit: Option<Duration>,
    /// Held while a question is open.
    floor: Semaphore,
    is_open: AtomicBool,
}

impl Questions {
    /// `limit_seconds`: how long a question stays open; 0: for ever.
    pub(super) fn new(client: Arc<dyn ClientPort>, limit_seconds: u64) -> Self {
        let limit = (limit_seconds > 0).then(|| Duration::from_secs(limit_seconds));
        Self { client, limit, floor: Semaphore::new(1), is_open: AtomicBool::new(false) }
    }

    /// True while the user is being asked.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Asks for approval once no other question is open. A cancel withdraws the question, and a question that is
    /// called off cancels before the next one could be asked.
    pub(super) async fn ask(&self, question: PermissionQuestion, cancel: &CancellationToken) -> Answer {
        let ask = || {
            let answer = self.client.ask(question);
            let cancel_too = async move |answer| {
                if answer == Answer::Cancelled {
                    cancel.cancel();
                }
                answer
            };
            answer.then(cancel_too).boxed()
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Answer::Cancelled,
            answer = self.one(ask, Answer::TimedOut) => answer,
        }
    }

    async fn one<'a, T>(&self, ask: impl FnOnce() -> BoxFuture<'a, T>, timed_out: T) -> T {
        let Ok(_floor) = self.floor.acquire().await else { return timed_out };
        let _open = Open::mark(&self.is_open);
        tokio::select! {
            answer = ask() => answer,
            () = expired(self.limit) => timed_out,
        }
    }
}

impl Inquirer for Questions {
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryEnd> {
        Box::pin(self.one(|| self.client.inquire(inquiry), InquiryEnd::TimedOut))
    }
}

/// Says that a question is open until it is dropped.
struct Open<'a>(&'a AtomicBool);

impl<'a> Open<'a> {
    fn mark(is_open: &'a AtomicBool) -> Self {
        is_open.store(true, Ordering::Relaxed);
        Self(is_open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn expired(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// A question about a call, as a client is asked it.
pub(super) fn question(ask: &Ask<'_>) -> PermissionQuestion {
    PermissionQuestion {
        tool_call_id: ask.tool_call_id.to_owned(),
        tool: ask.tool.to_owned(),
        plan: ask.plan.clone(),
        arguments: ask.arguments.clone(),
        reasons: ask.question.reasons.clone(),
        choices: choices(ask.question),
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
