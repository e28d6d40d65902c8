//! Paths taken to where they really lead.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links followed before a path counts as a loop, as in Linux (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Bytes of a `.git` pointer or `commondir` file that are read.
const MAX_POINTER_BYTES: u64 = 4096;

/// The path seen from a folder, unresolved.
pub(super) fn absolute(base: &Path, path: &Path) -> PathBuf {
    base.join(path)
}

/// The path with `.` and `..` taken out by their spelling alone.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// The path with every link followed, the last one too, also where what follows does not exist yet.
///
/// A loop of links gives the path up to the loop, which is no place anything can be written.
pub(super) fn real_path(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    let mut pending: VecDeque<OsString> = path.components().map(|c| c.as_os_str().to_os_string()).collect();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        match name.to_str() {
            Some("/") => out = PathBuf::from("/"),
            Some(".") => {}
            Some("..") => {
                out.pop();
            }
            _ => {
                let next = out.join(&name);
                match std::fs::read_link(&next) {
                    Ok(target) if links < MAX_LINKS => {
                        links += 1;
                        for component in target.components().rev() {
                            pending.push_front(component.as_os_str().to_os_string());
                        }
                    }
                    _ => out = next,
                }
            }
        }
    }
    out
}

/// Where the repository of a folder really is, when its `.git` points elsewhere: the git directory
/// of the worktree and the one it shares.
pub(super) fn git_dirs(root: &Path) -> Vec<PathBuf> {
    let Some(pointer) = read_line(&root.join(".git")) else { return Vec::new() };
    let Some(target) = pointer.strip_prefix("gitdir:") else { return Vec::new() };
    let own = real_path(&absolute(root, Path::new(target.trim())));
    let shared = read_line(&own.join("commondir")).map(|common| real_path(&absolute(&own, Path::new(common.trim()))));
    std::iter::once(own).chain(shared).collect()
}

pub(super) fn read_line(path: &Path) -> Option<String> {
    use std::io::Read as _;
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MAX_POINTER_BYTES).read_to_string(&mut text).ok()?;
    text.lines().next().map(str::to_owned)
}

/// True for `config` and `hooks` of a folder that looks like a repository without a working tree.
pub(super) fn is_bare_repository_control(path: &Path) -> bool {
    path.ancestors().zip(path.ancestors().skip(1)).take(4).any(|(child, parent)| {
        let named = child.file_name().is_some_and(|name| {
            ["config", "config.worktree", "hooks"].iter().any(|control| name.eq_ignore_ascii_case(control))
        });
        named && parent.join("HEAD").is_file() && parent.join("objects").is_dir()
    })
}

pub(super) fn link_count(path: &Path) -> u64 {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.nlink(),
        _ => 1,
    }
}

/// The first of the candidates that is the very same file.
pub(super) fn same_file(path: &Path, candidates: Vec<PathBuf>) -> Option<PathBuf> {
    let own = std::fs::metadata(path).ok()?;
    candidates.into_iter().find(|candidate| {
        candidate != path
            && std::fs::metadata(candidate).is_ok_and(|other| other.dev() == own.dev() && other.ino() == own.ino())
    })
}
