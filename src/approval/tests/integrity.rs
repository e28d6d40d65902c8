//! Approvals stay tied to what was approved.

use super::*;
use crate::approval::{Offer, Question, Scope};

fn question(gate: &Gate, command: &str) -> Question {
    match terminal(gate, command) {
        Verdict::Ask(question) => question,
        other => panic!("not asked: {other:?}"),
    }
}

fn offer(gate: &Gate, command: &str) -> Option<Offer> {
    question(gate, command).remember
}

fn command_rules(offer: &Offer) -> Vec<String> {
    offer.rules().iter().filter_map(|rule| rule.command.clone()).collect()
}

#[test]
fn an_offer_is_the_narrowest_rule_of_use_and_never_a_shell() {
    let gate = World::new().gate();
    let check = |command: &str, rules: &[&str]| {
        let offered = offer(&gate, command).map(|offer| command_rules(&offer)).unwrap_or_default();
        assert_eq!(offered, rules, "{command}");
    };
    check("cargo test --lib", &["cargo test *"]);
    check("cd src && cargo build 2>&1 | tail -5", &["cargo build *"]);
    check("git add -A && git commit -m 'x y'", &["git add *", "git commit *"]);
    check("npm run test", &["npm run test *"]);
    check("npm run", &["npm run *"]);
    check("mkdir -p a/b", &["mkdir -p a/b"]);
    // What reaches others is never offered with other words.
    check("git push origin main", &["git push origin main"]);
    check("npm publish", &["npm publish"]);
    check("timeout 60 cargo test", &["cargo test *"]);
    check("python3 tool.py x", &["python3 tool.py *"]);
    for none in [
        "sh -c 'cargo test'",
        "bash run.sh",
        "env -S 'x y'",
        "rm -rf build",
        "git push --force",
        "cargo test $X",
        "eval x",
        "python3 -c 'x'",
        "xargs touch",
        "sudo make",
        "cargo test; f() { :; }",
        "cat .env",
        "curl x | sh",
    ] {
        check(none, &[]);
    }
}

#[test]
fn a_grant_covers_what_its_name_says_and_nothing_else() {
    let world = World::new();
    let gate = world.gate();
    let offer = offer(&gate, "whoami2 x").unwrap();
    assert_eq!(offer.always_name(), "Always allow in this workspace: `whoami2 x`");
    gate.grant(&offer, Scope::Session).unwrap();
    assert_eq!(name(&terminal(&gate, "whoami2 x")), "allow");
    assert_eq!(name(&terminal(&gate, "whoami2 x | head -3")), "allow");
    assert_eq!(name(&terminal(&gate, "whoami2 y")), "ask");
    assert_eq!(name(&terminal(&gate, "whoami2 x; touch PWN")), "ask");
    assert_eq!(name(&terminal(&gate, "sh -c 'whoami2 x; touch PWN'")), "ask");
    assert_eq!(name(&terminal(&world.gate(), "whoami2 x")), "ask", "another session");
}

#[test]
fn always_survives_the_process_in_this_workspace_only_and_can_be_taken_back() {
    let world = World::new();
    let gate = world.gate();
    gate.grant(&offer(&gate, "cargo test").unwrap(), Scope::Always).unwrap();
    let other = world.gate();
    assert_eq!(name(&terminal(&other, "cargo test --lib")), "allow");
    let elsewhere = Gate::new(GateSetup {
        mode: Mode::Ask,
        rules: Vec::new(),
        remembered: Arc::new(RememberedRules::new(&world.home())),
        places: Places::new(&world.path("out"), &[], &world.home(), None, &[]),
        sandbox: SandboxState::Off,
    });
    assert_eq!(name(&terminal(&elsewhere, "cargo test")), "ask");
    RememberedRules::new(&world.home()).remove(0).unwrap();
    assert_eq!(name(&terminal(&other, "cargo test --lib")), "ask");
    assert_eq!(name(&terminal(&gate, "cargo test --lib")), "ask");
}

#[test]
fn a_deny_rule_beats_every_grant() {
    let mut world = World::new();
    world.rules.push(RuleConfig {
        effect: RuleEffect::Deny,
        tool: "*".into(),
        command: None,
        path: Some("SECRET".into()),
        host: None,
        definition: None,
    });
    let gate = world.gate();
    let write = |path: &str| {
        judge(&gate, "write_file", &json!({ "path": path }), vec![Access::Write(world.path("w").join(path))])
    };
    let Verdict::Ask(question) = write("a.txt") else { panic!("not asked") };
    gate.grant(&question.remember.unwrap(), Scope::Always).unwrap();
    assert_eq!(name(&write("a.txt")), "allow");
    assert_eq!(name(&write("SECRET")), "block");
    assert_eq!(name(&write("b.txt")), "ask");
    assert_eq!(name(&terminal(&gate, "touch a.txt")), "ask", "a grant for edits is none for commands");
}

#[test]
fn a_refusal_is_remembered_as_a_deny_rule() {
    let world = World::new();
    let gate = world.gate();
    gate.refuse(&offer(&gate, "cargo publish").unwrap()).unwrap();
    assert_eq!(name(&terminal(&gate, "cargo publish")), "block");
    assert_eq!(name(&terminal(&world.gate(), "env cargo publish")), "block");
}

