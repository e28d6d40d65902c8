//! Everything that can be written, as one closed list, and how each is applied.

use rusqlite::{Connection, OptionalExtension, params};

use super::claim::{self, Owner};
use super::error::StoreError;
use super::{ApprovalRow, SessionRow, Standing, ToolCallRow, TurnRow, codec, compact, fork, search};
use crate::clock;
use crate::message::{Message, Usage};

/// One change of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A new session, claimed by this process.
    CreateSession(SessionRow),
    /// A new session with the history of another, claimed by this process.
    ForkSession {
        /// The session that is copied.
        from: String,
        /// The new one.
        row: SessionRow,
    },
    /// Changes what is `Some`.
    UpdateSession {
        /// The session.
        id: String,
        /// For lists.
        title: Option<String>,
        /// The mode's name.
        mode: Option<String>,
        /// `PROVIDER/MODEL`.
        model: Option<String>,
        /// The exact system prompt.
        system_prompt: Option<String>,
        /// Unix milliseconds.
        updated_at_ms: i64,
    },
    /// A message at the end of the history.
    AppendMessage {
        /// The session.
        session_id: String,
        /// Its turn.
        turn_id: Option<String>,
        /// The message.
        message: Message,
    },
    /// A newer form of a stored message, in its place: of the tool result with the same call id, or of the
    /// turn's newest user message. Appended when there is none.
    AmendMessage {
        /// The session.
        session_id: String,
        /// Its turn.
        turn_id: Option<String>,
        /// The newer form.
        message: Message,
    },
    /// A shorter history in place of the one there is. Places count the messages that are sent to the model,
    /// in their order. Fails, and changes nothing, when there are not `before` of them.
    Compact {
        /// The session.
        session_id: String,
        /// Messages of the history as it was.
        before: usize,
        /// Messages that are no longer sent; a client is still shown them.
        dropped: Vec<usize>,
        /// Shorter forms of messages that stay; a client is still shown the long ones.
        rewritten: Vec<(usize, Message)>,
        /// Stands where the last dropped message stood.
        summary: Option<Message>,
    },
    /// A turn begins.
    StartTurn(TurnRow),
    /// A turn ended.
    FinishTurn(TurnRow),
    /// Words for the running turn, kept until its end is stored.
    KeepWords {
        /// The session.
        session_id: String,
        /// The words.
        text: String,
    },
    /// A tool call, new or changed.
    PutToolCall {
        /// The session.
        session_id: String,
        /// The call.
        row: ToolCallRow,
    },
    /// A decision about a tool call.
    RecordApproval {
        /// The session.
        session_id: String,
        /// The decision.
        row: ApprovalRow,
    },
    /// Tokens of one model call, added to the session's sum for that model.
    AddUsage {
        /// The session.
        session_id: String,
        /// The provider.
        provider: String,
        /// The model.
        model: String,
        /// What was counted.
        usage: Usage,
        /// Millionths of a US dollar; `None` when no price is known.
        cost_micros: Option<u64>,
    },
    /// Deletes a session and all that belongs to it, child agents' sessions too; an unknown id is fine.
    DeleteSession {
        /// The session.
        id: String,
    },
    /// Lets other processes open a session.
    ReleaseSession {
        /// The session.
        id: String,
    },
}

/// Applies one change inside the caller's transaction.
pub(super) fn apply(connection: &Connection, me: &Owner, write: &Write) -> Result<(), StoreError> {
    match write {
        Write::CreateSession(row) => create_session(connection, me, row),
        Write::ForkSession { from, row } => fork::fork(connection, me, from, row),
        Write::UpdateSession { .. } => update_session(connection, write),
        Write::AppendMessage { session_id, turn_id, message } => {
            let place = next_place(connection, session_id)?;
            insert_message(connection, session_id, turn_id.as_deref(), message, place, Standing::Current).map(drop)
        }
        Write::AmendMessage { session_id, turn_id, message } => {
            amend(connection, session_id, turn_id.as_deref(), message)
        }
        Write::Compact { .. } => compact::compact(connection, write),
        Write::StartTurn(row) => put_turn(connection, row),
        Write::FinishTurn(row) => {
            put_turn(connection, row)?;
            connection.prepare_cached("DELETE FROM words WHERE session_id = ?1")?.execute([&row.session_id])?;
            Ok(())
        }
        Write::KeepWords { session_id, text } => {
            connection
                .prepare_cached("INSERT INTO words (session_id, text) VALUES (?1, ?2)")?
                .execute([session_id, text])?;
            Ok(())
        }
        Write::PutToolCall { session_id, row } => put_tool_call(connection, session_id, row),
        Write::RecordApproval { session_id, row } => record_approval(connection, session_id, row),
        Write::AddUsage { session_id, provider, model, usage, cost_micros } => {
            add_usage(connection, session_id, [provider, model], usage, *cost_micros)
        }
        Write::DeleteSession { id } => delete_session(connection, me, id),
        Write::ReleaseSession { id } => claim::release(connection, me, id),
    }
}

