//! The tables, as numbered migrations.
//!
//! A migration that has been released is never changed: the next change is a new entry of [`MIGRATIONS`].

use rusqlite::{Connection, TransactionBehavior};

use super::error::StoreError;

/// The steps from an empty file to the newest schema; step `n` (from 1) leaves `user_version` at `n`.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema/0001_begin.sql"),
    include_str!("schema/0002_lineage.sql"),
    include_str!("schema/0003_words.sql"),
];

/// The schema that `migrations` lead to.
pub(super) fn newest(migrations: &[&str]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// The schema of an open file; 0 for an empty one.
pub(super) fn found(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Brings the file to the newest schema in one transaction.
pub(super) fn migrate(connection: &mut Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    let (found, known) = (found(&transaction)?, newest(migrations));
    if found > known {
        return Err(StoreError::NewerVersion { found, known });
    }
    for step in migrations.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    Ok(transaction.commit()?)
}
