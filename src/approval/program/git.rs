//! `git`: the subcommands that only read, without the options that run or write.

use super::{Assessment, Below, carried, lists};
use crate::approval::shell::{Word, WordKind};

/// Subcommands that read whatever their operands.
const READS: &str = "status log diff show blame annotate shortlog describe rev-parse rev-list ls-files ls-tree cat-file name-rev \
    merge-base grep for-each-ref show-ref diff-tree diff-index diff-files whatchanged cherry range-diff check-ignore \
    check-attr count-objects version show-branch var verify-pack";

/// Options (of any subcommand) that run a program, write a file or look outside the repository.
const REFUSED: &str = "--ext-diff --textconv --filters --output --open-files-in-pager --no-index --exec --upload-pack --receive-pack \
    --show-signature --config-env --exec-path --git-dir --work-tree --paginate --contents --edit --edit-description \
    --ignore-revs-file --namespace";

/// Subcommands, and words by which they run what the command names.
const CARRIERS: [(&str, &str); 10] = [
    ("bisect", "run view visualize"),
    ("clone init", "-u"),
    ("daemon", "--access-hook"),
    ("difftool", "-x --extcmd"),
    ("grep", "-O"),
    ("hook for-each-repo", "run --config"),
    ("instaweb web--browse", "-d --httpd -b --browser"),
    ("rebase", "-x"),
    ("send-email", "--sendmail-cmd --smtp-server --to-cmd --cc-cmd --header-cmd"),
    ("submodule", "foreach"),
];

/// Settings that change only how the output looks.
const PLAIN_SETTINGS: [&str; 4] = ["color.ui=", "core.quotepath=", "core.quotePath=", "diff.color="];

/// Settings that turn off what git would run.
fn turns_off(setting: &str) -> bool {
    matches!(setting, "core.pager=cat" | "log.showSignature=false" | "core.fsmonitor=false")
        || (setting.starts_with("pager.") && setting.ends_with("=false"))
}

pub(super) fn assess(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let Some(rest) = global_options(arguments, &mut out) else {
        out.is_read_only = false;
        return out;
    };
    let [subcommand, rest @ ..] = rest else {
        out.is_read_only = false;
        return out;
    };
    let Some(name) = subcommand.as_literal() else {
        out.refuse("its subcommand is only known when it runs", &subcommand.text);
        return out;
    };
    let mut is_message = false;
    for word in rest {
        if !is_message || word.kind == WordKind::Unknown {
            check_word(name, word, &mut out);
        }
        is_message = lists("commit tag stash merge notes", name) && takes_message(&word.text);
    }
    if name == "grep" && rest.iter().any(|word| word.text.starts_with("--unt") || word.text.starts_with("--no-exc")) {
        out.paths = vec![Word::literal(".")];
        out.below = Some(Below::default());
    }
    if !lists(READS, name) && !is_listing(name, rest) {
        out.is_read_only = false;
    }
    out
}

/// The words from the subcommand on. `None` when an option before it is not understood.
fn global_options<'a>(arguments: &'a [Word], out: &mut Assessment) -> Option<&'a [Word]> {
    let mut rest = arguments;
    while let [word, more @ ..] = rest {
        match word.text.as_str() {
            "-C" => {
                let (folder, more) = more.split_first()?;
                out.paths.push(folder.clone());
                rest = more;
            }
            "-c" => {
                let (setting, more) = more.split_first()?;
                if !turns_off(&setting.text) && !PLAIN_SETTINGS.iter().any(|plain| setting.text.starts_with(plain)) {
                    out.refuse("`-c` changes git's settings, which can run programs", "-c");
                }
                rest = more;
            }
            "--no-pager"
            | "-P"
            | "--no-optional-locks"
            | "--literal-pathspecs"
            | "--no-replace-objects"
            | "--icase-pathspecs" => {
                rest = more;
            }
            text if text.starts_with('-') => {
                let reason = if matches!(text, "-p" | "--paginate") { "runs a pager" } else { "changes how git runs" };
                out.refuse(&format!("`{text}` {reason}"), text);
                rest = more;
            }
            _ => return Some(rest),
        }
    }
    Some(rest)
}

