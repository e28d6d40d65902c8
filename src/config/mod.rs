//! Configuration: one TOML file, a few environment names, a few flags, resolved once at start.
//!
//! A mistake in the file never keeps the daemon from answering `initialize`: unknown keys become
//! [`Config::warnings`], and a file that cannot be read at all becomes [`Config::problem`], which the
//! request that needs the configuration reports.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::provider::ApiMode;

mod checks;
mod entries;
mod load;
mod project;
mod runtime;

pub use entries::{HookConfig, McpServerConfig, RuleConfig, RuleEffect};
pub use load::ConfigFlags;
pub use project::ProjectConfig;
pub use runtime::{RUNTIME_PROVIDER, RuntimeCommand, RuntimeKind};

/// The model's name that leaves the choice to the external runtime.
pub const RUNTIME_DEFAULT_MODEL: &str = "default";

/// The whole configuration, defaults filled in.
#[derive(Clone, Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Config {
    /// `PROVIDER/MODEL`. Unset: the first built-in provider whose key is present.
    pub model: Option<String>,
    /// Where to go when the model cannot answer, in order, each `PROVIDER/MODEL`.
    pub fallback_providers: Vec<String>,
    /// Model calls per turn, at least 1. Default 500.
    #[serde(default = "defaults::max_iterations", deserialize_with = "checks::at_least_one")]
    pub max_iterations: u32,
    /// Wall-clock seconds per turn; 0: no limit.
    pub run_budget_seconds: u64,
    /// Prompt tokens of all model calls of a turn together, child agents included; 0: no limit. Meant for
    /// the profile of a background review.
    pub max_input_tokens: u64,
    /// What may happen without a question.
    pub mode: Mode,
    /// Seconds a permission question stays open; 0: for ever.
    pub approval_timeout_seconds: u64,
    /// End the turn at the first question that nobody answered in time, in place of telling the model.
    pub halt_on_timeout: bool,
    /// How hard the model should think: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`.
    pub reasoning_effort: Option<String>,
    /// Who runs the turns: `own` (the default), or `codex_app_server`, which hands each whole turn to a program.
    pub runtime: Option<RuntimeKind>,
    /// That program and its arguments; anything that speaks the protocol. Default `codex app-server`.
    pub runtime_command: Vec<String>,
    /// Environment variables that it gets although they look like secrets, by name.
    pub runtime_env: Vec<String>,
    /// The identity file, relative to the home folder.
    #[serde(default = "defaults::soul")]
    pub soul: String,
    /// Providers beside and over the built-in ones.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// When and how the history is compacted.
    pub compression: CompressionConfig,
    /// Child agents.
    pub delegation: DelegationConfig,
    /// Models for side tasks: `compression`, `title`, `vision`.
    pub auxiliary: BTreeMap<String, AuxiliaryConfig>,
    /// Tools.
    pub tools: ToolsConfig,
    /// What commands may reach.
    pub sandbox: SandboxConfig,
    /// Approval rules; deny beats ask beats allow.
    pub rules: Vec<RuleConfig>,
    /// Commands run at points of the turn.
    pub hooks: Vec<HookConfig>,
    /// MCP servers by name.
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// Named sets of overrides, `[profiles.NAME]`, chosen with `--profile NAME`. Each can hold any of these keys.
    #[schemars(with = "BTreeMap<String, Config>")]
    pub profiles: BTreeMap<String, toml::Table>,

    /// The home folder this came from.
    #[serde(skip)]
    pub home: PathBuf,
    /// The model script of `--script`, for the scripted provider.
    #[serde(skip)]
    pub script: Option<PathBuf>,
    /// Unknown keys and the like, one line each.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// Why the file could not be used, if so.
    #[serde(skip)]
    pub problem: Option<String>,
}

mod defaults {
    //! Defaults that are not their type's.
    pub(super) fn max_iterations() -> u32 {
        500
    }
    pub(super) fn soul() -> String {
        "SOUL.md".into()
    }
}

/// What may happen without a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Asks for writes and for commands that are not plainly read-only.
    #[default]
    Ask,
    /// Workspace edits pass, the rest as `ask`.
    AcceptEdits,
    /// Reads only.
    Plan,
    /// Runs what the sandbox contains, asks for the rest.
    Auto,
    /// Asks nothing; the hard floor stays.
    FullAccess,
}

impl Mode {
    /// All modes in the order they are offered.
    pub const ALL: [Self; 5] = [Self::Ask, Self::AcceptEdits, Self::Plan, Self::Auto, Self::FullAccess];

