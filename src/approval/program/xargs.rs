//! `xargs` of a harmless program on names that a search within the workspace gave.

use super::{Assessment, Below, find, lists, unknown};
use crate::approval::shell::{Command, Word};

/// Programs that hand names on as they are, or leave some out.
const FILTERS: &str = "head tail sort uniq grep";

pub(super) fn assess(command: &Command) -> Assessment {
    let (rest, splits_names) = own_options(command.arguments());
    let is_harmless = rest.first().and_then(Word::as_literal).is_some_and(|program| lists(find::HARMLESS, program));
    let inner = super::assess(&Command { words: rest.to_vec(), ..Command::default() });
    let source = command.fed_by.split_first().filter(|(_, filters)| filters.iter().all(|words| is_filter(words)));
    match source.and_then(|(words, _)| names_from(words)) {
        Some((folders, below)) if is_harmless && inner.is_read_only => {
            let paths = inner.paths.into_iter().chain(folders).collect();
            let below = Below { splits_names, ..below };
            Assessment { below: inner.sees.of_content().then_some(below), paths, ..inner }
        }
        _ => unknown("xargs", command),
    }
}

/// What follows the options of `xargs` itself, and whether it cuts names at blanks and quotes.
fn own_options(arguments: &[Word]) -> (&[Word], bool) {
    let mut rest = arguments;
    let mut splits_names = true;
    while let [word, more @ ..] = rest {
        rest = match word.text.as_str() {
            "-0" | "-0r" | "-r0" | "--null" => {
                splits_names = false;
                more
            }
            "-r" | "-t" | "--no-run-if-empty" | "-I{}" | "-n1" => more,
            "-n" | "-L" | "-P" | "-I" => more.get(1..).unwrap_or_default(),
            "-d" if more.first().is_some_and(|value| value.text == "\\n") => {
                splits_names = false;
                more.get(1..).unwrap_or_default()
            }
            _ => break,
        };
    }
    (rest, splits_names)
}

/// The folders a program looks in and the names it lists there; `None` when it may print anything else.
fn names_from(words: &[String]) -> Option<(Vec<Word>, Below)> {
    let has = |options: &[&str]| words.iter().any(|word| options.contains(&word.as_str()));
    let source = Command { words: words.iter().map(Word::literal).collect(), ..Command::default() };
    let assessment = super::assess(&source);
    if !assessment.is_read_only {
        return None;
    }
    let all = Below { follows_links: true, ..Below::default() };
    match words.first().map(String::as_str) {
        Some("find") if !has(&["-printf", "-exec", "-execdir", "-ls"]) => {
            Some((assessment.paths, find::below(source.arguments())))
        }
        Some("fd") if !words.iter().any(|word| word.starts_with("--format")) => Some((assessment.paths, all)),
        Some("git") if has(&["ls-files"]) && !words.iter().any(|word| word.starts_with("--for")) => {
            Some((Vec::new(), Below { names: listed_names(words), ..all }))
        }
        Some("git")
            if words.get(1).is_some_and(|word| word == "diff") && has(&["--name-only"]) && is_only_names(words) =>
        {
            Some((Vec::new(), all))
        }
        // Both list what they have read themselves, and only by its own name.
        Some("rg" | "grep") if !words.iter().any(|word| word.starts_with("--la") || word == "-") => {
            let lists_names = has(&["-l", "-rl", "-lr", "--files", "-rln", "-lrn", "--files-with-matches"]);
            lists_names.then(|| (assessment.paths, assessment.below.unwrap_or_default()))
        }
        _ => None,
    }
}

/// True for a `git diff` whose options add nothing to the names.
fn is_only_names(words: &[String]) -> bool {
    let plain = ["--name-only", "--cached", "--staged", "--"];
    words.iter().skip(2).all(|word| !word.starts_with('-') || plain.contains(&word.as_str()))
}

/// The patterns of `git ls-files`, as patterns of names; none where one of them names a folder or anything.
fn listed_names(words: &[String]) -> Vec<String> {
    let operands = || words.iter().skip(2).filter(|word| !word.starts_with('-'));
    if words.get(1).is_none_or(|word| word != "ls-files") || !operands().all(|word| word.contains("*.")) {
        return Vec::new();
    }
    operands().filter_map(|word| word.rsplit('/').next().map(str::to_owned)).collect()
}

/// True for a program that gives each line as it came or not at all, and reads nothing else.
fn is_filter(words: &[String]) -> bool {
    let filter = Command { words: words.iter().map(Word::literal).collect(), ..Command::default() };
    let assessment = super::assess(&filter);
    let cuts = |word: &String| {
        word.starts_with("--by")
            || word.starts_with("--on")
            || (!word.starts_with("--") && word.starts_with('-') && word.contains(['c', 'o']))
    };
    words.first().is_some_and(|program| lists(FILTERS, program))
        && assessment.is_read_only
        && assessment.paths.is_empty()
        && !words.iter().skip(1).any(cuts)
}
