//! Where a program of a configuration is.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::search_path::folders;

/// The program a command names: absolute, relative to `cwd` when it has a slash, else found in the folders
/// of `PATH` that lie outside the workspace, so that nothing of it is started by chance.
///
/// # Errors
/// In words: what was not found, and where.
pub fn find_program(command: &str, cwd: &Path, workspace: &[PathBuf]) -> Result<PathBuf, String> {
    if command.trim().is_empty() {
        return Err("no command is given".into());
    }
    if command.contains('/') {
        let path = cwd.join(command);
        return if is_program(&path) { Ok(path) } else { Err(format!("there is no program {}", path.display())) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (outside, _) = folders(&path, workspace, std::env::var_os("VIRTUAL_ENV").as_deref());
    let mut found = outside.into_iter().map(|folder| folder.join(command));
    found.find(|path| is_program(path)).ok_or_else(|| format!("there is no program `{command}` in PATH"))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_never_found_in_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let tool = folder.path().join("planted");
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program("./planted", folder.path(), &[]).unwrap(), folder.path().join("./planted"));
        assert!(find_program("planted", folder.path(), &[]).unwrap_err().contains("in PATH"));
        assert!(find_program("sh", folder.path(), &[]).unwrap().is_absolute());
        for nothing in ["", " ", "/no/such/program", "./"] {
            assert!(find_program(nothing, folder.path(), &[]).is_err(), "{nothing}");
        }
    }
}