pub(super) fn create_session(connection: &Connection, me: &Owner, row: &SessionRow) -> Result<(), StoreError> {
    // A parent that was deleted meanwhile is no reason to refuse the child.
    connection
        .prepare_cached(
            "INSERT INTO sessions (id, parent_id, cwd, additional_roots, model, mode, title, system_prompt,
                 created_at_ms, updated_at_ms, owner)
             VALUES (?1, (SELECT id FROM sessions WHERE id = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            row.id,
            row.parent_id,
            row.cwd,
            json_text(&row.additional_roots)?,
            row.model,
            row.mode,
            row.title,
            row.system_prompt,
            row.created_at_ms,
            row.updated_at_ms,
            me.text(),
        ])?;
    if let Some(lineage) = row.lineage {
        connection
            .prepare_cached("INSERT INTO lineage (session_id, kind) VALUES (?1, ?2)")?
            .execute(params![row.id, lineage.as_str()])?;
    }
    Ok(())
}

fn update_session(connection: &Connection, write: &Write) -> Result<(), StoreError> {
    let Write::UpdateSession { id, title, mode, model, system_prompt, updated_at_ms } = write else { return Ok(()) };
    let changed = connection
        .prepare_cached(
            "UPDATE sessions SET title = coalesce(?2, title), mode = coalesce(?3, mode), model = coalesce(?4, model),
                 system_prompt = coalesce(?5, system_prompt), updated_at_ms = max(updated_at_ms, ?6)
             WHERE id = ?1",
        )?
        .execute(params![id, title, mode, model, system_prompt, updated_at_ms])?;
    if changed == 0 { Err(StoreError::UnknownSession) } else { Ok(()) }
}

/// The place behind the last message of a session.
pub(super) fn next_place(connection: &Connection, session_id: &str) -> Result<i64, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT coalesce(max(seq), 0) + 1 FROM messages WHERE session_id = ?1")?;
    Ok(statement.query_row([session_id], |row| row.get(0))?)
}

/// Stores a message at a place of its session and returns its row.
pub(super) fn insert_message(
    connection: &Connection,
    session_id: &str,
    turn_id: Option<&str>,
    message: &Message,
    place: i64,
    standing: Standing,
) -> Result<i64, StoreError> {
    let body = codec::encode(message).map_err(|error| StoreError::Io(format!("cannot encode a message: {error}")))?;
    let content = message.plain_text();
    let tool_call_id = match message {
        Message::Tool(result) => Some(result.tool_call_id.as_str()),
        Message::User(_) | Message::Assistant(_) => None,
    };
    let now = clock::now_ms();
    connection
        .prepare_cached(
            "INSERT INTO messages (session_id, seq, turn_id, role, tool_call_id, created_at_ms, body, content, active)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            session_id,
            place,
            turn_id,
            message.role(),
            tool_call_id,
            now,
            body,
            content,
            standing.column()
        ])?;
    let id = connection.last_insert_rowid();
    if matches!(message, Message::User(_)) {
        touch(connection, session_id, now)?;
    }
    Ok(id)
}

fn amend(
    connection: &Connection,
    session_id: &str,
    turn_id: Option<&str>,
    message: &Message,
) -> Result<(), StoreError> {
    let old = match message {
        Message::Tool(result) => connection
            .prepare_cached(
                "SELECT id, seq, active FROM messages
                 WHERE session_id = ?1 AND tool_call_id = ?2 AND active IN (1, 3) ORDER BY seq DESC LIMIT 1",
            )?
            .query_row(params![session_id, result.tool_call_id], place_of)
            .optional()?,
        Message::User(_) | Message::Assistant(_) => connection
            .prepare_cached(
                "SELECT id, seq, active FROM messages
                 WHERE session_id = ?1 AND turn_id IS ?2 AND role = ?3 AND active IN (1, 3)
                 ORDER BY seq DESC LIMIT 1",
            )?
            .query_row(params![session_id, turn_id, message.role()], place_of)
            .optional()?,
    };
    let (place, standing) = match old {
        Some((id, place, standing)) => {
            retire(connection, id)?;
            (place, standing)
        }
        None => (next_place(connection, session_id)?, Standing::Current),
    };
    insert_message(connection, session_id, turn_id, message, place, standing).map(drop)
}

/// Marks a row that a newer form replaces.
pub(super) fn retire(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE messages SET active = 0 WHERE id = ?1")?.execute([id])?;
    search::remove(connection, id)
}

