//! Programs that talk over pipes of their own for as long as a session lives: servers of tools.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::unix::pipe;

use super::marker::{Marker, VARIABLE};
use super::tree::Tree;
use super::{Processes, environment, helper};

/// One program to start.
#[derive(Clone)]
pub struct CompanionLine {
    /// The program, by its path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Variables beside the cleaned environment of the daemon.
    pub env: Vec<(String, String)>,
    /// Variables it must not inherit, besides those that look like secrets.
    pub secret_env: Arc<[String]>,
}

/// Values of variables are secrets, so they are not shown.
impl std::fmt::Debug for CompanionLine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CompanionLine").field("program", &self.program).finish_non_exhaustive()
    }
}

/// A program that runs, and its pipes.
#[derive(Debug)]
pub struct Companion {
    /// Its standard input.
    pub input: pipe::Sender,
    /// Its standard output.
    pub output: pipe::Receiver,
    /// Its standard error.
    pub errors: pipe::Receiver,
    /// The program and everything it started.
    pub tree: CompanionTree,
}

/// A program and everything it started. Dropping it ends them all: TERM, two seconds, KILL.
#[derive(Debug)]
pub struct CompanionTree(Tree);

impl CompanionTree {
    /// Waits for the program's own end and tells its status. Cancel safe.
    pub async fn ended(&mut self) -> String {
        match self.0.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl Processes {
    /// Starts a program with pipes. It has a process group, a marked environment and an end like a command's.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start_companion(&self, line: &CompanionLine) -> std::io::Result<Companion> {
        self.0.watcher.get_or_init(|| helper::start_watcher(&self.0.daemon));
        let marker = Marker::call(&self.0.daemon, self.0.calls.fetch_add(1, Ordering::Relaxed));
        let (input_end, input) = std::io::pipe()?;
        let (output, output_end) = std::io::pipe()?;
        let (errors, errors_end) = std::io::pipe()?;
        let program = line.program.to_str().ok_or(std::io::ErrorKind::InvalidFilename)?;
        let mut command = helper::shell_command(program, None)?;
        command.args(&line.args).current_dir(&line.cwd);
        command.stdin(input_end).stdout(output_end).stderr(errors_end);
        environment::clean(command.as_std_mut(), &line.secret_env, &marker);
        let own = line.env.iter().filter(|(name, _)| name != VARIABLE);
        command.envs(own.map(|(name, value)| (name, value)));
        let child = command.spawn()?;
        // The command holds our copies of the program's ends; they must be gone to see its end.
        drop(command);
        Ok(Companion {
            input: pipe::Sender::from_owned_fd(OwnedFd::from(input))?,
            output: pipe::Receiver::from_owned_fd(OwnedFd::from(output))?,
            errors: pipe::Receiver::from_owned_fd(OwnedFd::from(errors))?,
            tree: CompanionTree(Tree::new(child, marker, self.clone())),
        })
    }
}
