//! The name space layer: a view of the system in which little can be written, nobody else runs, and there is no
//! network.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, move_mount, open_tree,
};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::policy::SandboxPolicy;
use super::shield::Shields;

/// Sockets through which a command with the network could have somebody else do what it may not.
const ROOTED_SOCKETS: [&str; 5] = [
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
];

/// Moves this process into its own view. Its next child is the first process of a name space of processes.
///
/// # Errors
/// When a part is refused; the process must then not go on.
pub(super) fn enter(policy: &SandboxPolicy, shields: &Shields) -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
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
    // What is a mount of its own keeps its flags when what is around it becomes read-only, and cannot be moved
    // away, which would make room for another in its place.
    let folders = policy.writable.iter().filter(|folder| folder.is_dir());
    for path in folders.chain(&shields.pinned).chain(&shields.read_only) {
        mount_bind_recursive(path, path)?;
    }
    shields.links.iter().try_for_each(|link| cover_link(link))?;
    for mounted in mount_points()? {
        let is_writable = policy.writable.iter().any(|folder| mounted.starts_with(folder));
        let is_protected = shields.read_only.iter().any(|path| mounted.starts_with(path));
        if is_protected {
            make_read_only(&mounted)?;
        } else if !is_writable {
            // Some mounts of the system refuse; Landlock holds there, too.
            make_read_only(&mounted).ok();
        }
    }
    policy.deny_read.iter().try_for_each(|path| cover(path))?;
    if policy.network {
        ROOTED_SOCKETS.iter().try_for_each(|path| cover(Path::new(path)))?;
    }
    // The working folder is still the one of the view before.
    std::env::set_current_dir(here)
}

/// Shows the processes of this name space only. To be called by its first process.
pub(super) fn show_own_processes() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(io::Error::from)
}

#[expect(deprecated, reason = "sound here: the flags never part a thread from the table of descriptors it shares")]
fn leave(flags: UnshareFlags) -> io::Result<()> {
    rustix::thread::unshare(flags).map_err(io::Error::from)
}

/// Whether a filter of system calls, such as a container's, forbids name spaces. Asked with a flag that no kernel
/// knows, so that the kernel itself always refuses, for that reason; in a thread of its own, in case one does not.
pub(super) fn are_filtered() -> bool {
    let asked = UnshareFlags::NEWUSER | UnshareFlags::from_bits_retain(1);
    let refused = std::thread::spawn(move || leave(asked)).join();
    !matches!(refused, Ok(Err(error)) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()))
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
    mount_bind_recursive("/dev/null", path).map_err(io::Error::from)
}

/// Puts nothing over a link itself, and not over what it leads to. Needs Linux 5.2.
fn cover_link(link: &Path) -> io::Result<()> {
    let nothing = open_tree(CWD, "/dev/null", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let link = rustix::fs::open(link, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(nothing, "", link, "", flags).map_err(io::Error::from)
}
