//! Calls to the client that wait for an answer.
//!
//! Whoever settles a call takes it out of the table: the answer, a cancelled wait, or the end of the
//! connection. An answer that comes later finds nothing and is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::incoming::{ClientError, RequestId};
use super::outbox::Outbox;

type Outcome = Result<Box<RawValue>, ClientError>;

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

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    open: HashMap<u64, oneshot::Sender<Outcome>>,
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
        let _withdraw = Withdraw { pending: self, id };
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

    /// Hands an answer to the call it is for. Unknown and late answers are dropped.
    pub fn resolve(&self, id: &RequestId, outcome: Outcome) {
        let waiting = id.as_json().parse().ok().and_then(|id: u64| self.lock().open.remove(&id));
        match waiting {
            // The waiter may be gone in the same moment.
            Some(waiting) => drop(waiting.send(outcome)),
            None => tracing::debug!(?id, "an answer to no open call"),
        }
    }

    /// Ends every open call and all later ones: the client is gone.
    pub fn close(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        table.open.clear();
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
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let was_open = self.pending.lock().open.remove(&self.id).is_some();
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
