//! The kernel's wall around commands: what a command can reach, whatever its text says.
//!
//! The daemon describes the wall in a [`SandboxPolicy`] and starts itself again with it; that second process (see
//! `tool::process`) builds the wall and becomes the command, or starts it inside. Three layers, each on its own
//! kernel feature, so that one missing feature never opens all:
//!
//! 1. name spaces: everything is mounted read-only but the writable folders, what runs later without the wall stays
//!    read-only inside these, secrets are covered, nobody else's processes are there, and no network device;
//! 2. Landlock: writes only below the writable folders, no other process's memory or environment, no signals and no
//!    abstract sockets to the outside;
//! 3. seccomp: no sockets without the network, no tracing, keys, mounts, new name spaces, io_uring.
//!
//! Commands that may change something get all three, those that only read the last two. [`Facts`] says what this
//! machine has. Absent on purpose: helper binaries (bubblewrap makes the same name spaces by the same calls, and needs
//! layers 2 and 3 on top), and anything that would need the daemon to be root.

mod facts;
mod filter;
mod limits;
mod mounts;
mod policy;
mod rules;
mod shield;

use rustix::thread::{CapabilitySet, CapabilitySets};

pub use facts::{Facts, has_failed, note_failure};
pub use policy::{Limits, SandboxPolicy, View};
pub use shield::tidy;

/// What the message of every [`SandboxError`] begins with.
pub const UNAVAILABLE: &str = "sandbox unavailable";

/// Why the wall could not be put up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The policy is not one.
    #[error("{UNAVAILABLE}: the policy cannot be read: {0}")]
    Policy(#[from] serde_json::Error),
    /// The kernel lacks a layer.
    #[error("{UNAVAILABLE}: {0}; `turnd doctor` tells what this machine has")]
    Layer(String),
}

/// What the process is to do once the wall is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Become the command: the wall is complete.
    Become,
    /// Start this program again as the first process of the new name spaces, which completes the wall.
    StartInside,
}

/// Reads the argument of the helper.
///
/// # Errors
/// When it is none.
pub fn read_policy(argument: &str) -> Result<SandboxPolicy, SandboxError> {
    Ok(serde_json::from_str(argument)?)
}

/// Begins the wall around this process, for good. To be called in a process of one thread that does nothing else.
///
/// # Errors
/// When a layer that the policy needs is missing; the process must then not go on.
pub fn begin(policy: &SandboxPolicy) -> Result<Next, SandboxError> {
    if policy.view == View::Shared {
        complete(policy)?;
        return Ok(Next::Become);
    }
    let shields = shield::Shields::raise(policy)
        .map_err(|error| SandboxError::Layer(format!("what needs protection cannot be protected: {error}")))?;
    mounts::enter(policy, &shields).map_err(|error| SandboxError::Layer(format!("name spaces refused: {error}")))?;
    keep_capabilities()
        .map_err(|error| SandboxError::Layer(format!("rights over the name spaces refused: {error}")))?;
    // The stand-ins are needed as long as this process waits for those inside.
    std::mem::forget(shields);
    Ok(Next::StartInside)
}

/// Completes the wall, as the first process inside or as the only one.
///
/// # Errors
/// When a layer is missing; the process must then not go on.
pub fn complete(policy: &SandboxPolicy) -> Result<(), SandboxError> {
    if policy.view == View::Own {
        // Where a container hides parts of /proc it must not be mounted anew; the other layers hold there.
        mounts::show_own_processes().ok();
    }
    limits::enter(policy.limits, policy.view);
    drop_capabilities();
    rules::enter(policy).map_err(SandboxError::Layer)?;
    filter::enter(policy).map_err(SandboxError::Layer)
}

/// Lets the first process inside finish the view and drop its rights; starting a program would take them from all but
/// root.
fn keep_capabilities() -> std::io::Result<()> {
    let needed = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP;
    rustix::thread::set_capabilities(None, sets)?;
    needed
        .into_iter()
        .try_for_each(|capability| rustix::thread::configure_capability_in_ambient_set(capability, true))?;
    Ok(())
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
