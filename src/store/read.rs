//! What is read: one session whole, or a page of the list.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::StoreError;
use super::{ApprovalRow, Lineage, SessionRow, Standing, StoredMessage, ToolCallRow, TurnRow, UsageRow, codec};
use crate::message::{Message, Usage};

/// Most sessions of one page, whatever was asked for.
const MAX_PAGE: usize = 1000;

/// A session with all that is needed to go on with it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedSession {
    /// The session.
    pub row: SessionRow,
    /// Its messages, compacted ones among them; the results of a step stand in call order behind the message
    /// that asked for them.
    pub messages: Vec<StoredMessage>,
    /// Its tool calls in the order they were first stored.
    pub tool_calls: Vec<ToolCallRow>,
    /// Its turns, oldest first.
    pub turns: Vec<TurnRow>,
    /// The decisions about its tool calls, oldest first.
    pub approvals: Vec<ApprovalRow>,
    /// Its tokens, one row for each provider and model.
    pub usage: Vec<UsageRow>,
    /// Words for a turn whose end was never stored, oldest first.
    pub words: Vec<String>,
}

impl LoadedSession {
    /// What a request to the model holds.
    pub fn history(&self) -> impl Iterator<Item = &StoredMessage> {
        self.messages.iter().filter(|stored| stored.standing.is_sent())
    }

    /// What a client is shown: all that was said, whatever was compacted.
    pub fn shown(&self) -> impl Iterator<Item = &StoredMessage> {
        self.messages.iter().filter(|stored| stored.standing.is_shown())
    }

    /// Words that were accepted for a turn and are in none of its messages: the process died before.
    pub fn unread_words(&self) -> impl Iterator<Item = &str> {
        let is_read = |words: &str| self.messages.iter().any(|stored| stored.message.plain_text().contains(words));
        self.words.iter().map(String::as_str).filter(move |words| !is_read(words))
    }
}

/// Which sessions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only those with this working folder.
    pub cwd: Option<String>,
    /// Child agents' sessions too.
    pub children: Children,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Sessions of one page, 1 to 1,000.
    pub limit: usize,
}

/// Whether child agents' sessions are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Children {
    /// Only sessions of their own.
    #[default]
    Hidden,
    /// All.
    Shown,
}

/// Reads a session from one snapshot.
pub(super) fn load_session(connection: &mut Connection, id: &str) -> Result<Option<LoadedSession>, StoreError> {
    let snapshot = connection.transaction()?;
    read_session(&snapshot, id)
}

/// Reads a session inside the caller's transaction.
pub(super) fn read_session(connection: &Connection, id: &str) -> Result<Option<LoadedSession>, StoreError> {
    let row = connection
        .prepare_cached(&format!("SELECT {SESSION_COLUMNS}, system_prompt FROM sessions WHERE id = ?1"))?
        .query_row([id], |row| Ok(SessionRow { system_prompt: row.get(SYSTEM_PROMPT)?, ..session_row(row)? }))
        .optional()?;
    let Some(row) = row else { return Ok(None) };
    let messages = read_messages(connection, id)?;
    Ok(Some(LoadedSession {
        row,
        messages,
        tool_calls: rows_of(
            connection,
            id,
            "SELECT id, turn_id, name, status, display FROM tool_calls WHERE session_id = ?1 ORDER BY rowid",
            tool_call_row,
        )?,
        turns: rows_of(
            connection,
            id,
            "SELECT session_id, id, status, exit_reason, steps, api_calls, started_at_ms, ended_at_ms, input_tokens,
                 output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens
             FROM turns WHERE session_id = ?1 ORDER BY started_at_ms, rowid",
            turn_row,
        )?,
        approvals: rows_of(
            connection,
            id,
            "SELECT tool_call_id, turn_id, outcome, remembered FROM approvals WHERE session_id = ?1 ORDER BY id",
            approval_row,
        )?,
        usage: rows_of(
            connection,
            id,
            "SELECT provider, model, calls, cost_micros, input_tokens, output_tokens, cached_tokens,
                 cache_write_tokens, reasoning_tokens
             FROM usage WHERE session_id = ?1 ORDER BY rowid",
            usage_row,
        )?,
        words: rows_of(connection, id, "SELECT text FROM words WHERE session_id = ?1 ORDER BY id", |row| row.get(0))?,
    }))
}

fn rows_of<T>(
    connection: &Connection,
    session_id: &str,
    sql: &str,
    row: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    Ok(connection.prepare_cached(sql)?.query_map([session_id], row)?.collect::<Result<_, _>>()?)
}

pub(super) fn read_messages(connection: &Connection, id: &str) -> Result<Vec<StoredMessage>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, turn_id, role, tool_call_id, body, content, active FROM messages
         WHERE session_id = ?1 AND active <> 0 ORDER BY seq, id",
    )?;
    let rows = statement.query_map([id], |row| {
        let role = row.get_ref(2)?.as_str()?;
        let body = row.get_ref(4)?.as_str()?;
        let content = || row.get(5).unwrap_or_default();
        Ok(StoredMessage {
            id: row.get(0)?,
            turn_id: row.get(1)?,
            message: codec::decode(body, role, content, row.get(3)?),
            standing: Standing::of_column(row.get(6)?),
        })
    })?;
    let mut messages = rows.collect::<Result<_, _>>()?;
    put_results_in_call_order(&mut messages);
    Ok(messages)
}

