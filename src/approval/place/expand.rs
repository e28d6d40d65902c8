//! What a shell pattern of file names matches right now.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

/// Folder entries looked at for one pattern; a pattern that needs more is not expanded.
const MAX_ENTRIES: usize = 4096;

/// Files a pattern matches now. `None` when that would take too long to find out.
pub(in crate::approval) fn expand(pattern: &Path) -> Option<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    let mut budget = MAX_ENTRIES;
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        if !name.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        // Classes such as `[[:alpha:]]` mean something else to the matcher.
        if ["[:", "[.", "[="].iter().any(|class| name.contains(class)) {
            return None;
        }
        let Ok(glob) = GlobBuilder::new(&name).literal_separator(true).build() else { return None };
        let matcher = glob.compile_matcher();
        let mut next = Vec::new();
        for folder in &found {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                budget = budget.checked_sub(1)?;
                let file_name = entry.file_name();
                let is_hidden = file_name.as_encoded_bytes().starts_with(b".") && !name.starts_with('.');
                if !is_hidden && matcher.is_match(Path::new(&file_name)) {
                    next.push(folder.join(file_name));
                }
            }
        }
        found = next;
    }
    Some(found)
}
