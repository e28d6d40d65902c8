//! Files by which a workspace names the program that stands behind a usual one.
//!
//! Version managers and build tools look into the folder they are called in before they do anything, be it
//! only to say their version.

use std::path::{Path, PathBuf};

use super::Places;

/// Programs, the file they look for, and what in it names another program; empty: its presence does.
const PLANTED: [(&str, &str, &str); 11] = [
    ("yarn", ".yarnrc.yml", ""),
    ("yarn", ".yarnrc", ""),
    ("yarn pnpm", "package.json", "\"packageManager\""),
    ("yarn pnpm npm", ".corepack.env", ""),
    ("mvn", ".mvn", ""),
    ("bundle", ".bundle", ""),
    ("dotnet", "global.json", "\"paths\""),
    ("cargo rustc rustfmt rustup clippy-driver", "rust-toolchain.toml", "path"),
    ("cargo rustc rustfmt rustup clippy-driver", "rust-toolchain", "path"),
    ("", ".tool-versions", "path:"),
    ("python python3 python2 pip pip3", ".python-version", "/"),
];

/// Bytes of such a file that are read; a longer one counts as naming a program.
const MAX_BYTES: u64 = 64 * 1024;

impl Places {
    /// The file of the workspace that makes this program run another one from one of these folders, if there is one.
    pub(in crate::approval) fn planted_program(&self, program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
        let concerns = |programs: &str| programs.is_empty() || programs.split(' ').any(|name| name == program);
        let planted = |folder: &Path| {
            let rows = PLANTED.iter().filter(|(programs, ..)| concerns(programs));
            let mut files = rows.map(|(_, file, needle)| (folder.join(file), *needle));
            files.find(|(path, needle)| names(path, needle)).map(|(path, _)| path)
        };
        // What lies above the workspace is the user's own.
        folders.iter().flat_map(|folder| folder.ancestors()).filter(|folder| self.contains(folder)).find_map(planted)
    }
}

fn names(path: &Path, needle: &str) -> bool {
    let Ok(about) = std::fs::metadata(path) else { return false };
    needle.is_empty()
        || !about.is_file()
        || about.len() > MAX_BYTES
        || std::fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(needle))
}
