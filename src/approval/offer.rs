//! What a user may have remembered with an answer: the narrowest rule that is of use.

use std::path::Path;

use crate::config::{RuleConfig, RuleEffect};
use crate::tool::Access;

use super::case::{Case, host};
use super::danger;
use super::place::{Spot, Standing};
use super::program;
use super::rule::quote;
use super::shell::{self, Command, SHELLS, interpreter, program_name};

/// Programs whose subcommand says what they do: a rule keeps program and subcommand.
const WITH_SUBCOMMAND: [&str; 30] = [
    "cargo",
    "git",
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "deno",
    "go",
    "pip",
    "pip3",
    "uv",
    "poetry",
    "docker",
    "podman",
    "kubectl",
    "gh",
    "dotnet",
    "swift",
    "mix",
    "rake",
    "bundle",
    "composer",
    "gradle",
    "./gradlew",
    "mvn",
    "make",
    "just",
    "task",
    "terraform",
    "helm",
];

/// Programs that only hand on to what their next words name, so that two words say too little.
const RUNNERS: [&str; 6] = ["run", "exec", "x", "dlx", "task", "tool"];

/// Subcommands that reach others: what is remembered of them is exactly these words.
const OUTWARD: [&str; 8] = ["push", "publish", "deploy", "upload", "release", "login", "send-email", "delete"];

impl super::verdict::Offer {
    /// The offer for a call, when every part of it can be remembered safely.
    pub(super) fn of(case: &Case<'_>, to_cover: Option<&[Command]>) -> Option<Self> {
        let mut rules = Vec::new();
        let mut covers = Vec::new();
        for access in &case.plan.access {
            match access {
                Access::Read(path) | Access::Write(path) => {
                    let spot = case.places.spot(case.places.cwd(), path);
                    file(case, access, &spot, &mut rules, &mut covers)?;
                }
                Access::Execute { .. } => commands(case, to_cover?, &mut rules, &mut covers)?,
                Access::Fetch(address) => {
                    let host = host(address);
                    covers.push(format!("fetches from {host}"));
                    rules.push(RuleConfig { host: Some(host), ..rule(case.tool) });
                }
                Access::Note(_) => {
                    covers.push(format!("calls of {}", case.tool));
                    rules.push(rule(case.tool));
                }
                // Each input is another one.
                Access::Feed(_) => return None,
                Access::External(tool) => {
                    covers.push(format!("calls of {}", case.tool));
                    let definition = Some(tool.definition.clone()).filter(|definition| !definition.is_empty());
                    rules.push(RuleConfig { definition, ..rule(case.tool) });
                }
            }
        }
        if rules.is_empty() {
            return None;
        }
        covers.dedup();
        Some(Self::new(rules, &covers.join(", ")))
    }
}

fn rule(tool: &str) -> RuleConfig {
    RuleConfig {
        effect: RuleEffect::Allow,
        tool: tool.to_owned(),
        command: None,
        path: None,
        host: None,
        definition: None,
    }
}

fn file(
    case: &Case<'_>,
    access: &Access,
    spot: &Spot,
    rules: &mut Vec<RuleConfig>,
    covers: &mut Vec<String>,
) -> Option<()> {
    if case.places.standing(spot) == Standing::Secret {
        return None;
    }
    let path = spot.real.to_str()?;
    if path.contains(['*', '?', '[', '{']) {
        return None;
    }
    let (verb, tools): (&str, &[&str]) = match access {
        Access::Write(_) => ("edits of", &["write_file", "patch"]),
        _ => ("reads of", &["read_file", "search_files"]),
    };
    let tools = if tools.contains(&case.tool) { tools } else { &[case.tool] };
    rules.extend(tools.iter().map(|tool| RuleConfig { path: Some(path.to_owned()), ..rule(tool) }));
    covers.push(format!("{verb} {}", below(case, &spot.real)));
    Some(())
}

fn below<'a>(case: &Case<'_>, path: &'a Path) -> std::borrow::Cow<'a, str> {
    path.strip_prefix(case.places.cwd()).unwrap_or(path).to_string_lossy()
}

/// One rule per plain command that nothing covers; nothing when one of them may not be remembered.
fn commands(
    case: &Case<'_>,
    to_cover: &[Command],
    rules: &mut Vec<RuleConfig>,
    covers: &mut Vec<String>,
) -> Option<()> {
    for command in to_cover {
        let folders = [case.places.cwd().to_path_buf()];
        let is_odd = !program::assess(command).objections.is_empty()
            || !danger::objections(command, case.places, &folders).is_empty();
        let pattern = narrowest(&command.literals()?).filter(|_| !is_odd)?;
        if !rules.iter().any(|rule| rule.command.as_ref() == Some(&pattern)) {
            covers.push(format!("`{pattern}`"));
            rules.push(RuleConfig { command: Some(pattern), ..rule(case.tool) });
        }
    }
    Some(())
}

/// The pattern for one command: program and subcommand with any arguments where that says what it
/// does, else exactly these words. Never one for a shell, a wrapper or a bare interpreter.
fn narrowest(words: &[&str]) -> Option<String> {
    let program = *words.first()?;
    let name = program_name(program);
    let is_shell = SHELLS.contains(&name.as_str()) || shell::is_wrapper(&name);
    if is_shell || words.len() > 64 || words.iter().any(|word| word.len() > 512 || word.contains('\n')) {
        return None;
    }
    let keep = match words.get(1) {
        Some(first) if OUTWARD.contains(first) => words.len(),
        Some(first) if WITH_SUBCOMMAND.contains(&program) && is_subcommand(first) => {
            let is_runner = RUNNERS.contains(first);
            if is_runner && !words.get(2).is_some_and(|word| is_subcommand(word)) {
                words.len()
            } else {
                2 + usize::from(is_runner)
            }
        }
        // The script, with any arguments.
        Some(script) if interpreter(&name).is_some() && !script.starts_with('-') => 2,
        _ => words.len(),
    };
    let kept: Vec<String> = words.iter().take(keep).map(|word| quote(word)).collect();
    let is_outward = words.get(1).is_some_and(|first| OUTWARD.contains(first));
    let is_exact = keep >= words.len() && (is_outward || !WITH_SUBCOMMAND.contains(&program));
    Some(if is_exact { kept.join(" ") } else { format!("{} *", kept.join(" ")) })
}

fn is_subcommand(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.'))
}
