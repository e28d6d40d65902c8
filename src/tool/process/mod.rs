//! The only place that starts processes for tools, and the one that sees to it that none is left.
//!
//! A command runs in a process group of its own, with nothing on stdin, one pipe for both outputs (so that
//! their order is kept), and a marker in its environment that all its descendants inherit. When it ends, is
//! cancelled, runs out of time or its future is dropped, the group is ended (TERM, two seconds, KILL) and
//! then every process that still carries the marker, wherever it moved itself. That work is done by tracked
//! tasks, so a cancelled call can answer at once and [`Processes::settled`] still waits for the dead.
//!
//! What escapes: a descendant that left the group *and* dropped its environment. The sandbox is for those.

use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sandbox::{self, SandboxPolicy, UNAVAILABLE};
use crate::tool::GitCare;
use crate::tool::spill::{Kept, Spill};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod background;
mod capture;
mod companion;
mod environment;
mod errand;
mod helper;
mod marker;
mod program;
mod recorder;
mod search_path;
mod tree;

pub use background::{Background, Status};
pub use capture::Capture;
pub use companion::{Companion, CompanionLine, CompanionTree};
pub use environment::COMMAND_ENV;
pub use errand::Errand;
pub use helper::{can_help, enter};
use marker::Marker;
pub use program::find_program;
use recorder::Recorder;
pub use search_path::search_path;
use tree::{Remains, Tree};

/// The shell commands are written for: bash where there is one, since that is what models write and what the
/// approval's parser reads; started so that it reads no start-up file.
#[must_use]
pub fn shell() -> &'static str {
    static SHELL: OnceLock<&str> = OnceLock::new();
    SHELL.get_or_init(|| {
        let found = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| std::path::Path::new(path).exists());
        found.unwrap_or("/bin/sh")
    })
}

/// How long output is awaited after the shell has ended: what a background child still holds open is not.
const DRAIN_GRACE: Duration = Duration::from_millis(50);

/// How often the output so far is shown while it changes.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// Bytes the pipe is asked to hold and bytes read at a time; more saves nothing that can be measured.
const PIPE_BYTES: usize = 256 << 10;

/// The exit code of a shell for a program that could not be started.
const CANNOT_EXECUTE: i32 = 126;

/// One command to run.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The exact text the shell gets.
    pub command: String,
    /// Where it runs.
    pub cwd: PathBuf,
    /// How long it may run.
    pub timeout: Duration,
    /// Variables it must not inherit, besides those that look like secrets.
    pub secret_env: Arc<[String]>,
    /// Bytes of output kept from the start, and as many from the end.
    pub keep_bytes: usize,
    /// What it runs behind; `None` runs it with all that the user may do.
    pub sandbox: Option<Arc<SandboxPolicy>>,
    /// Where output goes that is more than what is kept; `None` drops it.
    pub spill: Option<Spill>,
    /// Folders whose programs must not take the place of others.
    pub workspace: Arc<[PathBuf]>,
    /// How git behaves in it.
    pub git: GitCare,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It ran out of time and was killed.
    TimedOut,
    /// The turn was cancelled and it was killed.
    Cancelled,
}

/// What a command gave.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: Ended,
    /// Its output.
    pub output: Capture,
    /// Where all of it is, when that is more.
    pub whole: Option<Kept>,
}

/// The processes of the daemon. Clones share one account.
#[derive(Clone, Debug)]
pub struct Processes(Arc<Account>);

#[derive(Debug)]
struct Account {
    /// Begins every marker of this daemon, so that all its processes can be told from those of others.
    daemon: String,
    calls: AtomicU64,
    /// The tasks that end process trees.
    reapers: TaskTracker,
    /// The tasks that run background commands.
    background: TaskTracker,
    /// Fires when there is no time for grace any more.
    shutdown: CancellationToken,
    /// Kills what is left when this daemon is killed. Started with the first command.
    watcher: OnceLock<Option<std::process::Child>>,
}

impl Default for Processes {
    fn default() -> Self {
        Self(Arc::new(Account {
            daemon: uuid::Uuid::now_v7().simple().to_string(),
            calls: AtomicU64::new(0),
            reapers: TaskTracker::new(),
            background: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            watcher: OnceLock::new(),
        }))
    }
}

impl Processes {
    /// Waits until nothing is left of the calls that ended so far. At most a little over two seconds.
    pub async fn settled(&self) {
        // A closed tracker still takes tasks; closing only lets `wait` return when it is empty.
        self.0.reapers.close();
        self.0.reapers.wait().await;
    }

    /// Ends every process at once, without grace, and waits for that. Commands started later end at once too.
    pub async fn shut_down(&self) {
        self.0.shutdown.cancel();
        self.0.background.close();
        self.0.background.wait().await;
        self.settled().await;
    }

