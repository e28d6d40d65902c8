//! Verdicts on files, hosts and foreign tools.

use super::*;
use crate::approval::Scope;

fn read(world: &World, path: &str) -> Verdict {
    let gate = world.gate();
    let real = real(&gate, path);
    judge(&gate, "read_file", &json!({ "path": path }), vec![Access::Read(real)])
}

fn write(world: &World, path: &str) -> Verdict {
    let gate = world.gate();
    let real = real(&gate, path);
    judge(&gate, "write_file", &json!({ "path": path, "content": "x" }), vec![Access::Write(real)])
}

fn check(world: &World, of: fn(&World, &str) -> Verdict, path: &str, expected: &str) {
    let verdict = of(world, path);
    assert_eq!(name(&verdict), expected, "{path}: {verdict:?}");
}

#[test]
fn reads_outside_the_workspace_ask_whatever_the_spelling() {
    let world = World::new();
    for path in ["src/main.rs", "./README.md", "src/../victim"] {
        check(&world, read, path, "allow");
    }
    let evil = lexical(&world.path("w-evil/secret"));
    for path in
        ["../w-evil/secret", &evil, "/etc/passwd", "../out/secret", "src/../../out/secret", "l", "x/secret", "~/x"]
    {
        check(&world, read, path, "ask");
    }
}

#[test]
fn a_link_out_is_shown_with_its_real_target() {
    let world = World::new();
    let Verdict::Ask(question) = read(&world, "l") else { panic!("not asked") };
    let target = lexical(&world.path("out/secret"));
    assert!(question.reasons[0].contains(&target), "{question:?}");
    assert!(question.subject.contains(&target), "{question:?}");
}

#[test]
fn writes_follow_the_mode() {
    let check_mode = |mode: Mode, path: &str, expected: &str| check(&World::new().mode(mode), write, path, expected);
    check_mode(Mode::Ask, "src/new.rs", "ask");
    check_mode(Mode::AcceptEdits, "src/new.rs", "allow");
    check_mode(Mode::Auto, "src/new.rs", "allow");
    check_mode(Mode::Plan, "src/new.rs", "block");
    check_mode(Mode::FullAccess, "src/new.rs", "allow");
    check_mode(Mode::AcceptEdits, "../out/new", "ask");
    check_mode(Mode::AcceptEdits, "x/PWN", "ask");
    check_mode(Mode::Auto, "../out/new", "ask");
    check_mode(Mode::Auto, "x/PWN", "block");
    check_mode(Mode::FullAccess, "../out/new", "allow");
}

#[test]
fn plan_mode_names_itself_when_it_refuses() {
    let Verdict::Block { reason } = write(&World::new().mode(Mode::Plan), "src/new.rs") else { panic!("not blocked") };
    assert!(reason.contains("plan mode"), "{reason}");
}

#[test]
fn what_steers_agents_editors_and_shells_asks_in_every_mode_but_full_access() {
    for path in [
        "AGENTS.md",
        "sub/CLAUDE.md",
        ".vscode/settings.json",
        ".idea/x.xml",
        ".github/workflows/ci.yml",
        ".bashrc",
        ".claude/agents/x.md",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".cursor/rules",
        ".github/copilot-instructions.md",
        ".envrc",
        ".mcp.json",
        ".gitmodules",
        ".VSCODE/settings.json",
        ".cargo/config.toml",
    ] {
        for mode in [Mode::Ask, Mode::AcceptEdits, Mode::Auto] {
            check(&World::new().mode(mode).sandboxed(), write, path, "ask");
        }
        check(&World::new().mode(Mode::FullAccess), write, path, "allow");
    }
}

#[test]
fn the_daemons_own_files_and_gits_controls_are_never_written() {
    for path in
        [".turnd/mcp.json", ".TURND/x", "~/.turnd/config.toml", ".git/config", ".git/hooks/x", ".GIT/hooks/x", ".git"]
    {
        for mode in Mode::ALL {
            check(&World::new().mode(mode), write, path, "block");
        }
    }
}

