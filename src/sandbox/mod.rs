//! The kernel's wall around commands: what a command can reach, whatever its text says.
//!
//! The daemon describes the wall in a [`SandboxPolicy`] and starts itself again with it; that second
//! process (see `tool::process`) puts the wall around itself and then becomes the command. Three
//! layers, each on its own kernel feature, so that one missing feature never opens all:
//!
//! 1. name spaces: everything is mounted read-only but the writable folders, what controls git stays
//!    read-only inside these, secrets are covered, and there is no network device;
//! 2. Landlock: writes only below the writable folders, no other process's memory or environment,
//!    no signals and no abstract sockets to the outside;
//! 3. seccomp: no sockets without the network, no tracing, keys, mounts, new name spaces, io_uring.
//!
//! Layers 2 and 3 are required; without them no command is called contained. Layer 1 needs user name
//! spaces, which some systems forbid; [`Facts`] says so. Absent on purpose: helper binaries, and
//! anything that would need the daemon to be root.

mod facts;
mod filter;
mod mounts;
mod rules;

use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

pub use facts::Facts;

/// What a command can reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SandboxPolicy {
    /// Folders it may change, absolute and real. The daemon decides these, never the model.
    pub writable: Vec<PathBuf>,
    /// Paths within writable folders that stay read-only.
    pub protected: Vec<PathBuf>,
    /// Paths it cannot read.
    pub deny_read: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
    /// A folder for temporary files, which it may change, too.
    pub temporary: Option<PathBuf>,
}

/// Why the wall could not be put up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The policy is not one.
    #[error("sandbox unavailable: the policy cannot be read: {0}")]
    Policy(#[from] serde_json::Error),
    /// The kernel lacks a layer.
    #[error("sandbox unavailable: {0}; set sandbox.mode = \"off\" to run commands without it")]
    Layer(String),
}

impl SandboxPolicy {
    /// The policy under which these folders may be changed, and temporary files made.
    #[must_use]
    pub fn new(writable: &[PathBuf], deny_read: Vec<PathBuf>, network: bool) -> Self {
        let protected = writable.iter().flat_map(|root| protected_in(root)).collect();
        // Covering a folder would cover what may be changed below it, too.
        let is_below = |path: &PathBuf| writable.iter().any(|root| root.starts_with(path));
        let deny_read = deny_read.into_iter().filter(|path| !is_below(path)).collect();
        let temporary = temporary();
        let writable = writable.iter().cloned().chain(temporary.clone()).collect();
        Self { writable, protected, deny_read, network, temporary }
    }

    /// The policy as one argument of the helper.
    #[must_use]
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
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

/// What controls git and this daemon in a folder.
fn protected_in(root: &Path) -> Vec<PathBuf> {
    [".git/config", ".git/config.worktree", ".git/hooks", ".git/commondir", ".git/info/attributes", ".turnd"]
        .map(|name| root.join(name))
        .into_iter()
        .filter(|path| path.exists())
        .collect()
}

/// Puts the wall around this process, for good. To be called in a process of one thread, right before
/// it becomes the command.
///
/// # Errors
/// When a required layer is missing; the process must then not go on.
pub fn enter(argument: &str) -> Result<SandboxPolicy, SandboxError> {
    let policy: SandboxPolicy = serde_json::from_str(argument)?;
    // Without user name spaces the other two layers still hold.
    mounts::enter(&policy).ok();
    drop_capabilities();
    rules::enter(&policy).map_err(SandboxError::Layer)?;
    filter::enter(&policy).map_err(SandboxError::Layer)?;
    Ok(policy)
}

/// Root keeps nothing of its power, not even through programs that would give it back.
fn drop_capabilities() {
    for capability in CapabilitySet::all().iter() {
        rustix::thread::remove_capability_from_bounding_set(capability).ok();
    }
    rustix::thread::clear_ambient_capability_set().ok();
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).ok();
}
