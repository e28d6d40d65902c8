//! The connection's end of a session.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use crate::message::Part;

use super::command::{Command, Prompt, PromptEnd, SessionError};

/// Requests that may wait in a mailbox. Prompts are counted apart, so this only bounds floods.
const MAILBOX: usize = 64;

/// A session as the connection knows it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    id: Arc<str>,
    mailbox: mpsc::Sender<Command>,
    prompts: Arc<Mutex<CancellationToken>>,
    /// Fires when the session is to end.
    closing: CancellationToken,
    /// Fires when its task has ended.
    ended: CancellationToken,
}

/// The task's end.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Cancels the prompts admitted so far, for the `/stop` command.
    pub(super) handle: SessionHandle,
    /// Tells the end of the task, which holds this as long as it runs.
    _ended: DropGuard,
}

impl SessionHandle {
    /// Both ends of a session that `closing` ends.
    pub(super) fn new(id: Arc<str>, closing: CancellationToken) -> (Self, Mailbox) {
        let (mailbox, commands) = mpsc::channel(MAILBOX);
        let ended = CancellationToken::new();
        let handle = Self { id, mailbox, prompts: Arc::default(), closing, ended: ended.clone() };
        (handle.clone(), Mailbox { commands, handle, _ended: ended.drop_guard() })
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Admits a prompt in wire order: a cancel that follows reaches it, one that came before does not.
    ///
    /// # Errors
    /// [`SessionError::Overloaded`] when the mailbox is full, [`SessionError::Closed`] when nobody reads it.
    pub fn admit(&self, parts: Vec<Part>) -> Result<(CancellationToken, PromptReply), SessionError> {
        let (reply, receiver) = oneshot::channel();
        let cancel = self.prompt_token();
        self.send(Command::Prompt(Prompt { parts, cancel: cancel.clone(), reply }))?;
        Ok((cancel, receiver))
    }

    /// A token that the next cancel fires.
    pub(super) fn prompt_token(&self) -> CancellationToken {
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner).child_token()
    }

    /// Cancels every prompt admitted before, and none after.
    pub fn cancel(&self) {
        let mut current = self.prompts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, CancellationToken::new()).cancel();
    }

    /// Puts a request into the mailbox without waiting.
    ///
    /// # Errors
    /// As [`SessionHandle::admit`].
    pub fn send(&self, command: Command) -> Result<(), SessionError> {
        self.mailbox.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SessionError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => SessionError::Closed,
        })
    }

    /// Begins the end, in wire order: prompts admitted so far are cancelled, and whatever follows no longer finds
    /// the session.
    pub fn close(&self) {
        self.cancel();
        self.closing.cancel();
    }

    /// True once the end has begun.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Waits until the end has begun.
    pub(super) fn closing(&self) -> WaitForCancellationFutureOwned {
        self.closing.clone().cancelled_owned()
    }

    /// True once the session's task has ended and the session is released in the store.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the session's task has ended.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Gets a prompt's outcome.
pub(super) type PromptReply = oneshot::Receiver<Result<PromptEnd, SessionError>>;
