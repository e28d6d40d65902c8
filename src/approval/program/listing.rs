//! Programs that do much more than read, in the few forms in which they only list.

use super::{Assessment, Sees};
use crate::approval::shell::{Word, WordKind};

/// True for a form that only lists.
pub(super) fn is_one(name: &str, arguments: &[Word]) -> bool {
    let Some((first, rest)) = arguments.split_first() else { return false };
    let first = first.as_literal().unwrap_or_default();
    let is_plain = |word: &Word| word.kind == WordKind::Literal && !word.text.starts_with('-');
    if name == "man" {
        // With a slash it is a file.
        return arguments.iter().all(|word| is_plain(word) && !word.text.contains('/'));
    }
    let is_form = match name {
        "tar" => is_table_of_contents(first),
        "unzip" => matches!(first, "-l" | "-v"),
        "gzip" => first == "-l",
        _ => first == "show" || matches!(first, "list" | "freeze") && rest.is_empty(),
    };
    // To `tar` a colon makes a name a file of another machine.
    is_form && rest.iter().all(|word| is_plain(word) && (name != "tar" || !word.text.contains(':')))
}

/// What the program reads in such a form.
pub(super) fn assess(name: &str, arguments: &[Word]) -> Assessment {
    let is_installer = matches!(name, "pip" | "pip3");
    let names_no_file = is_installer || name == "man";
    let paths = if names_no_file { Vec::new() } else { arguments.iter().skip(1).cloned().collect() };
    let sees = if names_no_file { Sees::Names } else { Sees::Content };
    // The workspace can name the interpreter that runs the installer.
    Assessment { is_read_only: true, asks_version: is_installer, sees, paths, ..Assessment::default() }
}

/// `tf`, `-tzvf` and the like.
fn is_table_of_contents(letters: &str) -> bool {
    let letters = letters.strip_prefix('-').unwrap_or(letters);
    letters.contains('t') && letters.ends_with('f') && letters.chars().all(|letter| "tzjJvf".contains(letter))
}
