//! The marker in the environment of every process of a call, by which it is found wherever it moved itself.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

/// The variable that holds it.
pub(super) const VARIABLE: &str = "TURND_CALL_ID";

/// Rounds of looking for marked processes; each kills what the one before missed by a fork in between.
const MAX_SWEEPS: usize = 100;

/// Which processes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// Those of one call: the whole value.
    Call(String),
    /// Those of all calls of a daemon: what the value begins with.
    Daemon(String),
}

impl Marker {
    pub(super) fn call(daemon: &str, number: u64) -> Self {
        Self::Call(format!("{daemon}-{number}"))
    }

    pub(super) fn daemon(daemon: &str) -> Self {
        Self::Daemon(format!("{daemon}-"))
    }

    /// The variable's value.
    pub(super) fn value(&self) -> &str {
        match self {
            Self::Call(value) | Self::Daemon(value) => value,
        }
    }

    /// A process that ended in between, or is not ours, has no environment that can be read.
    fn is_on(&self, pid: Pid) -> bool {
        let Ok(environment) = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) else { return false };
        self.is_in(&environment)
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="));
        value.is_some_and(|value| match self {
            Self::Call(whole) => value == whole.as_bytes(),
            Self::Daemon(start) => value.starts_with(start.as_bytes()),
        })
    }
}

/// Kills every marked process, again and again until a look finds none.
pub(super) fn kill_marked(marker: &Marker) {
    for _ in 0..MAX_SWEEPS {
        let marked = marked(marker);
        if marked.is_empty() {
            return;
        }
        for pid in marked {
            kill_one(pid, marker);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The handle is taken before the last look, so that the signal cannot hit another process of the same number.
fn kill_one(pid: Pid, marker: &Marker) {
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => {
            if marker.is_on(pid) {
                rustix::process::pidfd_send_signal(handle, Signal::KILL).ok();
            }
        }
        Err(rustix::io::Errno::NOSYS) => {
            rustix::process::kill_process(pid, Signal::KILL).ok();
        }
        Err(_) => {}
    }
}

fn marked(marker: &Marker) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = numbers.filter_map(Pid::from_raw).filter(|pid| *pid != own);
    others.filter(|pid| marker.is_on(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_as_a_whole_value() {
        let check = |environment: &[u8], marker: &Marker, expected| {
            assert_eq!(marker.is_in(environment), expected, "{}", String::from_utf8_lossy(environment));
        };
        let call = Marker::call("d", 1);
        check(b"A=1\0TURND_CALL_ID=d-1\0B=2\0", &call, true);
        check(b"TURND_CALL_ID=d-1", &call, true);
        check(b"TURND_CALL_ID=d-12\0", &call, false);
        check(b"X=TURND_CALL_ID=d-1\0", &call, false);
        check(b"TURND_CALL_ID_=d-1\0", &call, false);
        check(b"", &call, false);
        let daemon = Marker::daemon("d");
        check(b"TURND_CALL_ID=d-12\0", &daemon, true);
        check(b"TURND_CALL_ID=dd-1\0", &daemon, false);
    }
}
