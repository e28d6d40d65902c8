//! Where programs are looked up: no name may mean a program that a repository brought along.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A `PATH` without folders that depend on where one stands, and with those inside the workspace behind all
/// others, so that a `git` or `ls` planted there is never the one that runs.
#[must_use]
pub fn search_path(path: &OsStr, workspace: &[PathBuf], virtual_env: Option<&OsStr>) -> OsString {
    let (outside, inside) = folders(path, workspace, virtual_env);
    // What was split joins again.
    std::env::join_paths(outside.into_iter().chain(inside)).unwrap_or_default()
}

/// The folders of a `PATH` that lie outside the workspace, and those inside. The virtual environment that the user
/// activated counts as outside: its `python` is meant.
pub(super) fn folders(
    path: &OsStr,
    workspace: &[PathBuf],
    virtual_env: Option<&OsStr>,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let activated = virtual_env.map(|folder| Path::new(folder).join("bin"));
    let is_inside = |folder: &PathBuf| {
        activated.as_deref() != Some(folder)
            && workspace.iter().any(|root| {
                folder.starts_with(root) || folder.canonicalize().is_ok_and(|folder| folder.starts_with(root))
            })
    };
    std::env::split_paths(path).filter(|folder| folder.is_absolute()).partition(|folder| !is_inside(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_program_is_never_the_first_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("w/bin")).unwrap();
        std::os::unix::fs::symlink(root.join("w/bin"), root.join("link")).unwrap();
        let workspace = [root.join("w")];
        let check = |path: &str, virtual_env: Option<&str>, expected: &str| {
            let fill = |text: &str| text.replace("@", &root.to_string_lossy());
            let found = search_path(fill(path).as_ref(), &workspace, virtual_env.map(fill).as_ref().map(OsStr::new));
            assert_eq!(found.to_string_lossy(), fill(expected), "{path}");
        };
        check("/usr/bin:/bin", None, "/usr/bin:/bin");
        check(".:/usr/bin::bin:../x:/bin", None, "/usr/bin:/bin");
        check("@/w:@/w/bin:/usr/bin", None, "/usr/bin:@/w:@/w/bin");
        check("@/link:/usr/bin", None, "/usr/bin:@/link");
        check("@/w-evil:/usr/bin", None, "@/w-evil:/usr/bin");
        check("@/w/.venv/bin:@/w/bin:/usr/bin", Some("@/w/.venv"), "@/w/.venv/bin:/usr/bin:@/w/bin");
        check("", None, "");
    }
}
