//! The servers of one session.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::tool::Tool;
use crate::tool::process::Processes;

use super::name::Names;
use super::notes::Notes;
use super::server::Server;
use super::spec::ServerSpec;
use super::tool::McpTool;

/// How long the end of a session waits for its servers; their processes are killed either way.
const CLOSE_LIMIT: Duration = Duration::from_millis(150);

/// Tools of all servers of a session together: beside the session's own, the strictest provider takes 128.
const MAX_TOOLS: usize = 110;

/// What servers are started into.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The session's folder.
    pub cwd: PathBuf,
    /// Its other folders.
    pub additional_roots: Vec<PathBuf>,
    /// Variables a server does not inherit, besides those that look like secrets.
    pub secret_env: Arc<[String]>,
    /// Where processes are accounted for.
    pub processes: Processes,
}

/// The servers of one session. Dropping it ends them.
#[derive(Debug)]
pub struct McpServers {
    specs: Vec<ServerSpec>,
    around: Arc<Surroundings>,
    running: Mutex<Running>,
    notes: Arc<Notes>,
    tasks: TaskTracker,
    stop: CancellationToken,
    wait: Duration,
    memory: Mutex<Memory>,
    _stop_when_dropped: DropGuard,
}

/// The servers there are.
#[derive(Debug)]
struct Running {
    servers: Vec<Arc<Server>>,
    /// Those of the workspace's own configuration, at the end of the list, and what ends them.
    of_workspace: Vec<ServerSpec>,
    stop_workspace: CancellationToken,
    /// Until when a turn waits for servers that are being started.
    deadline: Instant,
}

/// What is remembered of tools for the session.
#[derive(Debug, Default)]
struct Memory {
    names: Names,
    /// What each tool said of itself when it was first seen.
    first_seen: HashMap<String, String>,
    is_told_slow: bool,
    is_told_many: bool,
}

impl McpServers {
    /// Starts servers in the background, all at once. Returns at once; `wait` is how long from now on a turn
    /// waits for them.
    #[must_use]
    pub fn start(specs: Vec<ServerSpec>, around: Surroundings, wait: Duration) -> Self {
        let (notes, tasks, stop) = (Arc::new(Notes::default()), TaskTracker::new(), CancellationToken::new());
        let running = Mutex::new(Running {
            servers: Vec::new(),
            of_workspace: Vec::new(),
            stop_workspace: stop.child_token(),
            deadline: Instant::now() + wait,
        });
        let guard = stop.clone().drop_guard();
        let (around, memory) = (Arc::new(around), Mutex::default());
        let all = Self { specs, around, running, notes, tasks, stop, wait, memory, _stop_when_dropped: guard };
        let servers = all.specs.iter().map(|spec| all.launch(spec, &all.stop)).collect();
        all.running().servers = servers;
        all
    }

    fn launch(&self, spec: &ServerSpec, stop: &CancellationToken) -> Arc<Server> {
        let server = Arc::new(Server::new(spec.clone()));
        let (around, notes) = (Arc::clone(&self.around), Arc::clone(&self.notes));
        self.tasks.spawn(Arc::clone(&server).keep(around, notes, stop.clone()));
        server
    }

    /// Makes these the servers of the workspace's own configuration, which the user trusted as it is now. They
    /// stand beside the session's own and never in the place of one.
    pub fn set_workspace_servers(&self, specs: Vec<ServerSpec>) {
        let specs = ServerSpec::beside(&self.specs, specs);
        let mut running = self.running();
        if running.of_workspace == specs {
            return;
        }
        running.stop_workspace.cancel();
        let stop = self.stop.child_token();
        running.servers.truncate(self.specs.len());
        running.servers.extend(specs.iter().map(|spec| self.launch(spec, &stop)));
        running.deadline = Instant::now() + self.wait;
        (running.of_workspace, running.stop_workspace) = (specs, stop);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no server at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running().servers.is_empty()
    }

    /// Whether these are the servers that were started.
    #[must_use]
    pub fn are(&self, specs: &[ServerSpec]) -> bool {
        self.specs == specs
    }

    /// Waits until each server is there or has failed, but not beyond the time given at the start.
    pub async fn settled(&self) {
        let (servers, deadline) = {
            let running = self.running();
            (running.servers.clone(), running.deadline)
        };
        let all = join_all(servers.iter().map(|server| server.settled()));
        if tokio::time::timeout_at(deadline, all).await.is_err() {
            let slow = servers.iter().filter(|server| server.is_starting());
            let names: Vec<&str> = slow.map(|server| server.spec.name()).collect();
            if !names.is_empty() && !std::mem::replace(&mut self.memory().is_told_slow, true) {
                let names = names.join(", ");
                self.notes.add(format!("Still starting, so its tools come with a later turn: MCP server {names}."));
            }
        }
    }

    /// The tools there are now, in the order of the servers and then in theirs.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let servers = self.running().servers.clone();
        let mut memory = self.memory();
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        let mut left_out = 0_usize;
        for server in &servers {
            for listed in server.tools().iter() {
                if tools.len() >= MAX_TOOLS {
                    left_out += 1;
                    continue;
                }
                let name = memory.names.of(server.spec.slug(), &listed.name);
                let first = memory.first_seen.entry(name.clone()).or_insert_with(|| listed.definition.clone());
                let was = (*first != listed.definition).then(|| first.clone());
                tools.push(Arc::new(McpTool::new(name, Arc::clone(server), listed.clone(), was)));
            }
        }
        if left_out > 0 && !std::mem::replace(&mut memory.is_told_many, true) {
            self.notes.add(format!(
                "{left_out} tools of MCP servers are left out, since providers refuse more than {MAX_TOOLS}; name the \
                 ones you want in the servers' `tools`."
            ));
        }
        tools
    }

    /// What the user should be told since the last time.
    #[must_use]
    pub fn take_notices(&self) -> Vec<String> {
        self.notes.take()
    }

    /// Ends all servers and waits for that, not for long.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(CLOSE_LIMIT, self.tasks.wait()).await.ok();
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
