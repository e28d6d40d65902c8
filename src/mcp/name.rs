//! Names of servers and tools as a model's provider takes them: `mcp_<server>_<tool>`, at most 64 characters of
//! `[A-Za-z0-9_-]`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The longest tool name that the strictest provider takes.
const MAX_NAME: usize = 64;

/// The longest part of it that a server's name makes up, so that room is left for the tool's.
const MAX_SERVER: usize = 24;

/// Hexadecimal digits that tell two names apart which would be the same.
const SUFFIX_DIGITS: usize = 6;

/// A server's name as a part of a tool's name.
pub(super) fn slug(name: &str) -> String {
    let plain = plain(name);
    let cut: String = plain.chars().take(MAX_SERVER).collect();
    let cut = cut.trim_matches('_');
    if cut.is_empty() { "server".to_owned() } else { cut.to_owned() }
}

/// The text with every other character as `_`.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect()
}

/// Gives each tool of a session its name, and never the same name to two, or another one later on.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the server's part and the tool's own name.
    given: BTreeMap<(String, String), String>,
}

impl Names {
    /// The name of a tool.
    pub(super) fn of(&mut self, server: &str, tool: &str) -> String {
        let key = (server.to_owned(), tool.to_owned());
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        let whole = format!("mcp_{server}_{}", plain(tool));
        let is_plain = plain(tool) == tool && whole.len() <= MAX_NAME;
        let name = if is_plain && !self.is_given(&whole) { whole } else { told_apart(&whole, server, tool) };
        self.given.insert(key, name.clone());
        name
    }

    fn is_given(&self, name: &str) -> bool {
        self.given.values().any(|given| given == name)
    }
}

/// The name cut short, with digits that depend on the true names only.
fn told_apart(whole: &str, server: &str, tool: &str) -> String {
    let digest = Sha256::new().chain_update(server).chain_update([0]).chain_update(tool).finalize();
    let mut digits = String::new();
    for byte in digest.iter().take(SUFFIX_DIGITS / 2) {
        // Writing to a string cannot fail.
        write!(digits, "{byte:02x}").ok();
    }
    let kept: String = whole.chars().take(MAX_NAME - SUFFIX_DIGITS - 1).collect();
    format!("{}_{digits}", kept.trim_end_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_becomes_a_part_of_a_tools_name() {
        let check = |name: &str, expected: &str| assert_eq!(slug(name), expected, "{name}");
        check("git", "git");
        check("My Server!", "My_Server");
        check("../../etc", "etc");
        check("größe", "gr__e");
        check("", "server");
        check("日本", "server");
        check(&"x".repeat(500), &"x".repeat(24));
    }

    #[test]
    fn every_tool_has_one_name_of_its_own_that_every_provider_takes() {
        let mut names = Names::default();
        let long = "very_long_tool_name_".repeat(10);
        let tools = ["status", "a b", "a_b", "a.b", "ünïcödé", "", long.as_str(), "read_file"];
        let mut seen = std::collections::BTreeSet::new();
        for server in ["git", "git_a", "x"] {
            for tool in tools {
                let name = names.of(server, tool);
                assert!(name.len() <= 64 && name.starts_with("mcp_"), "{name}");
                assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
                assert!(seen.insert(name.clone()), "{name} is given twice");
                assert_eq!(names.of(server, tool), name, "a name stays");
            }
        }
        assert!(seen.contains("mcp_git_status"));
    }

    #[test]
    fn two_ways_to_the_same_name_are_told_apart() {
        let mut names = Names::default();
        let (first, second) = (names.of("a", "b_c"), names.of("a_b", "c"));
        assert_eq!(first, "mcp_a_b_c");
        assert!(second.starts_with("mcp_a_b_c_") && second.len() == "mcp_a_b_c_".len() + 6, "{second}");
    }
}
