//! Short programs that are not tools: hooks, commands that print a key.

use std::sync::atomic::Ordering;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

use super::Processes;
use super::marker::{Marker, VARIABLE};

/// A program in a group of its own, which ends with this value: when the work is done, cancelled or out of time.
#[derive(Debug)]
pub struct Errand {
    /// The program itself, with the pipes it was given.
    pub child: Child,
    group: Option<Pid>,
}

impl Errand {
    /// Starts a program.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, group })
    }
}

impl Processes {
    /// Starts a program of which nothing may outlive this daemon, however that ends. It keeps its environment.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start_errand(&self, command: &mut Command) -> std::io::Result<Errand> {
        self.watch();
        let marker = Marker::call(&self.0.daemon, self.0.calls.fetch_add(1, Ordering::Relaxed));
        Errand::start(command.env(VARIABLE, marker.value()))
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // An error means that nobody is left.
            rustix::process::kill_process_group(group, Signal::KILL).ok();
        }
    }
}
