//! Programs that do work of their own, and the options by which they run another program that the command names, or
//! code that it holds.
//!
//! A rule for such a program means its own work. It covers one of these options only where it spells it.

use super::{Objection, lists};
use crate::approval::shell::{Word, interpreter};

/// Programs, and words of theirs that run something.
///
/// A word is an option, a single letter also among others behind one dash; one that ends in `=` or `+` is how an
/// argument begins; one behind `*` stands anywhere in an argument, one behind `^` begins a statement or line of it, both in
/// any case; any other is a whole argument.
const CARRIERS: [(&str, &str); 27] = [
    (
        "tar bsdtar gtar",
        "--to-command --use-compress-program -I --checkpoint-action --rsh-command --rmt-command --info-script \
            --new-volume-script -F",
    ),
    ("rsync", "-e --rsh --rsync-path"),
    ("zip", "-TT --unzip-command"),
    ("make gmake", "--eval -E SHELL= .SHELLFLAGS= MAKEFLAGS="),
    ("cargo", "--config"),
    ("npm pnpm yarn npx", "--script-shell --node-options --call -c --userconfig --globalconfig"),
    ("go", "-exec -toolexec -vettool *extld"),
    ("scp sftp", "-S -D -F *command"),
    ("wget", "--use-askpass *use_askpass"),
    ("vim vi nvim view ex gvim vimdiff", "-c --cmd + -S -s -u -l --remote-expr"),
    ("emacs emacsclient", "--eval --execute -e -f --funcall -l --load --script"),
    ("less more", "+ -k --lesskey-file --lesskey-src --lesskey-content"),
    ("man", "-P --pager -H --html -C --config-file --preprocessor"),
    ("split csplit", "--filter"),
    ("gcc g++ cc c++ clang clang++ gfortran", "-wrapper -fplugin -specs -fpass-plugin"),
    ("psql", "*\\! *\\copy *\\o"),
    ("mysql mariadb", "*\\! ^system"),
    ("sqlite3 duckdb", "^.sh ^.sy ^.load *load_extension *edit( -init"),
    ("gdb", "-ex -iex -x -ix --command --eval-command --init-command --init-eval-command"),
    ("lldb", "-o -s -S -k -O --one-line --source"),
    ("ip", "exec -b -batch"),
    ("tcpdump", "-z"),
    ("cmake", "-P -E *_compiler= *_launcher="),
    ("ctest", "-S --script -SP --build-and-test --test-command"),
    ("gradle ./gradlew", "-I --init-script"),
    ("gh", "alias extension extensions ext"),
    ("java", "*-agentpath *-agentlib *-javaagent *onerror= *onoutofmemoryerror="),
];

/// Interpreters: letters of the options that take code, and options before the script that take a value.
const CODE: [(&str, &str, &str); 9] = [
    ("python", "c", "-W -X --check-hash-based-pycs"),
    ("perl", "eEmM", "-I"),
    ("ruby", "er", "-I -C -E"),
    ("node", "epr", "-C --conditions --env-file"),
    ("nodejs", "epr", "-C --conditions"),
    ("php", "rRBEF", "-c -d -z"),
    ("lua", "el", "-W"),
    ("bun", "ep", ""),
    ("osascript", "e", "-l"),
];

/// Long options of interpreters that take code.
const LONG_CODE: &str = "--eval --print --import --require --loader --experimental-loader --run";

/// What stands against a program for running something that its words name.
pub(super) fn objections(name: &str, arguments: &[Word]) -> Vec<Objection> {
    let rows = CARRIERS.iter().filter(|(names, _)| lists(names, name));
    let runs = |words: &str, at: usize, argument: &str| {
        // The first letters of `tar` need no dash.
        let is_bare = at == 0 && name.ends_with("tar") && !argument.starts_with('-');
        is_one_of(words, argument) || is_bare && is_one_of(words, &format!("-{argument}"))
    };
    let found = rows
        .flat_map(|(_, words)| arguments.iter().enumerate().filter(|(at, argument)| runs(words, *at, &argument.text)));
    found.map(|(_, word)| Objection::new(format!("`{}` makes `{name}` run something", word.text), &word.text)).collect()
}

