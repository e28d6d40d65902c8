//! Programs that talk over pipes of their own for longer than one call: servers of tools, other agents.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::unix::pipe;

use super::marker::{Marker, VARIABLE};
use super::tree::{Remains, Tree};
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
        self.watch();
        let marker = Marker::call(&self.0.daemon, self.0.calls.fetch_add(1, Ordering::Relaxed));
        let (input_end, input) = std::io::pipe()?;
        let (output, output_end) = std::io::pipe()?;
        let (errors, errors_end) = std::io::pipe()?;
        let mut command = helper::program_command(line.program.as_os_str());
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
            tree: CompanionTree(Tree::new(child, Remains { marker, sandbox: None }, self.clone())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn line(program: &str, env: &[(&str, &str)]) -> CompanionLine {
        CompanionLine {
            program: program.into(),
            args: Vec::new(),
            cwd: std::env::temp_dir(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            secret_env: Arc::from(["PATH".to_owned()]),
        }
    }

    #[tokio::test]
    async fn a_companion_hears_and_answers_and_ends_when_it_is_let_go() {
        let processes = Processes::default();
        let mut companion = processes.start_companion(&line("/bin/cat", &[])).unwrap();
        companion.input.write_all(b"hi").await.unwrap();
        let mut heard = [0; 2];
        companion.output.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hi");
        let Companion { input: _input, mut output, tree, .. } = companion;
        drop(tree);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).await.unwrap();
        processes.settled().await;
    }

    #[tokio::test]
    async fn only_named_variables_pass_the_scrubbing() {
        let said = async |env: &[(&str, &str)]| {
            let processes = Processes::default();
            let mut companion = processes.start_companion(&line("/usr/bin/env", env)).unwrap();
            let mut said = String::new();
            companion.output.read_to_string(&mut said).await.unwrap();
            said.lines().any(|line| line.starts_with("PATH="))
        };
        assert!(!said(&[]).await);
        assert!(said(&[("PATH", "/bin")]).await);
    }
}
