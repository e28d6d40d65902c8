//! What no table of options can say of a program that only reads.

use super::{Assessment, Below, lists};
use crate::approval::shell::Word;

/// What no table of options can say of a program.
pub(super) fn words(name: &str, arguments: &[Word], out: &mut Assessment) {
    let texts = || arguments.iter().map(|word| word.text.as_str());
    let has_letter =
        |letter: char| texts().any(|text| text.starts_with('-') && !text.starts_with("--") && text.contains(letter));
    let has = |option: &str| texts().any(|text| text == option);
    match name {
        "date" => {
            let given =
                texts().zip(texts().skip(1)).filter(|(before, _)| lists("-d --date", before)).map(|(_, value)| value);
            let dates: Vec<&str> = given.collect();
            let sets = texts().find(|text| !text.starts_with(['-', '+']) && !dates.contains(text));
            if let Some(word) = sets {
                out.refuse("sets the clock", word);
            }
        }
        "rustc" => {
            // Where a toolchain is named by the workspace, any call runs that.
            out.asks_version = true;
            let kinds = values(arguments, "--print");
            if let Some(word) = kinds.iter().find(|kind| kind.contains('=')) {
                out.refuse("writes what it prints to a file", word);
            }
        }
        "nvidia-smi" => {
            let known = "-L -q -h --help --list-gpus --query --query-gpu --query-compute-apps --format";
            let other = texts().find(|text| !lists(known, text.split('=').next().unwrap_or_default()));
            if let Some(word) = other {
                out.refuse("can change how the device works", word);
            }
        }
        "jq" => {
            if let Some(script) = texts().find(|text| ["import", "include"].iter().any(|word| text.contains(word))) {
                out.refuse("its script reads other files", script);
            }
            if let Some(script) = texts().find(|text| names_environment(text)) {
                out.refuse("its script prints the environment", script);
            }
        }
        "grep" | "egrep" | "fgrep" | "zgrep" => {
            let recurses = texts().zip(texts().skip(1)).any(|(option, value)| option == "-d" && value == "recurse")
                || texts().any(|text| text.starts_with("--directories=rec") || text == "-drecurse");
            if has_letter('r') || has("--recursive") || recurses {
                let names = values(arguments, "--include");
                let left_out = values(arguments, "--exclude");
                out.below = Some(Below { names, left_out, ..Below::default() });
            }
        }
        "rg" => out.below = hidden_files(arguments),
        "ag" if has("--hidden") || has_letter('u') => out.below = Some(Below::default()),
        "diff" if has_letter('r') || has("--recursive") => {
            out.below = Some(Below { follows_links: true, ..Below::default() });
        }
        "nm" | "size" | "strings" | "readelf" | "objdump" => {
            if let Some(word) = texts().find(|text| text.starts_with('@')) {
                out.refuse("takes options from a file", word);
            }
        }
        _ => {}
    }
}

/// The values of a long option, with or without `=`.
fn values(arguments: &[Word], option: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = arguments;
    while let [word, more @ ..] = rest {
        match word.text.strip_prefix(option) {
            Some("") => found.extend(more.first().map(|value| value.text.clone())),
            Some(tail) => found.extend(tail.strip_prefix('=').map(str::to_owned)),
            None => {}
        }
        rest = more;
    }
    found
}

/// Hidden files that `rg` reads: all of them when told so, else those that a pattern of its own names.
fn hidden_files(arguments: &[Word]) -> Option<Below> {
    let texts = || arguments.iter().map(|word| word.text.as_str());
    let clusters = || texts().filter(|text| text.starts_with('-') && !text.starts_with("--"));
    let n_unrestricted = clusters().map(|text| text.matches('u').count()).sum::<usize>()
        + texts().filter(|text| *text == "--unrestricted").count();
    if texts().any(|text| text == "--hidden") || clusters().any(|text| text.contains('.')) || n_unrestricted > 1 {
        return Some(Below::default());
    }
    let short = texts().zip(texts().skip(1)).filter(|(option, _)| option.ends_with('g')).map(|(_, value)| value);
    let glued = clusters().filter_map(|text| text.split_once('g')).map(|(_, value)| value);
    let long = ["--glob", "--iglob"].map(|option| values(arguments, option)).into_iter().flatten();
    let globs = short.chain(glued).map(str::to_owned).chain(long);
    let names: Vec<String> = globs
        .filter(|glob| !glob.is_empty() && !glob.starts_with('!'))
        .filter_map(|glob| glob.rsplit('/').next().map(str::to_owned))
        .collect();
    (!names.is_empty()).then(|| Below { names, ..Below::default() })
}

/// True for a script of `jq` that holds `env` or `$ENV`, not as the name of a field.
fn names_environment(script: &str) -> bool {
    script.contains("$ENV")
        || script.split(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '$' | '"')).any(|word| word == "env")
}
