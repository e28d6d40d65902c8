//! Unified diffs for people and models.

use std::time::Duration;

use super::output::cap;

/// Time after which a diff is settled for a coarser one; a person waits for it.
const MAX_DIFF_TIME: Duration = Duration::from_millis(500);

/// Characters of a diff that reach the model.
const MAX_DIFF_CHARS: usize = 8_000;

/// A unified diff with three lines around each change, long ones cut in the middle.
#[must_use]
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let diff = similar::TextDiff::configure().timeout(MAX_DIFF_TIME).diff_lines(old, new);
    let text = diff.unified_diff().context_radius(3).header(name, name).to_string();
    cap(&text, MAX_DIFF_CHARS, "read the file for the rest").into_owned()
}

/// Lines added and removed, `+3 -1`.
#[must_use]
pub fn stat(old: &str, new: &str) -> String {
    let diff = similar::TextDiff::configure().timeout(MAX_DIFF_TIME).diff_lines(old, new);
    let (mut added, mut removed) = (0_usize, 0_usize);
    for change in diff.iter_all_changes() {
        match change.tag() {
            similar::ChangeTag::Insert => added += 1,
            similar::ChangeTag::Delete => removed += 1,
            similar::ChangeTag::Equal => {}
        }
    }
    format!("+{added} -{removed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_the_changed_lines() {
        let (old, new) = ("a\nb\nc\n", "a\nB\nc\nd\n");
        assert_eq!(unified("f", old, new), "--- f\n+++ f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d\n");
        assert_eq!(stat(old, new), "+2 -1");
    }
}
