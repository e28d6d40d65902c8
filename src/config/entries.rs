//! Entries that the user's configuration and that of a workspace can hold: rules, hooks and MCP servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hook::HookPoint;

use super::checks;

/// One approval rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub struct RuleConfig {
    /// Deny beats ask beats allow.
    pub effect: RuleEffect,
    /// The tool's name; `*` stands for any characters, `?` for one.
    pub tool: String,
    /// For `terminal`: a command pattern, `*` matching any words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// For file tools: a path glob, relative to the workspace or absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// For `web_fetch`: a host, or `*.` and a domain for the hosts below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// For tools of MCP servers, set by turnd: what the tool said of itself when it was allowed. The rule holds
    /// as long as it says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
}

impl std::fmt::Display for RuleConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let effect = match self.effect {
            RuleEffect::Deny => "deny",
            RuleEffect::Ask => "ask",
            RuleEffect::Allow => "allow",
        };
        let subject = self.command.as_deref().or(self.path.as_deref()).or(self.host.as_deref());
        write!(formatter, "{effect} {} {}", self.tool, subject.unwrap_or("everything"))
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// Never.
    Deny,
    /// Always ask.
    Ask,
    /// Pass.
    Allow,
}

/// A command run at a point of the turn.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, schemars::JsonSchema)]
pub struct HookConfig {
    /// The point's name.
    pub on: HookPoint,
    /// Program and arguments; JSON on stdin, JSON on stdout.
    #[serde(deserialize_with = "checks::program")]
    pub command: Vec<String>,
    /// Seconds it may take, more than 0. Default 10.
    #[serde(default = "hook_timeout", deserialize_with = "checks::seconds")]
    pub timeout_seconds: f64,
}

fn hook_timeout() -> f64 {
    10.0
}

/// An MCP server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(default)]
pub struct McpServerConfig {
    /// `stdio`, `http` or `sse` (the older HTTP). Unset: `stdio` with a command, `http` with a URL.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Program of a stdio server.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside the cleaned environment of turnd.
    pub env: BTreeMap<String, String>,
    /// Where it runs, relative to the session's folder. Unset: there.
    pub cwd: Option<String>,
    /// Address of an HTTP server.
    pub url: Option<String>,
    /// Sent with each request.
    pub headers: BTreeMap<String, String>,
    /// Seconds a call may take; its progress begins them anew, ten times at most. Default 60.
    pub timeout_seconds: Option<u64>,
    /// Do not start it.
    pub disabled: bool,
    /// The only tools that are offered, by the server's own names; empty: all.
    pub tools: Vec<String>,
}
