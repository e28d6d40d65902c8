//! The agent under test: a program on real pipes, or a function over a pipe in memory.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream};
use tokio::task::JoinSet;

/// How to start the agent.
#[derive(Clone)]
pub enum Agent {
    /// A program with its first arguments.
    Program(Vec<String>),
    /// A function that serves until its input ends and returns the exit code.
    Function(Arc<ServeFunction>),
}

/// Serves one connection in process.
pub type ServeFunction = dyn Fn(Launch, DuplexStream, DuplexStream) -> BoxFuture<'static, i32> + Send + Sync;

impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(command) => formatter.debug_tuple("Program").field(command).finish(),
            Self::Function(_) => formatter.write_str("Function"),
        }
    }
}

/// Where and with what an agent starts.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its home folder.
    pub home: PathBuf,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Further arguments.
    pub args: Vec<String>,
    /// Its environment, beside `PATH`; nothing else is passed on.
    pub environment: Vec<(String, String)>,
}

/// A started agent.
pub struct Started {
    /// What it reads.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it writes.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its life.
    pub process: Process,
}

impl fmt::Debug for Started {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Started").field("process", &self.process).finish_non_exhaustive()
    }
}

/// How an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}

/// The life of a started agent; dropping it ends the agent.
#[derive(Debug)]
pub struct Process {
    kind: Kind,
    exit: Option<Exit>,
    log: Log,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
enum Kind {
    Child(Box<tokio::process::Child>),
    Task(JoinSet<i32>),
}

impl Agent {
    /// Starts it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(&self, launch: Launch) -> io::Result<Started> {
        match self {
            Self::Program(command) => start_program(command, &launch),
            Self::Function(serve) => {
                let (stdin, its_stdin) = tokio::io::duplex(PIPE_BYTES);
                let (its_stdout, stdout) = tokio::io::duplex(PIPE_BYTES);
                let mut task = JoinSet::new();
                task.spawn(serve(launch, its_stdin, its_stdout));
                let process =
                    Process { kind: Kind::Task(task), exit: None, log: Log::default(), tasks: JoinSet::new() };
                Ok(Started { stdin: Box::new(stdin), stdout: Box::new(stdout), process })
            }
        }
    }
}

/// What a Linux pipe holds, so that back pressure begins at the same point in both ways.
const PIPE_BYTES: usize = 64 * 1024;

#[expect(clippy::disallowed_methods, reason = "the harness starts the agent under test itself")]
fn start_program(command: &[String], launch: &Launch) -> io::Result<Started> {
    let (program, first) = command.split_first().ok_or_else(|| io::Error::other("the agent's command is empty"))?;
    let mut child = tokio::process::Command::new(program)
        .args(first)
        .args(&launch.args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&launch.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let missing = || io::Error::other("the agent has no pipe");
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let (log, mut tasks) = (Log::default(), JoinSet::new());
    tasks.spawn(log.clone().read(stderr));
    let process = Process { kind: Kind::Child(Box::new(child)), exit: None, log, tasks };
    Ok(Started { stdin: Box::new(stdin), stdout: Box::new(stdout), process })
}

impl Process {
    /// Waits for the end.
    ///
    /// # Errors
    /// The system cannot tell.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let exit = match &mut self.kind {
            Kind::Child(child) => {
                let status = child.wait().await?;
                let signal = std::os::unix::process::ExitStatusExt::signal(&status);
                signal.map_or(Exit::Code(status.code().unwrap_or(-1)), Exit::Signal)
            }
            Kind::Task(task) => match task.join_next().await {
                Some(Ok(code)) => Exit::Code(code),
                Some(Err(error)) if error.is_panic() => Exit::Code(101),
                _ => Exit::Signal(KILL),
            },
        };
        self.exit = Some(exit);
        // The last lines of the log are still on their way when the process is gone.
        while self.tasks.join_next().await.is_some() {}
        Ok(exit)
    }

    /// True when the end was already seen.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// The process id; `None` in process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::Child(child) => child.id(),
            Kind::Task(_) => None,
        }
    }

    /// Sends a signal by number. In process only KILL means something: the task is dropped.
    ///
    /// # Errors
    /// There is no such process any more.
    pub fn signal(&mut self, number: i32) -> io::Result<()> {
        match &mut self.kind {
            Kind::Task(task) => {
                task.abort_all();
                Ok(())
            }
            Kind::Child(child) => {
                let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
                let signal = rustix::process::Signal::from_named_raw(number);
                match (pid, signal) {
                    (Some(pid), Some(signal)) => Ok(rustix::process::kill_process(pid, signal)?),
                    _ => Err(io::Error::other("the agent has ended, or there is no such signal")),
                }
            }
        }
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.text()
    }
}

/// The number of SIGKILL, the same on every Unix.
pub const KILL: i32 = 9;

/// The text an agent writes to stderr, at most 8 MiB of it.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    async fn read(self, mut stderr: impl AsyncRead + Unpin) {
        const MOST: usize = 8 << 20;
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if text.len() < MOST {
                text.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}