#[test]
fn secrets_ask_for_reading_and_exact_rules_lift_it() {
    let world = World::new();
    for path in [".env", "envlink", "~/.ssh/id_ed25519", "~/.netrc", "~/.turnd/config.toml"] {
        check(&world, read, path, "ask");
        check(&World::new().mode(Mode::AcceptEdits), read, path, "ask");
    }
    let rule = |path: &str| RuleConfig {
        effect: RuleEffect::Allow,
        tool: "read_file".into(),
        command: None,
        path: Some(path.into()),
        host: None,
        definition: None,
    };
    let mut world = World::new();
    world.rules = vec![rule("**")];
    check(&world, read, ".env", "ask");
    world.rules = vec![rule(".env")];
    check(&world, read, ".env", "allow");
}

#[test]
fn deny_read_holds_through_links_and_in_every_mode() {
    for mode in Mode::ALL {
        let mut world = World::new().mode(mode);
        world.deny_read = vec![".env".into(), "~/.ssh".into()];
        for path in [".env", "envlink", "sub/.env", "~/.ssh/id_ed25519"] {
            check(&world, read, path, "block");
        }
        assert_eq!(name(&terminal(&world.gate(), "cat .env")), "block");
        assert_eq!(name(&terminal(&world.gate(), "cat envlink")), "block");
        assert!(world.gate().hides_from_search(Path::new("envlink")));
    }
}

#[test]
fn one_path_has_one_verdict_for_all_tools() {
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
    for spelling in ["SECRET", "./SECRET", "src/../SECRET", "secret", &lexical(&world.path("w/SECRET"))] {
        let real = real(&gate, spelling);
        for (tool, access) in [
            ("read_file", Access::Read(real.clone())),
            ("write_file", Access::Write(real.clone())),
            ("patch", Access::Write(real.clone())),
            ("search_files", Access::Read(real.clone())),
        ] {
            let verdict = judge(&gate, tool, &json!({ "path": spelling }), vec![access]);
            assert_eq!(name(&verdict), "block", "{tool} {spelling}");
        }
        assert_eq!(name(&terminal(&gate, &format!("cat {spelling}"))), "block", "{spelling}");
        assert_eq!(name(&terminal(&gate, &format!("echo x > {spelling}"))), "block", "{spelling}");
    }
}

#[test]
fn a_second_name_of_a_file_does_not_hide_it() {
    let world = World::new().mode(Mode::AcceptEdits);
    std::fs::hard_link(world.path("w/.git/config"), world.path("w/notes.txt")).unwrap();
    std::fs::hard_link(world.path("home/.ssh/id_ed25519"), world.path("w/key.txt")).unwrap();
    std::fs::hard_link(world.path("out/secret"), world.path("w/other.txt")).unwrap();
    check(&world, write, "notes.txt", "block");
    check(&world, read, "key.txt", "ask");
    check(&world, write, "other.txt", "ask");
}

#[test]
fn hosts_are_asked_and_matched_whole() {
    let mut world = World::new();
    world.rules.push(RuleConfig {
        effect: RuleEffect::Allow,
        tool: "web_fetch".into(),
        command: None,
        path: None,
        host: Some("docs.test".into()),
        definition: None,
    });
    let gate = world.gate();
    let fetch = |address: &str| {
        name(&judge(&gate, "web_fetch", &json!({ "url": address }), vec![Access::Fetch(address.into())]))
    };
    assert_eq!(fetch("https://docs.test/a"), "allow");
    assert_eq!(fetch("docs.test"), "allow");
    assert_eq!(fetch("https://docs.test.evil.test/"), "ask");
    assert_eq!(fetch("https://docs.test@evil.test/"), "ask");
    assert_eq!(fetch("https://evil.test/docs.test"), "ask");
    assert_eq!(fetch("https://evil.test\\@docs.test/"), "ask");
}

#[test]
fn foreign_tools_are_asked_whatever_they_say_of_themselves() {
    let gate = World::new().mode(Mode::Auto).sandboxed().gate();
    assert_eq!(name(&judge(&gate, "mcp_x_read_file", &json!({}), vec![])), "ask");
    assert_eq!(
        name(&judge(
            &gate,
            "read_file",
            &json!({}),
            vec![Access::External(ForeignTool { name: "x".into(), ..ForeignTool::default() })]
        )),
        "ask"
    );
    assert_eq!(name(&judge(&gate, "todo", &json!({}), vec![])), "allow");
}

