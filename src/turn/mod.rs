//! The turn: from one user message to an answer or a typed stop.
//!
//! [`run_turn`] is a function over ports. It knows no JSON-RPC, no HTTP and no SQL: what it tells the
//! outside goes through [`TurnIo`], and the history is lent to it for the length of the turn.

mod admit;
mod answer;
mod batch;
pub(crate) mod budget;
pub(crate) mod calls;
mod close;
mod compact;
mod context;
pub mod event;
pub mod exit;
mod finish;
pub mod foreign;
mod guardrail;
pub(crate) mod limit;
pub(crate) mod payload;
mod pictures;
pub mod port;
mod run;
pub mod steer;
mod step;
mod verify;

pub use compact::{CompactionEnd, CompactionOutcome, compact_idle};
pub use context::{TurnContext, TurnLimits, Unanswered};
pub use event::TurnEvent;
pub use exit::{ExitReason, TurnReport, TurnStatus};
pub use guardrail::Strictness;
pub use port::TurnIo;
pub use run::{TurnEnd, run_turn};