/// True when an argument is one of the words of a list, in any of the ways it can be written.
pub(super) fn is_one_of(words: &str, argument: &str) -> bool {
    words.split_ascii_whitespace().any(|word| is(word, argument))
}

fn is(word: &str, argument: &str) -> bool {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    if let Some(part) = word.strip_prefix('*') {
        return argument.to_ascii_lowercase().contains(part);
    }
    if let Some(begin) = word.strip_prefix('^') {
        let statements = argument.split(['\n', ';']);
        return statements.into_iter().any(|text| text.trim_start().to_ascii_lowercase().starts_with(begin));
    }
    if word.ends_with(['=', '+']) {
        return argument.starts_with(word);
    }
    if word.starts_with("--") {
        // Most programs take an option that is cut short.
        return name == word || (name.len() > 3 && name.starts_with("--") && word.starts_with(name));
    }
    match word.strip_prefix('-') {
        Some(letter) if letter.len() == 1 => is_cluster(argument) && argument.contains(letter),
        Some(rest) => name == word || name.strip_prefix("--") == Some(rest),
        None => argument == word,
    }
}

/// True for letters behind one dash.
fn is_cluster(argument: &str) -> bool {
    argument.starts_with('-') && !argument.starts_with("--")
}

/// The option by which an interpreter is given code or a file to load before its script, if there is one.
pub(super) fn code_option<'a>(name: &str, arguments: &'a [Word]) -> Option<&'a Word> {
    let base = interpreter(name)?;
    let row = CODE.iter().find(|(listed, ..)| *listed == base);
    let (letters, with_value) = row.map_or(("", ""), |(_, letters, with_value)| (*letters, *with_value));
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if text == "-m" && base == "python" {
            return None;
        }
        if !text.starts_with('-') {
            // `deno eval` is a subcommand.
            return (base == "deno" && text == "eval").then_some(word);
        }
        if is_one_of(LONG_CODE, text) || is_cluster(text) && text.contains(|c| letters.contains(c)) {
            return Some(word);
        }
        if lists(with_value, text) {
            rest.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Word> {
        text.split(' ').map(Word::literal).collect()
    }

    #[test]
    fn an_option_is_known_however_it_is_written() {
        for (word, argument) in [
            ("--to-command", "--to-command=x"),
            ("--to-command", "--to-com"),
            ("-I", "-xIf"),
            ("-I", "-Ix"),
            ("-exec", "--exec=x"),
            ("SHELL=", "SHELL=x"),
            ("+", "+:x"),
            ("*extld", "-ldflags=-EXTLD=x"),
            ("exec", "exec"),
            ("^.sh", "select 1;\n .SHELL x"),
        ] {
            assert!(is(word, argument), "{word} {argument}");
        }
        for (word, argument) in [
            ("--to-command", "--totals"),
            ("--to-command", "--"),
            ("-I", "--In"),
            ("-exec", "-execute"),
            ("exec", "x"),
            ("^.sh", "select o.shipped"),
        ] {
            assert!(!is(word, argument), "{word} {argument}");
        }
    }

    #[test]
    fn code_is_seen_before_the_script_and_not_behind_it() {
        let code = |name: &str, text: &str| code_option(name, &words(text)).map(|word| word.text.clone());
        assert_eq!(code("python3", "-W ignore -Ic x").as_deref(), Some("-Ic"));
        assert_eq!(code("perl", "-I lib -pe x").as_deref(), Some("-pe"));
        assert_eq!(code("node", "--eval=x").as_deref(), Some("--eval=x"));
        assert_eq!(code("deno", "eval x").as_deref(), Some("eval"));
        assert_eq!(code("python3", "tool.py -c conf"), None);
        assert_eq!(code("python3", "-m pytest -c conf"), None);
    }
}
