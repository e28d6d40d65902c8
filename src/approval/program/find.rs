//! `find`: reads unless an action of its expression does more.

use super::{Assessment, Sees, lists};
use crate::approval::shell::{Command, Word, WordKind};

/// Parts of an expression that read and print, and nothing else.
const TESTS: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -empty -mtime \
    -mmin -atime -amin -ctime -cmin -newer -newermt -anewer -cnewer -newerct -newerat -newermm -maxdepth -mindepth \
    -depth -d -prune -print -print0 -printf -ls -quit -perm -user -group -uid -gid -nouser -nogroup -links -inum \
    -samefile -lname -ilname -readable -writable -executable -xdev -mount -not -and -or -a -o -true -false -daystart \
    -noleaf -warn -nowarn -P -used -fstype -ignore_readdir_race";

/// Programs that may be run on what is found: they read, and no name of a file can make them do more.
pub(super) const HARMLESS: &str =
    "wc cat head tail ls stat file du md5sum sha1sum sha256sum basename dirname echo grep egrep fgrep";

pub(super) fn assess(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, sees: Sees::Names, ..Assessment::default() };
    let mut in_paths = true;
    let mut rest = arguments;
    while let [word, more @ ..] = rest {
        rest = more;
        let text = word.text.as_str();
        if text.starts_with('-') && text != "-P" || matches!(text, "(" | ")" | "!" | ",") {
            in_paths = false;
        }
        if word.kind == WordKind::Unknown || (word.kind == WordKind::Glob && text.starts_with(['*', '?', '['])) {
            out.refuse("uses an expression that is only known when it runs", text);
        } else if in_paths && text != "-P" {
            out.paths.push(word.clone());
        } else if matches!(text, "-exec" | "-execdir") {
            rest = executed(text, more, &mut out);
        } else if text.starts_with('-') && !lists(TESTS, text) && !is_number(text) {
            let reason = match text {
                "-delete" => "`-delete` deletes what it finds".to_owned(),
                "-ok" | "-okdir" => format!("`{text}` runs a program"),
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => format!("`{text}` writes a file"),
                "-L" | "-H" | "-follow" => format!("`{text}` follows links out of the folder"),
                _ => format!("`{text}` does more than read"),
            };
            out.refuse(&reason, text);
        }
    }
    out
}

/// The program of an `-exec`, which must be a harmless one; gives what follows it.
fn executed<'a>(action: &str, words: &'a [Word], out: &mut Assessment) -> &'a [Word] {
    let end = words.iter().position(|word| matches!(word.text.as_str(), ";" | "+")).unwrap_or(words.len());
    let (inner, rest) = words.split_at(end);
    let is_harmless = inner.first().and_then(Word::as_literal).is_some_and(|program| lists(HARMLESS, program));
    let found = |word: &Word| if word.text == "{}" { Word::literal("./found") } else { word.clone() };
    let command = Command { words: inner.iter().map(found).collect(), ..Command::default() };
    let inner = super::assess(&command);
    if !is_harmless || !inner.is_read_only {
        out.refuse(&format!("`{action}` runs a program"), action);
    }
    out.sees = Sees::Content;
    out.paths.extend(inner.paths.into_iter().filter(|path| path.text != "./found"));
    rest
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-').trim_end_matches(['c', 'k', 'M', 'G', 'w', 'b']);
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}
