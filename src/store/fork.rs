//! A copy of a session that goes on by itself.

use rusqlite::{Connection, params};

use super::SessionRow;
use super::claim::Owner;
use super::error::StoreError;
use super::write::create_session;

/// What a fork takes over: all that was said, what clients were shown of it, and the turns that have ended. What it
/// has cost stays with the session that it comes from.
const COPIES: [&str; 3] = [
    "INSERT INTO messages (session_id, seq, active, turn_id, role, tool_call_id, created_at_ms, body, content)
     SELECT ?2, seq, active, turn_id, role, tool_call_id, created_at_ms, body, content
     FROM messages WHERE session_id = ?1 ORDER BY id",
    "INSERT INTO tool_calls (session_id, id, turn_id, name, status, display)
     SELECT ?2, id, turn_id, name, status, display FROM tool_calls WHERE session_id = ?1 ORDER BY rowid",
    "INSERT INTO turns (session_id, id, status, exit_reason, steps, api_calls, input_tokens, output_tokens,
         cached_tokens, cache_write_tokens, reasoning_tokens, started_at_ms, ended_at_ms)
     SELECT ?2, id, status, exit_reason, steps, api_calls, input_tokens, output_tokens,
         cached_tokens, cache_write_tokens, reasoning_tokens, started_at_ms, ended_at_ms
     FROM turns WHERE session_id = ?1 AND status <> 'running' ORDER BY rowid",
];

/// Makes the session `row` with what `from` has.
pub(super) fn fork(connection: &Connection, me: &Owner, from: &str, row: &SessionRow) -> Result<(), StoreError> {
    create_session(connection, me, row)?;
    for copy in COPIES {
        connection.prepare_cached(copy)?.execute(params![from, row.id])?;
    }
    Ok(())
}
