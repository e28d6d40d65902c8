//! The sandbox from outside: the real binary, and commands that try to get out.
//!
//! Each probe is a command that succeeds when it did what it must not. The number that still succeed is
//! printed, and bounded. Where the kernel lacks a layer the probes that need it are skipped with a reason.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics to fail and prints to be read")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use turnd::sandbox::{Facts, SandboxPolicy};

use Runs::{Both, Only};

/// Where a probe runs.
#[derive(Clone, Copy, PartialEq)]
enum Runs {
    /// Also without the sandbox, to show that it would succeed there.
    Both,
    /// In the sandbox only: it would harm the machine, or needs what not every machine has.
    Only,
}

/// What a command must not be able to do. `@w` is the workspace, `@o` a folder outside, `@h` a home folder.
const PROBES: [(Runs, &str, &str); 42] = [
    (Both, "write outside", "echo x > @o/new"),
    (Both, "append outside", "echo x >> @o/secret"),
    (Both, "truncate outside", ": > @o/secret"),
    (Both, "delete outside", "rm @o/secret"),
    (Both, "rename outside", "mv @o/secret @o/other"),
    (Both, "make a folder outside", "mkdir @o/folder"),
    (Both, "link out, then write through it", "ln -s @o @w/l1 && echo x > @w/l1/new"),
    (Both, "hard link in, then write through it", "ln @o/secret @w/hard && echo x > @w/hard"),
    (Both, "move a file out", "echo x > @w/f1 && mv @w/f1 @o/f1 && test -e @o/f1"),
    (Both, "change the mode of a file outside", "chmod 777 @o/secret"),
    (Only, "change the owner of a file outside", "chown 12:12 @o/secret"),
    (Both, "change the times of a file outside", "touch -d 2001-01-01 @o/secret"),
    (Only, "write to /etc", "echo x > /etc/turnd-probe"),
    (Only, "write to /usr", "echo x > /usr/turnd-probe"),
    (Only, "write to /tmp", "echo x > /tmp/turnd-probe-$$"),
    (Only, "write to /var/tmp", "echo x > /var/tmp/turnd-probe-$$"),
    (Only, "write to /dev/shm", "echo x > /dev/shm/turnd-probe-$$"),
    (Both, "write to the home folder", "echo x > @h/.bashrc"),
    (Both, "write git's configuration", "echo x >> @w/.git/config"),
    (Both, "plant a git hook", "echo x > @w/.git/hooks/pre-commit"),
    (Both, "replace git's folder", "mv @w/.git @w/.git-old && mkdir @w/.git && echo x > @w/.git/config"),
    (Both, "remove git's configuration", "rm @w/.git/config"),
    (Only, "move the workspace away", "mv @w @w-moved"),
    (Both, "read a covered file", "cat @h/.netrc | grep canary"),
    (Both, "read in a covered folder", "cat @h/.ssh/id | grep canary"),
    (Only, "read the environment of the daemon", "tr '\\0' '\\n' < /proc/@parent/environ | grep -q ."),
    (Both, "connect to the network", "exec 3<>/dev/tcp/127.0.0.1/@port"),
    (Only, "send a datagram", "echo x > /dev/udp/127.0.0.1/9"),
    (Both, "resolve a name", "python3 -c 'import socket; socket.getaddrinfo(\"localhost\", 80); socket.socket()'"),
    (Both, "listen", "python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()'"),
    (Both, "open a socket of the machine", "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'"),
    (Only, "make a user name space", "unshare -Ur true"),
    (Only, "make a mount name space", "unshare -m true"),
    (Only, "mount", "mount -t tmpfs none @w"),
    (Only, "remount writable", "mount -o remount,rw,bind /"),
    (Only, "unmount a cover", "umount @h/.netrc"),
    (Both, "signal a process outside", "kill -0 @parent"),
    (Only, "trace a process", "strace -p @parent -o /dev/null -c & sleep 0.2; kill $!; false"),
    (Only, "set the clock", "date -s 2001-01-01"),
    (Only, "keep a capability", "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status"),
    (Both, "use an inherited descriptor", "echo x >&7"),
    (Only, "raise a limit of the kernel", "echo 1 > /proc/sys/vm/overcommit_memory"),
];

/// Who runs a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
enum User {
    /// Whoever runs the tests.
    Own,
    /// Nobody; needs a test run by root.
    Nobody,
}

const NOBODY: u32 = 65_534;

struct World {
    _dir: tempfile::TempDir,
    root: PathBuf,
    user: User,
}

