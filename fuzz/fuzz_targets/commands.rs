#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use turnd::approval::{Gate, GateSetup, HookVerdict, Places, RememberedRules, SandboxState, Verdict};
use turnd::config::{Mode, RuleConfig};
use turnd::tool::{Access, CallPlan};

struct World {
    gate: Gate,
    cwd: PathBuf,
    _folder: tempfile::TempDir,
}

/// A gate with one wide allow rule, so that the analysis alone stands between a command and its run.
static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    let cwd = folder.path().join("w");
    std::fs::create_dir_all(&cwd).expect("a workspace");
    let rule = json!({"effect": "allow", "tool": "terminal", "command": "echo *"});
    let rule: RuleConfig = serde_json::from_value(rule).expect("a rule");
    let gate = Gate::new(GateSetup {
        mode: Mode::Ask,
        rules: vec![rule],
        remembered: Arc::new(RememberedRules::new(&home)),
        places: Places::new(&cwd, &[], &home, Some(folder.path()), &[]),
        sandbox: SandboxState::Off,
    });
    World { gate, cwd, _folder: folder }
});

fn is_allowed(command: &str) -> bool {
    let access = vec![Access::Execute { command: command.into(), cwd: WORLD.cwd.clone() }];
    let plan = CallPlan { access, ..CallPlan::default() };
    let judged = WORLD.gate.judge("terminal", &json!({ "command": command }), &plan, &HookVerdict::None);
    matches!(judged.verdict, Verdict::Allow { .. })
}

fuzz_target!(|command: &str| {
    let allowed = is_allowed(command);
    assert_eq!(is_allowed(command), allowed, "the verdict changes");
    // What stands behind a whole command on its own line is a command too.
    let first = format!("rm -rf victim\n{command}");
    assert!(!is_allowed(&first), "a removal runs without consent");
});
