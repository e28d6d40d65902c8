//! A session's MCP servers: which ones, and when a turn gets their tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{Config, McpServerConfig, ToolsConfig};
use crate::mcp::{McpServers, Origin, ServerSpec, Surroundings};
use crate::tool::ToolContext;
use crate::tool::process::Processes;
use crate::tool::registry::ToolRegistry;

/// The longest time a turn can be made to wait for servers.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The servers of a session: those of the configuration, and over them the client's. An entry that makes no
/// sense becomes a notice.
pub(super) fn specs(config: &Config, from_client: Vec<ServerSpec>, notices: &mut Vec<String>) -> Vec<ServerSpec> {
    let mut configured = Vec::new();
    for (name, entry) in config.mcp_servers.iter().filter(|(_, entry)| !entry.disabled) {
        match ServerSpec::from_config(name, entry, Origin::User) {
            Ok(spec) => configured.push(spec),
            Err(notice) => notices.push(notice),
        }
    }
    ServerSpec::merged(configured, from_client)
}

/// Starts servers in the background.
pub(super) fn start(
    config: &Config,
    processes: &Processes,
    context: &ToolContext,
    specs: Vec<ServerSpec>,
) -> Arc<McpServers> {
    let around = Surroundings {
        cwd: context.cwd.clone(),
        additional_roots: context.additional_roots.clone(),
        secret_env: Arc::clone(&context.secret_env),
        processes: processes.clone(),
    };
    let wait = Duration::try_from_secs_f64(config.tools.mcp_wait_seconds).unwrap_or_default().min(MAX_WAIT);
    Arc::new(McpServers::start(specs, around, wait))
}

/// Makes the servers of the workspace's own configuration those that are in force in this turn.
pub(super) fn follow_workspace(servers: &McpServers, in_force: &BTreeMap<String, McpServerConfig>) -> Vec<String> {
    let mut notices = Vec::new();
    let mut specs = Vec::new();
    for (name, entry) in in_force.iter().filter(|(_, entry)| !entry.disabled) {
        match ServerSpec::from_config(name, entry, Origin::Project) {
            Ok(spec) => specs.push(spec),
            Err(notice) => notices.push(notice),
        }
    }
    servers.set_workspace_servers(specs);
    notices
}

/// The tools of a turn that begins now: the session's own and those of its servers, and what the user should
/// know about these. `None`: there are no servers. The same tools hold for the whole turn.
pub(super) async fn join(
    servers: &McpServers,
    own: &ToolRegistry,
    config: &ToolsConfig,
    cancel: &CancellationToken,
) -> (Option<Arc<ToolRegistry>>, Vec<String>) {
    if servers.is_empty() {
        return (None, Vec::new());
    }
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = servers.settled() => {}
    }
    (Some(Arc::new(own.with(servers.tools(), config))), servers.take_notices())
}
