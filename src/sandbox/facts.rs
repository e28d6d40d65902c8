//! What this machine's kernel offers.

use std::path::Path;

/// What of the sandbox works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Landlock: the layer that holds writes.
    pub landlock: bool,
    /// seccomp: the layer that holds system calls.
    pub seccomp: bool,
    /// User name spaces: the layer that protects files inside writable folders and covers secrets.
    pub namespaces: bool,
}

impl Facts {
    /// Looks; a few system calls, nothing is started.
    #[must_use]
    pub fn probe() -> Self {
        let seccomp = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nSeccomp:"));
        let allowed = |path: &str| {
            std::fs::read_to_string(Path::new("/proc/sys").join(path)).map_or(true, |value| value.trim() != "0")
        };
        let namespaces = Path::new("/proc/self/ns/user").exists()
            && allowed("user/max_user_namespaces")
            && allowed("kernel/unprivileged_userns_clone");
        Self { landlock: super::rules::is_there(), seccomp, namespaces }
    }

    /// True when commands can be contained at all.
    #[must_use]
    pub fn can_contain(self) -> bool {
        self.landlock && self.seccomp
    }

    /// One line for a person.
    #[must_use]
    pub fn describe(self) -> String {
        let layer = |name: &str, is_there: bool| format!("{name} {}", if is_there { "yes" } else { "no" });
        [layer("landlock", self.landlock), layer("seccomp", self.seccomp), layer("user name spaces", self.namespaces)]
            .join(", ")
    }
}
