//! `find`: reads unless an action of its expression does more.

use super::Assessment;
use crate::approval::shell::{Word, WordKind};

/// Parts of an expression that read and print, and nothing else.
const TESTS: [&str; 68] = [
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-xtype",
    "-size",
    "-empty",
    "-mtime",
    "-mmin",
    "-atime",
    "-amin",
    "-ctime",
    "-cmin",
    "-newer",
    "-newermt",
    "-anewer",
    "-cnewer",
    "-newerct",
    "-newerat",
    "-newermm",
    "-maxdepth",
    "-mindepth",
    "-depth",
    "-d",
    "-prune",
    "-print",
    "-print0",
    "-printf",
    "-ls",
    "-quit",
    "-perm",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-nouser",
    "-nogroup",
    "-links",
    "-inum",
    "-samefile",
    "-lname",
    "-ilname",
    "-readable",
    "-writable",
    "-executable",
    "-xdev",
    "-mount",
    "-not",
    "-and",
    "-or",
    "-a",
    "-o",
    "-true",
    "-false",
    "-daystart",
    "-noleaf",
    "-warn",
    "-nowarn",
    "-P",
    "-used",
    "-fstype",
    "-ignore_readdir_race",
];

pub(super) fn assess(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let mut in_paths = true;
    for word in arguments {
        let text = word.text.as_str();
        if text.starts_with('-') && text != "-P" || matches!(text, "(" | ")" | "!" | ",") {
            in_paths = false;
        }
        if word.kind == WordKind::Unknown || (word.kind == WordKind::Glob && text.starts_with(['*', '?', '['])) {
            out.refuse("uses an expression that is only known when it runs", text);
        } else if in_paths && text != "-P" {
            out.paths.push(word.clone());
        } else if text.starts_with('-') && !TESTS.contains(&text) && !is_number(text) {
            let reason = match text {
                "-delete" => "`-delete` deletes what it finds".to_owned(),
                "-exec" | "-execdir" | "-ok" | "-okdir" => format!("`{text}` runs a program"),
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => format!("`{text}` writes a file"),
                "-L" | "-H" | "-follow" => format!("`{text}` follows links out of the folder"),
                _ => format!("`{text}` does more than read"),
            };
            out.refuse(&reason, text);
        }
    }
    out
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-').trim_end_matches(['c', 'k', 'M', 'G', 'w', 'b']);
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}
