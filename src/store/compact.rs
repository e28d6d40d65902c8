//! Compaction in the store: nothing is deleted, only who gets to see a message changes.
//!
//! What was said stays as it was, shown and searched; what is sent to the model instead are rows of their own,
//! which a later compaction replaces. One transaction, so that a crash leaves the old history or the new one.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::error::StoreError;
use super::write::{Write, insert_message, retire};
use super::{Standing, StoredMessage, read};
use crate::message::Message;

/// Applies [`Write::Compact`].
pub(super) fn compact(connection: &Connection, write: &Write) -> Result<(), StoreError> {
    let Write::Compact { session_id, before, dropped, rewritten, summary } = write else { return Ok(()) };
    let mut history = read::read_messages(connection, session_id)?;
    history.retain(|stored| stored.standing.is_sent());
    if history.len() != *before {
        return Err(StoreError::Io(format!(
            "cannot compact a history of {} messages as one of {before}",
            history.len()
        )));
    }
    let places = places(connection, session_id)?;
    let place_of = |stored: &StoredMessage| places.get(&stored.id).copied().unwrap_or_default();
    let mut summary_place = None;
    for stored in dropped.iter().filter_map(|index| history.get(*index)) {
        set_aside(connection, stored)?;
        summary_place = summary_place.max(Some(place_of(stored)));
    }
    for (index, message) in rewritten {
        let Some(stored) = history.get(*index) else { continue };
        set_aside(connection, stored)?;
        insert(connection, session_id, stored.turn_id.as_deref(), message, place_of(stored))?;
    }
    // Without a turn: a corrected request is looked for among the messages of its turn.
    match (summary, summary_place) {
        (Some(summary), Some(place)) => insert(connection, session_id, None, summary, place),
        _ => Ok(()),
    }
}

fn insert(
    connection: &Connection,
    session_id: &str,
    turn_id: Option<&str>,
    message: &Message,
    place: i64,
) -> Result<(), StoreError> {
    insert_message(connection, session_id, turn_id, message, place, Standing::Internal).map(drop)
}

/// Takes a message out of what is sent. What was never shown is replaced for good.
fn set_aside(connection: &Connection, stored: &StoredMessage) -> Result<(), StoreError> {
    if stored.standing == Standing::Internal {
        return retire(connection, stored.id);
    }
    connection
        .prepare_cached("UPDATE messages SET active = ?2 WHERE id = ?1")?
        .execute(params![stored.id, Standing::Compacted.column()])?;
    Ok(())
}

fn places(connection: &Connection, session_id: &str) -> Result<HashMap<i64, i64>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT id, seq FROM messages WHERE session_id = ?1 AND active <> 0")?;
    let rows = statement.query_map([session_id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