/// Moves each tool result behind the message that asked for it, in call order. Results land in the order
/// the tools end; everything else keeps its place.
pub(super) fn put_results_in_call_order(messages: &mut Vec<StoredMessage>) {
    let mut asked: HashMap<&str, (usize, usize)> = HashMap::new();
    for (place, stored) in messages.iter().enumerate() {
        if let Message::Assistant(assistant) = &stored.message {
            for (index, call) in assistant.tool_calls.iter().enumerate() {
                asked.insert(&call.id, (place, index + 1));
            }
        }
    }
    if asked.is_empty() {
        return;
    }
    let places: Vec<(usize, usize)> = messages
        .iter()
        .enumerate()
        .map(|(place, stored)| match &stored.message {
            Message::Tool(result) => asked.get(result.tool_call_id.as_str()).copied().unwrap_or((place, 0)),
            Message::User(_) | Message::Assistant(_) => (place, 0),
        })
        .collect();
    if places.is_sorted() {
        return;
    }
    let mut placed: Vec<_> = places.into_iter().zip(std::mem::take(messages)).collect();
    placed.sort_by_key(|(place, _)| *place);
    messages.extend(placed.into_iter().map(|(_, stored)| stored));
}

/// One page of the list and the next page's cursor.
pub(super) fn list_sessions(
    connection: &Connection,
    query: &ListQuery,
) -> Result<(Vec<SessionRow>, Option<String>), StoreError> {
    let limit = query.limit.clamp(1, MAX_PAGE);
    let (before_ms, before_id) = match &query.cursor {
        Some(cursor) => decode_cursor(cursor).ok_or(StoreError::BadCursor)?,
        None => (i64::MAX, String::new()),
    };
    let folder = if query.cwd.is_some() { "cwd = ?4 AND" } else { "?4 IS NULL AND" };
    let lineage = match query.children {
        Children::Hidden => "NOT EXISTS (SELECT 1 FROM lineage WHERE session_id = sessions.id) AND",
        Children::Shown => "",
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE {folder} {lineage} (updated_at_ms, id) < (?1, ?2)
         ORDER BY updated_at_ms DESC, id DESC LIMIT ?3"
    ))?;
    // One row more than the page tells whether there is a next one.
    let rows = statement.query_map(
        params![before_ms, before_id, i64::try_from(limit + 1).unwrap_or(i64::MAX), query.cwd],
        session_row,
    )?;
    let mut page: Vec<SessionRow> = rows.collect::<Result<_, _>>()?;
    let has_more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| has_more).map(|row| encode_cursor(row.updated_at_ms, &row.id));
    Ok((page, next))
}

/// `UPDATED_AT_MS:ID` in hexadecimal digits, so that nobody is tempted to build one.
fn encode_cursor(updated_at_ms: i64, id: &str) -> String {
    use std::fmt::Write as _;
    format!("{updated_at_ms}:{id}").bytes().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    })
}

fn decode_cursor(cursor: &str) -> Option<(i64, String)> {
    let bytes: Option<Vec<u8>> = cursor
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?, 16).ok())
        .collect();
    let text = String::from_utf8(bytes?).ok()?;
    let (updated_at_ms, id) = text.split_once(':')?;
    Some((updated_at_ms.parse().ok()?, id.to_owned()))
}

/// The columns [`session_row`] reads, in its order.
const SESSION_COLUMNS: &str = "id, parent_id, cwd, additional_roots, model, mode, title, created_at_ms, updated_at_ms,
    (SELECT kind FROM lineage WHERE session_id = sessions.id)";
/// The column behind [`SESSION_COLUMNS`].
const SYSTEM_PROMPT: usize = 10;

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get(0)?,
        parent_id: row.get(1)?,
        cwd: row.get(2)?,
        additional_roots: serde_json::from_str(row.get_ref(3)?.as_str()?).unwrap_or_default(),
        model: row.get(4)?,
        mode: row.get(5)?,
        title: row.get(6)?,
        system_prompt: None,
        created_at_ms: row.get(7)?,
        updated_at_ms: row.get(8)?,
        lineage: row.get::<_, Option<String>>(9)?.map(|_| Lineage::Child),
    })
}

fn tool_call_row(row: &Row<'_>) -> rusqlite::Result<ToolCallRow> {
    Ok(ToolCallRow {
        id: row.get(0)?,
        turn_id: row.get(1)?,
        name: row.get(2)?,
        status: row.get(3)?,
        display: serde_json::from_str(row.get_ref(4)?.as_str()?).unwrap_or_default(),
    })
}

fn turn_row(row: &Row<'_>) -> rusqlite::Result<TurnRow> {
    Ok(TurnRow {
        session_id: row.get(0)?,
        id: row.get(1)?,
        status: row.get(2)?,
        exit_reason: row.get(3)?,
        steps: row.get(4)?,
        api_calls: row.get(5)?,
        started_at_ms: row.get(6)?,
        ended_at_ms: row.get(7)?,
        usage: usage(row, 8)?,
    })
}

fn approval_row(row: &Row<'_>) -> rusqlite::Result<ApprovalRow> {
    Ok(ApprovalRow { tool_call_id: row.get(0)?, turn_id: row.get(1)?, outcome: row.get(2)?, remembered: row.get(3)? })
}

fn usage_row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    Ok(UsageRow {
        provider: row.get(0)?,
        model: row.get(1)?,
        calls: count(row, 2)?,
        cost_micros: row.get::<_, Option<i64>>(3)?.map(|cost| u64::try_from(cost).unwrap_or(0)),
        usage: usage(row, 4)?,
    })
}

/// The five token columns from `first` on.
fn usage(row: &Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    Ok(Usage {
        input_tokens: count(row, first)?,
        output_tokens: count(row, first + 1)?,
        cached_tokens: count(row, first + 2)?,
        cache_write_tokens: count(row, first + 3)?,
        reasoning_tokens: count(row, first + 4)?,
        cost_micros: None,
    })
}

fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}
