//! Sessions: one task each, which owns the history and runs one turn at a time.
//!
//! The history exists once. An idle session has it, a running turn has been lent it; there is nothing to
//! lock. Requests come in through a mailbox in wire order; cancelling goes past it through a token.

mod at_work;
mod chain;
mod child_io;
mod children;
mod command;
mod compacting;
mod handle;
mod io;
mod ledger;
mod mcp;
mod obey_slash;
pub mod objections;
mod open;
pub mod port;
mod questions;
mod rate_limits;
mod registry;
mod replay;
mod slash;
mod steering;
mod task;
mod titling;
mod turn_plan;
mod wall;
mod workspace;

pub use at_work::AtWork;
pub use chain::first_endpoint;
pub use command::{Command, Delivered, Opened, Prompt, PromptEnd, PromptOutcome, ReplayWish, SessionError, Steer};
pub use handle::SessionHandle;
pub use open::{Host, OpenKind, OpenRequest};
pub use registry::Registry;
pub use wall::sandbox_policy;
