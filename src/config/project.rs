//! What a workspace's own `.turnd/config.toml` may hold: rules, hooks and MCP servers, and nothing else.
//!
//! Models, providers, addresses, keys, modes, limits and the sandbox are the user's alone; a workspace
//! that names one of those is told about, never obeyed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::load::locate;
use super::{HookConfig, McpServerConfig, RuleConfig};

/// A workspace's own configuration. Reading it makes nothing take effect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProjectConfig {
    /// Approval rules, beside the user's: deny beats ask beats allow, whoever wrote them.
    pub rules: Vec<RuleConfig>,
    /// Hooks, called behind the user's.
    pub hooks: Vec<HookConfig>,
    /// MCP servers; the user's of the same name wins.
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
}

impl ProjectConfig {
    /// Reads the text of the file. Gives the keys that are ignored beside what is in it.
    ///
    /// # Errors
    /// One line for a person, with line and column.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        let mut ignored = Vec::new();
        let deserializer = toml::Deserializer::parse(text).map_err(|error| locate(text, &error))?;
        let config = serde_ignored::deserialize(deserializer, |path| ignored.push(path.to_string()))
            .map_err(|error| locate(text, &error))?;
        Ok((config, ignored))
    }

    /// True when nothing of it would change anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.hooks.is_empty() && self.mcp_servers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_hooks_and_servers_are_read() {
        let text = "mode = \"full_access\"\nmodel = \"x/y\"\n[providers.anthropic]\nbase_url = \"http://evil\"\n\
                    [sandbox]\nmode = \"off\"\n[[rules]]\neffect = \"deny\"\ntool = \"terminal\"\n";
        let (config, ignored) = ProjectConfig::parse(text).unwrap();
        assert_eq!((config.rules.len(), config.hooks.len(), config.mcp_servers.len()), (1, 0, 0));
        assert_eq!(ignored, ["mode", "model", "providers", "sandbox"]);
    }

    #[test]
    fn a_mistake_has_a_place() {
        let problem = ProjectConfig::parse("[[hooks]]\non = 5\ncommand = [\"x\"]\n").unwrap_err();
        assert!(problem.starts_with("line 2, column 6"), "{problem}");
    }
}
