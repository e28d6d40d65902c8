//! `turnd sessions`: the store, read from outside.
//!
//! Only `delete` changes anything. Nothing is made in a home that has no store yet.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use crate::clock::iso8601;
use crate::message::Message;
use crate::store::{Children, ListQuery, LoadedSession, SessionRow, Store, StoreError, UsageRow};
use crate::tool::spill::Spill;

/// Sessions read at a time.
const PAGE: usize = 200;
/// Characters of a tool result that `show` prints; more hides the conversation. `export` has all.
const SHOWN_RESULT_CHARS: usize = 2_000;
/// Version of the exported document. Raised when a field changes its meaning.
const EXPORT_VERSION: u32 = 1;

/// The arguments of `turnd sessions`.
#[derive(Args, Clone, Debug)]
pub struct SessionsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SessionsCommand,
}

/// What to do with the stored sessions.
#[derive(Subcommand, Clone, Debug)]
pub enum SessionsCommand {
    /// List the sessions, newest first
    List {
        /// Only the sessions of this folder
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// Child agents' sessions too
        #[arg(long)]
        children: bool,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Print one session to read
    Show {
        /// The session's id
        id: String,
    },
    /// Print one session as JSON, with everything that is stored of it
    Export {
        /// The session's id
        id: String,
    },
    /// Delete one session for good
    Delete {
        /// The session's id
        id: String,
    },
}

/// Why the command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such session.
    #[error("there is no session {0}; `turnd sessions list` shows all")]
    Unknown(String),
    /// The store could be opened only in a way the user must know of.
    #[error("{0}")]
    Notice(String),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The folder given is not a path.
    #[error("cannot use the folder {0}: {1}")]
    Folder(PathBuf, io::Error),
}

