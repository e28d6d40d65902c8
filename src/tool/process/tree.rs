//! The processes of one call, and how they are ended.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Processes;
use super::marker::{Marker, kill_marked};
use crate::sandbox::{self, SandboxPolicy};

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);

/// A command's shell and everything it started. Dropping it kills them all.
#[derive(Debug)]
pub(super) struct Tree {
    /// `None` once its end is somebody else's task.
    shell: Option<Shell>,
    processes: Processes,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    group: Pid,
    remains: Remains,
    runtime: Handle,
}

/// What a call may leave behind when its group is gone.
#[derive(Debug)]
pub(super) struct Remains {
    /// Is on every process of the call.
    pub(super) marker: Marker,
    /// What the call ran behind.
    pub(super) sandbox: Option<Arc<SandboxPolicy>>,
}

impl Remains {
    fn clear(&self) {
        kill_marked(&self.marker);
        if let Some(policy) = &self.sandbox {
            sandbox::tidy(policy);
        }
    }
}

impl Tree {
    pub(super) fn new(child: Child, remains: Remains, processes: Processes) -> Self {
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let shell = group.map(|group| Shell { child, group, remains, runtime: Handle::current() });
        Self { shell, processes }
    }

    /// The shell's own end. Cancel safe.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match &mut self.shell {
            Some(shell) => shell.child.wait().await,
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    /// The shell ended by itself: ends what it left behind, in the background.
    pub(super) fn sweep(mut self) {
        if let Some(shell) = self.shell.take() {
            // Right after the shell its number cannot have gone to another group yet.
            signal_group(shell.group, Signal::KILL);
            let runtime = shell.runtime;
            self.processes.0.reapers.spawn_blocking_on(move || shell.remains.clear(), &runtime);
        }
    }

    /// Ends everything in the background: TERM, grace, KILL, then whatever still carries the marker.
    pub(super) fn kill(mut self) -> JoinHandle<()> {
        match self.shell.take() {
            Some(shell) => self.reap(shell),
            None => self.processes.0.reapers.spawn(async {}),
        }
    }

    fn reap(&self, shell: Shell) -> JoinHandle<()> {
        let runtime = shell.runtime.clone();
        let shutdown = self.processes.0.shutdown.clone();
        // Made here and not in the task, so that a runtime that drops the task unstarted kills all the same.
        let group = Group { id: shell.group, remains: shell.remains, is_gone: false };
        let mut child = shell.child;
        group.signal(Signal::TERM, &child);
        let reaper = async move {
            tokio::select! {
                () = group.gone(&mut child) => {}
                () = sleep(GRACE) => {}
                () = shutdown.cancelled() => {}
            }
            // A group that is gone is not found; its number is not given away again so soon.
            group.signal(Signal::KILL, &child);
            // Waiting for a killed child ends, save when the kernel itself is stuck.
            tokio::time::timeout(GRACE, child.wait()).await.ok();
            tokio::task::spawn_blocking(move || group.finish()).await.ok();
        };
        self.processes.0.reapers.spawn_on(reaper, &runtime)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(shell) = self.shell.take() {
            self.reap(shell);
        }
    }
}

/// A process group that is killed, with all that carries its marker, when this is dropped before its time.
struct Group {
    id: Pid,
    remains: Remains,
    is_gone: bool,
}

impl Group {
    fn signal(&self, signal: Signal, child: &Child) {
        let is_group = signal_group(self.id, signal);
        // A shell that has only just been started may not have its group yet.
        if !is_group && child.id().is_some() {
            rustix::process::kill_process(self.id, signal).ok();
        }
    }

    /// Waits until the group has no process.
    async fn gone(&self, child: &mut Child) {
        let started = Instant::now();
        child.wait().await.ok();
        while rustix::process::test_kill_process_group(self.id).is_ok() {
            // Most groups are gone with their shell, so look soon at first, then less often.
            sleep((started.elapsed() / 4).clamp(Duration::from_millis(1), Duration::from_millis(50))).await;
        }
    }

    /// Kills what is left outside the group.
    fn finish(mut self) {
        self.remains.clear();
        self.is_gone = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_gone {
            signal_group(self.id, Signal::KILL);
            self.remains.clear();
        }
    }
}

/// False when there is nobody to signal.
fn signal_group(group: Pid, signal: Signal) -> bool {
    rustix::process::kill_process_group(group, signal).is_ok()
}
