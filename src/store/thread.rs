//! The thread that owns the connection, and the group commit.

use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::claim::{self, Owner};
use super::error::StoreError;
use super::file::{self, FileId, Place};
use super::search;
use super::write::{self, Write};

/// Most jobs of one transaction: bounds what the first of them waits for.
const MAX_GROUP: usize = 512;

/// Messages at the end of a turn that are worth a transaction of the search index: its pages are written once
/// for all of them.
const INDEX_AT_TURN_END: usize = 16;

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;
type Call = Box<dyn FnOnce(Result<&mut Db, StoreError>) + Send>;

/// Something for the thread to do.
pub(super) enum Job {
    /// Changes, committed together with others that wait.
    Write(WriteJob),
    /// Anything else.
    Call(Call),
    /// The last job.
    Close(Answer<()>),
}

/// Changes that are stored all or none.
pub(super) struct WriteJob {
    pub(super) writes: Vec<Write>,
    pub(super) reply: Answer<()>,
}

impl WriteJob {
    fn apply(&self, connection: &Connection, me: &Owner) -> Result<(), StoreError> {
        self.writes.iter().try_for_each(|write| write::apply(connection, me, write))
    }

    fn answer(self, result: Result<(), StoreError>) {
        // Nobody may be waiting any more; what was done is done.
        drop(self.reply.send(result));
    }
}

/// The open store.
#[derive(Debug)]
pub(super) struct Db {
    pub(super) connection: Connection,
    /// Why writes are refused, if so.
    pub(super) read_only: Option<StoreError>,
    /// Which file it is.
    file: Option<FileId>,
    pub(super) me: Owner,
    /// The sessions this store has open.
    pub(super) claims: HashSet<String>,
    /// Messages written since the search index was brought up to date.
    unindexed: usize,
    /// Transactions of writes so far.
    #[cfg(test)]
    pub(super) commits: usize,
}

/// Starts the thread. It ends after [`Job::Close`] or when the last sender is gone.
pub(super) fn spawn(place: Place, notice: Arc<Mutex<Option<String>>>) -> Sender<Job> {
    let (sender, jobs) = mpsc::channel();
    let keeper = Keeper { place, notice, db: None };
    let spawned = std::thread::Builder::new().name("turnd-store".to_owned()).spawn(move || keeper.run(&jobs));
    if let Err(error) = spawned {
        // The receiver is gone with the closure, so every call answers that the store is closed.
        tracing::error!(%error, "cannot start the store's thread");
    }
    sender
}

struct Keeper {
    place: Place,
    notice: Arc<Mutex<Option<String>>>,
    db: Option<Db>,
}

impl Keeper {
    fn run(mut self, jobs: &Receiver<Job>) {
        // Opened before the first job asks for it, so that it overlaps with the rest of the start.
        if let Err(error) = self.db() {
            tracing::warn!(%error, "the store cannot be opened; the next call tries again");
        }
        let mut next = None;
        while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
            match job {
                Job::Write(first) => {
                    let group = gather(first, jobs, &mut next);
                    self.commit(group);
                    // Everybody has the answer by now.
                    self.db.as_mut().map(Db::index_if_due);
                }
                Job::Call(call) => call(self.db()),
                Job::Close(reply) => {
                    drop(reply.send(self.close()));
                    return;
                }
            }
        }
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the store was not closed cleanly");
        }
    }

    /// The open store; tries to open it when it is not, or when its file is no longer the one at its path:
    /// what is written to a removed file would be acknowledged and lost.
    fn db(&mut self) -> Result<&mut Db, StoreError> {
        if self.db.as_ref().is_some_and(|db| db.file != file::identity(&self.place)) {
            tracing::warn!("the store's file was removed or replaced; it is opened anew");
            self.db = None;
        }
        if self.db.is_none() {
            let opened = file::open(&self.place)?;
            if opened.notice.is_some() {
                *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = opened.notice;
            }
            let db = Db {
                connection: opened.connection,
                read_only: opened.read_only,
                file: file::identity(&self.place),
                me: Owner::current(),
                claims: HashSet::new(),
                unindexed: 0,
                #[cfg(test)]
                commits: 0,
            };
            return Ok(self.db.insert(db));
        }
        self.db.as_mut().ok_or(StoreError::Closed)
    }

    fn commit(&mut self, group: Vec<WriteJob>) {
        let db = match self.db().and_then(|db| db.read_only.clone().map_or(Ok(db), Err)) {
            Ok(db) => db,
            Err(error) => return group.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        };
        match db.commit(&group) {
            Ok(results) => group.into_iter().zip(results).for_each(|(job, result)| job.answer(result)),
            // The whole transaction is lost. Alone, each job fails for its own reasons only; but each would
            // wait as long for a lock that another process does not give up.
            Err(error) if group.len() > 1 && error != StoreError::Busy => {
                for job in group {
                    let result =
                        db.commit(std::slice::from_ref(&job)).and_then(|results| results.into_iter().collect());
                    job.answer(result);
                }
            }
            Err(error) => group.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        }
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let Some(mut db) = self.db.take() else { return Ok(()) };
        let released = claim::release_all(&mut db.connection, &db.me, &db.claims);
        // Closing the last connection of a file writes the WAL back and removes it.
        let closed = db.connection.close().map_err(|(_, error)| error.into());
        released.and(closed)
    }
}

