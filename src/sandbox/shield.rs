//! What a command must not change inside the folders that it may change: what controls git, this daemon, editors,
//! other agents and the user's shells, because it would run there later without the wall.
//!
//! What exists is made read-only. A link is covered, since it could be replaced. What does not exist could be made,
//! so an empty stand-in takes its place while commands run. A stand-in is told by its look (empty, not writable,
//! from 1970), every command that needs it holds a lock on it, and whoever finds it without a lock removes it.

use std::fs::{File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags, flock};

use super::policy::{SandboxPolicy, View};

/// What is done about a name that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// Nothing: it does no harm by coming into being, or a stand-in would do more.
    Leave,
    /// An empty folder stands in.
    Folder,
    /// A file with this content stands in.
    File(&'static str),
}

/// In every folder that commands may change.
const ANYWHERE: [(&str, Missing); 24] = [
    (".turnd", Missing::Folder),
    (".vscode", Missing::Folder),
    (".idea", Missing::Folder),
    (".claude", Missing::Folder),
    (".codex", Missing::Folder),
    (".cursor", Missing::Folder),
    (".gemini", Missing::Folder),
    // An empty file here would be something new to git.
    (".mcp.json", Missing::Leave),
    (".gitmodules", Missing::Leave),
    (".gitconfig", Missing::Leave),
    (".ripgreprc", Missing::Leave),
    (".envrc", Missing::Leave),
    (".bashrc", Missing::Leave),
    (".bash_profile", Missing::Leave),
    (".bash_login", Missing::Leave),
    (".bash_logout", Missing::Leave),
    (".profile", Missing::Leave),
    (".zshrc", Missing::Leave),
    (".zshenv", Missing::Leave),
    (".zprofile", Missing::Leave),
    (".zlogin", Missing::Leave),
    (".zlogout", Missing::Leave),
    (".inputrc", Missing::Leave),
    (".xprofile", Missing::Leave),
];

/// In git's folder.
const IN_GIT: [(&str, Missing); 5] = [
    ("config", Missing::Leave),
    ("config.worktree", Missing::File("")),
    ("hooks", Missing::Folder),
    ("info/attributes", Missing::Leave),
    // Leads git to another folder's settings; this one leads to the same.
    ("commondir", Missing::File(".\n")),
];

/// In the user's own folder, when commands may change that.
const AT_HOME: [(&str, Missing); 17] = [
    (".bashrc", Missing::File("")),
    (".bash_profile", Missing::Leave),
    (".bash_login", Missing::Leave),
    (".bash_logout", Missing::File("")),
    (".profile", Missing::File("")),
    (".zshrc", Missing::File("")),
    (".zshenv", Missing::File("")),
    (".zprofile", Missing::File("")),
    (".zlogin", Missing::File("")),
    (".inputrc", Missing::File("")),
    (".gitconfig", Missing::File("")),
    (".ssh", Missing::Folder),
    (".config/git", Missing::Folder),
    (".config/fish", Missing::Folder),
    (".config/autostart", Missing::Folder),
    (".config/systemd", Missing::Folder),
    (".local/bin", Missing::Leave),
];

/// Permissions of a stand-in: nobody changes it by mistake, and everyone can look.
const FOLDER_MODE: u32 = 0o555;
const FILE_MODE: u32 = 0o444;

/// Rounds of finding a stand-in that another command removes at the same moment.
const MAX_ROUNDS: usize = 100;

/// What has to be done about the paths of one command.
#[derive(Debug, Default)]
pub(super) struct Shields {
    /// Folders on the way to others, which must not be moved away.
    pub(super) pinned: Vec<PathBuf>,
    /// Files and folders that must not change.
    pub(super) read_only: Vec<PathBuf>,
    /// Links that must not be replaced.
    pub(super) links: Vec<PathBuf>,
    /// Keeps the stand-ins from being removed.
    locks: Vec<File>,
}

