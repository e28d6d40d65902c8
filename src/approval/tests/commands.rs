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