/// Runs the command against the store in `home`.
///
/// # Errors
/// When the session is unknown, the store cannot be used or the output cannot be written. A reader that
/// has gone away (`| head`) is not an error.
pub async fn run(args: SessionsArgs, home: &Path, out: &mut (dyn Write + Send)) -> Result<(), SessionsError> {
    // Looking at sessions must not make a store where there is none.
    let store = if home.join("sessions.db").exists() { Store::open(home) } else { Store::in_memory() };
    let done = run_on(&store, home, args.command, out).await;
    let notice = store.notice();
    // What was asked is done and told; a claim or a log that stays behind harms nobody.
    drop(store.close().await);
    match done {
        Err(SessionsError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.and_then(|()| notice.map_or(Ok(()), |notice| Err(SessionsError::Notice(notice)))),
    }
}

async fn run_on(
    store: &Store,
    home: &Path,
    command: SessionsCommand,
    out: &mut (dyn Write + Send),
) -> Result<(), SessionsError> {
    match command {
        SessionsCommand::List { cwd, children, json } => {
            let children = if children { Children::Shown } else { Children::Hidden };
            let line = if json { json_line } else { text_line };
            list(store, cwd, children, line, out).await
        }
        SessionsCommand::Show { id } => Ok(show(&load(store, id).await?, out)?),
        SessionsCommand::Export { id } => Ok(export(&load(store, id).await?, out)?),
        SessionsCommand::Delete { id } => {
            let session = load(store, id).await?;
            store.delete(&session.row.id).await?;
            Spill::new(home, &session.row.id).remove();
            Ok(writeln!(out, "deleted session {}", session.row.id)?)
        }
    }
}

async fn load(store: &Store, id: String) -> Result<LoadedSession, SessionsError> {
    store.load_session(&id).await?.ok_or(SessionsError::Unknown(id))
}

async fn list(
    store: &Store,
    cwd: Option<PathBuf>,
    children: Children,
    line: fn(&SessionRow) -> String,
    out: &mut (dyn Write + Send),
) -> Result<(), SessionsError> {
    let cwd = match cwd {
        Some(dir) => match std::path::absolute(&dir) {
            Ok(dir) => Some(dir.to_string_lossy().into_owned()),
            Err(error) => return Err(SessionsError::Folder(dir, error)),
        },
        None => None,
    };
    let (mut cursor, mut is_empty) = (None, true);
    loop {
        let query = ListQuery { cwd: cwd.clone(), children, cursor, limit: PAGE };
        let (rows, next) = store.list_sessions(query).await?;
        is_empty &= rows.is_empty();
        for row in &rows {
            writeln!(out, "{}", line(row))?;
        }
        cursor = next;
        if cursor.is_none() {
            if is_empty {
                super::tell("there is no session");
            }
            return Ok(());
        }
    }
}

fn text_line(row: &SessionRow) -> String {
    let title = one_line(row.title.as_deref().unwrap_or("(no title)"));
    format!("{}  {}  {}  {title}", printable(&row.id), iso8601(row.updated_at_ms), one_line(&row.cwd))
}

fn json_line(row: &SessionRow) -> String {
    json!({
        "id": row.id,
        "title": row.title,
        "cwd": row.cwd,
        "model": row.model,
        "mode": row.mode,
        "parentId": row.parent_id,
        "lineage": row.lineage,
        "createdAt": iso8601(row.created_at_ms),
        "updatedAt": iso8601(row.updated_at_ms),
    })
    .to_string()
}

fn show(session: &LoadedSession, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let row = &session.row;
    writeln!(out, "session  {}", printable(&row.id))?;
    if let Some(title) = &row.title {
        writeln!(out, "title    {}", one_line(title))?;
    }
    if let (Some(_), Some(parent)) = (row.lineage, &row.parent_id) {
        writeln!(out, "child of {}", printable(parent))?;
    }
    writeln!(out, "folder   {}", one_line(&row.cwd))?;
    writeln!(out, "model    {} (mode {})", one_line(&row.model), one_line(&row.mode))?;
    writeln!(out, "created  {}, last change {}", iso8601(row.created_at_ms), iso8601(row.updated_at_ms))?;
    for used in &session.usage {
        writeln!(out, "used     {}", used_line(used))?;
    }
    for turn in &session.turns {
        let reason = turn.exit_reason.as_deref().unwrap_or("no end stored");
        writeln!(out, "turn     {}: {} ({}), {} steps", printable(&turn.id), turn.status, reason, turn.steps)?;
    }
    session.shown().try_for_each(|stored| show_message(&stored.message, out))
}

/// What one model was used for: calls, tokens in and out with what they hold, and the cost where a price is known.
fn used_line(used: &UsageRow) -> String {
    let tokens = &used.usage;
    let part = |count: u64, what: &str| if count > 0 { format!("{count} {what}") } else { String::new() };
    let list = |parts: [String; 2]| {
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    };
    let input = list([part(tokens.cached_tokens, "cached"), part(tokens.cache_write_tokens, "written to the cache")]);
    let output = list([part(tokens.reasoning_tokens, "reasoning"), String::new()]);
    let cost = match used.cost_micros {
        Some(micros) => format!(", {}.{:06} USD", micros / 1_000_000, micros % 1_000_000),
        None => ", no known price".to_owned(),
    };
    let model = one_line(&format!("{}/{}", used.provider, used.model));
    let (calls, read, written) = (used.calls, tokens.input_tokens, tokens.output_tokens);
    format!("{model}: {calls} calls, {read} tokens in{input}, {written} out{output}{cost}")
}

fn show_message(message: &Message, out: &mut (dyn Write + Send)) -> io::Result<()> {
    match message {
        Message::User(_) => writeln!(out, "\n[user]\n{}", printable(&message.plain_text())),
        Message::Assistant(assistant) => {
            writeln!(out, "\n[assistant]")?;
            if !assistant.text.is_empty() {
                writeln!(out, "{}", printable(&assistant.text))?;
            }
            assistant
                .tool_calls
                .iter()
                .try_for_each(|call| writeln!(out, "-> {} {}", one_line(&call.name), one_line(&call.arguments)))
        }
        Message::Tool(result) => {
            let text = message.plain_text();
            let failed = if result.is_error { ", failed" } else { "" };
            let shown: String = text.chars().take(SHOWN_RESULT_CHARS).collect();
            writeln!(out, "\n[{}{failed}]\n{}", one_line(&result.name), printable(&shown))?;
            match text.chars().count().saturating_sub(SHOWN_RESULT_CHARS) {
                0 => Ok(()),
                more => writeln!(out, "({more} more characters; `turnd sessions export` has them)"),
            }
        }
    }
}

fn export(session: &LoadedSession, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let messages: Vec<_> = session
        .messages
        .iter()
        .map(|stored| {
            let (is_shown, is_sent) = (stored.standing.is_shown(), stored.standing.is_sent());
            let (id, turn_id, message) = (stored.id, &stored.turn_id, &stored.message);
            json!({"id": id, "turnId": turn_id, "message": message, "isShown": is_shown, "isSent": is_sent})
        })
        .collect();
    let document = json!({
        "version": EXPORT_VERSION,
        "session": session.row,
        "messages": messages,
        "toolCalls": session.tool_calls,
        "turns": session.turns,
        "approvals": session.approvals,
        "usage": session.usage,
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// Text that cannot steer a terminal: model and tool output may hold escape sequences.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() && !matches!(char, '\n' | '\t') { '\u{FFFD}' } else { char }).collect()
}

/// [`printable`] on one line.
fn one_line(text: &str) -> String {
    printable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AssistantMessage, Effect, Part, ToolCall, ToolResult, Usage};
    use crate::store::Write as Change;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SessionsArgs,
    }

    async fn output(home: &Path, line: &str) -> Result<String, String> {
        let words = std::iter::once("sessions").chain(line.split(' '));
        let mut out = Vec::new();
        run(Line::parse_from(words).args, home, &mut out).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    async fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let row = |id: &str, cwd: &str, title: Option<&str>| {
            Change::CreateSession(SessionRow {
                id: id.into(),
                parent_id: None,
                lineage: None,
                cwd: cwd.into(),
                additional_roots: Vec::new(),
                model: "local/m".into(),
                mode: "ask".into(),
                title: title.map(str::to_owned),
                system_prompt: Some("secretly long".into()),
                created_at_ms: 0,
                updated_at_ms: 1000,
            })
        };
        let append = |message| Change::AppendMessage { session_id: "s1".into(), turn_id: None, message };
        let call =
            ToolCall { id: "c".into(), name: "read_file".into(), arguments: "{\"path\": 1}".into(), extra: None };
        let writes = vec![
            row("s1", "/a", Some("a\u{1b}[2J\ntitle")),
            row("s2", "/b", None),
            append(Message::user("look\u{1b}[2J")),
            append(Message::Assistant(AssistantMessage { tool_calls: vec![call], ..Default::default() })),
            append(Message::Tool(ToolResult {
                tool_call_id: "c".into(),
                name: "read_file".into(),
                content: vec![Part::text("y".repeat(2_500))],
                is_error: true,
                effect: Effect::Done,
            })),
        ];
        let used = |model: &str, cost_micros, usage| Change::AddUsage {
            session_id: "s1".into(),
            provider: "p".into(),
            model: model.into(),
            usage,
            cost_micros,
        };
        let tokens = Usage { input_tokens: 100, output_tokens: 7, ..Usage::default() };
        let detailed = Usage { cached_tokens: 40, cache_write_tokens: 20, reasoning_tokens: 3, ..tokens };
        let store = Store::open(home.path());
        store.write(writes).await.unwrap();
        store.write(vec![used("m", Some(1_002_500), detailed), used("n", None, tokens)]).await.unwrap();
        store.close().await.unwrap();
        home
    }

    #[tokio::test]
    async fn sessions_are_listed_for_people_and_programs() {
        let home = home().await;
        let list = output(home.path(), "list").await.unwrap();
        assert_eq!(list.lines().count(), 2);
        assert!(list.contains("  /a  a\u{FFFD}[2J title\n"), "{list}");
        let of_b = output(home.path(), "list --json --cwd /b").await.unwrap();
        let row: serde_json::Value = serde_json::from_str(&of_b).unwrap();
        assert_eq!((&row["id"], &row["title"]), (&json!("s2"), &json!(null)));
        assert_eq!(row["updatedAt"], "1970-01-01T00:00:01Z");
    }

    #[tokio::test]
    async fn a_session_is_shown_without_steering_the_terminal_and_exported_whole() {
        let home = home().await;
        let shown = output(home.path(), "show s1").await.unwrap();
        assert!(!shown.contains('\u{1b}'));
        assert!(shown.contains("[user]\nlook\u{FFFD}[2J\n"), "{shown}");
        let used = "used     p/m: 1 calls, 100 tokens in (40 cached, 20 written to the cache), 7 out (3 reasoning), \
                    1.002500 USD\nused     p/n: 1 calls, 100 tokens in, 7 out, no known price\n";
        assert!(shown.contains(used), "{shown}");
        assert!(shown.contains("-> read_file {\"path\": 1}\n"), "{shown}");
        assert!(shown.contains("[read_file, failed]\nyyy") && shown.contains("(500 more characters;"), "{shown}");

        let exported: serde_json::Value =
            serde_json::from_str(&output(home.path(), "export s1").await.unwrap()).unwrap();
        assert_eq!(exported["version"], 1);
        assert_eq!(exported["session"]["system_prompt"], "secretly long");
        assert_eq!(exported["messages"][0]["message"]["content"][0]["text"], "look\u{1b}[2J");
        assert_eq!(exported["messages"][2]["message"]["content"][0]["text"].as_str().unwrap().len(), 2_500);
    }

    #[tokio::test]
    async fn a_deleted_session_is_unknown() {
        let home = home().await;
        assert_eq!(output(home.path(), "delete s1").await.unwrap(), "deleted session s1\n");
        let unknown = Err("there is no session s1; `turnd sessions list` shows all".to_owned());
        for line in ["show s1", "export s1", "delete s1"] {
            assert_eq!(output(home.path(), line).await, unknown);
        }
    }

    #[tokio::test]
    async fn looking_makes_no_store_and_a_damaged_one_is_told_of() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(output(home.path(), "list").await.unwrap(), "");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        std::fs::write(home.path().join("sessions.db"), "garbage ".repeat(1000)).unwrap();
        assert!(output(home.path(), "list").await.unwrap_err().contains("sessions.db.corrupt-"));
        assert_eq!(output(home.path(), "list").await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_is_no_error() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let args = Line::parse_from(["sessions", "list"]).args;
        run(args, home().await.path(), &mut Gone).await.unwrap();
    }
}