impl Shields {
    /// Looks at every folder of the policy and puts the stand-ins where they are needed.
    pub(super) fn raise(policy: &SandboxPolicy) -> io::Result<Self> {
        let mut shields = Self::default();
        each_name(policy, |folder, name, missing| shields.add(folder, Path::new(name), missing))?;
        Ok(shields)
    }

    /// Follows the name from component to component, up to the first that is no plain folder.
    fn add(&mut self, folder: &Path, name: &Path, missing: Missing) -> io::Result<()> {
        let mut path = folder.to_path_buf();
        let mut components = name.components().peekable();
        while let Some(component) = components.next() {
            path.push(component);
            let is_last = components.peek().is_none();
            match std::fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_symlink() => {
                    push(&mut self.links, path);
                    return Ok(());
                }
                Ok(metadata) if is_last || !metadata.is_dir() => {
                    self.lock_if_stand_in(&path, &metadata)?;
                    push(&mut self.read_only, path);
                    return Ok(());
                }
                Ok(_) => push(&mut self.pinned, path.clone()),
                Err(error) if error.kind() == ErrorKind::NotFound && missing == Missing::Leave => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // The first component that is missing is enough.
                    let missing = if is_last { missing } else { Missing::Folder };
                    self.locks.push(stand_in(&path, missing)?);
                    push(&mut self.read_only, path);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn lock_if_stand_in(&mut self, path: &Path, metadata: &std::fs::Metadata) -> io::Result<()> {
        if is_stand_in(metadata) {
            let missing = if metadata.is_dir() { Missing::Folder } else { Missing::File(content(path)) };
            self.locks.push(stand_in(path, missing)?);
        }
        Ok(())
    }
}

fn push(paths: &mut Vec<PathBuf>, path: PathBuf) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

/// Every name that is protected, with the folder it is in.
fn each_name(policy: &SandboxPolicy, mut visit: impl FnMut(&Path, &str, Missing) -> io::Result<()>) -> io::Result<()> {
    let home = std::env::home_dir();
    for folder in policy.shielded().filter(|folder| folder.is_dir()) {
        ANYWHERE.iter().try_for_each(|(name, missing)| visit(folder, name, *missing))?;
        for git in git_folders(folder) {
            IN_GIT.iter().try_for_each(|(name, missing)| visit(folder, &format!("{git}/{name}"), *missing))?;
        }
        if let Some(inside) = home.as_deref().filter(|home| home.starts_with(folder) && home.is_dir()) {
            AT_HOME.iter().try_for_each(|(name, missing)| visit(inside, name, *missing))?;
        }
    }
    Ok(())
}

/// Git's folder, and those of submodules in it, relative to the folder. None is made where there is none: it would
/// be in the way of `git init`.
fn git_folders(folder: &Path) -> Vec<String> {
    if folder.join(".git").symlink_metadata().is_err() {
        return Vec::new();
    }
    let modules = std::fs::read_dir(folder.join(".git/modules")).into_iter().flatten().flatten();
    let modules = modules.filter_map(|entry| entry.file_name().into_string().ok());
    std::iter::once(".git".to_owned()).chain(modules.map(|name| format!(".git/modules/{name}"))).collect()
}

fn content(path: &Path) -> &'static str {
    let is_commondir = path.file_name().is_some_and(|name| name == "commondir");
    if is_commondir { ".\n" } else { "" }
}

/// Makes or finds the stand-in and locks it.
fn stand_in(path: &Path, missing: Missing) -> io::Result<File> {
    for _ in 0..MAX_ROUNDS {
        match make(path, missing) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match locked(path, FlockOperation::NonBlockingLockShared) {
            Ok(Some(file)) => return Ok(file),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // It is being removed.
            _ => {}
        }
    }
    Err(io::Error::other(format!("{} comes and goes", path.display())))
}

fn make(path: &Path, missing: Missing) -> io::Result<()> {
    let file = match missing {
        Missing::Leave => return Ok(()),
        Missing::Folder => {
            std::fs::DirBuilder::new().mode(0o755).create(path)?;
            open(path)?
        }
        Missing::File(content) => {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
            file.write_all(content.as_bytes())?;
            file
        }
    };
    let mode = if missing == Missing::Folder { FOLDER_MODE } else { FILE_MODE };
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))
}

fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(i32::try_from(flags).unwrap_or(0)).open(path)
}

/// Opens and locks; `None` when it is locked otherwise, or is no longer what the path leads to.
fn locked(path: &Path, operation: FlockOperation) -> io::Result<Option<File>> {
    let file = open(path)?;
    if flock(&file, operation).is_err() {
        return Ok(None);
    }
    let (ours, theirs) = (file.metadata()?, std::fs::symlink_metadata(path)?);
    let is_same = (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino());
    Ok(is_same.then_some(file))
}

fn is_stand_in(metadata: &std::fs::Metadata) -> bool {
    let mode = metadata.mode() & 0o7777;
    let looks_so = if metadata.is_dir() { mode == FOLDER_MODE } else { mode == FILE_MODE && metadata.len() <= 2 };
    looks_so && metadata.mtime() == 0
}

/// Removes the stand-ins that no command needs any more. To be called after a command has ended, however it ended.
pub fn tidy(policy: &SandboxPolicy) {
    if policy.view == View::Shared {
        return;
    }
    let visit = |folder: &Path, name: &str, missing: Missing| {
        let path = folder.join(name);
        if missing == Missing::Leave {
            return Ok(());
        }
        // The name itself, or the first component that was missing.
        for path in path.ancestors().take_while(|path| *path != folder) {
            if std::fs::symlink_metadata(path).is_ok_and(|metadata| is_stand_in(&metadata)) {
                remove(path);
            }
        }
        Ok(())
    };
    each_name(policy, visit).ok();
}

fn remove(path: &Path) {
    if let Ok(Some(file)) = locked(path, FlockOperation::NonBlockingLockExclusive) {
        let is_folder = file.metadata().is_ok_and(|metadata| metadata.is_dir());
        // A folder that somebody filled stays; a file cannot be written by accident.
        let removed = if is_folder { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
        removed.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(folder: &Path) -> SandboxPolicy {
        let mut policy = SandboxPolicy::new(&[folder.to_path_buf()], Vec::new(), false);
        policy.temporary = None;
        policy.writable = vec![folder.to_path_buf()];
        policy
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn stand_ins_last_as_long_as_somebody_needs_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".vscode")).unwrap();
        let policy = policy(folder.path());
        let first = Shields::raise(&policy).unwrap();
        let second = Shields::raise(&policy).unwrap();
        let there = [".claude", ".codex", ".cursor", ".gemini", ".idea", ".turnd", ".vscode"];
        tidy(&policy);
        assert_eq!(names(folder.path()), there);
        drop(first);
        tidy(&policy);
        assert_eq!(names(folder.path()), there);
        drop(second);
        tidy(&policy);
        assert_eq!(names(folder.path()), [".vscode"]);
    }

    #[test]
    fn what_is_there_is_kept_and_links_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        std::fs::create_dir_all(git.join("modules/sub")).unwrap();
        std::fs::create_dir_all(folder.path().join("decoy")).unwrap();
        std::fs::write(git.join("config"), "x").unwrap();
        std::os::unix::fs::symlink("decoy", folder.path().join(".turnd")).unwrap();
        std::os::unix::fs::symlink("../decoy", git.join("hooks")).unwrap();
        let policy = policy(folder.path());
        let shields = Shields::raise(&policy).unwrap();
        assert_eq!(shields.links, [folder.path().join(".turnd"), git.join("hooks")]);
        assert!(shields.pinned.contains(&git) && shields.pinned.contains(&git.join("modules/sub")));
        assert!(shields.read_only.contains(&git.join("config")) && shields.read_only.contains(&git.join("commondir")));
        drop(shields);
        tidy(&policy);
        assert_eq!(names(&git), ["config", "hooks", "modules"]);
        assert_eq!(names(&git.join("modules/sub")), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(git.join("config")).unwrap(), "x");
    }
}
