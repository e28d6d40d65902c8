//! Calls to the client that wait for an answer.
//!
//! Whoever settles a call takes it out of the table: the answer, a cancelled wait, or the end of the
//! connection. An answer that comes later finds nothing and is dropped, unless what it tells of must be undone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::incoming::{ClientError, RequestId};
use super::outbox::Outbox;

type Outcome = Result<Box<RawValue>, ClientError>;

/// Undoes what a call has brought about that nobody waits for any more.
type Undo = Box<dyn FnOnce(&RawValue) + Send>;

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The client answered with an error.
    #[error(transparent)]
    Refused(#[from] ClientError),
    /// The client is gone.
    #[error("the client is gone")]
    Disconnected,
}

/// The table of open calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pending {
    table: Arc<Mutex<Table>>,
    outbox: Outbox,
}

struct Late(Undo);

impl fmt::Debug for Late {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Late")
    }
}

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    open: HashMap<u64, oneshot::Sender<Outcome>>,
    /// Calls that were taken back and whose answer may come all the same.
    taken_back: HashMap<u64, Late>,
    is_closed: bool,
}

impl Pending {
    /// An empty table whose calls go out through `outbox`.
    #[must_use]
    pub fn new(outbox: Outbox) -> Self {
        Self { table: Arc::default(), outbox }
    }

    /// Calls the client and waits for its answer, for ever if need be.
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Cancel safety
    /// Dropped before the answer, the call is withdrawn with `$/cancel_request`.
    pub async fn call(&self, method: &str, params: &impl Serialize) -> Result<Box<RawValue>, CallError> {
        self.settle(method, params, None).await
    }

    /// As [`Pending::call`], for a call that makes something at the client: where it is withdrawn and carried out all
    /// the same, `undo` gets the answer.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_or_undo(
        &self,
        method: &str,
        params: &impl Serialize,
        undo: impl FnOnce(&RawValue) + Send + 'static,
    ) -> Result<Box<RawValue>, CallError> {
        self.settle(method, params, Some(Box::new(undo))).await
    }

    async fn settle(
        &self,
        method: &str,
        params: &impl Serialize,
        undo: Option<Undo>,
    ) -> Result<Box<RawValue>, CallError> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut table = self.lock();
            if table.is_closed {
                return Err(CallError::Disconnected);
            }
            table.last_id += 1;
            let id = table.last_id;
            table.open.insert(id, sender);
            id
        };
        let _withdraw = Withdraw { pending: self, id, undo };
        self.outbox.reply(message(&Call { jsonrpc: "2.0", id, method, params }));
        match receiver.await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(CallError::Disconnected),
        }
    }

    /// Calls the client and cares for no answer: for what must be said even by a future that is dropped.
    pub fn send(&self, method: &str, params: &impl Serialize) {
        let id = {
            let mut table = self.lock();
            if table.is_closed {
                return;
            }
            table.last_id += 1;
            table.last_id
        };
        self.outbox.reply(message(&Call { jsonrpc: "2.0", id, method, params }));
    }

    /// Hands an answer to the call it is for; false when there is none. Late answers only undo.
    pub fn resolve(&self, id: &RequestId, outcome: Outcome) -> bool {
        // Clients whose language has one kind of number may send ours back with a fraction.
        let number = id.as_json().strip_suffix(".0").unwrap_or(id.as_json());
        let Ok(id) = number.parse::<u64>() else { return false };
        let (waiting, late) = {
            let mut table = self.lock();
            (table.open.remove(&id), table.taken_back.remove(&id))
        };
        let is_known = waiting.is_some() || late.is_some();
        if let (Some(Late(undo)), Ok(answer)) = (late, &outcome) {
            undo(answer);
        }
        if let Some(waiting) = waiting {
            // The waiter may be gone in the same moment.
            drop(waiting.send(outcome));
        }
        is_known
    }

    /// Ends every open call and all later ones: the client is gone.
    pub fn close(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        table.open.clear();
        table.taken_back.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Serialize)]
struct Call<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Note<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: &'a P,
}

/// Renders a notification.
#[must_use]
pub fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    message(&Note { jsonrpc: "2.0", method, params })
}

fn message(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_else(|error| {
        tracing::error!(%error, "a message could not be rendered");
        Vec::new()
    })
}