    /// The id on the wire and in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::AcceptEdits => "accept_edits",
            Self::Plan => "plan",
            Self::Auto => "auto",
            Self::FullAccess => "full_access",
        }
    }

    /// The mode with this id.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == id)
    }

    /// The name and one-line description a client shows.
    #[must_use]
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Ask => ("Ask", "Asks before writes and before commands that are not plainly read-only"),
            Self::AcceptEdits => ("Accept edits", "Edits inside the workspace pass, commands are asked"),
            Self::Plan => ("Plan", "Reads only"),
            Self::Auto => ("Auto", "Runs what the sandbox contains, asks for the rest"),
            Self::FullAccess => ("Full access", "Asks nothing; the hard floor stays"),
        }
    }
}

/// One provider. Every field overrides the built-in table's value.
#[derive(Clone, Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ProviderConfig {
    /// The wire format.
    #[schemars(with = "Option<String>")]
    pub api_mode: Option<ApiMode>,
    /// With `/v1` for the OpenAI shapes, without for Messages.
    pub base_url: Option<String>,
    /// The key itself.
    pub api_key: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// A command that prints the key; run again when the key is refused.
    pub api_key_command: Option<String>,
    /// More keys, used in turn when one is rate-limited.
    pub api_keys: Vec<String>,
    /// Tokens the model can read.
    pub context_window: Option<u64>,
    /// Tokens an answer may have.
    pub max_output_tokens: Option<u64>,
    /// Attempts after the first, per model call. Default 3.
    pub max_retries: Option<u32>,
    /// Default 10.
    pub connect_timeout_seconds: Option<f64>,
    /// Until the first event; heartbeats do not count. Default 300.
    pub first_event_timeout_seconds: Option<f64>,
    /// Between events; heartbeats do not count. Default 60.
    pub stream_idle_timeout_seconds: Option<f64>,
    /// First wait before a retry, doubled each time, jittered. Default 2.
    pub retry_base_seconds: Option<f64>,
    /// Longest wait before a retry. Default 60.
    pub retry_max_seconds: Option<f64>,
    /// Sent with each request.
    pub headers: BTreeMap<String, String>,
    /// Per-server switches.
    pub quirks: Quirks,
    /// Who runs this provider's turns, over `runtime` of the whole configuration.
    pub runtime: Option<RuntimeKind>,
    /// The program that takes this provider's turns over, over `runtime_command` of the whole configuration.
    pub runtime_command: Vec<String>,
    /// More variables that it gets, by name.
    pub runtime_env: Vec<String>,
}

/// Per-server switches; unset means what the built-in table or the base URL suggests.
#[derive(Clone, Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Quirks {
    /// `content` of an assistant message that only calls tools: `null`, `empty`, `absent` or `space`.
    pub empty_content: Option<String>,
    /// Send `reasoning_content` back on assistant messages.
    pub replay_reasoning_content: Option<bool>,
    /// `max_tokens` or `max_completion_tokens`.
    pub max_tokens_field: Option<String>,
    /// Ask for usage in the stream (`stream_options`). Default true.
    pub stream_usage: Option<bool>,
    /// Send `parallel_tool_calls`.
    pub parallel_tool_calls: Option<bool>,
    /// Say how hard the model should think.
    pub reasoning_effort: Option<bool>,
    /// How that is said (chat completions): `field` (`reasoning_effort`) or `object` (`reasoning: {effort}`).
    pub effort_style: Option<String>,
    /// Send cache markers or a cache key.
    pub prompt_cache: Option<bool>,
    /// Which of the two a chat completions server takes: `key` or `markers`.
    pub prompt_cache_style: Option<String>,
    /// How long a marked prefix is kept (Messages): `5m` or `1h`. Default `5m`.
    pub prompt_cache_ttl: Option<String>,
    /// The role of the system prompt: `system` or `developer`.
    pub system_role: Option<String>,
    /// Where pictures of a tool result go: `user_message` (a message of their own) or `inline`.
    pub tool_images: Option<String>,
    /// Which ids of tool calls the server accepts: `any` or `nine_alphanumeric`.
    pub tool_call_ids: Option<String>,
    /// Send the provider's extra data on tool calls back to it.
    pub tool_call_extra: Option<bool>,
    /// Give tool calls without a thought signature the one that stands for none (Gemini 3 and newer).
    pub sign_tool_calls: Option<bool>,
}

