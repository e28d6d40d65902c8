//! What the gate says about a call.

use std::sync::Arc;

use crate::config::RuleConfig;
use crate::sandbox::SandboxPolicy;
use crate::tool::GitCare;

use super::digest::Digest;
use super::display;

/// The gate's answer for one prepared call.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What may happen.
    pub verdict: Verdict,
    /// What the verdict is about. A call may run only while [`super::Gate::digest`] still gives this.
    pub digest: Digest,
    /// What an allowed command must run behind, when it is allowed because of that.
    pub sandbox: Option<Arc<SandboxPolicy>>,
    /// How git behaves in an allowed command.
    pub git: GitCare,
}

/// What may happen with a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It runs without a question.
    Allow {
        /// Why, for the record.
        because: String,
    },
    /// The user decides.
    Ask(Question),
    /// It never runs; the model is told why.
    Block {
        /// Why, for the model and the user.
        reason: String,
    },
}

/// A question to the user. Everything in it is escaped for display.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Why it is asked, each short and concrete.
    pub reasons: Vec<String>,
    /// The exact command, path or address the question is about.
    pub subject: String,
    /// What can be remembered, when something narrow and safe can.
    pub remember: Option<Offer>,
}

/// The narrowest useful rules a user may have remembered with an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The rules, with effect `allow`.
    pub(super) rules: Vec<RuleConfig>,
    /// What they cover, for a person.
    pub(super) covers: String,
}

impl Offer {
    /// The name of the option that allows it for the session.
    #[must_use]
    pub fn session_name(&self) -> String {
        format!("Allow for this session: {}", self.covers)
    }

    /// The name of the option that allows it from now on in this workspace.
    #[must_use]
    pub fn always_name(&self) -> String {
        format!("Always allow in this workspace: {}", self.covers)
    }

    /// The name of the option that refuses it from now on in this workspace.
    #[must_use]
    pub fn refuse_name(&self) -> String {
        format!("Always refuse in this workspace: {}", self.covers)
    }

    /// What it covers, for a person.
    #[must_use]
    pub fn covers(&self) -> &str {
        &self.covers
    }

    /// The rules that would be remembered.
    #[must_use]
    pub fn rules(&self) -> &[RuleConfig] {
        &self.rules
    }

    /// An offer of these rules under these words.
    pub(super) fn new(rules: Vec<RuleConfig>, covers: &str) -> Self {
        Self { rules, covers: display::escape(covers) }
    }
}

/// How long a grant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// As long as the session is open in this process.
    Session,
    /// Until it is removed from `rules.toml`.
    Always,
}

/// What the `pre_tool_call` hooks said about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HookVerdict {
    /// Nothing.
    #[default]
    None,
    /// It must not run.
    Block(String),
    /// The user must be asked; no rule and no mode lifts this.
    Ask(String),
}
