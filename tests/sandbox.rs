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
const PROBES: [(Runs, &str, &str); 65] = [
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
    (Both, "move git's hooks away", "mv @w/.git/hooks @w/.git/old && mkdir @w/.git/hooks"),
    (Both, "lead git to other settings", "echo ../evil > @w/.git/commondir && grep -q evil @w/.git/commondir"),
    (Both, "write settings of git's worktree", "echo x > @w/.git/config.worktree && grep -q x @w/.git/config.worktree"),
    (Both, "make the daemon's own folder", "mkdir -p @w/.turnd && echo x > @w/.turnd/config.toml"),
    (Both, "make an editor's folder", "mkdir -p @w/.vscode && echo x > @w/.vscode/tasks.json"),
    (Both, "make another agent's folder", "mkdir -p @w/.codex && echo x > @w/.codex/config.toml"),
    (Both, NESTED, "git init -q --bare @w/nested && git -C @w/nested config core.fsmonitor ./evil"),
    (Only, "move the workspace away", "mv @w @w-moved"),
    (Both, "read a covered file", "cat @h/.netrc | grep canary"),
    (Both, "read in a covered folder", "cat @h/.ssh/id | grep canary"),
    (Only, "see a process outside", "test -e /proc/@parent"),
    (
        Only,
        "read the environment of any process above",
        "p=$PPID; while [ $p -gt 1 ]; do cat /proc/$p/environ; \
        p=$(sed 's/.*) //' /proc/$p/stat | cut -d ' ' -f 2); done | tr '\\0' '\\n' | grep -q ^CARGO",
    ),
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
    (Both, "set an attribute outside", "python3 -c 'import os; os.setxattr(\"@o/secret\", \"user.x\", b\"x\")'"),
    (Both, "fill the disk with one file", "truncate -s 20G @w/big"),
    (Only, "dump memory into a file", "[ $(ulimit -c) != 0 ]"),
    (Both, "use io_uring", "python3 -c @call 425 1 @buffer"),
    (Both, "use the kernel's keys", "python3 -c @call 250 0 -3 1"),
    (Both, "handle page faults", "python3 -c @call 323 1"),
    (Both, "be traced", "python3 -c @call 101 0 0 0 0"),
    (Both, "compare processes", "python3 -c @call 312 $$ $$ 0 0 0"),
    (Both, "talk to the kernel's network", "python3 -c 'import socket; socket.socket(16, 3, 0)'"),
    (Only, "talk to the machine above", "python3 -c 'import socket; socket.socket(40, 1, 0)'"),
    (Only, "use the kernel's ciphers", "python3 -c 'import socket; socket.socket(38, 5, 0)'"),
    (Only, "open a socket by its second number", "python3 -c @call 1073741865 2 1 0"),
    (Only, "make a device", "mknod @w/device b 8 0"),
    (Only, "name the machine", "hostname turnd-probe"),
    (Only, "raise a limit of the kernel", "echo 1 > /proc/sys/vm/overcommit_memory"),
];

/// What nobody's sandbox holds: a repository is only files. turnd's own git calls do not enter one.
const NESTED: &str = "make a repository whose settings run a program";

/// What is known to be possible.
const POSSIBLE: [&str; 1] = [NESTED];

/// A system call by its number, as Python; it succeeds when the call does.
const CALL: &str = "'import ctypes, sys; c = ctypes.CDLL(None); b = ctypes.create_string_buffer(512); \
    sys.exit(c.syscall(*[b if a == \"b\" else ctypes.c_long(int(a)) for a in sys.argv[1:]]) < 0)'";

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
            .replace("@call", CALL)
            .replace("@buffer", "b")
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
        self.run_behind(&self.policy(), command)
    }

    fn run_behind(&self, policy: &SandboxPolicy, command: &str) -> Output {
        let policy = policy.to_argument();
        let output = self.run(&[env!("CARGO_BIN_EXE_turnd"), "__exec", "--sandbox", &policy], command);
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!problem.contains("sandbox unavailable"), "{problem}");
        output
    }
}

