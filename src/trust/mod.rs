//! Trust of a workspace: its own rules, hooks and MCP servers count only once the user trusted exactly them.
//!
//! What is trusted is a [`Fingerprint`] over every file that would take effect: all of `.turnd/` and the
//! workspace's files that its commands name. One changed byte and nothing of it counts, until the user is
//! asked again. Decisions are kept in the home folder by the workspace's real path, so a copy, a worktree or
//! a link to a trusted folder inherits nothing.
//!
//! Reading a workspace's configuration runs nothing, and nothing of it is read before it could matter:
//! `.env`, git's configuration and files that nobody named are never looked at. What a script loads on its
//! own (imports, `make` targets) is not covered unless it lies in `.turnd/`.

mod covered;
mod guard;
mod ledger;
mod project;

pub use covered::{CoveredFile, Fingerprint};
pub use guard::{GuardedHook, Seal};
pub use ledger::{Decision, Ledger, LedgerEntry};
pub use project::{Project, ProjectError};
