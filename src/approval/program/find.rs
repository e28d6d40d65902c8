//! `find`: reads unless an action of its expression does more.

use super::{Assessment, Below, Sees, lists};
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

/// What stands for a found file in the words of an action.
const FOUND: &str = "{}";

/// The same in the reading of those words.
const SOME_FILE: &str = "./found";

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
    if out.sees.of_content() {
        out.below = Some(below(arguments));
    }
    out
}

/// The program of an `-exec`, which must be a harmless one; gives what follows it.
fn executed<'a>(action: &str, words: &'a [Word], out: &mut Assessment) -> &'a [Word] {
    let (inner, rest) = words.split_at(end_of_action(words));
    let is_harmless = inner.first().and_then(Word::as_literal).is_some_and(|program| lists(HARMLESS, program));
    // What is found only stands for itself where it is a word of its own.
    let is_whole = inner.iter().all(|word| word.text == FOUND || !word.text.contains(FOUND));
    let found = |word: &Word| if word.text == FOUND { Word::literal(SOME_FILE) } else { word.clone() };
    let command = Command { words: inner.iter().map(found).collect(), ..Command::default() };
    let inner = super::assess(&command);
    let mut others: Vec<Word> = inner.paths.into_iter().filter(|path| path.text != SOME_FILE).collect();
    // There they are names below folders that are only known when it runs.
    let leads_elsewhere = action == "-execdir" && !others.is_empty();
    if !is_harmless || !is_whole || leads_elsewhere || !inner.is_read_only {
        out.refuse(&format!("`{action}` runs a program"), action);
    }
    if inner.sees.of_content() {
        out.sees = Sees::Content;
    }
    out.paths.append(&mut others);
    rest
}

/// Where the words of an action end: at `;`, or at a `+` behind what is found.
fn end_of_action(words: &[Word]) -> usize {
    let is_end = |at: usize| {
        words.get(at).is_some_and(|word| {
            word.text == ";"
                || word.text == "+"
                    && at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word.text == FOUND)
        })
    };
    (0..words.len()).find(|at| is_end(*at)).unwrap_or(words.len())
}

/// What an expression finds, for those who open it. Each alternative must name what it finds, else it may be
/// anything.
pub(super) fn below(expression: &[Word]) -> Below {
    let texts: Vec<&str> = expression.iter().map(|word| word.text.as_str()).collect();
    let mut found = Below { follows_links: true, ..Below::default() };
    let acts = texts.iter().any(|text| text.starts_with("-print") || text.starts_with("-exec"));
    let mut is_named = true;
    let mut is_file = true;
    for alternative in texts.split(|text| matches!(*text, "-o" | "-or" | ",")) {
        if acts && alternative.contains(&"-prune") && !alternative.iter().any(|text| text.starts_with("-print")) {
            continue;
        }
        let names = tested(alternative, &["-name", "-iname"]);
        is_named &= !names.is_empty();
        found.names.extend(names);
        is_file &= tested(alternative, &["-type"]) == ["f"];
    }
    if !is_named {
        found.names.clear();
    }
    found.follows_links = !is_file;
    found
}

/// The values of tests that are not negated; nothing where a negation may reach over several.
fn tested(alternative: &[&str], tests: &[&str]) -> Vec<String> {
    let is_not = |text: &str| matches!(text, "!" | "-not");
    if alternative.windows(2).any(|pair| matches!(pair, [not, next] if is_not(not) && (*next == "(" || is_not(next)))) {
        return Vec::new();
    }
    let mut values = Vec::new();
    for (at, text) in alternative.iter().enumerate() {
        let is_negated = at.checked_sub(1).and_then(|before| alternative.get(before)).is_some_and(|text| is_not(text));
        if tests.contains(text) && !is_negated {
            values.extend(alternative.get(at + 1).map(|value| (*value).to_owned()));
        }
    }
    values
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-').trim_end_matches(['c', 'k', 'M', 'G', 'w', 'b']);
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}
