//! Tools: what the model may ask for, what each call would do, and how it is done.
//!
//! A call has two halves. [`Tool::prepare`] checks the arguments and binds everything the call will
//! use (paths, bytes, the command) without side effects; what it returns is what the user approves.
//! [`Prepared::run`] then does exactly that. A tool never asks for approval and never decides whether
//! it may run: the gate in [`crate::approval`] sits between the two halves.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::message::{Part, Usage};
use crate::sandbox::SandboxPolicy;

pub mod args;
pub mod output;
pub mod path;
pub mod registry;
pub mod spill;
pub mod state;

pub mod line_window;
pub mod read_file;

pub mod patch;
pub mod replacement;
pub mod write_file;

pub mod diff;
pub mod file;
pub mod file_kind;
pub mod hidden;
pub mod replace;

pub mod search;
pub mod search_files;

pub mod background;
pub mod client_terminal;
pub mod process;
pub mod terminal;

pub mod html;
pub mod public_address;
pub mod web_fetch;

pub mod clarify;
pub mod todo;

mod edit;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod testing;

pub use client_terminal::ClientTerminals;
pub use registry::ToolRegistry;
pub use state::SessionState;

/// What the model is told about a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name the model calls.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments, an object schema.
    pub parameters: Value,
}

/// A tool the model can call.
pub trait Tool: Send + Sync + fmt::Debug {
    /// Name, description and argument schema; the same bytes for the life of a session.
    fn spec(&self) -> &Arc<ToolSpec>;

    /// True when calls of this tool talk to the user and so never run beside others.
    fn is_interactive(&self) -> bool {
        false
    }

    /// True when its results are what strangers wrote (a web page, a tool of an MCP server), so that the model
    /// gets them between marks that say so.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Checks the arguments and binds what the call will do, without side effects.
    ///
    /// # Errors
    /// A text for the model that says what is wrong with the call and how to mend it.
    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>>;
}

/// Why a call could not be prepared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct ToolFailure {
    /// What the model is told.
    pub text: String,
    /// What the call was to do, where that much is known.
    pub plan: Option<Box<CallPlan>>,
}

impl ToolFailure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), plan: None }
    }

    /// The same failure of a call that was to do this.
    #[must_use]
    pub fn of(self, plan: CallPlan) -> Self {
        Self { plan: Some(Box::new(plan)), ..self }
    }
}

/// How long a call may take to end once its turn is cancelled, before it is abandoned.
const CANCEL_GRACE: Duration = Duration::from_millis(80);

/// A call that is ready to be judged and run.
pub struct Prepared {
    /// What it will do.
    pub plan: CallPlan,
    /// How long it may take to end once its turn is cancelled.
    pub cancel_grace: Duration,
    run: Box<dyn FnOnce(RunContext) -> BoxFuture<'static, ToolOutput> + Send + Sync>,
}

impl Prepared {
    /// Binds a plan to the code that carries it out.
    pub fn new<F, Fut>(plan: CallPlan, run: F) -> Self
    where
        F: FnOnce(RunContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ToolOutput> + Send + 'static,
    {
        Self { plan, cancel_grace: CANCEL_GRACE, run: Box::new(move |context| Box::pin(run(context))) }
    }

    /// The same call with more time to end once its turn is cancelled: for one that passes the cancel on
    /// and must say how that went.
    #[must_use]
    pub fn with_cancel_grace(self, cancel_grace: Duration) -> Self {
        Self { cancel_grace, ..self }
    }

    /// Carries the plan out. Ends soon after `context.cancel` fires.
    pub async fn run(self, context: RunContext) -> ToolOutput {
        (self.run)(context).await
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Prepared").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// What a call would do: for the gate, for the client's display, for the order of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPlan {
    /// One line for a person.
    pub title: String,
    /// How a client should show it.
    pub kind: ToolKind,
    /// Files it concerns, absolute.
    pub locations: Vec<Location>,
    /// What it touches. Empty for tools that only change the agent's own state.
    pub access: Vec<Access>,
    /// What a person needs to see before saying yes (the diff of an edit).
    pub preview: Vec<Display>,
}

impl CallPlan {
    /// The same call when it only looks at what it would have written.
    #[must_use]
    pub fn as_read(&self) -> Self {
        let read = |access: &Access| match access {
            Access::Write(path) => Access::Read(path.clone()),
            other => other.clone(),
        };
        Self { access: self.access.iter().map(read).collect(), ..self.clone() }
    }
}

/// How a client should show a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolKind {
    /// Reads a file or data.
    Read,
    /// Changes a file.
    Edit,
    /// Searches.
    Search,
    /// Runs a command.
    Execute,
    /// Thinks or plans.
    Think,
    /// Fetches from the network.
    Fetch,
    /// Anything else.
    #[default]
    Other,
}

/// A file a call concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Absolute path.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: Option<u32>,
}

/// One thing a call touches. Paths are absolute and resolved (links followed as far as they exist).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads a file or folder.
    Read(PathBuf),
    /// Creates or changes a file.
    Write(PathBuf),
    /// Runs a shell command.
    Execute {
        /// The exact text the shell gets.
        command: String,
        /// Where it runs.
        cwd: PathBuf,
    },
    /// Talks to a host.
    Fetch(String),
    /// Changes a file of the home folder that only the agent's own tool for it may change.
    Note(PathBuf),
    /// Calls something whose effect nobody here can know: a tool of an MCP server.
    External(ForeignTool),
    /// Gives input to a command that runs already; what the input would be as a command stands beside this.
    Feed(Hold),
}

