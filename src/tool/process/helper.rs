//! What this program does when it is started by itself: hidden commands, answered before anything else.
//!
//! `__exec [--sandbox POLICY] PROGRAM ARGS...` becomes the program in a session of its own, so that no command
//! can reach the terminal the daemon was started from, and behind the sandbox that the policy describes. (The daemon itself cannot do that between fork and exec without
//! unsafe code, and without a terminal it is not needed.)
//! `__watch DAEMON` waits until its stdin ends, which it does when the daemon dies, however it dies, and then
//! kills every process of the daemon's calls.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::DumpableBehavior;

use super::marker::{Marker, kill_marked};
use crate::sandbox::{self, SandboxPolicy};

const EXEC: &str = "__exec";
const WATCH: &str = "__watch";
const SANDBOX: &str = "--sandbox";

/// This program, also after its file was replaced by an update.
const OWN_BINARY: &str = "/proc/self/exe";

/// Whether the running program has been through [`enter`], so that starting it again reaches it too.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// To be called first in `main`, before threads: answers the hidden commands, and makes an ordinary start safe
/// for what it will start. Descriptors inherited from the client are kept from children, and the daemon's
/// memory and environment, which hold keys, from programs of the same user.
///
/// `Some` is the exit code of a hidden command.
pub fn enter(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match arguments.nth(1).as_deref().and_then(OsStr::to_str) {
        Some(EXEC) => return Some(exec(arguments)),
        Some(WATCH) => return Some(watch(arguments.next(), std::io::stdin())),
        _ => {}
    }
    close_fds::set_fds_cloexec(3, &[]);
    // Older kernels and some containers refuse; the sandbox is the stronger wall.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    ANSWERS.store(true, Ordering::Relaxed);
    None
}

/// Whether commands can be started behind a sandbox: the kernel has one, and this program can start itself.
#[must_use]
pub fn can_contain() -> bool {
    ANSWERS.load(Ordering::Relaxed) && sandbox::Facts::probe().can_contain()
}

/// The exit code of a shell for a program that could not be started.
const CANNOT_EXECUTE: u8 = 126;

#[expect(clippy::disallowed_methods, reason = "the one place that becomes another program")]
fn exec(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut program = arguments.next();
    // It fails only for the leader of a group, which this process was not started as.
    rustix::process::setsid().ok();
    let mut policy = None;
    if program.as_deref() == Some(OsStr::new(SANDBOX)) {
        close_fds::set_fds_cloexec(3, &[]);
        policy = match sandbox::enter(&arguments.next().unwrap_or_default().to_string_lossy()) {
            Ok(policy) => Some(policy),
            Err(error) => {
                writeln!(std::io::stderr(), "{error}").ok();
                return ExitCode::from(CANNOT_EXECUTE);
            }
        };
        program = arguments.next();
    }
    let Some(program) = program else { return ExitCode::from(CANNOT_EXECUTE) };
    let mut command = Command::new(&program);
    if let Some(folder) = policy.and_then(|policy| policy.temporary) {
        command.env("TMPDIR", folder);
    }
    let error = command.args(arguments).exec();
    // Nobody is left to tell when even this fails.
    writeln!(std::io::stderr(), "cannot start {}: {error}", program.display()).ok();
    ExitCode::from(CANNOT_EXECUTE)
}

pub(super) fn watch(daemon: Option<OsString>, mut daemon_lives: impl Read) -> ExitCode {
    let Some(daemon) = daemon.and_then(|daemon| daemon.into_string().ok()).filter(|daemon| !daemon.is_empty()) else {
        return ExitCode::FAILURE;
    };
    rustix::process::setsid().ok();
    let mut nothing = [0; 64];
    while daemon_lives.read(&mut nothing).is_ok_and(|count| count > 0) {}
    kill_marked(&Marker::daemon(&daemon));
    ExitCode::SUCCESS
}

/// Starts the watcher of a daemon. It lives as long as its stdin, which is in the value returned.
#[expect(clippy::disallowed_methods, reason = "the one place that starts processes for tools")]
pub(super) fn start_watcher(daemon: &str) -> Option<Child> {
    if !ANSWERS.load(Ordering::Relaxed) {
        return None;
    }
    let mut command = Command::new(OWN_BINARY);
    command.arg(WATCH).arg(daemon).env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            tracing::warn!("commands may outlive a killed daemon, because the watcher could not be started: {error}");
            None
        }
    }
}

/// The shell to start, through the helper where that is needed to keep it from the terminal or to wall it in.
/// Fails rather than to leave the wall out.
#[expect(clippy::disallowed_methods, reason = "the one place that starts processes for tools")]
pub(super) fn shell_command(shell: &str, sandbox: Option<&SandboxPolicy>) -> std::io::Result<tokio::process::Command> {
    let Some(policy) = sandbox else { return Ok(program_command(OsStr::new(shell))) };
    if !ANSWERS.load(Ordering::Relaxed) {
        return Err(std::io::Error::other("sandbox unavailable: this program cannot start itself again"));
    }
    let mut command = tokio::process::Command::new(OWN_BINARY);
    command.arg(EXEC).arg(SANDBOX).arg(policy.to_argument()).arg(shell);
    Ok(command)
}

/// A program to start in a group of its own, through the helper where that is needed to keep it from the terminal.
#[expect(clippy::disallowed_methods, reason = "the one place that starts processes for tools")]
pub(super) fn program_command(program: &OsStr) -> tokio::process::Command {
    if ANSWERS.load(Ordering::Relaxed) && has_terminal() {
        let mut command = tokio::process::Command::new(OWN_BINARY);
        command.arg(EXEC).arg(program);
        return command;
    }
    let mut command = tokio::process::Command::new(program);
    command.process_group(0);
    command
}

/// Whether the daemon was started from a terminal that its children could open.
fn has_terminal() -> bool {
    static HAS_TERMINAL: OnceLock<bool> = OnceLock::new();
    *HAS_TERMINAL.get_or_init(|| {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
    })
}
