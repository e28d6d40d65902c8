//! Commands that run on while the conversation goes on. They end with their session at the latest.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Capture, CommandLine, Ended, Processes};
use crate::tool::Hold;

/// Commands a session may have running at a time, and ended ones that can still be read.
const MAX_COMMANDS: usize = 16;

/// How long input may wait for a command that does not read.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// The background commands of one session. Clones share them; dropping the last kills them.
#[derive(Clone, Debug)]
pub struct Background(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    processes: Processes,
    commands: Mutex<Commands>,
    /// Ends all of them.
    stop: CancellationToken,
    _stop_when_dropped: DropGuard,
}

#[derive(Debug, Default)]
struct Commands {
    last_id: u32,
    by_id: BTreeMap<u32, Command>,
}

/// What is known of a background command at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its number in the session, from 1.
    pub id: u32,
    /// The text the shell got.
    pub command: String,
    /// The newest output.
    pub output: Capture,
    /// How it ended; `None` while it runs.
    pub ended: Option<Ended>,
}

#[derive(Debug)]
struct Command {
    line: CommandLine,
    state: watch::Receiver<State>,
    cancel: CancellationToken,
    /// Taken out while somebody writes; `None` also when it was closed.
    input: Option<pipe::Sender>,
    /// Bytes of its output that were read.
    read_bytes: u64,
}

#[derive(Clone, Debug)]
struct State {
    output: Capture,
    ended: Option<Ended>,
}

impl Background {
    /// No commands yet.
    #[must_use]
    pub fn new(processes: Processes) -> Self {
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        Self(Arc::new(Shared { processes, commands: Mutex::default(), stop, _stop_when_dropped: guard }))
    }

    /// Starts a command and gives its number.
    ///
    /// # Errors
    /// Too many run already, or there are no more pipes.
    pub fn start(&self, line: CommandLine) -> std::io::Result<u32> {
        let mut commands = self.commands();
        commands.make_room()?;
        let (input_end, input) = std::io::pipe()?;
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(input))?;
        let (slot, state) = watch::channel(State { output: Capture::new(line.keep_bytes), ended: None });
        let cancel = self.0.stop.child_token();
        commands.last_id += 1;
        let id = commands.last_id;
        let command = Command { line: line.clone(), state, cancel: cancel.clone(), input: Some(input), read_bytes: 0 };
        commands.by_id.insert(id, command);
        let processes = self.0.processes.clone();
        self.0.processes.0.background.spawn(async move {
            let show = |output: &Capture| slot.send_modify(|state| state.output = output.clone());
            let finished = processes.run_with_input(&line, Stdio::from(input_end), &cancel, show).await;
            slot.send_modify(|state| match finished {
                Ok(finished) => (state.output, state.ended) = (finished.output, Some(finished.ended)),
                Err(error) => {
                    state.output.push(format!("the shell could not be started: {error}\n").as_bytes());
                    state.ended = Some(Ended::Exited(126));
                }
            });
        });
        Ok(id)
    }

    /// All commands that can be read, by number.
    #[must_use]
    pub fn list(&self) -> Vec<Status> {
        self.commands().by_id.iter().map(|(id, command)| command.status(*id)).collect()
    }

    /// Waits until a command has ended, or said something that was not read, but at most so long.
    /// `None`: no such command.
    pub async fn wait(&self, id: u32, limit: Duration) -> Option<()> {
        let (mut state, seen) = {
            let commands = self.commands();
            let command = commands.by_id.get(&id)?;
            (command.state.clone(), command.read_bytes)
        };
        let news = state.wait_for(|state| state.ended.is_some() || state.output.total_bytes() > seen);
        tokio::time::timeout(limit, news).await.ok();
        Some(())
    }

    /// The command's state and what it said since the last read.
    #[must_use]
    pub fn read(&self, id: u32) -> Option<(Status, String)> {
        let mut commands = self.commands();
        let command = commands.by_id.get_mut(&id)?;
        let status = command.status(id);
        let news = status.output.since(command.read_bytes);
        command.read_bytes = status.output.total_bytes();
        Some((status, news))
    }

    /// What holds a command.
    #[must_use]
    pub fn hold(&self, id: u32) -> Hold {
        let is_held = self.commands().by_id.get(&id).is_some_and(|command| command.line.sandbox.is_some());
        if is_held { Hold::Sandbox } else { Hold::Nothing }
    }

    /// Gives the command input, as it is.
    ///
    /// # Errors
    /// In words: no such command, its input is closed, it does not read.
    pub async fn write(&self, id: u32, input: &str) -> Result<(), String> {
        let mut sender = {
            let mut commands = self.commands();
            let command = commands.by_id.get_mut(&id).ok_or_else(|| unknown(id))?;
            command.input.take().ok_or_else(|| format!("process {id} takes no input any more"))?
        };
        match tokio::time::timeout(WRITE_LIMIT, sender.write_all(input.as_bytes())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("process {id} takes no input any more: {error}")),
            // What part of it arrived is not known, so nothing may follow it.
            Err(_) => return Err(format!("process {id} does not read its input; it was closed")),
        }
        if let Some(command) = self.commands().by_id.get_mut(&id) {
            command.input = Some(sender);
        }
        Ok(())
    }

    /// Ends a command and what it started.
    ///
    /// # Errors
    /// In words: no such command.
    pub async fn kill(&self, id: u32) -> Result<(), String> {
        let mut state = {
            let commands = self.commands();
            let command = commands.by_id.get(&id).ok_or_else(|| unknown(id))?;
            command.cancel.cancel();
            command.state.clone()
        };
        state.wait_for(|state| state.ended.is_some()).await.ok();
        Ok(())
    }

    fn commands(&self) -> MutexGuard<'_, Commands> {
        self.0.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: u32) -> String {
    format!("there is no process {id}")
}

impl Commands {
    /// Forgets the oldest command that has ended when there are many.
    fn make_room(&mut self) -> std::io::Result<()> {
        if self.by_id.len() < MAX_COMMANDS {
            return Ok(());
        }
        let ended = self.by_id.iter().find(|(_, command)| command.state.borrow().ended.is_some()).map(|(id, _)| *id);
        let Some(id) = ended else {
            return Err(std::io::Error::other(format!("{MAX_COMMANDS} background commands run already; kill one")));
        };
        self.by_id.remove(&id);
        Ok(())
    }
}

impl Command {
    fn status(&self, id: u32) -> Status {
        let State { output, ended } = self.state.borrow().clone();
        Status { id, command: self.line.command.clone(), output, ended }
    }
}
