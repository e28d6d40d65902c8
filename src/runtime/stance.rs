//! What turnd's mode means to the runtime: its approval policy and its sandbox.
//!
//! | mode | policy | sandbox |
//! | --- | --- | --- |
//! | `ask`, `accept_edits` | `untrusted`: every call is asked, and the gate answers | workspace-write |
//! | `plan` | `untrusted` | read-only |
//! | `auto` | `on-request`: what its sandbox contains runs, what wants out is asked | workspace-write |
//! | `full_access` | `untrusted`, so that floor and deny rules still hold | none |
//!
//! With the sandbox switched off, or with rules or hooks that must see each call, `auto` asks like `ask` does:
//! a request does not say whether its command would stay inside the runtime's sandbox.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::config::{Mode, SandboxConfig, SandboxMode};

/// Whether somebody must see each call before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// A hook decides, or a rule denies or asks.
    EveryCall,
    /// Nobody does.
    Nothing,
}

/// Policy and sandbox of one turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stance {
    /// The runtime's approval policy.
    pub(super) policy: &'static str,
    /// The sandbox as `turn/start` takes it.
    pub(super) sandbox: Value,
    /// The sandbox as `thread/start` takes it.
    pub(super) sandbox_mode: &'static str,
}

impl Stance {
    pub(super) fn of(mode: Mode, sandbox: &SandboxConfig, roots: &[PathBuf], watch: Watch) -> Self {
        let is_off = sandbox.mode == SandboxMode::Off;
        let leaves_it_to_sandbox = mode == Mode::Auto && !is_off && watch == Watch::Nothing;
        let policy = if leaves_it_to_sandbox { "on-request" } else { "untrusted" };
        let (sandbox_mode, sandbox) =
            if mode == Mode::Plan || (sandbox.mode == SandboxMode::ReadOnly && mode != Mode::FullAccess) {
                ("read-only", json!({ "type": "readOnly", "networkAccess": sandbox.network }))
            } else if mode == Mode::FullAccess || is_off {
                ("danger-full-access", json!({ "type": "dangerFullAccess" }))
            } else {
                let roots: Vec<_> = roots.iter().map(|root| root.to_string_lossy()).collect();
                let workspace = json!({
                    "type": "workspaceWrite",
                    "writableRoots": roots,
                    "networkAccess": sandbox.network,
                });
                ("workspace-write", workspace)
            };
        Self { policy, sandbox, sandbox_mode }
    }

    /// True when a question of the runtime means that a call wants to leave its sandbox.
    pub(super) fn asks_only_to_leave(&self) -> bool {
        self.policy == "on-request"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_policy_and_sandbox() {
        let check = |mode, setting: SandboxMode, watch, expected: (&str, &str)| {
            let sandbox = SandboxConfig { mode: setting, ..SandboxConfig::default() };
            let stance = Stance::of(mode, &sandbox, &[], watch);
            assert_eq!((stance.policy, stance.sandbox_mode), expected, "{mode:?} {setting:?} {watch:?}");
        };
        let usual = SandboxMode::WorkspaceWrite;
        check(Mode::Ask, usual, Watch::Nothing, ("untrusted", "workspace-write"));
        check(Mode::AcceptEdits, usual, Watch::Nothing, ("untrusted", "workspace-write"));
        check(Mode::Plan, usual, Watch::Nothing, ("untrusted", "read-only"));
        check(Mode::Auto, usual, Watch::Nothing, ("on-request", "workspace-write"));
        check(Mode::Auto, usual, Watch::EveryCall, ("untrusted", "workspace-write"));
        check(Mode::FullAccess, usual, Watch::Nothing, ("untrusted", "danger-full-access"));
        check(Mode::Auto, SandboxMode::Off, Watch::Nothing, ("untrusted", "danger-full-access"));
        check(Mode::Plan, SandboxMode::Off, Watch::Nothing, ("untrusted", "read-only"));
        check(Mode::Ask, SandboxMode::ReadOnly, Watch::Nothing, ("untrusted", "read-only"));
        check(Mode::FullAccess, SandboxMode::ReadOnly, Watch::Nothing, ("untrusted", "danger-full-access"));
    }

    #[test]
    fn folders_and_network_of_the_configuration_hold_in_the_runtime() {
        let sandbox = SandboxConfig { network: true, ..SandboxConfig::default() };
        let stance = Stance::of(Mode::Ask, &sandbox, &["/other".into()], Watch::Nothing);
        assert_eq!(stance.sandbox["writableRoots"], json!(["/other"]));
        assert_eq!(stance.sandbox["networkAccess"], json!(true));
    }
}
