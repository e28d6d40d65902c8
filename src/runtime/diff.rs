//! The runtime's changes of files as before and after, for people to see.

use std::path::Path;

use serde_json::Value;

use crate::tool::Display;

/// The largest file that is read to show a change in its whole.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// One change of a file as `{path, kind: {type, move_path}, diff}`, ready to show.
pub(super) fn display(change: &Value, path: &Path) -> Display {
    let diff = change.get("diff").and_then(Value::as_str).unwrap_or_default();
    let path = path.to_path_buf();
    match change.pointer("/kind/type").and_then(Value::as_str) {
        Some("add") => Display::Diff { path, old: None, new: diff.to_owned() },
        Some("delete") => Display::Diff { path, old: Some(diff.to_owned()), new: String::new() },
        _ => {
            let (old, new) = before_and_after(diff, read(&path).as_deref());
            Display::Diff { path, old: Some(old), new }
        }
    }
}

fn read(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    (size <= MAX_FILE_BYTES).then(|| std::fs::read_to_string(path).ok()).flatten()
}

/// Both sides of a unified diff: the whole file where the diff fits it, else only what the diff shows.
fn before_and_after(diff: &str, file: Option<&str>) -> (String, String) {
    let hunks = hunks(diff);
    if let Some(file) = file
        && let Some(new) = apply(&hunks, file)
    {
        return (file.to_owned(), new);
    }
    let side = |of: fn(&Hunk) -> &String| hunks.iter().map(of).map(String::as_str).collect::<Vec<_>>().join("⋯\n");
    (side(|hunk| &hunk.old), side(|hunk| &hunk.new))
}

/// One place of a diff.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hunk {
    /// Lines of the old file before it.
    lines_before: usize,
    old: String,
    new: String,
}

fn hunks(diff: &str) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for line in diff.split_inclusive('\n') {
        if line.starts_with("@@") {
            hunks.push(Hunk { lines_before: lines_before(line), ..Hunk::default() });
            continue;
        }
        // Before the first place stand the names of the files.
        let Some(hunk) = hunks.last_mut() else { continue };
        match line.split_at_checked(1) {
            Some(("+", text)) => hunk.new.push_str(text),
            Some(("-", text)) => hunk.old.push_str(text),
            Some((" ", text)) => {
                hunk.old.push_str(text);
                hunk.new.push_str(text);
            }
            _ => {}
        }
    }
    hunks
}

/// From `@@ -START,COUNT +START,COUNT @@`. A count of zero means a place behind the line, else one at it.
fn lines_before(header: &str) -> usize {
    let old = header.split_whitespace().nth(1).and_then(|range| range.strip_prefix('-')).unwrap_or_default();
    let (start, count) = old.split_once(',').unwrap_or((old, "1"));
    let start: usize = start.parse().unwrap_or(0);
    if count == "0" { start } else { start.saturating_sub(1) }
}

/// The file after the diff; `None` when it is not what the diff was made from.
fn apply(hunks: &[Hunk], file: &str) -> Option<String> {
    let (mut new, mut rest, mut lines) = (String::new(), file, 0);
    for hunk in hunks {
        let skipped: usize = rest.split_inclusive('\n').take(hunk.lines_before.checked_sub(lines)?).map(str::len).sum();
        let (before, after) = rest.split_at_checked(skipped)?;
        new.push_str(before);
        new.push_str(&hunk.new);
        rest = after.strip_prefix(hunk.old.as_str())?;
        lines = hunk.lines_before + hunk.old.split_inclusive('\n').count();
    }
    new.push_str(rest);
    (!hunks.is_empty()).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -4,1 +4,2 @@\n four\n+five\n";

    #[test]
    fn a_diff_that_fits_shows_the_whole_file() {
        let file = "one\ntwo\nthree\nfour\n";
        let sides = before_and_after(DIFF, Some(file));
        assert_eq!(sides, (file.to_owned(), "one\n2\nthree\nfour\nfive\n".to_owned()));
    }

    #[test]
    fn a_place_is_found_by_its_line_and_not_by_its_looks() {
        let diff = "@@ -3,1 +3,2 @@\n x\n+y\n@@ -5,0 +7,1 @@\n+z\n";
        assert_eq!(before_and_after(diff, Some("x\nx\nx\nx\nx\nx\n")).1, "x\nx\nx\ny\nx\nx\nz\nx\n");
    }

    #[test]
    fn a_diff_that_does_not_fit_shows_what_it_has() {
        for file in [None, Some("something else\n")] {
            let sides = before_and_after(DIFF, file);
            assert_eq!(sides, ("one\ntwo\n⋯\nfour\n".to_owned(), "one\n2\n⋯\nfour\nfive\n".to_owned()));
        }
    }
}
