//! The name space layer: a view of the file system in which little can be written, and no network.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::SandboxPolicy;

/// Moves this process into its own view. On an error what was done so far stays, and only narrows.
pub(super) fn enter(policy: &SandboxPolicy) -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if !policy.network {
        flags |= UnshareFlags::NEWNET;
    }
    let here = std::env::current_dir()?;
    leave(flags)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .or_else(|_| mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC))?;
    // A folder that is a mount of its own keeps its flags when what is around it becomes read-only,
    // and cannot be renamed away.
    for folder in policy.writable.iter().filter(|folder| folder.is_dir()) {
        mount_bind_recursive(folder, folder)?;
        let git = folder.join(".git");
        if git.is_dir() {
            mount_bind_recursive(&git, &git)?;
        }
    }
    for path in &policy.protected {
        mount_bind_recursive(path, path)?;
    }
    for mounted in mount_points()? {
        let is_writable = policy.writable.iter().any(|folder| mounted.starts_with(folder));
        let is_protected = policy.protected.iter().any(|path| mounted.starts_with(path));
        if !is_writable || is_protected {
            make_read_only(&mounted).ok();
        }
    }
    policy.deny_read.iter().try_for_each(|path| cover(path))?;
    // The working folder is still the one of the view before.
    std::env::set_current_dir(here)
}

#[expect(deprecated, reason = "sound here: the process has one thread and shares no table of descriptors")]
fn leave(flags: UnshareFlags) -> io::Result<()> {
    rustix::thread::unshare(flags).map_err(io::Error::from)
}

/// All mounts below `/`, deepest last.
fn mount_points() -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).map(|path| PathBuf::from(unescape(path))).collect())
}

/// Blanks and the like are written in octal (`proc_pid_mountinfo(5)`).
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Flags that a mount has must be given again, or a name space without rights over it is refused.
fn make_read_only(path: &Path) -> io::Result<()> {
    let has = statvfs(path)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (ours, theirs) in [
        (MountFlags::NOSUID, StatVfsMountFlags::NOSUID),
        (MountFlags::NODEV, StatVfsMountFlags::NODEV),
        (MountFlags::NOEXEC, StatVfsMountFlags::NOEXEC),
        (MountFlags::NOATIME, StatVfsMountFlags::NOATIME),
        (MountFlags::NODIRATIME, StatVfsMountFlags::NODIRATIME),
        (MountFlags::RELATIME, StatVfsMountFlags::RELATIME),
    ] {
        if has.contains(theirs) {
            flags |= ours;
        }
    }
    mount_remount(path, flags, "").map_err(io::Error::from)
}

/// Puts nothing over a file or folder.
fn cover(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    if metadata.is_dir() {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        return mount("tmpfs", path, "tmpfs", flags, Some(c"size=4k,mode=000")).map_err(io::Error::from);
    }
    // A device that is no file of the user: it has other numbers and no content.
    debug_assert!(fs::metadata("/dev/null").is_ok_and(|null| null.ino() != metadata.ino()));
    mount_bind_recursive("/dev/null", path).map_err(io::Error::from)
}