impl World {
    fn new(user: User) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folders = ["w", "w/.git", "w/.git/hooks", "o", "h", "h/.ssh"];
        let files = ["w/.git/config", "w/.git/HEAD", "o/secret", "h/.netrc", "h/.ssh/id", "inherited"];
        for folder in folders {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in files {
            std::fs::write(root.join(file), "canary\n").unwrap();
        }
        if user == User::Nobody {
            for path in folders.iter().chain(&files).copied().chain([""]) {
                std::os::unix::fs::chown(root.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Self { _dir: dir, root, user }
    }

    fn policy(&self) -> SandboxPolicy {
        let covered = vec![self.root.join("h/.netrc"), self.root.join("h/.ssh")];
        let mut policy = SandboxPolicy::new(&[self.root.join("w")], covered, false);
        if self.user == User::Nobody {
            policy.writable.retain(|folder| policy.temporary.as_ref() != Some(folder));
            policy.temporary = None;
        }
        policy
    }

    fn fill(&self, text: &str) -> String {
        let path = |name: &str| self.root.join(name).display().to_string();
        text.replace("@w", &path("w"))
            .replace("@o", &path("o"))
            .replace("@h", &path("h"))
            .replace("@parent", &std::process::id().to_string())
    }

    /// Runs a command in the workspace with a descriptor open that is none of its business.
    #[expect(clippy::disallowed_methods, reason = "the test plays the daemon")]
    fn run(&self, wrapper: &[&str], command: &str) -> Output {
        let mut words = Vec::new();
        if self.user == User::Nobody {
            words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        words.extend(wrapper);
        words.extend(["bash", "-c", command]);
        Command::new("bash")
            .args(["-c", "exec 7>>\"$0\"; exec \"$@\""])
            .arg(self.root.join("inherited"))
            .args(words)
            .current_dir(self.root.join("w"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn run_contained(&self, command: &str) -> Output {
        let policy = self.policy().to_argument();
        let output = self.run(&[env!("CARGO_BIN_EXE_turnd"), "__exec", "--sandbox", &policy], command);
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!problem.contains("sandbox unavailable"), "{problem}");
        output
    }
}

/// The users that the tests can be run as here; none, with the reason printed, where nothing can be contained.
fn users() -> Vec<User> {
    let facts = Facts::probe();
    if !(facts.can_contain() && facts.namespaces) {
        println!("skipped: {}", facts.describe());
        return Vec::new();
    }
    let world = World::new(User::Own);
    let is_root = std::fs::metadata(&world.root).unwrap().uid() == 0;
    let reaches = || World::new(User::Nobody).run(&[env!("CARGO_BIN_EXE_turnd"), "--version"], "true").status.success();
    if is_root && reaches() {
        return vec![User::Own, User::Nobody];
    }
    println!("as nobody: skipped, since that needs root and a binary that nobody can reach");
    vec![User::Own]
}

#[test]
fn what_a_command_needs_still_works() {
    for user in users() {
        let world = World::new(user);
        for command in [
            "echo x > file && cat file && rm file",
            "mkdir -p a/b && touch a/b/c && mv a d && rm -r d",
            "cat @o/secret",
            "ls / > /dev/null",
            "echo x | sort | uniq -c",
            "cat <(echo x)",
            "sleep 0.01 & wait",
            "(cd / && pwd)",
            "echo x > .git/index",
        ] {
            let output = world.run_contained(&world.fill(command));
            assert!(output.status.success(), "{user:?} {command}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn temporary_files_have_a_folder_of_their_own() {
    if users().is_empty() {
        return;
    }
    let output = World::new(User::Own).run_contained("f=$(mktemp) && echo x > $f && rm $f && echo $f");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.starts_with("/tmp/turnd-"), "{shown}");
}

#[test]
fn nothing_gets_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for user in users() {
        let mut breaches = Vec::new();
        for (_, name, command) in PROBES {
            let world = World::new(user);
            if world.run_contained(&world.fill(command).replace("@port", &port)).status.success() {
                breaches.push(name);
            }
        }
        println!("{user:?}: {} of {} unwanted operations possible: {breaches:?}", breaches.len(), PROBES.len());
        assert!(breaches.is_empty(), "{user:?}: {breaches:?}");
    }
}

#[test]
fn the_probes_succeed_where_there_is_no_sandbox() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for (runs, name, command) in PROBES {
        let world = World::new(User::Own);
        if runs == Both {
            let output = world.run(&["env"], &world.fill(command).replace("@port", &port));
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_policy_that_cannot_be_read_runs_nothing() {
    let world = World::new(User::Own);
    let output = world.run(&[env!("CARGO_BIN_EXE_turnd"), "__exec", "--sandbox", "{}"], "touch ran");
    assert_eq!(output.status.code(), Some(126));
    assert!(!world.root.join("w/ran").exists());
}
