//! What this machine's kernel offers.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rules;

/// The Landlock interface from which on nothing of what turnd uses is missing (Linux 6.12).
const WHOLE_LANDLOCK: u8 = 6;

/// What of the sandbox works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The version of Landlock's interface, the layer that holds writes; 0: there is none, or too old.
    pub landlock: u8,
    /// seccomp: the layer that holds system calls.
    pub seccomp: bool,
    /// Why there are no user name spaces, the layer that protects files inside writable folders and covers secrets.
    pub no_namespaces: Option<String>,
}

/// Set when a command could not be contained although [`Facts`] said so.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Whether containing a command was ever refused by the kernel in this process. Nothing is called contained then.
#[must_use]
pub fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Remembers that the kernel refused to contain a command.
pub fn note_failure() {
    HAS_FAILED.store(true, Ordering::Relaxed);
}

impl Facts {
    /// What this machine has, looked at once.
    #[must_use]
    pub fn here() -> &'static Self {
        static HERE: OnceLock<Facts> = OnceLock::new();
        HERE.get_or_init(Self::probe)
    }

    /// Looks: some ten system calls, nothing is started. What only an attempt can show is not seen.
    #[must_use]
    pub fn probe() -> Self {
        // The call fails only where the kernel was built without seccomp.
        let seccomp = rustix::thread::secure_computing_mode().is_ok();
        Self { landlock: rules::version(), seccomp, no_namespaces: no_namespaces() }
    }

    /// True when commands can be contained whole.
    #[must_use]
    pub fn can_contain(&self) -> bool {
        self.can_restrict() && self.no_namespaces.is_none()
    }

    /// True when what commands may do can be held, though not what they see.
    #[must_use]
    pub fn can_restrict(&self) -> bool {
        self.landlock > 0 && self.seccomp
    }

    /// What does not work, in words, each with what follows from it.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        match self.landlock {
            0 => missing.push("no Landlock (Linux 5.13 or newer, enabled at boot): writes cannot be held".to_owned()),
            version if version < WHOLE_LANDLOCK => missing.push(format!(
                "Landlock {version} of {WHOLE_LANDLOCK}: commands that only read can signal the user's other processes"
            )),
            _ => {}
        }
        if !self.seccomp {
            missing.push("no seccomp: system calls cannot be held".to_owned());
        }
        if let Some(reason) = &self.no_namespaces {
            missing.push(format!("no user name spaces ({reason}): settings of git and covered files cannot be held"));
        }
        missing
    }

    /// One line for a person.
    #[must_use]
    pub fn describe(&self) -> String {
        let landlock = match self.landlock {
            0 => "landlock no".to_owned(),
            version => format!("landlock {version}"),
        };
        let layer = |name: &str, is_there: bool| format!("{name} {}", if is_there { "yes" } else { "no" });
        [landlock, layer("seccomp", self.seccomp), layer("user name spaces", self.no_namespaces.is_none())].join(", ")
    }
}

/// The settings that forbid name spaces to an ordinary user, as far as they can be read.
fn no_namespaces() -> Option<String> {
    let setting = |path: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
        Some(text.trim().to_owned())
    };
    let is_root = rustix::process::geteuid().is_root();
    if !Path::new("/proc/self/ns/user").exists() {
        return Some("the kernel has none".to_owned());
    }
    for (name, forbidding, also_root) in [
        ("user/max_user_namespaces", "0", true),
        ("kernel/unprivileged_userns_clone", "0", false),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", false),
    ] {
        if (also_root || !is_root) && setting(name).as_deref() == Some(forbidding) {
            return Some(format!("{} is {forbidding}", name.replace('/', ".")));
        }
    }
    super::mounts::are_filtered().then(|| "a filter of system calls forbids them".to_owned())
}
