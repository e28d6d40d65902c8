//! The extension: methods, notifications and `_meta` members that are ours.
//!
//! [`VERSION`] goes out as `_meta.turnd.version` in the `initialize` answer. It grows when a member
//! changes meaning or goes away; a new optional member does not change it.

use agent_client_protocol_schema::v1::{ContentBlock, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The extension's version.
pub const VERSION: u32 = 1;

/// The field's de-facto steering method.
pub const SESSION_STEERING: &str = "_session/steering";
/// Aborts the model call in flight and corrects the user's request.
pub const REDIRECT: &str = "_turnd/redirect";
/// Asks what a session is doing.
pub const STATUS: &str = "_turnd/status";
/// Notification: a step ended.
pub const STEP: &str = "_turnd/step";
/// Notification: a turn started or ended.
pub const TURN: &str = "_turnd/turn";

/// Parameters of [`SESSION_STEERING`].
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SteeringParams {
    /// The session.
    #[schemars(with = "String")]
    pub session_id: SessionId,
    /// What to tell the model.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub prompt: Vec<ContentBlock>,
    /// Only steer when this turn is the running one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_turn_id: Option<String>,
    /// `{"steering": {"idleBehavior": "promptRequired"}}` asks not to start a turn when idle.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<SteeringMeta>,
}

impl SteeringParams {
    /// True when an idle session should answer `promptRequired` instead of starting a turn.
    #[must_use]
    pub fn wants_prompt_when_idle(&self) -> bool {
        let behaviour =
            self.meta.as_ref().and_then(|meta| meta.steering.as_ref()).and_then(|s| s.idle_behavior.as_deref());
        behaviour == Some("promptRequired")
    }
}

/// `_meta` of [`SteeringParams`].
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct SteeringMeta {
    /// The steering options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<SteeringOptions>,
}

/// Options of a steer.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SteeringOptions {
    /// `promptRequired`, or absent for starting a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_behavior: Option<String>,
}

/// Answer to [`SESSION_STEERING`] and [`REDIRECT`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SteeringResult {
    /// What became of the text.
    pub outcome: SteeringOutcome,
    /// Why, for `promptRequired` and `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a steer or redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SteeringOutcome {
    /// It joined the running turn.
    Injected,
    /// Nothing was running, so it became a turn of its own.
    StartedNewTurn,
    /// Nothing is running; send it as a prompt.
    PromptRequired,
    /// It was not taken.
    Failed,
}

/// Parameters of [`REDIRECT`].
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedirectParams {
    /// The session.
    #[schemars(with = "String")]
    pub session_id: SessionId,
    /// The correction.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub prompt: Vec<ContentBlock>,
    /// Only redirect when this turn is the running one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_turn_id: Option<String>,
}

/// Parameters of [`STATUS`].
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusParams {
    /// The session.
    #[schemars(with = "String")]
    pub session_id: SessionId,
}

/// Answer to [`STATUS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusResult {
    /// `idle`, `running` or `waiting_for_approval`.
    pub phase: String,
    /// Prompts waiting behind the running one.
    pub queue_length: usize,
    /// The running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// Its step, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// Model calls it may still make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_left: Option<u32>,
    /// What the session's provider last said about the account's allowance, where it says anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<RateLimits>,
}

/// The account's allowances at a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimits {
    /// Requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RateLimit>,
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<RateLimit>,
}

/// One allowance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// How much there is when it is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How much is left.
    pub remaining: u64,
    /// Seconds until it is full again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_seconds: Option<u64>,
}

/// Parameters of [`STEP`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepParams {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The step's number in the turn, from 1.
    pub step: u32,
    /// Its tool calls in call order.
    pub tools: Vec<StepTool>,
}

/// One tool call of a step.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepTool {
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text; shortened when long.
    pub arguments: String,
    /// What the model was given; shortened when long.
    pub result: String,
}

/// Parameters of [`TURN`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnParams {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// `started` or `ended`.
    pub state: String,
    /// Of an ended turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
}

/// How a turn ended: `_meta.turnd` of the prompt answer, and part of [`TURN`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnOutcome {
    /// The turn.
    pub turn_id: String,
    /// `completed`, `budget_exhausted`, `interrupted` or `failed`.
    pub status: String,
    /// Why it stopped.
    pub exit_reason: String,
    /// Model calls that counted.
    pub steps: u32,
    /// Requests sent, retries included.
    pub api_calls: u32,
    /// Tokens of the turn.
    pub usage: TurnUsage,
    /// Steers that could not be placed before the turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_steer: Option<String>,
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnUsage {
    /// Prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// Answer tokens, reasoning included.
    pub output_tokens: u64,
    /// Prompt tokens read from a cache.
    pub cached_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
}

/// What a client puts into `clientCapabilities._meta.turnd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ClientExtension {
    /// Wants [`STEP`] and [`TURN`].
    pub steps: bool,
}
