//! The gate as a whole, on tables of calls.

mod commands;
mod files;
mod integrity;
mod mutation;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::place::View;
use super::{Gate, GateSetup, HookVerdict, Places, RememberedRules, SandboxState, Verdict};
use crate::config::{Mode, RuleConfig, RuleEffect};
use crate::sandbox::SandboxPolicy;
use crate::tool::{Access, CallPlan, ForeignTool, Hold};

/// A workspace with something to protect, a home folder and a place outside.
pub(super) struct World {
    dir: tempfile::TempDir,
    pub(super) rules: Vec<RuleConfig>,
    pub(super) mode: Mode,
    pub(super) sandbox: SandboxState,
    pub(super) deny_read: Vec<String>,
}

impl World {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["w/src", "w/sub", "w/.git/hooks", "w-evil", "out", "home/.ssh", "home/.turnd", "decoy"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in [
            "w/victim",
            "w/evil.sh",
            "w/Cargo.toml",
            "w/src/main.rs",
            "w/src/lib.rs",
            "w/README.md",
            "w/.git/config",
            "w/.env",
            "w-evil/secret",
            "out/secret",
            "home/.ssh/id_ed25519",
            "home/.netrc",
            "home/.turnd/config.toml",
        ] {
            std::fs::write(dir.path().join(file), "canary").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("out/secret"), dir.path().join("w/l")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("out"), dir.path().join("w/x")).unwrap();
        std::os::unix::fs::symlink(".env", dir.path().join("w/envlink")).unwrap();
        Self { dir, rules: Vec::new(), mode: Mode::Ask, sandbox: SandboxState::Off, deny_read: Vec::new() }
    }

    pub(super) fn with(mut self, effect: RuleEffect, commands: &[&str]) -> Self {
        self.rules.extend(commands.iter().map(|command| RuleConfig {
            effect,
            tool: "terminal".into(),
            command: Some((*command).into()),
            path: None,
            host: None,
            definition: None,
        }));
        self
    }

    pub(super) fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(super) fn sandboxed(mut self) -> Self {
        let policy = SandboxPolicy::new(&[self.path("w")], Vec::new(), false);
        self.sandbox = SandboxState::On(Arc::new(policy));
        self
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(super) fn home(&self) -> PathBuf {
        self.path("home/.turnd")
    }

    pub(super) fn gate(&self) -> Gate {
        Gate::new(GateSetup {
            mode: self.mode,
            rules: self.rules.clone(),
            remembered: Arc::new(RememberedRules::new(&self.home())),
            places: Places::new(&self.path("w"), &[], &self.home(), Some(&self.path("home")), &self.deny_read),
            sandbox: self.sandbox.clone(),
        })
    }

    /// The command with `@out`, `@w` and `@home` filled in.
    pub(super) fn fill(&self, text: &str) -> String {
        ["w", "out", "home"].iter().fold(text.to_owned(), |text, name| {
            text.replace(&format!("@{name}/"), &format!("{}/", self.path(name).display()))
        })
    }
}

pub(super) fn terminal(gate: &Gate, command: &str) -> Verdict {
    judge(gate, "terminal", &json!({ "command": command }), vec![execute(gate, command)])
}

pub(super) fn execute(gate: &Gate, command: &str) -> Access {
    Access::Execute { command: command.into(), cwd: gate.places().cwd().to_path_buf() }
}

pub(super) fn judge(gate: &Gate, tool: &str, arguments: &Value, access: Vec<Access>) -> Verdict {
    let plan = CallPlan { access, ..CallPlan::default() };
    gate.judge(tool, arguments, &plan, &HookVerdict::None).verdict
}

pub(super) fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow { .. } => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Block { .. } => "block",
    }
}

/// The rows `VERDICT | COMMAND` of a table, `# ` starting a comment and `\n` standing for a newline.
pub(super) fn rows(table: &str) -> Vec<(String, String)> {
    let rows = table.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'));
    rows.map(|row| row.split_once(" | ").unwrap_or_else(|| panic!("no verdict in {row}")))
        .map(|(expected, command)| (expected.trim().to_owned(), command.replace("\\n", "\n")))
        .collect()
}

/// Checks that the commands of a table get their verdicts.
pub(super) fn check_rows(world: &World, table: &str) {
    let gate = world.gate();
    let mut wrong = Vec::new();
    for (expected, command) in rows(table) {
        let command = world.fill(&command);
        let verdict = terminal(&gate, &command);
        if name(&verdict) != expected {
            wrong.push(format!("wanted {expected} for {command:?}, got {verdict:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

pub(super) fn real(gate: &Gate, path: &str) -> PathBuf {
    View::new(gate.places()).spot(gate.places().cwd(), Path::new(path)).real
}

pub(super) fn lexical(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
