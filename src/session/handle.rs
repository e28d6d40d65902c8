//! The connection's end of a session.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

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
}

/// The task's end.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) commands: mpsc::Receiver<Command>,
    /// Cancels the prompts admitted so far, for the `/stop` command.
    pub(super) handle: SessionHandle,
}

impl SessionHandle {
    pub(super) fn new(id: Arc<str>) -> (Self, Mailbox) {
        let (sender, commands) = mpsc::channel(MAILBOX);
        let handle = Self { id, mailbox: sender, prompts: Arc::new(Mutex::new(CancellationToken::new())) };
        (handle.clone(), Mailbox { commands, handle })
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

    /// True once the session's task has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Waits until the session's task has ended.
    pub async fn ended(&self) {
        self.mailbox.closed().await;
    }
}

/// Gets a prompt's outcome.
pub(super) type PromptReply = oneshot::Receiver<Result<PromptEnd, SessionError>>;
