//! What a command that searches a folder would come upon there.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::{Places, Site, View, names};
use crate::approval::program::Below;

/// Entries looked at where only names with secrets are looked for. A folder with more passes: nobody searches
/// it to come upon them.
const MAX_SEARCHED: usize = 2_000;

/// Entries looked at where links are followed. A folder with more is asked about.
const MAX_FOLLOWED: usize = 20_000;

/// Folders that nobody searches for secrets on purpose.
const SKIPPED: [&str; 3] = [".git", "node_modules", "target"];

impl Places {
    /// Why a search below a folder needs a question, if so.
    pub(in crate::approval) fn hazard_below(&self, folder: &Path, below: &Below) -> Option<String> {
        let names = Names::new(below);
        let mut left = if below.follows_links { MAX_FOLLOWED } else { MAX_SEARCHED };
        let mut pending = vec![folder.to_path_buf()];
        while let Some(folder) = pending.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                match left.checked_sub(1) {
                    Some(fewer) => left = fewer,
                    None if below.follows_links => {
                        return Some("searches more files than can be looked at first".into());
                    }
                    None => return None,
                }
                let path = entry.path();
                let kind = entry.file_type().ok();
                let is_link = kind.is_some_and(|kind| kind.is_symlink());
                if let Some(hazard) = self.hazard_of(&path, below, &names, is_link) {
                    return Some(hazard);
                }
                let is_skipped = |name: &str| path.ends_with(name) && (!below.follows_links || name == ".git");
                if kind.is_some_and(|kind| kind.is_dir()) && !SKIPPED.iter().any(|name| is_skipped(name)) {
                    pending.push(path);
                }
            }
        }
        None
    }

    fn hazard_of(&self, path: &Path, below: &Below, names: &Names, is_link: bool) -> Option<String> {
        let name = path.file_name()?.to_string_lossy();
        let shown = path.display();
        if below.splits_names && name.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '\\')) {
            return Some(format!("hands on a name that is cut into several: {shown}"));
        }
        if !names.has(&name) {
            return None;
        }
        if names::has_secret_name(Path::new(&*name)) {
            return Some(format!("searches what may hold secrets: {shown}"));
        }
        if !is_link || !below.follows_links {
            return None;
        }
        let spot = View::new(self).spot(self.cwd(), path);
        let real = spot.real.display();
        match self.site(&spot) {
            Site::Inside if self.is_secret(&spot) => {
                Some(format!("searches what may hold secrets: {shown} (really {real})"))
            }
            Site::Inside => None,
            _ => Some(format!("reads through a link out of the workspace: {shown} (really {real})")),
        }
    }
}

/// The names that a search opens.
struct Names {
    wanted: Vec<GlobMatcher>,
    left_out: Vec<GlobMatcher>,
}

impl Names {
    fn new(below: &Below) -> Self {
        let compile = |pattern: &String| GlobBuilder::new(pattern).case_insensitive(true).build().ok();
        // A pattern that cannot be read could be any.
        let wanted: Option<Vec<_>> = below.names.iter().map(compile).collect();
        let left_out = below.left_out.iter().filter_map(|pattern| GlobBuilder::new(pattern).build().ok());
        Self {
            wanted: wanted.unwrap_or_default().iter().map(globset::Glob::compile_matcher).collect(),
            left_out: left_out.map(|glob| glob.compile_matcher()).collect(),
        }
    }

    fn has(&self, name: &str) -> bool {
        let is_wanted = self.wanted.is_empty() || self.wanted.iter().any(|glob| glob.is_match(name));
        is_wanted && !self.left_out.iter().any(|glob| glob.is_match(name))
    }
}