fn place_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, i64, Standing)> {
    Ok((row.get(0)?, row.get(1)?, Standing::of_column(row.get(2)?)))
}

fn put_turn(connection: &Connection, row: &TurnRow) -> Result<(), StoreError> {
    let [input, output, cached, cache_write, reasoning] = counts(&row.usage);
    connection
        .prepare_cached(
            "INSERT INTO turns (session_id, id, status, exit_reason, steps, api_calls, input_tokens, output_tokens,
                 cached_tokens, cache_write_tokens, reasoning_tokens, started_at_ms, ended_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
             ON CONFLICT (session_id, id) DO UPDATE SET
                 status = excluded.status, exit_reason = excluded.exit_reason, steps = excluded.steps,
                 api_calls = excluded.api_calls, input_tokens = excluded.input_tokens,
                 output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
                 cache_write_tokens = excluded.cache_write_tokens, reasoning_tokens = excluded.reasoning_tokens,
                 started_at_ms = excluded.started_at_ms, ended_at_ms = excluded.ended_at_ms",
        )?
        .execute(params![
            row.session_id,
            row.id,
            row.status,
            row.exit_reason,
            row.steps,
            row.api_calls,
            input,
            output,
            cached,
            cache_write,
            reasoning,
            row.started_at_ms,
            row.ended_at_ms,
        ])?;
    touch(connection, &row.session_id, row.ended_at_ms.unwrap_or(row.started_at_ms))
}

fn put_tool_call(connection: &Connection, session_id: &str, row: &ToolCallRow) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO tool_calls (session_id, id, turn_id, name, status, display) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (session_id, id) DO UPDATE SET turn_id = excluded.turn_id, name = excluded.name,
                 status = excluded.status, display = excluded.display",
        )?
        .execute(params![session_id, row.id, row.turn_id, row.name, row.status, json_text(&row.display)?])?;
    Ok(())
}

fn record_approval(connection: &Connection, session_id: &str, row: &ApprovalRow) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO approvals (session_id, turn_id, tool_call_id, outcome, remembered, decided_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![session_id, row.turn_id, row.tool_call_id, row.outcome, row.remembered, clock::now_ms()])?;
    Ok(())
}

fn add_usage(
    connection: &Connection,
    session_id: &str,
    [provider, model]: [&str; 2],
    usage: &Usage,
    cost_micros: Option<u64>,
) -> Result<(), StoreError> {
    let [input, output, cached, cache_write, reasoning] = counts(usage);
    connection
        .prepare_cached(
            "INSERT INTO usage (session_id, provider, model, calls, input_tokens, output_tokens, cached_tokens,
                 cache_write_tokens, reasoning_tokens, cost_micros)
             VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (session_id, provider, model) DO UPDATE SET
                 calls = calls + 1,
                 input_tokens = input_tokens + excluded.input_tokens,
                 output_tokens = output_tokens + excluded.output_tokens,
                 cached_tokens = cached_tokens + excluded.cached_tokens,
                 cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
                 reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
                 cost_micros = coalesce(cost_micros + excluded.cost_micros, cost_micros, excluded.cost_micros)",
        )?
        .execute(params![
            session_id,
            provider,
            model,
            input,
            output,
            cached,
            cache_write,
            reasoning,
            cost_micros.map(count)
        ])?;
    Ok(())
}

fn delete_session(connection: &Connection, me: &Owner, id: &str) -> Result<(), StoreError> {
    claim::refuse_foreign(connection, me, id)?;
    for child in children(connection, id)? {
        delete_session(connection, me, &child)?;
    }
    search::remove_session(connection, id)?;
    connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// The child agents' sessions that belong to a session and mean nothing without it.
fn children(connection: &Connection, id: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT s.id FROM sessions s JOIN lineage l ON l.session_id = s.id WHERE s.parent_id = ?1")?;
    let ids = statement.query_map([id], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// Moves a session up in lists.
fn touch(connection: &Connection, session_id: &str, now_ms: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sessions SET updated_at_ms = max(updated_at_ms, ?2) WHERE id = ?1")?
        .execute(params![session_id, now_ms])?;
    Ok(())
}

fn counts(usage: &Usage) -> [i64; 5] {
    [
        count(usage.input_tokens),
        count(usage.output_tokens),
        count(usage.cached_tokens),
        count(usage.cache_write_tokens),
        count(usage.reasoning_tokens),
    ]
}

/// A count as SQLite holds it. The cap keeps sums of absurd counts inside an integer.
fn count(value: u64) -> i64 {
    const CAP: i64 = 1 << 53;
    i64::try_from(value).map_or(CAP, |value| value.min(CAP))
}

fn json_text(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Io(format!("cannot encode a row: {error}")))
}