/// The first job and the writes that wait behind it; the first other job is put into `next`.
fn gather(first: WriteJob, jobs: &Receiver<Job>, next: &mut Option<Job>) -> Vec<WriteJob> {
    let mut group = vec![first];
    while group.len() < MAX_GROUP {
        match jobs.try_recv() {
            Ok(Job::Write(job)) => group.push(job),
            Ok(other) => {
                *next = Some(other);
                break;
            }
            Err(_) => break,
        }
    }
    group
}

/// Applies each job in a savepoint of its own, so that one which fails takes nothing else with it.
fn apply_apart(
    transaction: &mut Transaction<'_>,
    me: &Owner,
    group: &[WriteJob],
) -> Result<Vec<Result<(), StoreError>>, StoreError> {
    let mut results = Vec::with_capacity(group.len());
    for job in group {
        let mut savepoint = transaction.savepoint()?;
        let applied = job.apply(&savepoint, me);
        match &applied {
            Ok(()) => savepoint.commit()?,
            // A full disk or an I/O error ends the whole transaction by itself.
            Err(error) if savepoint.is_autocommit() => return Err(error.clone()),
            Err(_) => {
                savepoint.rollback()?;
                savepoint.commit()?;
            }
        }
        results.push(applied);
    }
    Ok(results)
}

impl Db {
    /// Commits the jobs in one transaction, each by itself. An error means that nothing at all
    /// was stored.
    fn commit(&mut self, group: &[WriteJob]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        if group.iter().all(|job| job.writes.is_empty()) {
            return Ok(vec![Ok(()); group.len()]);
        }
        // Immediate: a deferred transaction that has read cannot wait for the write lock of another process.
        let mut transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let results = match group {
            // Alone, it has nobody to be kept apart from.
            [job] => match job.apply(&transaction, &self.me) {
                Ok(()) => vec![Ok(())],
                Err(error) => return Ok(vec![Err(error)]),
            },
            _ => apply_apart(&mut transaction, &self.me, group)?,
        };
        transaction.commit()?;
        #[cfg(test)]
        {
            self.commits += 1;
        }
        for (job, result) in group.iter().zip(&results) {
            if result.is_ok() {
                job.writes.iter().for_each(|write| self.note(write));
            }
        }
        Ok(results)
    }

    /// Keeps in mind what a stored change means for this store.
    fn note(&mut self, write: &Write) {
        match write {
            Write::CreateSession(row) | Write::ForkSession { row, .. } => drop(self.claims.insert(row.id.clone())),
            Write::DeleteSession { id } | Write::ReleaseSession { id } => drop(self.claims.remove(id)),
            Write::AppendMessage { .. } | Write::AmendMessage { .. } => self.unindexed += 1,
            // The end of a turn is a good moment, and a few short turns are indexed together.
            Write::FinishTurn(_) if self.unindexed >= INDEX_AT_TURN_END => self.unindexed = search::INDEX_BATCH,
            _ => {}
        }
    }

    fn index_if_due(&mut self) {
        if self.unindexed >= search::INDEX_BATCH {
            self.index();
        }
    }

    /// Brings the search index up to date. A failure leaves it behind until the next time: the messages
    /// themselves are safe.
    pub(super) fn index(&mut self) {
        self.unindexed = 0;
        while self.read_only.is_none() {
            match self.index_batch() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::warn!(%error, "the search index is behind"),
            }
        }
    }

    /// The index can be made anew from the messages, so its commits do not wait for the disk; what it
    /// says of its own progress is in the same transaction.
    fn index_batch(&mut self) -> Result<bool, StoreError> {
        self.connection.pragma_update(None, "synchronous", "normal")?;
        let more = self.index_some();
        self.connection.pragma_update(None, "synchronous", "full")?;
        more
    }

    fn index_some(&mut self) -> Result<bool, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let more = search::index_batch(&transaction)?;
        transaction.commit()?;
        Ok(more)
    }
}