#[test]
fn an_approval_of_a_foreign_tool_is_one_of_what_it_said() {
    let foreign = |definition: &str, was: Option<&str>| {
        let (name, was) = ("mcp_x_echo".to_owned(), was.map(str::to_owned));
        vec![Access::External(ForeignTool { name, definition: definition.into(), was })]
    };
    let world = World::new();
    let gate = world.gate();
    let verdict = |definition: &str| judge(&gate, "mcp_x_echo", &json!({}), foreign(definition, None));
    let Verdict::Ask(question) = verdict("Echoes.") else { panic!("not asked") };
    gate.grant(&question.remember.unwrap(), Scope::Always).unwrap();
    assert_eq!(name(&verdict("Echoes.")), "allow");
    let Verdict::Ask(question) = verdict("Echoes, and\u{202e} more.") else { panic!("not asked") };
    assert!(question.reasons[0].contains("“Echoes.”"), "{:?}", question.reasons);
    assert!(question.reasons[0].contains("“Echoes, and\\u{202e} more.”"), "{:?}", question.reasons);
    assert_eq!(
        name(&judge(&world.gate(), "mcp_x_echo", &json!({}), foreign("Echoes.", None))),
        "allow",
        "another session"
    );
    assert_eq!(name(&judge(&gate, "mcp_x_other", &json!({}), foreign("Echoes.", None))), "ask", "another tool");
    gate.refuse(&question.remember.unwrap()).unwrap();
    assert_eq!(name(&verdict("Something else.")), "block", "a refusal is one of the tool, whatever it says");

    let rule =
        |effect| RuleConfig { effect, tool: "mcp_x_*".into(), command: None, path: None, host: None, definition: None };
    let mut world = World::new();
    world.rules.push(rule(RuleEffect::Allow));
    let by_hand = |world: &World, was| name(&judge(&world.gate(), "mcp_x_echo", &json!({}), foreign("Now.", was)));
    assert_eq!(by_hand(&world, None), "allow");
    assert_eq!(by_hand(&world, Some("Then.")), "ask", "it changed since the session saw it first");
    world.rules.push(rule(RuleEffect::Ask));
    assert_eq!(by_hand(&world, None), "ask", "ask beats allow");
    assert_eq!(by_hand(&World::new().mode(Mode::Plan), None), "block");
    assert_eq!(by_hand(&World::new().mode(Mode::FullAccess), Some("Then.")), "allow");
}

#[test]
fn what_a_call_says_about_its_own_safety_is_ignored() {
    let gate = World::new().gate();
    let arguments = json!({ "command": "touch x", "requires_approval": false, "safe": true, "background": true });
    assert_eq!(name(&judge(&gate, "terminal", &arguments, vec![execute(&gate, "touch x")])), "ask");
}

#[test]
fn long_results_of_the_session_are_read_without_a_question_and_nothing_else_of_the_home_is() {
    let world = World::new();
    let results = world.home().join("spill/s1");
    std::fs::create_dir_all(&results).unwrap();
    std::fs::create_dir_all(world.home().join("spill/s2")).unwrap();
    std::os::unix::fs::symlink(world.home().join("config.toml"), results.join("link")).unwrap();
    let places = Places::new(&world.path("w"), &[], &world.home(), Some(&world.path("home")), &[]);
    let gate = Gate::new(GateSetup {
        mode: Mode::Ask,
        rules: Vec::new(),
        remembered: Arc::new(RememberedRules::new(&world.home())),
        places: places.with_results(&results),
        sandbox: SandboxState::Off,
    });
    let verdict = |access: Access| name(&judge(&gate, "read_file", &Value::Null, vec![access]));
    assert_eq!(verdict(Access::Read(results.join("a.txt"))), "allow");
    for other in ["spill/s2/a.txt", "spill/s1/../s2/a.txt", "spill/s1/link", "config.toml", "spill"] {
        assert_eq!(verdict(Access::Read(world.home().join(other))), "ask", "{other}");
    }
    assert_eq!(verdict(Access::Write(results.join("a.txt"))), "block");
}
