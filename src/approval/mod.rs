//! The gate between a prepared call and its run: what passes, what is asked, what never happens.
//!
//! [`Gate::judge`] takes a call that a tool has prepared and gives a verdict in a fixed order: the
//! floor that no mode lifts, deny rules, the hook's verdict, ask rules, allow rules and remembered
//! grants, the mode, and at last a question to the user. Commands are read by `shell` twice: a
//! strict reading that may prove a command plain, and a permissive one that only looks for harm.
//!
//! Text never is a boundary here. A rule says what the user means; what a command can reach is the
//! sandbox's business. Nothing in this module runs anything, talks to the client or waits.

mod case;
mod command;
mod danger;
mod digest;
pub mod display;
mod floor;
mod folders;
mod gate;
mod need;
mod offer;
mod place;
mod program;
mod remembered;
mod rule;
mod shell;
mod subject;
mod verdict;

pub use digest::Digest;
pub use gate::{Gate, GateSetup, SandboxState};
pub use place::{Places, secrets_of_home, secrets_of_system};
pub use remembered::{Remembered, RememberedRules, RulesError};
pub use verdict::{HookVerdict, Judgement, Offer, Question, Scope, Verdict};

#[cfg(test)]
mod tests;
