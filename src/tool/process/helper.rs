//! What this program does when it is started by itself: hidden commands, answered before anything else.
//!
//! `__exec [--sandbox POLICY] PROGRAM ARGS...` becomes the program in a session of its own, so that no command can
//! reach the terminal the daemon was started from, and behind the sandbox that the policy describes. (The daemon
//! itself cannot do that between fork and exec without unsafe code, and without a terminal it is not needed.) With
//! name spaces it stays, waits and gives the program's exit code, while
//! `__inside POLICY PROGRAM ARGS...` is the first process in them: it starts the program, collects what is orphaned,
//! and with its end the kernel kills whatever is left.
//! `__watch DAEMON` waits until its stdin ends, which it does when the daemon dies, however it dies, and then
//! kills every process of the daemon's calls.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::marker::{Marker, kill_marked};
use crate::sandbox::{self, Next, SandboxPolicy, UNAVAILABLE};
use crate::vault;

const EXEC: &str = "__exec";
const INSIDE: &str = "__inside";
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
        Some(INSIDE) => return Some(inside(arguments)),
        Some(WATCH) => return Some(watch(arguments.next(), std::io::stdin())),
        _ => {}
    }
    close_fds::set_fds_cloexec(3, &[]);
    vault::seal();
    // Older kernels and some containers refuse; the sandbox is the stronger wall.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    ANSWERS.store(true, Ordering::Relaxed);
    None
}

/// Whether this program can start itself again, which every sandbox needs.
#[must_use]
pub fn can_help() -> bool {
    ANSWERS.load(Ordering::Relaxed)
}

/// The exit code of a shell for a program that could not be started.
const CANNOT_EXECUTE: u8 = 126;

fn exec(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // It fails only for the leader of a group, which this process was not started as.
    rustix::process::setsid().ok();
    let mut program = arguments.next();
    if program.as_deref() != Some(OsStr::new(SANDBOX)) {
        return become_program(program, arguments, None);
    }
    close_fds::set_fds_cloexec(3, &[]);
    let argument = arguments.next().unwrap_or_default();
    program = arguments.next();
    let begun =
        sandbox::read_policy(&argument.to_string_lossy()).and_then(|policy| Ok((sandbox::begin(&policy)?, policy)));
    match begun {
        Ok((Next::Become, policy)) => become_program(program, arguments, policy.temporary),
        Ok((Next::StartInside, _)) => wait_for_inside(&argument, program, arguments),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &dyn std::fmt::Display) -> ExitCode {
    writeln!(std::io::stderr(), "{error}").ok();
    ExitCode::from(CANNOT_EXECUTE)
}

#[expect(clippy::disallowed_methods, reason = "the one place that becomes another program")]
fn become_program(
    program: Option<OsString>,
    arguments: impl Iterator<Item = OsString>,
    temporary: Option<PathBuf>,
) -> ExitCode {
    let Some(program) = program else { return ExitCode::from(CANNOT_EXECUTE) };
    let mut command = Command::new(&program);
    if let Some(folder) = temporary {
        command.env("TMPDIR", folder);
    }
    let error = command.args(arguments).exec();
    refuse(&format!("cannot start {}: {error}", program.display()))
}

/// Starts the first process inside and gives its exit code. What asks the command to end reaches it in the same
/// group of processes; this one has to outlast it.
#[expect(clippy::disallowed_methods, reason = "one of the places that start processes for tools")]
fn wait_for_inside(policy: &OsStr, program: Option<OsString>, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let ignore_signals = || -> std::io::Result<_> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        drop(entered);
        Ok((runtime, signals))
    };
    let Ok(_ignored) = ignore_signals() else { return ExitCode::from(CANNOT_EXECUTE) };
    let mut command = Command::new(OWN_BINARY);
    command.arg(INSIDE).arg(policy).args(program).args(arguments);
    match command.spawn().and_then(|mut child| child.wait()) {
        Ok(status) => ExitCode::from(shell_code(status)),
        Err(error) => refuse(&format!("{UNAVAILABLE}: nothing can be started inside: {error}")),
    }
}

#[expect(clippy::disallowed_methods, reason = "one of the places that start processes for tools")]
fn inside(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let policy = match sandbox::read_policy(&arguments.next().unwrap_or_default().to_string_lossy()) {
        Ok(policy) => policy,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = sandbox::complete(&policy) {
        return refuse(&error);
    }
    // After the capabilities are gone, whose loss takes this setting back.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).ok();
    let Some(program) = arguments.next() else { return ExitCode::from(CANNOT_EXECUTE) };
    let mut command = Command::new(&program);
    if let Some(folder) = &policy.temporary {
        command.env("TMPDIR", folder);
    }
    let child = match command.args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => return refuse(&format!("cannot start {}: {error}", program.display())),
    };
    // Every orphan of the name space becomes a child of its first process.
    while let Ok(ended) = rustix::process::wait(WaitOptions::empty()) {
        if let Some((pid, status)) = ended
            && u32::try_from(pid.as_raw_nonzero().get()) == Ok(child.id())
        {
            return ExitCode::from(shell_code(std::process::ExitStatus::from_raw(status.as_raw())));
        }
    }
    ExitCode::FAILURE
}

/// An ending as shells tell it: the code, or 128 and the number of the signal.
fn shell_code(status: std::process::ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
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
        return Err(std::io::Error::other(format!("{UNAVAILABLE}: this program cannot start itself again")));
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
