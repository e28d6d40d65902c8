//! What a command can reach, as the daemon decides it and the helper reads it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a command can reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SandboxPolicy {
    /// Folders it may change, absolute and real. The daemon decides these, never the model.
    pub writable: Vec<PathBuf>,
    /// Paths it cannot read.
    pub deny_read: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
    /// A folder for temporary files, which it may change, too.
    pub temporary: Option<PathBuf>,
    /// Whether it sees the system as it is.
    pub view: View,
    /// What it may use up.
    pub limits: Limits,
}

/// What of the system a command sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum View {
    /// A view of its own, made of name spaces: no other processes, no network devices, protected and covered paths.
    Own,
    /// The system's: only what it may do is held, by Landlock and seccomp.
    Shared,
}

/// What a command may use up; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Limits {
    /// Processes and threads at a time.
    pub processes: u64,
    /// Bytes of address space of each process.
    pub memory_bytes: u64,
    /// Bytes of the largest file it may write.
    pub file_bytes: u64,
}

impl Default for Limits {
    /// Enough for a large parallel build, little enough that a fork bomb ends. Memory is not limited: many
    /// programs reserve far more than they use.
    fn default() -> Self {
        Self { processes: 4096, memory_bytes: 0, file_bytes: 16 << 30 }
    }
}

impl SandboxPolicy {
    /// The policy under which these folders may be changed, and temporary files made. No folder: nothing may.
    #[must_use]
    pub fn new(writable: &[PathBuf], deny_read: Vec<PathBuf>, network: bool) -> Self {
        // Covering a folder would cover what may be changed below it, too.
        let is_above = |path: &PathBuf| writable.iter().any(|root| root.starts_with(path));
        let deny_read = deny_read.into_iter().filter(|path| !is_above(path)).collect();
        let temporary = temporary();
        let writable = writable.iter().cloned().chain(temporary.clone()).collect();
        Self { writable, deny_read, network, temporary, view: View::Own, limits: Limits::default() }
    }

    /// The policy for commands that were found to read only: that is all they can do, and they see what the user
    /// sees.
    #[must_use]
    pub fn for_reading(&self) -> Self {
        let writable = self.temporary.iter().cloned().collect();
        Self { writable, deny_read: Vec::new(), network: false, view: View::Shared, ..self.clone() }
    }

    /// The policy as one argument of the helper.
    #[must_use]
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Writable folders whose settings are protected: all but the one for temporary files.
    pub(super) fn shielded(&self) -> impl Iterator<Item = &Path> {
        let is_temporary = |folder: &&PathBuf| self.temporary.as_ref() == Some(*folder);
        self.writable.iter().filter(move |folder| !is_temporary(folder)).map(PathBuf::as_path)
    }

    /// Why this program may not be what holds the wall: it lies where the commands behind it could replace it.
    #[must_use]
    pub fn objection(&self) -> Option<String> {
        let program = std::fs::read_link("/proc/self/exe").ok()?;
        let folder = self.writable.iter().find(|folder| program.starts_with(folder))?;
        Some(format!("the program {} lies in {}, which commands may change", program.display(), folder.display()))
    }
}

/// A folder for the temporary files of this user's commands that nobody else could have put there.
fn temporary() -> Option<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let user = rustix::process::getuid().as_raw();
    let folder = PathBuf::from(format!("/tmp/turnd-{user}"));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).ok();
    let metadata = std::fs::symlink_metadata(&folder).ok()?;
    (metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o077 == 0).then_some(folder)
}
