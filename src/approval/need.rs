//! What a call needs before it may run, rules already applied.

use super::shell::Command;

/// What was found about a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Findings {
    /// Why it never runs in any mode.
    pub(super) floor: Option<String>,
    /// The deny rule that it meets.
    pub(super) denied: Option<String>,
    /// Ask rules that it meets.
    pub(super) asked: Vec<String>,
    /// Why remembered rules are not known, if so: each of them might refuse it.
    pub(super) unread: Option<String>,
    /// What still needs a yes.
    pub(super) needs: Vec<Need>,
    /// Why it is more than a read, if it is.
    pub(super) change: Option<String>,
    /// Why it could not be checked whole, if so.
    pub(super) unchecked: Option<String>,
    /// Plain commands that no rule covers; `None` when some part could not be covered by one.
    pub(super) to_cover: Option<Vec<Command>>,
    /// Allow rules that were used.
    pub(super) allowed_by: Vec<String>,
}

/// One thing that needs a yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) reason: String,
    pub(super) kind: NeedKind,
}

/// What decides whether a mode lets a need pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeedKind {
    /// Asked in every mode but full access.
    Always,
    /// A command that may change something.
    Command,
    /// A command that reads elsewhere.
    CommandRead,
    /// A change to a file of the workspace.
    WorkspaceEdit,
    /// A change to a file elsewhere through a link of the workspace.
    LinkedEdit,
    /// A file elsewhere, a host, a foreign tool.
    Elsewhere,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            floor: None,
            denied: None,
            asked: Vec::new(),
            unread: None,
            needs: Vec::new(),
            change: None,
            unchecked: None,
            to_cover: Some(Vec::new()),
            allowed_by: Vec::new(),
        }
    }
}

impl Findings {
    pub(super) fn need(&mut self, kind: NeedKind, reason: impl Into<String>) {
        let need = Need { reason: reason.into(), kind };
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }

    pub(super) fn floor(&mut self, reason: impl FnOnce() -> String) {
        if self.floor.is_none() {
            self.floor = Some(reason());
        }
    }

    pub(super) fn deny(&mut self, rule: &str) {
        if self.denied.is_none() {
            self.denied = Some(format!("a deny rule forbids it: {rule}"));
        }
    }

    pub(super) fn changes(&mut self, what: impl FnOnce() -> String) {
        if self.change.is_none() {
            self.change = Some(what());
        }
    }
}
