//! What a configuration says in vain: names of nothing, values that nothing takes.
//!
//! None of it keeps turnd from working. The doctor tells all of it, a session only what its user may rely on.

use crate::config::{Config, RuleConfig};
use crate::likeness::nearest;
use crate::provider::auxiliary::Auxiliary;
use crate::provider::catalog;

use super::chain;

/// The tools that every session has or can have. What MCP servers add begins with `mcp_`.
const TOOLS: [&str; 12] = [
    "terminal",
    "process",
    "read_file",
    "write_file",
    "patch",
    "search_files",
    "web_fetch",
    "todo",
    "memory",
    "session_search",
    "clarify",
    "delegate_task",
];

/// What an external runtime asks for beside its commands and edits; a rule can name it.
const RUNTIME_TOOL: &str = "request_permissions";

const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// All that is in vain, one line each.
#[must_use]
pub fn objections(config: &Config) -> Vec<String> {
    let mut all = idle_entries(config);
    all.extend(config.tools.disabled.iter().filter_map(|name| Some(format!("tools.disabled: {}", no_tool(name)?))));
    if let Some(effort) = config.reasoning_effort.as_deref().filter(|effort| !EFFORTS.contains(effort)) {
        all.push(format!("reasoning_effort: `{effort}` is none of {}", EFFORTS.join(", ")));
    }
    let shares =
        [("threshold", config.compression.threshold), ("between_turns", Some(config.compression.between_turns))];
    for (key, share) in shares {
        if let Some(share) = share.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            all.push(format!("compression.{key}: {share} is no share of a window: write one above 0 and up to 1"));
        }
    }
    all.extend(chain::fallbacks(config).1);
    all.extend(Auxiliary::resolve(config, &catalog::process_env).1);
    all
}

/// What somebody may believe to be in force and is not.
#[must_use]
pub fn idle_entries(config: &Config) -> Vec<String> {
    let mut idle = idle_rules(&config.rules);
    let soul = config.home.join(&config.soul);
    if config.soul != Config::default_soul() && !soul.is_file() {
        idle.push(format!("soul: there is no file {}", soul.display()));
    }
    idle
}

/// Rules for tools that do not exist. Patterns are not judged: a server's tools are not known yet.
pub(super) fn idle_rules(rules: &[RuleConfig]) -> Vec<String> {
    let objection = |rule: &RuleConfig| {
        let is_pattern = rule.tool.contains(['*', '?']);
        let problem = no_tool(&rule.tool).filter(|_| !is_pattern && rule.tool != RUNTIME_TOOL)?;
        Some(format!("the rule `{rule}` holds for nothing: {problem}"))
    };
    rules.iter().filter_map(objection).collect()
}

fn no_tool(name: &str) -> Option<String> {
    if TOOLS.contains(&name) || name.starts_with("mcp_") {
        return None;
    }
    Some(match nearest(name, TOOLS, 0.7) {
        Some(tool) => format!("there is no tool `{name}`, did you mean `{tool}`?"),
        None => format!("there is no tool `{name}`; the tools are {}", TOOLS.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::process::Processes;
    use crate::tool::registry::built_in;

    fn check(text: &str, expected: &[&str]) {
        let mut config: Config = toml::from_str(text).unwrap();
        config.home = "/nowhere".into();
        let found = objections(&config);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn every_name_and_value_that_nothing_takes_is_told() {
        check("", &[]);
        check("rules = [{ effect = \"deny\", tool = \"terminl\" }]", &["did you mean `terminal`?"]);
        check("rules = [{ effect = \"ask\", tool = \"Terminal\", command = \"rm *\" }]", &["ask Terminal rm *"]);
        check("rules = [{ effect = \"deny\", tool = \"rocket\" }]", &["the tools are terminal, "]);
        check("tools.disabled = [\"x\", \"mcp_git_log\", \"todo\"]", &["tools.disabled: there is no tool `x`"]);
        check("reasoning_effort = \"huge\"", &["`huge` is none of none, minimal"]);
        check("compression = { threshold = 7.0, between_turns = 1.0 }", &["threshold: 7"]);
        check("fallback_providers = [\"nobody/x\"]", &["there is no provider `nobody`"]);
        check("[auxiliary.titel]\nmodel = \"nobody/x\"", &["titel"]);
        check("auxiliary.title.model = \"nobody/x\"", &["there is no provider `nobody`"]);
        check("soul = \"me.md\"", &["there is no file /nowhere/me.md"]);
    }

    #[test]
    fn rules_for_tools_that_may_come_are_left_alone() {
        for tool in ["*", "read_*", "mcp_git_log", "mcp_*", "request_permissions"].iter().chain(&TOOLS) {
            check(&format!("rules = [{{ effect = \"deny\", tool = \"{tool}\" }}]"), &[]);
        }
        for tool in built_in(&Processes::default()) {
            assert!(TOOLS.contains(&tool.spec().name.as_str()), "{}", tool.spec().name);
        }
    }
}
