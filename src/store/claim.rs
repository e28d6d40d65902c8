//! Who has a session open, and what is repaired when a new owner takes it.
//!
//! An owner is a process, named so that a reused pid is not mistaken for it: pid, start time and boot id.
//! Nothing has to run when a process dies; its claims are void because it is gone.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::error::StoreError;
use super::read::{self, LoadedSession};
use super::thread::Db;
use super::{Standing, StoredMessage, write};
use crate::clock;
use crate::message::{Effect, Message, Part, ToolResult};

/// What the model is told of a call whose process died. The wording is part of the stored history.
const INTERRUPTED: &str = "Interrupted: turnd stopped while this call was open; whether it had an effect is unknown.";

/// A process as the `owner` column names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: u32,
    text: String,
}

impl Owner {
    /// This process.
    pub(super) fn current() -> Self {
        Self::of(std::process::id())
    }

    /// The process that has this pid now.
    pub(super) fn of(pid: u32) -> Self {
        let start = start_time(pid).unwrap_or_default();
        Self { pid, text: format!("{pid}:{start}:{}", boot_id()) }
    }

    /// The column's value.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn parse(text: &str) -> Option<Self> {
        let pid = text.split(':').next()?.parse().ok()?;
        Some(Self { pid, text: text.to_owned() })
    }

    fn is_alive(&self) -> bool {
        runs(self.pid) && Self::of(self.pid) == *self
    }
}

fn runs(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    // A process of another user answers EPERM, which proves that it is there.
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Clock ticks from boot to the process's start, field 22 of `proc_pid_stat(5)`; `None` without `/proc`.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name (field 2) may hold spaces and parentheses; what follows the last one may not.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Fails when another live process holds the session.
pub(super) fn refuse_foreign(connection: &Connection, me: &Owner, id: &str) -> Result<(), StoreError> {
    let owner: Option<Option<String>> = connection
        .prepare_cached("SELECT owner FROM sessions WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    match owner.flatten().as_deref().and_then(Owner::parse) {
        Some(owner) if owner != *me && owner.is_alive() => Err(StoreError::Owned { pid: owner.pid }),
        _ => Ok(()),
    }
}

/// Gives a session up, if it is ours.
pub(super) fn release(connection: &Connection, me: &Owner, id: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sessions SET owner = NULL WHERE id = ?1 AND owner = ?2")?
        .execute(params![id, me.text()])?;
    Ok(())
}

/// Gives up all of `claims`.
pub(super) fn release_all(connection: &mut Connection, me: &Owner, claims: &HashSet<String>) -> Result<(), StoreError> {
    if claims.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for id in claims {
        release(&transaction, me, id)?;
    }
    Ok(transaction.commit()?)
}

/// Claims, repairs and reads a session in one transaction.
pub(super) fn open_session(db: &mut Db, id: &str) -> Result<Option<LoadedSession>, StoreError> {
    if let Some(error) = &db.read_only {
        return Err(error.clone());
    }
    let transaction = db.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    refuse_foreign(&transaction, &db.me, id)?;
    let Some(mut session) = read::read_session(&transaction, id)? else { return Ok(None) };
    transaction
        .prepare_cached("UPDATE sessions SET owner = ?2 WHERE id = ?1 AND owner IS NOT ?2")?
        .execute(params![id, db.me.text()])?;
    let is_live = db.claims.contains(id) && session.turns.iter().any(|turn| turn.status == "running");
    if !is_live {
        repair(&transaction, &mut session)?;
        repair_children(&transaction, &db.me, &db.claims, id)?;
    }
    transaction.commit()?;
    db.claims.insert(id.to_owned());
    Ok(Some(session))
}

/// Closes what a dead process left open, in the file and in what was read of it.
fn repair(connection: &Connection, session: &mut LoadedSession) -> Result<(), StoreError> {
    let id = session.row.id.clone();
    for (turn_id, result) in missing_results(&session.messages) {
        let message = Message::Tool(result);
        let place = write::next_place(connection, &id)?;
        let row = write::insert_message(connection, &id, turn_id.as_deref(), &message, place, Standing::Current)?;
        session.messages.push(StoredMessage { id: row, turn_id, message, standing: Standing::Current });
    }
    read::put_results_in_call_order(&mut session.messages);
    close_tool_calls(connection, session)?;
    close_turns(connection, session)
}

/// Closes the sessions of child agents that died with their parent's process: nobody opens them to continue, so
/// they would run in the books for ever.
fn repair_children(
    connection: &Connection,
    me: &Owner,
    claims: &HashSet<String>,
    parent: &str,
) -> Result<(), StoreError> {
    let mut open = connection.prepare_cached(
        "SELECT id FROM sessions
         WHERE parent_id = ?1 AND id IN (SELECT session_id FROM turns WHERE status = 'running')",
    )?;
    let children: Vec<String> = open.query_map([parent], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for child in children.iter().filter(|child| !claims.contains(*child)) {
        // A fork may have been taken up by somebody else.
        if refuse_foreign(connection, me, child).is_ok()
            && let Some(mut session) = read::read_session(connection, child)?
        {
            repair(connection, &mut session)?;
            repair_children(connection, me, claims, child)?;
        }
    }
    Ok(())
}

fn missing_results(messages: &[StoredMessage]) -> Vec<(Option<String>, ToolResult)> {
    let answered: HashSet<&str> = messages
        .iter()
        .filter_map(|stored| match &stored.message {
            Message::Tool(result) => Some(result.tool_call_id.as_str()),
            Message::User(_) | Message::Assistant(_) => None,
        })
        .collect();
    let mut missing = Vec::new();
    for stored in messages {
        let Message::Assistant(assistant) = &stored.message else { continue };
        for call in assistant.tool_calls.iter().filter(|call| !answered.contains(call.id.as_str())) {
            let result = ToolResult {
                tool_call_id: call.id.clone(),
                name: call.name.clone(),
                content: vec![Part::text(INTERRUPTED)],
                is_error: true,
                effect: Effect::Unknown,
            };
            missing.push((stored.turn_id.clone(), result));
        }
    }
    missing
}

fn close_tool_calls(connection: &Connection, session: &mut LoadedSession) -> Result<(), StoreError> {
    let succeeded: HashSet<&str> = session
        .messages
        .iter()
        .filter_map(|stored| match &stored.message {
            Message::Tool(result) if !result.is_error => Some(result.tool_call_id.as_str()),
            _ => None,
        })
        .collect();
    for call in session.tool_calls.iter_mut().filter(|call| matches!(call.status.as_str(), "pending" | "in_progress")) {
        // A call can have its result and yet an open row when the process died between the two.
        call.status = if succeeded.contains(call.id.as_str()) { "completed" } else { "failed" }.to_owned();
        connection
            .prepare_cached("UPDATE tool_calls SET status = ?3 WHERE session_id = ?1 AND id = ?2")?
            .execute(params![session.row.id, call.id, call.status])?;
    }
    Ok(())
}

fn close_turns(connection: &Connection, session: &mut LoadedSession) -> Result<(), StoreError> {
    for turn in session.turns.iter_mut().filter(|turn| turn.status == "running") {
        "interrupted".clone_into(&mut turn.status);
        turn.exit_reason = Some("process_died".to_owned());
        turn.ended_at_ms = Some(clock::now_ms());
        connection
            .prepare_cached(
                "UPDATE turns SET status = ?3, exit_reason = ?4, ended_at_ms = ?5 WHERE session_id = ?1 AND id = ?2",
            )?
            .execute(params![session.row.id, turn.id, turn.status, turn.exit_reason, turn.ended_at_ms])?;
    }
    Ok(())
}