fn check_word(subcommand: &str, word: &Word, out: &mut Assessment) {
    let text = word.text.as_str();
    if word.kind == WordKind::Unknown {
        return out.refuse("uses options that are only known when it runs", text);
    }
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    let is_refused = name.starts_with("--")
        && name.len() > 2
        // `--text` has a meaning of its own, and to `rev-parse` the folder is a question.
        && name != "--text"
        && (subcommand, text) != ("rev-parse", "--git-dir")
        && REFUSED.split_ascii_whitespace().any(|refused| refused.starts_with(name));
    let runs = |(names, words): &(&str, &str)| lists(names, subcommand) && carried::is_one_of(words, text);
    if is_refused || CARRIERS.iter().any(runs) {
        return out.refuse(&format!("`{name}` does more than read"), text);
    }
    if text.contains("%G") || text.contains("%(signature") {
        return out.refuse("its format runs a signature check", text);
    }
    let value = text.split_once('=').map_or(text, |(_, value)| value);
    let leads_out = |text: &str| text.starts_with(['/', '~']) || text.split('/').any(|part| part == "..");
    if leads_out(value) && !value.starts_with("~") || value.starts_with("~/") {
        out.paths.push(Word { text: value.to_owned(), kind: word.kind });
    } else if !text.starts_with('-') {
        let file = text.rsplit_once(':').map_or(text, |(_, file)| file);
        out.paths.push(Word { text: file.to_owned(), kind: word.kind });
    }
}

/// True for an option whose value is a message: `-m`, also behind other letters.
fn takes_message(option: &str) -> bool {
    option == "--message" || (option.starts_with('-') && !option.starts_with("--") && option.ends_with('m'))
}

/// Subcommands that read when they are only asked to list.
fn is_listing(name: &str, rest: &[Word]) -> bool {
    let texts: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    let operands = || texts.iter().filter(|text| !text.starts_with('-'));
    let only_options = |allowed: &[&str]| {
        texts.iter().all(|text| {
            let name = text.split_once('=').map_or(*text, |(name, _)| name);
            allowed.contains(&name)
        })
    };
    match name {
        "branch" => {
            let asks = ["--list", "-l", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"];
            let shows = [
                "-a",
                "-r",
                "-v",
                "-vv",
                "-av",
                "-avv",
                "-rv",
                "--all",
                "--remotes",
                "--verbose",
                "--show-current",
                "--sort",
                "--format",
                "--column",
                "--no-column",
                "--color",
                "--no-color",
                "--ignore-case",
                "-i",
            ];
            let asking = texts.iter().any(|text| asks.contains(&text.split_once('=').map_or(*text, |(name, _)| name)));
            let options_known = texts.iter().filter(|text| text.starts_with('-')).all(|text| {
                let name = text.split_once('=').map_or(*text, |(name, _)| name);
                asks.contains(&name) || shows.contains(&name)
            });
            options_known && (asking || operands().count() == 0)
        }
        "tag" => {
            let asks = ["-l", "--list", "--contains", "--no-contains", "--points-at", "--merged", "--no-merged"];
            let shows = ["--sort", "--format", "--column", "--color", "--ignore-case", "-i"];
            let name = |text: &&str| text.split_once('=').map_or(*text, |(name, _)| name).to_owned();
            let is_count = |text: &str| text.strip_prefix("-n").is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()));
            let is_asking = |text: &&str| asks.contains(&name(text).as_str()) || is_count(text);
            // Without one of these a name makes a tag, however the list would be shown.
            (operands().count() == 0 || texts.iter().any(is_asking))
                && texts
                    .iter()
                    .filter(|text| text.starts_with('-'))
                    .all(|text| is_asking(text) || shows.contains(&name(text).as_str()))
        }
        "remote" => {
            only_options(&["-v", "--verbose"]) || matches!(texts.as_slice(), ["get-url", ..]) && operands().count() == 2
        }
        "stash" => matches!(texts.first(), Some(&("list" | "show"))),
        "worktree" => matches!(texts.first(), Some(&"list")),
        "reflog" => {
            texts.is_empty()
                || matches!(texts.first(), Some(&"show"))
                || texts.iter().all(|t| {
                    t.starts_with("-n") || t.starts_with("--format") || t.trim_start_matches('-').parse::<u32>().is_ok()
                })
        }
        "submodule" => matches!(texts.as_slice(), ["status"] | ["status", "--recursive"]),
        "notes" => matches!(texts.first(), Some(&("list" | "show"))),
        "symbolic-ref" => operands().count() == 1 && only_options_or_operands(&texts, &["--short", "-q", "--quiet"]),
        "bisect" => matches!(texts.as_slice(), ["log"]),
        "config" => is_config_query(&texts),
        _ => false,
    }
}

fn only_options_or_operands(texts: &[&str], allowed: &[&str]) -> bool {
    texts.iter().all(|text| !text.starts_with('-') || allowed.contains(text))
}

fn is_config_query(texts: &[&str]) -> bool {
    let scopes = [
        "--global",
        "--local",
        "--system",
        "--worktree",
        "--show-origin",
        "--show-scope",
        "--name-only",
        "-z",
        "--null",
    ];
    let mut rest = texts.iter().filter(|text| !scopes.contains(text));
    match rest.next() {
        Some(&("--get" | "--get-all" | "--get-regexp" | "get")) => rest.all(|text| !text.starts_with('-')),
        Some(&("--list" | "-l" | "list")) => rest.next().is_none(),
        Some(key) => !key.starts_with('-') && key.contains('.') && rest.next().is_none(),
        None => false,
    }
}