/// What holds a command that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The sandbox.
    Sandbox,
    /// Only the answer it was started with.
    Nothing,
}

/// Somebody else's tool, as it was when the call was prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignTool {
    /// The name the model calls.
    pub name: String,
    /// What it says of itself and who says it. An approval holds for exactly this.
    pub definition: String,
    /// What it said when the session first saw it, if that was something else.
    pub was: Option<String>,
}

/// Something to show beside a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Display {
    /// Text.
    Text(String),
    /// A file before and after.
    Diff {
        /// Absolute path.
        path: PathBuf,
        /// Text before; `None` for a new file.
        old: Option<String>,
        /// Text after.
        new: String,
    },
    /// A terminal of the client.
    Terminal(String),
}

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model reads. Never empty: a silent success says so.
    pub content: Vec<Part>,
    /// What the client shows; empty shows `content`.
    pub display: Vec<Display>,
    /// Data for the client's `rawOutput`.
    pub raw: Option<Value>,
    /// True when the tool could not do its work. A command that ran and failed is not an error.
    pub is_error: bool,
    /// Where the whole result is, when `content` holds only a part of it.
    pub whole: Option<spill::Kept>,
    /// True when the call was cut off before its end (cancelled, timed out).
    pub is_cut_off: bool,
    /// The new task list, when the call changed it.
    pub plan: Option<Vec<PlanEntry>>,
    /// Model calls that were made for the call; stored already, they still count for the turn.
    pub spent: Option<Spent>,
}

/// What model calls cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Tokens of all of them.
    pub usage: Usage,
    /// US dollars of all of them; `None` when a price is not known.
    pub cost_usd: Option<f64>,
}

impl ToolOutput {
    /// A success with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Part::text(text)], ..Self::default() }
    }

    /// A failure with this text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// One entry of the task list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// How urgent.
    pub priority: PlanPriority,
    /// How far.
    pub status: PlanStatus,
}

/// How urgent a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanPriority {
    /// Now.
    High,
    /// Soon.
    #[default]
    Medium,
    /// Later.
    Low,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanStatus {
    /// Not begun.
    #[default]
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
}

/// What all calls of a session share.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The session's working folder, absolute and resolved.
    pub cwd: PathBuf,
    /// Other folders the client opened, absolute and resolved.
    pub additional_roots: Vec<PathBuf>,
    /// Size and time limits.
    pub limits: ToolLimits,
    /// The client's view of files, when it offers one.
    pub editor: Option<Arc<dyn Editor>>,
    /// The client's terminals, where commands are to run in them and it offers some.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
    /// Where results go that are too long for the model.
    pub spill: Option<spill::Spill>,
    /// Environment variables that must not reach a child (credentials of providers).
    pub secret_env: Arc<[String]>,
    /// State that tools keep for the session.
    pub state: Arc<SessionState>,
}

/// Limits of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// The most characters of one result that reach the model.
    pub max_result_chars: usize,
    /// Seconds a command may run when the call names no limit.
    pub terminal_timeout_seconds: u64,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self { max_result_chars: 100_000, terminal_timeout_seconds: 120 }
    }
}

/// Files as the client sees them (unsaved buffers included).
pub trait Editor: Send + Sync + fmt::Debug {
    /// True when the client reads files for us.
    fn can_read(&self) -> bool;
    /// True when the client writes files for us, and this text is not too long for its messages.
    fn can_write(&self, text: &str) -> bool;
    /// The whole text of a file.
    ///
    /// # Errors
    /// What the client said, or that its answer made no sense.
    fn read_text(&self, path: PathBuf) -> BoxFuture<'_, Result<String, ToolFailure>>;
    /// Replaces a file's text.
    ///
    /// # Errors
    /// What the client said.
    fn write_text(&self, path: PathBuf, text: String) -> BoxFuture<'_, Result<(), ToolFailure>>;
}

/// What one running call may use.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The call's id, unique in the session.
    pub call_id: String,
    /// Fires when the turn is cancelled. A call that was told to stop everything fires it itself.
    pub cancel: CancellationToken,
    /// Where output so far can be shown.
    pub progress: Progress,
    /// What a command must run behind; `None` runs it with all that the user may do.
    pub sandbox: Option<Arc<SandboxPolicy>>,
    /// Whose shell a command may run in.
    pub shell: Shell,
    /// How git behaves in a command.
    pub git: GitCare,
}

/// How git behaves in a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GitCare {
    /// As the user and the repository configured it.
    AsConfigured,
    /// Without what runs behind commands that only look: monitor, pager, hooks of the index, nested repositories.
    #[default]
    Wary,
    /// Without any hook besides: nobody was asked about the command.
    Quiet,
}

/// Whose shell a command may run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shell {
    /// Ours, or the client's where that is wished.
    #[default]
    Any,
    /// Ours: the mode relies on the sandbox, which the client's has not.
    Own,
}

/// Shows a running call's output. Only the newest snapshot counts, so a fast writer costs nothing.
#[derive(Clone, Debug)]
pub struct Progress(watch::Sender<Display>);

impl Progress {
    /// A progress slot and the end to watch it from.
    #[must_use]
    pub fn channel() -> (Self, watch::Receiver<Display>) {
        let (sender, receiver) = watch::channel(Display::Text(String::new()));
        (Self(sender), receiver)
    }

    /// Replaces what is shown.
    pub fn show(&self, text: String) {
        self.0.send_replace(Display::Text(text));
    }

    /// Shows a terminal of the client in place of text.
    pub fn show_terminal(&self, id: String) {
        self.0.send_replace(Display::Terminal(id));
    }
}