/// When and how the history is compacted.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CompressionConfig {
    /// Share of the context window, less the answer's part, from which a history is compacted before a model
    /// call. Unset: 0.5, but 0.75 for windows below 512,000 tokens, never below 64,000 tokens, and 0.85 for
    /// windows smaller than that.
    pub threshold: Option<f64>,
    /// Share from which it is compacted after a turn, so that the next one need not wait.
    pub between_turns: f64,
    /// Messages kept at the front by the first compaction.
    pub protect_first_n: usize,
    /// Messages kept at the end, as far as they are not too large.
    pub protect_last_n: usize,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self { threshold: None, between_turns: 0.85, protect_first_n: 3, protect_last_n: 20 }
    }
}

/// Child agents.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct DelegationConfig {
    /// Model calls of a child, at least 1.
    #[serde(deserialize_with = "checks::at_least_one")]
    pub max_iterations: u32,
    /// Children at a time, at least 1.
    #[serde(deserialize_with = "checks::at_least_one")]
    pub max_concurrent: usize,
    /// Levels below the user's session; 0: no child agents.
    pub max_depth: u32,
    /// What becomes of a child's questions.
    pub approvals: ChildApprovals,
}

/// What becomes of a child agent's questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChildApprovals {
    /// They are put to the user in the session that delegated.
    #[default]
    Ask,
    /// Each counts as a no.
    Deny,
}

impl Default for DelegationConfig {
    fn default() -> Self {
        Self { max_iterations: 50, max_concurrent: 3, max_depth: 1, approvals: ChildApprovals::Ask }
    }
}

/// A model for a side task.
#[derive(Clone, Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct AuxiliaryConfig {
    /// `PROVIDER/MODEL` for the side task NAME: `compression` (summaries), `title` or `vision` (what pictures
    /// show). Unset: the session's model summarises, and no model is asked for titles and pictures.
    pub model: Option<String>,
    /// Where to go when it cannot answer; behind them stand the session's models.
    pub fallback_providers: Vec<String>,
}

/// Tools.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ToolsConfig {
    /// Tools that are not offered.
    pub disabled: Vec<String>,
    /// Where commands run once the gate let them: `own` here, sandboxed where the mode says so; `client` in a
    /// terminal of the client that offers one, except in `auto` and in the background.
    pub terminal: TerminalPlace,
    /// The most characters of one result that reach the model, at least 1, less for a small window; a longer one is
    /// kept whole in a file that the model can read.
    #[serde(deserialize_with = "checks::at_least_one")]
    pub max_result_chars: usize,
    /// Seconds a command may run when the call names no limit, at least 1.
    #[serde(deserialize_with = "checks::at_least_one")]
    pub terminal_timeout_seconds: u64,
    /// Seconds a session's first turn waits for MCP servers that are still starting.
    pub mcp_wait_seconds: f64,
    /// Block calls that fail or gain nothing again and again, and halt the turn; otherwise only warn.
    pub guardrail_hard_stop: bool,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            disabled: Vec::new(),
            terminal: TerminalPlace::Own,
            max_result_chars: 100_000,
            terminal_timeout_seconds: 120,
            mcp_wait_seconds: 3.0,
            guardrail_hard_stop: false,
        }
    }
}

/// Where commands run that the gate let.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TerminalPlace {
    /// Here, sandboxed where the mode says so.
    #[default]
    Own,
    /// In a terminal of the client that offers one, except in `auto` and in the background.
    Client,
}

/// What commands may reach.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct SandboxConfig {
    /// Where commands may write.
    pub mode: SandboxMode,
    /// Whether commands may use the network.
    pub network: bool,
    /// More writable folders.
    pub writable: Vec<String>,
    /// Paths no tool may read.
    pub deny_read: Vec<String>,
    /// Run commands in the mode auto also where the kernel cannot protect settings of git and secrets from them.
    pub allow_degraded: bool,
    /// Processes and threads a command may have at a time; 0: no limit.
    pub max_processes: u64,
    /// Megabytes of address space of each process; 0: no limit.
    pub max_memory_mb: u64,
    /// Megabytes of the largest file a command may write; 0: no limit.
    pub max_file_mb: u64,
}

/// Where commands may write that run behind the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// Nowhere.
    ReadOnly,
    /// In the folders of the session.
    #[default]
    WorkspaceWrite,
    /// There is no sandbox.
    Off,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            mode: SandboxMode::default(),
            network: false,
            writable: Vec::new(),
            deny_read: Vec::new(),
            allow_degraded: false,
            max_processes: 4096,
            max_memory_mb: 0,
            max_file_mb: 16 << 10,
        }
    }
}