#[test]
fn while_remembered_rules_cannot_be_read_no_mode_and_no_rule_lets_a_call_pass() {
    for mode in [Mode::Auto, Mode::FullAccess, Mode::AcceptEdits, Mode::Ask] {
        let world = World::new().sandboxed().with(RuleEffect::Allow, &["cargo test *"]).mode(mode);
        world.gate().refuse(&offer(&World::new().gate(), "touch b.txt").unwrap()).unwrap();
        let path = world.home().join("rules.toml");
        let rules = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{rules}\nx=")).unwrap();
        let gate = world.gate();
        for command in ["touch b.txt", "cargo test --lib", "ls"] {
            let Verdict::Ask(question) = terminal(&gate, command) else { panic!("{mode:?} {command}: not asked") };
            assert!(question.reasons.iter().any(|reason| reason.contains("rules.toml")), "{:?}", question.reasons);
            assert_eq!(question.remember, None);
        }
        assert!(gate.restricts_something());
        std::fs::write(&path, rules).unwrap();
        assert_eq!(name(&terminal(&gate, "touch b.txt")), "block", "{mode:?}");
        assert_eq!(name(&terminal(&gate, "cargo test --lib")), "allow", "{mode:?}");
    }
}

#[test]
fn hooks_block_and_their_questions_cannot_be_lifted() {
    let world = World::new().with(RuleEffect::Allow, &["cargo test *"]).mode(Mode::FullAccess);
    let gate = world.gate();
    let plan = CallPlan { access: vec![execute(&gate, "cargo test")], ..CallPlan::default() };
    let judge = |hook: HookVerdict| gate.judge("terminal", &json!({}), &plan, &hook).verdict;
    assert_eq!(name(&judge(HookVerdict::None)), "allow");
    assert!(matches!(judge(HookVerdict::Block("no".into())), Verdict::Block { reason } if reason == "no"));
    let Verdict::Ask(question) = judge(HookVerdict::Ask("sure?\u{202e}".into())) else { panic!("not asked") };
    assert_eq!(question.reasons, ["sure?\\u{202e}"]);
    assert!(question.remember.is_none());
}

#[test]
fn ask_rules_beat_allow_rules_and_deny_rules_beat_both() {
    let world = World::new()
        .with(RuleEffect::Allow, &["cargo *"])
        .with(RuleEffect::Ask, &["cargo publish *"])
        .with(RuleEffect::Deny, &["cargo yank *"]);
    let gate = world.gate();
    assert_eq!(name(&terminal(&gate, "cargo test")), "allow");
    assert_eq!(name(&terminal(&gate, "cargo publish --dry-run")), "ask");
    assert_eq!(name(&terminal(&gate, "cargo yank x; cargo publish")), "block");
}

#[test]
fn the_digest_changes_with_everything_the_approval_is_about() {
    let world = World::new();
    let gate = world.gate();
    let plan = |command: &str| CallPlan { access: vec![execute(&gate, command)], ..CallPlan::default() };
    let base = gate.digest("terminal", &json!({ "command": "ls" }), &plan("ls"));
    assert_eq!(base, gate.digest("terminal", &json!({ "command": "ls" }), &plan("ls")));
    assert_eq!(base, gate.judge("terminal", &json!({ "command": "ls" }), &plan("ls"), &HookVerdict::None).digest);
    let others = [
        gate.digest("process", &json!({ "command": "ls" }), &plan("ls")),
        gate.digest("terminal", &json!({ "command": "ls " }), &plan("ls")),
        gate.digest("terminal", &json!({ "command": "ls", "cwd": "src" }), &plan("ls")),
        gate.digest("terminal", &json!({ "command": "ls" }), &plan("ls ")),
        gate.digest("terminal", &json!({ "command": "ls" }), &CallPlan::default()),
    ];
    assert!(others.iter().all(|other| *other != base));
    gate.set_mode(Mode::Plan);
    assert_ne!(base, gate.digest("terminal", &json!({ "command": "ls" }), &plan("ls")));
}

#[test]
fn the_digest_notices_a_link_that_was_swapped_after_the_question() {
    let world = World::new();
    let gate = world.gate();
    let plan = CallPlan { access: vec![Access::Write(world.path("w/swap/file"))], ..CallPlan::default() };
    std::fs::create_dir(world.path("w/swap")).unwrap();
    let before = gate.digest("write_file", &json!({ "path": "swap/file" }), &plan);
    std::fs::remove_dir(world.path("w/swap")).unwrap();
    std::os::unix::fs::symlink(world.path("out"), world.path("w/swap")).unwrap();
    assert_ne!(before, gate.digest("write_file", &json!({ "path": "swap/file" }), &plan));
}

#[test]
fn questions_show_what_cannot_be_seen() {
    let gate = World::new().gate();
    let question = question(&gate, "touch a\u{202e}b\u{200b}c \u{e0041}");
    assert!(question.subject.starts_with("touch a\\u{202e}b\\u{200b}c \\u{e0041}"), "{question:?}");
    assert!(question.subject.contains("3 hidden"), "{question:?}");
    let all = format!("{question:?}");
    assert!(!all.contains(['\u{202e}', '\u{200b}', '\u{e0041}']));
}

#[test]
fn a_pathological_command_is_judged_in_time() {
    let gate = World::new().with(RuleEffect::Allow, &["ls *"]).gate();
    for text in [
        "echo ".to_owned() + &"'\"".repeat(512 * 1024),
        "$(".repeat(75_000),
        "a|".repeat(7_500),
        "((".repeat(4_000),
        "{a,b}".repeat(3_000),
        "x=$(".repeat(3_000),
        "'".repeat(15_000),
        "<<A ".repeat(3_750),
        "if ".repeat(5_000),
        "[[ ".repeat(5_000),
        "${a:-".repeat(3_000),
        "x\\\n".repeat(5_000),
        "f(){ ".repeat(3_000),
        "$x ~/a ".repeat(2_250),
        "*/".repeat(7_500),
    ] {
        let start = std::time::Instant::now();
        let verdict = terminal(&gate, &text);
        let head: String = text.chars().take(12).collect();
        assert_ne!(name(&verdict), "allow", "{head}");
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "{head} took {:?}", start.elapsed());
    }
}
