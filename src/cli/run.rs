//! `turnd run`: one turn in the current folder, on the terminal.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::app::{self, Signals, exit_code};
use crate::config::{Config, ConfigFlags};
use crate::message::Part;
use crate::session::{Host, OpenKind, OpenRequest, PromptOutcome, Registry, ReplayWish, SessionError};
use crate::store::ListQuery;
use crate::turn::{TurnReport, TurnStatus};

use super::terminal::{Style, TerminalClient};

/// Arguments of `turnd run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// What to do; read from stdin when it is not a terminal and no prompt is given
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,
    /// Print events as JSON Lines on stdout
    #[arg(long)]
    json: bool,
    /// Go on with this session
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    /// Go on with the newest session of this folder
    #[arg(long = "continue", conflicts_with = "resume")]
    go_on: bool,
    #[command(flatten)]
    pub(super) config: ConfigFlags,
}

/// Runs the turn.
pub(super) async fn run(args: &RunArgs, config: Config) -> Result<u8, String> {
    if let Some(problem) = &config.problem {
        return Ok(super::complain_as(exit_code::CONFIG, problem));
    }
    let prompt = prompt(args)?;
    let cwd = std::env::current_dir().and_then(std::fs::canonicalize);
    let cwd = cwd.map_err(|error| format!("the current folder cannot be used: {error}"))?;
    let host = app::host(config);
    let signals = Signals::watch(host.shutdown.clone());
    let ended = turn(args, &host, cwd, prompt).await;
    host.shutdown.cancel();
    app::close(&host).await;
    let code = ended?;
    Ok(signals.exit_code().unwrap_or(code))
}

fn prompt(args: &RunArgs) -> Result<String, String> {
    let mut prompt = args.prompt.join(" ");
    if prompt.is_empty() && !std::io::stdin().is_terminal() {
        std::io::stdin().read_to_string(&mut prompt).map_err(|error| format!("cannot read the prompt: {error}"))?;
    }
    if prompt.trim().is_empty() {
        Err("there is no prompt: give one as an argument or on stdin".into())
    } else {
        Ok(prompt)
    }
}

async fn turn(args: &RunArgs, host: &Arc<Host>, cwd: PathBuf, prompt: String) -> Result<u8, String> {
    let style = if args.json { Style::Json } else { Style::Plain };
    let sessions = Registry::new(Arc::clone(host));
    let stored = match (&args.resume, args.go_on) {
        (Some(id), _) => Some(id.clone()),
        (None, true) => Some(newest(host, &cwd).await?),
        (None, false) => None,
    };
    let (id, kind) = match stored {
        Some(id) => (Arc::from(id), OpenKind::Stored(ReplayWish::Silent)),
        None => (Arc::from(uuid::Uuid::now_v7().to_string()), OpenKind::New),
    };
    let is_new = kind == OpenKind::New;
    let client = Arc::new(TerminalClient::new(style));
    let (additional_roots, mcp_servers, notices) = (Vec::new(), Vec::new(), Vec::new());
    let request = OpenRequest { id, kind, cwd, additional_roots, client, mcp_servers, notices };
    let (session, opening) = sessions.open(request);
    let opened = opening.await.map_err(|_| "the session could not be opened".to_owned())?;
    drop(opened.map_err(|error| error.to_string())?);
    let admitted = session.admit(vec![Part::text(prompt)]).map_err(|error| error.to_string())?;
    let (_, reply) = admitted;
    let end = reply.await.map_err(|_| "the session ended".to_owned())?;
    let outcome = end.map(|end| end.outcome);
    let is_empty = is_new && matches!(outcome, Ok(PromptOutcome::Obeyed | PromptOutcome::NotStarted));
    let id = session.id().to_owned();
    drop(session);
    host.shutdown.cancel();
    sessions.drained().await;
    if is_empty {
        // Nothing was said in it, so nobody will go on with it.
        host.store.delete(&id).await.map_err(|error| error.to_string())?;
    }
    report(outcome, &id)
}

async fn newest(host: &Host, cwd: &Path) -> Result<String, String> {
    let query = ListQuery { cwd: Some(cwd.to_string_lossy().into_owned()), limit: 1, ..ListQuery::default() };
    let (rows, _) = host.store.list_sessions(query).await.map_err(|error| error.to_string())?;
    rows.into_iter().next().map(|row| row.id).ok_or_else(|| format!("there is no session of {} yet", cwd.display()))
}

/// Says how to go on, and turns the outcome into an exit code.
fn report(outcome: Result<PromptOutcome, SessionError>, id: &str) -> Result<u8, String> {
    match outcome.map_err(|error| error.to_string())? {
        PromptOutcome::Turn(report) => {
            writeln!(std::io::stderr(), "session {id}").ok();
            match report.status() {
                TurnStatus::Completed => Ok(exit_code::OK),
                TurnStatus::Interrupted => Ok(exit_code::INTERRUPTED),
                TurnStatus::BudgetExhausted => Ok(exit_code::FAILED),
                TurnStatus::Failed => Err(failure(&report)),
            }
        }
        PromptOutcome::Obeyed => Ok(exit_code::OK),
        PromptOutcome::NotStarted => Ok(exit_code::INTERRUPTED),
    }
}

fn failure(report: &TurnReport) -> String {
    match (&report.error, &report.detail) {
        (Some(error), _) => format!("the model call failed: {error}"),
        (None, Some(detail)) => detail.clone(),
        (None, None) => format!("the turn failed: {}", report.exit),
    }
}
