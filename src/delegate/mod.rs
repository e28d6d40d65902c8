//! Child agents: a task given to an agent with a session, a budget and a history of its own.
//!
//! This module is the tool that the model calls: what a task is, how many run at a time, what is shown
//! while they run and what comes back. Running one is behind [`Children`]. Deliberately absent: children
//! that outlive the call that made them, and any way for a model to choose a child's budget.

mod board;
mod report;
mod tool;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::turn::TurnReport;

pub use board::Slot;
pub use tool::{DelegateTask, NAME};

/// Runs child agents.
pub trait Children: Send + Sync + fmt::Debug {
    /// Runs one child to its end. Ends soon after `cancel` fires, with nothing left running.
    fn run(&self, assignment: Assignment, cancel: CancellationToken) -> BoxFuture<'_, ChildEnd>;
}

/// One task for one child.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The tool call that gives it.
    pub call_id: String,
    /// Its place among the call's tasks, from 1.
    pub number: usize,
    /// What is to be done.
    pub goal: String,
    /// What the child must know for it.
    pub context: Option<String>,
    /// Where its progress is shown.
    pub slot: Slot,
}

impl Assignment {
    /// The child's first message.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.context {
            Some(context) => format!("{}\n\nWhat you need to know:\n{context}", self.goal),
            None => self.goal.clone(),
        }
    }
}

/// How a child ended.
#[derive(Clone, Debug)]
pub struct ChildEnd {
    /// Its session, when one was made.
    pub session_id: Option<Arc<str>>,
    /// How its turn went, or why there was none.
    pub outcome: Result<TurnReport, String>,
}
