//! Hooks: code of the user's own that is called at fixed points of a turn.
//!
//! Three kinds, told apart by [`HookKind`]. Deciding hooks may stop or change what happens and fail
//! closed: one that crashes, hangs or answers nonsense counts as a no. Transforming hooks may replace a
//! text and observing hooks only watch; both fail open. Hooks of one point run in the order they were
//! registered. A point without hooks costs nothing: its payload is not even built.

pub mod command;
mod decision;
mod point;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub use decision::{ToolDecision, Verification};
pub use point::{HookKind, HookPoint};

/// Version of the payloads, sent in each.
pub const PAYLOAD_VERSION: &str = "turnd.hook.v1";

/// How long the hooks of a point that tells what has happened may take once the turn is cancelled. Enough for a
/// program that writes a line, too short to be felt as a stop that does not work.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

/// One hook.
pub trait Hook: Send + Sync + fmt::Debug {
    /// Where it is called.
    fn point(&self) -> HookPoint;

    /// Calls it. The answer's meaning depends on the point; `null` means that it has nothing to say.
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever the hook started.
    fn call<'a>(&'a self, payload: &'a Value) -> BoxFuture<'a, Result<Value, HookFailure>>;
}

/// Why a hook gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hook {name} failed: {problem}")]
pub struct HookFailure {
    /// The hook, as the user knows it.
    pub name: String,
    /// What went wrong.
    pub problem: String,
}

/// The hooks of a session, in the order they were registered.
#[derive(Clone, Debug, Default)]
pub struct HookSet {
    hooks: Vec<Arc<dyn Hook>>,
    /// What every payload holds.
    base: Map<String, Value>,
    /// Nobody waits for a hook after this.
    cancel: CancellationToken,
}

impl HookSet {
    /// A set; `base` goes into every payload.
    #[must_use]
    pub fn new(hooks: Vec<Arc<dyn Hook>>, base: Map<String, Value>) -> Self {
        Self { hooks, base, cancel: CancellationToken::new() }
    }

    /// Ends the hooks with the turn they are called in.
    pub fn end_with(&mut self, cancel: &CancellationToken) {
        self.cancel = cancel.clone();
    }

    /// Adds hooks behind those that are there.
    pub fn extend(&mut self, hooks: impl IntoIterator<Item = Arc<dyn Hook>>) {
        self.hooks.extend(hooks);
    }

    /// The same hooks with other fields in every payload, those of `base` in place of their namesakes.
    #[must_use]
    pub fn with_base(&self, base: Map<String, Value>) -> Self {
        let mut merged = self.base.clone();
        merged.extend(base);
        Self { hooks: self.hooks.clone(), base: merged, cancel: self.cancel.clone() }
    }

    /// True when anything would be called at this point.
    #[must_use]
    pub fn has(&self, point: HookPoint) -> bool {
        self.hooks.iter().any(|hook| hook.point() == point)
    }

    /// Lets every hook of an observing point watch.
    pub async fn observe(&self, point: HookPoint, fields: impl FnOnce() -> Value) {
        for answer in self.call(point, fields).await {
            if let Err(failure) = answer {
                tracing::warn!(point = point.as_str(), %failure, "an observing hook failed");
            }
        }
    }

    /// The text that the first hook with something to say puts in place of another.
    pub async fn transform(&self, point: HookPoint, fields: impl FnOnce() -> Value) -> Option<String> {
        let mut replaced = None;
        for answer in self.call(point, fields).await {
            match answer {
                Ok(answer) if replaced.is_none() => replaced = decision::text_of(&answer),
                Ok(_) => {}
                Err(failure) => tracing::warn!(point = point.as_str(), %failure, "a transforming hook failed"),
            }
        }
        replaced
    }

    /// What `pre_llm_call` hooks want the model to know, in the order they were registered.
    pub async fn context(&self, fields: impl FnOnce() -> Value) -> Vec<String> {
        let mut pieces = Vec::new();
        for answer in self.call(HookPoint::PreLlmCall, fields).await {
            match answer {
                Ok(answer) => pieces.extend(decision::context_of(&answer)),
                Err(failure) => tracing::warn!(%failure, "a context hook failed"),
            }
        }
        pieces
    }

    /// What `pre_tool_call` hooks decide: a block beats a question beats a change; changes are merged.
    pub async fn decide_tool(&self, fields: impl FnOnce() -> Value) -> ToolDecision {
        let mut decision = ToolDecision::Pass;
        for answer in self.call(HookPoint::PreToolCall, fields).await {
            decision = decision.and(match answer {
                Ok(answer) => ToolDecision::read(&answer),
                Err(failure) => ToolDecision::Block(failure.to_string()),
            });
        }
        decision
    }

    /// What `transform_api_error_classification` hooks call a failure, in the order they were registered. A hook that
    /// fails says nothing, so the classifier's word stands.
    pub async fn reasons(&self, fields: impl FnOnce() -> Value) -> Vec<String> {
        let point = HookPoint::TransformApiErrorClassification;
        let mut reasons = Vec::new();
        for answer in self.call(point, fields).await {
            match answer {
                Ok(answer) => reasons.extend(decision::reason_of(&answer)),
                Err(failure) => tracing::warn!(point = point.as_str(), %failure, "a classifying hook failed"),
            }
        }
        reasons
    }

    /// What `pre_verify` hooks say about a finished answer.
    pub async fn verify(&self, fields: impl FnOnce() -> Value) -> Verification {
        for answer in self.call(HookPoint::PreVerify, fields).await {
            let verification = match answer {
                Ok(answer) => Verification::read(&answer),
                Err(failure) => Verification::SendBack(failure.to_string()),
            };
            if verification != Verification::Accept {
                return verification;
            }
        }
        Verification::Accept
    }

    async fn call(&self, point: HookPoint, fields: impl FnOnce() -> Value) -> Vec<Result<Value, HookFailure>> {
        if !self.has(point) {
            return Vec::new();
        }
        let payload = self.payload(point, fields());
        let mut answers = Vec::new();
        let mut overdue = std::pin::pin!(self.overdue(point));
        for hook in self.hooks.iter().filter(|hook| hook.point() == point) {
            tokio::select! {
                biased;
                () = &mut overdue => {
                    let problem = "the turn was cancelled".to_owned();
                    answers.push(Err(HookFailure { name: format!("on {}", point.as_str()), problem }));
                    break;
                }
                answer = hook.call(&payload) => answers.push(answer),
            }
        }
        answers
    }

    /// Ends when the hooks of a point have had their time in a turn that was cancelled.
    async fn overdue(&self, point: HookPoint) {
        self.cancel.cancelled().await;
        if point.tells_what_happened() {
            tokio::time::sleep(CANCEL_GRACE).await;
        }
    }

    fn payload(&self, point: HookPoint, fields: Value) -> Value {
        let mut payload = Map::new();
        payload.insert("hook".into(), point.as_str().into());
        payload.insert("version".into(), PAYLOAD_VERSION.into());
        payload.extend(self.base.clone());
        if let Value::Object(fields) = fields {
            payload.extend(fields);
        }
        Value::Object(payload)
    }
}