/// Takes a call back when its future is dropped before the answer.
struct Withdraw<'a> {
    pending: &'a Pending,
    id: u64,
    undo: Option<Undo>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let was_open = {
            let mut table = self.pending.lock();
            let was_open = table.open.remove(&self.id).is_some();
            if let Some(undo) = self.undo.take().filter(|_| was_open) {
                table.taken_back.insert(self.id, Late(undo));
            }
            was_open
        };
        if was_open {
            let params = serde_json::json!({ "requestId": self.id });
            self.pending.outbox.reply(notification("$/cancel_request", &params));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Incoming;

    fn answer(text: &str) -> (RequestId, Outcome) {
        match Incoming::classify(text.as_bytes()) {
            Incoming::Response { id, outcome } => (id, outcome),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_find_their_calls_and_strays_are_dropped() {
        let (outbox, _queue) = Outbox::new();
        let pending = Pending::new(outbox);
        let (first, second) = (pending.call("a", &()), pending.call("b", &()));
        let mut both = std::pin::pin!(async { tokio::join!(first, second) });
        assert!(futures_util::poll!(&mut both).is_pending());
        for text in [
            r#"{"id":9,"result":1}"#,
            r#"{"id":"2","result":1}"#,
            r#"{"id":2,"error":{"code":5}}"#,
            r#"{"id":1,"result":7}"#,
        ] {
            let (id, outcome) = answer(text);
            pending.resolve(&id, outcome);
        }
        let (first, second) = both.await;
        assert_eq!(first.unwrap().get(), "7");
        assert_eq!(second.unwrap_err(), CallError::Refused(ClientError { code: 5, message: String::new() }));
    }

    #[tokio::test]
    async fn a_dropped_call_is_withdrawn_and_its_late_answer_ignored() {
        let (outbox, queue) = Outbox::new();
        let pending = Pending::new(outbox);
        {
            let mut call = std::pin::pin!(pending.call("a", &()));
            assert!(futures_util::poll!(&mut call).is_pending());
        }
        let (id, outcome) = answer(r#"{"id":1,"result":7}"#);
        pending.resolve(&id, outcome);
        drop(pending);
        let mut bytes = Vec::new();
        queue.write_to(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.ends_with("{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":1}}\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn what_a_withdrawn_call_made_all_the_same_is_undone_once() {
        let (outbox, _queue) = Outbox::new();
        let pending = Pending::new(outbox);
        let (undone, undoing) = std::sync::mpsc::channel();
        for _ in 0..3 {
            let undone = undone.clone();
            let undo = move |answer: &RawValue| undone.send(answer.get().to_owned()).unwrap();
            let mut call = std::pin::pin!(pending.call_or_undo("a", &(), undo));
            assert!(futures_util::poll!(&mut call).is_pending());
        }
        for text in [r#"{"id":1,"result":"made"}"#, r#"{"id":1,"result":"again"}"#, r#"{"id":2,"error":{"code":5}}"#] {
            let (id, outcome) = answer(text);
            pending.resolve(&id, outcome);
        }
        pending.close();
        let (id, outcome) = answer(r#"{"id":3,"result":"late"}"#);
        assert!(!pending.resolve(&id, outcome));
        assert_eq!(undoing.try_iter().collect::<Vec<_>>(), ["\"made\""]);
    }

    #[tokio::test]
    async fn an_id_with_a_fraction_of_nothing_is_ours_all_the_same() {
        let (outbox, _queue) = Outbox::new();
        let pending = Pending::new(outbox);
        let mut call = std::pin::pin!(pending.call("a", &()));
        assert!(futures_util::poll!(&mut call).is_pending());
        let (id, outcome) = answer(r#"{"id":1.0,"result":7}"#);
        assert!(pending.resolve(&id, outcome));
        assert_eq!(call.await.unwrap().get(), "7");
    }

    #[tokio::test]
    async fn the_end_of_the_connection_ends_every_call() {
        let (outbox, _queue) = Outbox::new();
        let pending = Pending::new(outbox);
        let mut call = std::pin::pin!(pending.call("a", &()));
        assert!(futures_util::poll!(&mut call).is_pending());
        pending.close();
        assert_eq!(call.await.unwrap_err(), CallError::Disconnected);
        assert_eq!(pending.call("b", &()).await.unwrap_err(), CallError::Disconnected);
    }
}