    /// Runs a command to its end. `show` gets the output so far now and then.
    ///
    /// # Errors
    /// The shell could not be started.
    ///
    /// # Cancel safety
    /// When the future is dropped or `cancel` fires, the whole process tree is killed in the background.
    pub async fn run(
        &self,
        line: &CommandLine,
        cancel: &CancellationToken,
        show: impl FnMut(&Capture) + Send,
    ) -> std::io::Result<Finished> {
        self.run_with_input(line, Stdio::null(), cancel, show).await
    }

    async fn run_with_input(
        &self,
        line: &CommandLine,
        input: Stdio,
        cancel: &CancellationToken,
        mut show: impl FnMut(&Capture) + Send,
    ) -> std::io::Result<Finished> {
        let (mut tree, mut pipe) = self.start(line, input)?;
        let mut output = Recorder::new(line.keep_bytes, line.spill.clone());
        let mut buffer = vec![0; PIPE_BYTES];
        let mut deadline = Instant::now() + line.timeout;
        let mut show_at = Instant::now() + SHOW_EVERY;
        let (mut is_open, mut is_changed, mut status) = (true, false, None);
        let ended = loop {
            if let Some(status) = status
                && !is_open
            {
                break ended_by(status);
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => break Ended::Cancelled,
                () = self.0.shutdown.cancelled() => break Ended::Cancelled,
                () = sleep_until(deadline) => match status {
                    Some(status) => break ended_by(status),
                    None => break Ended::TimedOut,
                },
                result = tree.wait(), if status.is_none() => {
                    status = Some(result?);
                    is_open = is_open && drain(&pipe, &mut output, &mut buffer);
                    deadline = Instant::now() + DRAIN_GRACE;
                }
                () = sleep_until(show_at), if is_changed => {
                    show(output.capture());
                    is_changed = false;
                    show_at = Instant::now() + SHOW_EVERY;
                }
                count = pipe.read(&mut buffer), if is_open => {
                    let piece = buffer.get(..count.unwrap_or(0)).unwrap_or_default();
                    is_open = !piece.is_empty();
                    is_changed |= is_open;
                    output.push(piece);
                }
            }
        };
        match ended {
            Ended::Exited(_) | Ended::Signalled(_) => tree.sweep(),
            Ended::Cancelled => {
                drain(&pipe, &mut output, &mut buffer);
                tree.kill();
            }
            Ended::TimedOut => {
                // What it says while it is being ended belongs to its output.
                let mut reaper = tree.kill();
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut reaper => break,
                        () = cancel.cancelled() => break,
                        count = pipe.read(&mut buffer), if is_open => {
                            let piece = buffer.get(..count.unwrap_or(0)).unwrap_or_default();
                            is_open = !piece.is_empty();
                            output.push(piece);
                        }
                    }
                }
            }
        }
        let (output, whole) = output.finish();
        if line.sandbox.is_some() && ended == Ended::Exited(CANNOT_EXECUTE) && output.text().starts_with(UNAVAILABLE) {
            tracing::warn!("{}", output.text().trim_end());
            sandbox::note_failure();
        }
        Ok(Finished { ended, output, whole })
    }

    /// Sees to it that nothing outlives a daemon that is killed.
    fn watch(&self) {
        self.0.watcher.get_or_init(|| helper::start_watcher(&self.0.daemon));
    }

    /// Starts the shell and gives its process tree and the pipe both its outputs go into.
    fn start(&self, line: &CommandLine, input: Stdio) -> std::io::Result<(Tree, pipe::Receiver)> {
        self.watch();
        let marker = Marker::call(&self.0.daemon, self.0.calls.fetch_add(1, Ordering::Relaxed));
        let (reader, writer): (PipeReader, _) = std::io::pipe()?;
        // A user with many pipes is refused and keeps the usual 64 KiB.
        rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES).ok();
        let mut command = helper::shell_command(shell(), line.sandbox.as_deref())?;
        command.arg("-c").arg(&line.command).current_dir(&line.cwd);
        command.stdin(input).stdout(writer.try_clone()?).stderr(writer);
        environment::guard(command.as_std_mut(), &line.workspace, line.git);
        environment::clean(command.as_std_mut(), &line.secret_env, &marker);
        let child = command.spawn()?;
        // The command holds our copies of the pipe's write end; they must be gone to see its end.
        drop(command);
        let tree = Tree::new(child, Remains { marker, sandbox: line.sandbox.clone() }, self.clone());
        Ok((tree, pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }
}

/// Reads what the pipe holds right now; a busy writer cannot hold us, since one pipe's worth is enough.
/// False at its end.
fn drain(pipe: &pipe::Receiver, output: &mut Recorder, buffer: &mut [u8]) -> bool {
    let mut left = PIPE_BYTES;
    while left > 0 {
        match pipe.try_read(buffer) {
            Ok(0) => return false,
            Ok(count) => {
                output.push(buffer.get(..count).unwrap_or_default());
                left = left.saturating_sub(count);
            }
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
    true
}

fn ended_by(status: std::process::ExitStatus) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests;
