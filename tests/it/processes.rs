//! The hidden commands of the binary that keep commands in their place.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_turnd");

#[test]
fn a_command_started_through_the_binary_leads_a_session_of_its_own() {
    let script = "echo $$; cut -d' ' -f6 /proc/$$/stat; echo $0 $1";
    #[expect(clippy::disallowed_methods, reason = "the test is about how the binary starts processes")]
    let mut command = Command::new(BINARY);
    let output = command.args(["__exec", "/bin/sh", "-c", script, "name", "argument"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, [lines[0], lines[0], "name argument"]);
    assert!(output.status.success());
}

#[test]
fn a_program_that_cannot_be_started_says_so() {
    #[expect(clippy::disallowed_methods, reason = "the test is about how the binary starts processes")]
    let mut command = Command::new(BINARY);
    let output = command.args(["__exec", "/no/such/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot start /no/such/program"));
}

#[test]
fn what_a_dead_daemon_left_is_killed_and_nothing_else() {
    let start = |marker: &str| {
        #[expect(clippy::disallowed_methods, reason = "stands for a command of a daemon")]
        let mut command = Command::new("sh");
        command.args(["-c", "echo up; exec sleep 60"]).env("TURND_CALL_ID", marker).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        child
    };
    let name = format!("test-daemon-{}", std::process::id());
    let mut ours = [start(&format!("{name}-1")), start(&format!("{name}-22"))];
    let mut other = start(&format!("{name}0-1"));
    #[expect(clippy::disallowed_methods, reason = "the test is about how the binary starts processes")]
    let mut command = Command::new(BINARY);
    let mut watcher = command.args(["__watch", &name]).stdin(Stdio::piped()).spawn().unwrap();
    assert!(watcher.try_wait().unwrap().is_none(), "the daemon lives as long as the pipe is open");
    drop(watcher.stdin.take());
    let deadline = Instant::now() + Duration::from_secs(20);
    while watcher.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the watcher never ended");
        std::thread::yield_now();
    }
    for child in &mut ours {
        assert_eq!(child.wait().unwrap().code(), None, "killed by a signal");
    }
    assert!(other.try_wait().unwrap().is_none(), "another daemon's command lives");
    other.kill().unwrap();
    other.wait().unwrap();
}