/// The users that the tests can be run as here; none, with the reason printed, where nothing can be contained.
fn users() -> Vec<User> {
    let facts = Facts::probe();
    if !facts.can_contain() {
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
        assert_eq!(breaches, POSSIBLE, "{user:?}");
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

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Processes whose command line has the text.
fn running(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(text)).count()
}

#[test]
fn a_command_ends_as_it_would_outside() {
    for user in users() {
        for (command, code) in [("exit 3", 3), ("kill -9 $$", 137), ("true", 0), ("nonexistent-program", 127)] {
            assert_eq!(World::new(user).run_contained(command).status.code(), Some(code), "{user:?} {command}");
        }
        let output = World::new(user).run_contained("echo $$; ps -e 2>/dev/null | wc -l; echo out >&2");
        let numbers: Vec<u32> = text(&output).lines().map(|line| line.trim().parse().unwrap()).collect();
        assert!(numbers.iter().all(|number| *number < 10), "{user:?} sees its own processes only: {numbers:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "out\n");
    }
}

#[test]
fn what_left_its_group_and_its_environment_ends_with_the_command() {
    for user in users() {
        let sleep = format!("sleep 8{}.{}", std::process::id(), user as u8);
        World::new(user).run_contained(&format!("(setsid env -i {sleep} &) ; true"));
        assert_eq!(running(&sleep), 0, "{user:?}");
    }
}

#[test]
fn a_workspace_is_left_as_it_was() {
    for user in users() {
        let world = World::new(user);
        let listing = || {
            let output = world.run(&["env"], "find . -printf '%P %m %s\\n' | sort");
            text(&output)
        };
        let before = listing();
        let seen = text(&world.run_contained("ls -a"));
        assert!(seen.contains(".turnd"), "a stand-in is there while the command runs: {seen}");
        turnd::sandbox::tidy(&world.policy());
        assert_eq!(listing(), before);
    }
}

#[test]
fn a_link_in_place_of_protected_settings_is_covered() {
    for user in users() {
        let world = World::new(user);
        std::fs::create_dir(world.root.join("w/decoy")).unwrap();
        std::os::unix::fs::symlink("decoy", world.root.join("w/.turnd")).unwrap();
        if user == User::Nobody {
            std::os::unix::fs::chown(world.root.join("w/decoy"), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        for command in ["echo x > .turnd/config.toml", "rm .turnd", "mv .turnd other", "rm -rf .turnd && mkdir .turnd"]
        {
            assert!(!world.run_contained(command).status.success(), "{user:?} {command}");
        }
        assert!(!world.root.join("w/decoy/config.toml").exists());
        assert!(std::fs::symlink_metadata(world.root.join("w/.turnd")).unwrap().is_symlink());
    }
}

#[test]
fn a_command_that_only_reads_can_do_no_more() {
    for user in users() {
        let world = World::new(user);
        let policy = world.policy().for_reading();
        for command in ["cat @o/secret", "ls -l @w | sort | head -1", "cat < .git/config > /dev/null", "ps -p @parent"]
        {
            let output = world.run_behind(&policy, &world.fill(command));
            assert!(output.status.success(), "{user:?} {command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        for command in [
            "echo x > @w/new",
            "rm @w/.git/HEAD",
            "exec 3<>/dev/tcp/127.0.0.1/9",
            "kill -0 @parent",
            "python3 -c 'import socket; socket.socket()'",
            "cat /proc/@parent/environ | grep -q .",
            "echo x > /tmp/x-$$",
        ] {
            assert!(!world.run_behind(&policy, &world.fill(command)).status.success(), "{user:?} {command}");
        }
    }
}

#[test]
fn a_filter_that_forbids_name_spaces_is_seen_before_a_command_needs_them() {
    for user in users() {
        let world = World::new(user);
        let policy = world.policy().for_reading();
        let command = format!("TURND_HOME=@h/.turnd {} doctor", env!("CARGO_BIN_EXE_turnd"));
        let said = text(&world.run_behind(&policy, &world.fill(&command)));
        assert!(said.contains("user name spaces no"), "{user:?} {said}");
    }
}

#[test]
fn a_fork_bomb_ends() {
    for user in users() {
        let world = World::new(user);
        let mut policy = world.policy();
        policy.limits.processes = 60;
        let output = world.run_behind(&policy, "for i in $(seq 2000); do sleep 5 & done 2>/dev/null; echo started");
        let started = text(&world.run_contained("for i in $(seq 100); do sleep 5 & done; jobs -r | wc -l"));
        assert_eq!(started.trim(), "100", "{user:?}: an ordinary number is no bomb");
        assert!(
            !text(&output).contains("started") || String::from_utf8_lossy(&output.stderr).contains("fork"),
            "{user:?}: {output:?}"
        );
    }
}

#[test]
fn nothing_is_writable_when_no_folder_is_named() {
    for user in users() {
        let world = World::new(user);
        let mut policy = world.policy();
        policy.writable = Vec::new();
        policy.temporary = None;
        for command in ["echo x > @w/new", "echo x > /tmp/new-$$", "mkdir @h/new", "exec 3<>/dev/tcp/127.0.0.1/9"] {
            assert!(!world.run_behind(&policy, &world.fill(command)).status.success(), "{user:?} {command}");
        }
    }
}

#[test]
fn a_program_in_a_writable_folder_holds_nothing() {
    let mut policy = World::new(User::Own).policy();
    assert_eq!(policy.objection(), None);
    policy.writable.push(std::env::current_exe().unwrap().parent().unwrap().to_path_buf());
    assert!(policy.objection().unwrap().contains("which commands may change"));
}
