//! The MCP servers a client passes with a session.

use serde_json::Value;
use turnd_protocol::acp;

use crate::mcp::{Address, Origin, ServerSpec};
use crate::tool::output::one_line;

/// Servers of one session that are started; an editor passes a handful.
const MAX_SERVERS: usize = 64;

/// What a client passed: servers that can be started, and why the others cannot.
#[derive(Debug, Default)]
pub(super) struct PassedServers {
    pub(super) specs: Vec<ServerSpec>,
    pub(super) notices: Vec<String>,
}

/// Reads the servers of `session/new`.
pub(super) fn read(servers: Vec<acp::McpServer>) -> PassedServers {
    let mut passed = PassedServers::default();
    for server in servers {
        passed.take(server);
    }
    passed
}

/// Reads the servers of `session/load` and `session/resume`: one that cannot be read does not keep a session from
/// being opened again.
pub(super) fn read_values(servers: Vec<Value>) -> PassedServers {
    let mut passed = PassedServers::default();
    for server in servers {
        let name = server.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match serde_json::from_value(server) {
            Ok(server) => passed.take(server),
            Err(error) => {
                passed.notices.push(format!("The MCP server {:?} cannot be read: {error}", one_line(&name, 60)));
            }
        }
    }
    passed
}

impl PassedServers {
    fn take(&mut self, server: acp::McpServer) {
        let (name, address) = match server {
            acp::McpServer::Stdio(server) => {
                let env = server.env.into_iter().map(|variable| (variable.name, variable.value)).collect();
                let command = server.command.to_string_lossy().into_owned();
                (server.name, Address::Stdio { command, args: server.args, env, cwd: None })
            }
            acp::McpServer::Http(server) => {
                (server.name, Address::Http { url: server.url, headers: headers(server.headers) })
            }
            acp::McpServer::Sse(server) => {
                (server.name, Address::Sse { url: server.url, headers: headers(server.headers) })
            }
            _ => {
                self.notices.push("An MCP server of a kind that turnd does not know is not started.".into());
                return;
            }
        };
        if self.specs.len() >= MAX_SERVERS {
            let notice = format!("More than {MAX_SERVERS} MCP servers were passed; the others are not started.");
            if self.notices.last() != Some(&notice) {
                self.notices.push(notice);
            }
            return;
        }
        match ServerSpec::new(&name, address, Origin::Client) {
            Ok(spec) => self.specs.push(spec),
            Err(notice) => self.notices.push(notice),
        }
    }
}

fn headers(headers: Vec<acp::HttpHeader>) -> std::collections::BTreeMap<String, String> {
    headers.into_iter().map(|header| (header.name, header.value)).collect()
}
