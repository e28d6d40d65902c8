//! Verdicts on commands.

use super::*;

/// An ordinary allow list.
const ALLOWED: [&str; 14] = [
    "ls *",
    "cat *",
    "echo *",
    "grep *",
    "rg *",
    "find *",
    "sed *",
    "sort *",
    "head *",
    "tail *",
    "git status *",
    "git log *",
    "git diff *",
    "git show *",
];

#[test]
fn nothing_hides_behind_an_allowed_program() {
    check_rows(&World::new().with(RuleEffect::Allow, &ALLOWED), include_str!("../../../tests/approval/hidden.txt"));
}

#[test]
fn a_deny_rule_blocks_every_spelling_without_a_question() {
    let world = World::new().with(RuleEffect::Allow, &ALLOWED).with(RuleEffect::Deny, &["rm *", "sudo *", "touch *"]);
    check_rows(&world, include_str!("../../../tests/approval/denied.txt"));
}

#[test]
fn the_floor_holds_in_every_mode() {
    for mode in Mode::ALL {
        let world = World::new().with(RuleEffect::Allow, &["*"]).mode(mode).sandboxed();
        check_rows(&world, include_str!("../../../tests/approval/floor.txt"));
    }
}

#[test]
fn dangerous_commands_are_asked_in_every_mode_but_full_access() {
    let rows = include_str!("../../../tests/approval/dangerous.txt");
    for mode in [Mode::Ask, Mode::AcceptEdits, Mode::Auto] {
        check_rows(&World::new().mode(mode).sandboxed(), rows);
    }
    check_rows(&World::new().mode(Mode::FullAccess), &rows.replace("ask | ", "allow | "));
}

#[test]
fn a_rule_for_a_program_covers_no_option_that_runs_another() {
    let programs = "tar rsync zip make cargo npm go scp wget vim emacs less man split gcc psql sqlite3 mysql gdb ip tcpdump \
        cmake ctest gradle gh java perl python3 node ruby git";
    let rules: Vec<String> = programs.split_ascii_whitespace().map(|program| format!("{program} *")).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let table = include_str!("../../../tests/approval/carried.txt");
    check_rows(&World::new().with(RuleEffect::Allow, &rules), table);
    // One that spells the option covers it.
    let spelled = World::new().with(RuleEffect::Allow, &["rsync -e ssh *", "cargo test --config *"]).gate();
    assert_eq!(name(&terminal(&spelled, "rsync -e ssh a h:b")), "allow");
    assert_eq!(name(&terminal(&spelled, "cargo test --config x")), "allow");
    assert_eq!(name(&terminal(&spelled, "rsync -e ./evil.sh a h:b")), "ask");
}

#[test]
fn input_to_a_running_command_is_a_question_of_its_own() {
    let check = |mode: Mode, hold: Hold, input: &str, expected: &str| {
        let gate = World::new().with(RuleEffect::Deny, &["touch *"]).mode(mode).sandboxed().gate();
        let access = vec![execute(&gate, input), Access::Feed(hold)];
        let verdict = judge(&gate, "process", &json!({ "action": "write", "input": input }), access);
        assert_eq!(name(&verdict), expected, "{mode:?} {hold:?} {input}");
        assert!(!matches!(verdict, Verdict::Ask(question) if question.remember.is_some()), "{input}");
    };
    // A half of a command may look like one that only reads.
    check(Mode::Ask, Hold::Sandbox, "sort victim ", "ask");
    check(Mode::Auto, Hold::Sandbox, "echo -o PWN\n", "allow");
    check(Mode::Auto, Hold::Nothing, "echo -o PWN\n", "ask");
    check(Mode::Plan, Hold::Sandbox, "ls\n", "block");
    for mode in Mode::ALL {
        check(mode, Hold::Sandbox, "touch PWN\n", "block");
    }
}

#[test]
fn git_files_with_names_like_settings_are_only_files() {
    let gate = World::new().gate();
    for command in ["git diff include.h", "git log -- merge.rs", "git blame credential.py", "git show HEAD:alias.rs"] {
        assert_eq!(name(&terminal(&gate, command)), "allow", "{command}");
    }
}

/// What people commonly allow beside the programs that only read.
const ORDINARY: [&str; 20] = [
    "cargo test *",
    "cargo build *",
    "cargo check *",
    "cargo clippy *",
    "cargo fmt *",
    "npm test *",
    "npm run *",
    "pytest *",
    "python3 -m pytest *",
    "python -m pytest *",
    "go test *",
    "go build *",
    "go vet *",
    "make *",
    "git add *",
    "git commit *",
    "mkdir *",
    "git status *",
    "git log *",
    "git diff *",
];

/// The most needless questions, in percent of the commands that should pass.
const MAX_NEEDLESS_PERCENT: f64 = 3.0;

#[test]
fn everyday_commands_rarely_raise_a_needless_question() {
    let world = World::new().with(RuleEffect::Allow, &ORDINARY);
    let gate = world.gate();
    let (mut passing, mut needless, mut wrong) = (0_u32, Vec::new(), Vec::new());
    for (expected, command) in rows(include_str!("../../../tests/approval/everyday.txt")) {
        let command = world.fill(&command);
        let verdict = terminal(&gate, &command);
        passing += u32::from(expected == "allow");
        match (expected.as_str(), name(&verdict)) {
            ("allow", "ask") => needless.push(format!("{command}: {verdict:?}")),
            (expected, given) if expected != given => wrong.push(format!("wanted {expected}: {command}: {verdict:?}")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(passing >= 300, "only {passing} commands");
    let percent = 100.0 * needless.len() as f64 / f64::from(passing);
    assert!(percent <= MAX_NEEDLESS_PERCENT, "{percent:.1} % of {passing}:\n{}", needless.join("\n"));
}

#[test]
fn git_only_reads_where_the_repository_names_no_program() {
    let world = World::new().with(RuleEffect::Allow, &["git status *", "git log *"]);
    std::fs::create_dir_all(world.path("w/bare/objects")).unwrap();
    std::fs::write(world.path("w/bare/HEAD"), "ref: refs/heads/main").unwrap();
    std::fs::write(world.path("w/bare/config"), "[core]\n\tbare = true\n\tfsmonitor = touch PWN\n").unwrap();
    let gate = world.gate();
    assert_eq!(name(&terminal(&gate, "git status")), "allow");
    assert_eq!(name(&terminal(&gate, "cd bare && git status")), "ask");
    assert_eq!(name(&terminal(&gate, "git -C bare status")), "ask");
    std::fs::write(world.path("w/.git/config"), "[core]\n\tpager = touch PWN\n").unwrap();
    assert_eq!(name(&terminal(&gate, "git log -3")), "ask");
}

#[test]
fn a_version_is_asked_about_where_the_workspace_names_the_program() {
    let world = World::new();
    let gate = world.gate();
    let check = |command: &str, expected: &str| assert_eq!(name(&terminal(&gate, command)), expected, "{command}");
    check("yarn --version", "allow");
    check("cargo --version", "allow");
    std::fs::write(world.path("w/.yarnrc.yml"), "yarnPath: ./evil.cjs").unwrap();
    std::fs::write(world.path("w/rust-toolchain.toml"), "[toolchain]\npath = \"evil\"").unwrap();
    check("yarn --version", "ask");
    check("cd sub && yarn --version", "ask");
    check("cargo --version", "ask");
    check("rustc --print sysroot", "ask");
    check("node --version", "allow");
    std::fs::write(world.path("w/rust-toolchain.toml"), "[toolchain]\nchannel = \"1.90\"").unwrap();
    check("cargo --version", "allow");
    check("rustc --print sysroot", "allow");
    check("pnpm --version", "allow");
    std::fs::write(world.path("w/package.json"), "{\"packageManager\": \"pnpm@9.0.0\"}").unwrap();
    check("pnpm --version", "ask");
    check("npm --version", "allow");
    std::fs::write(world.path("w/.corepack.env"), "COREPACK_NPM_REGISTRY=http://x.test").unwrap();
    check("npm --version", "ask");
    std::fs::write(world.path("w/.tool-versions"), "nodejs path:./evil").unwrap();
    check("node --version", "ask");
}
