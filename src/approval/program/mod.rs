//! What is known of programs that only read: which of their options do more than that, and which of
//! their words are paths.
//!
//! A program that is not here counts as one that may do anything. An option that could run a program
//! or write a file is named here even where it is rare, and so is every abbreviation of it.

mod awk;
mod carried;
mod condition;
mod find;
mod git;
mod listing;
mod sed;
mod special;
mod table;
mod xargs;

use super::shell::{Command, SHELLS, Word, WordKind, interpreter, is_wrapper, program_name, wrapped_program};

/// What a plain command would do, as far as its words tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Assessment {
    /// True when the program, used like this, changes nothing and runs nothing.
    pub(super) is_read_only: bool,
    /// What it opens below the folders it is given, when it searches them, hidden files too.
    pub(super) below: Option<Below>,
    /// What it shows of what it reads.
    pub(super) sees: Sees,
    /// Words that are (or may be) paths it reads.
    pub(super) paths: Vec<Word>,
    /// True when it only tells its version or where things are.
    pub(super) asks_version: bool,
    /// What stands against running it under a rule that does not spell the same word.
    pub(super) objections: Vec<Objection>,
}

/// Which files a search opens in the folders it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Below {
    /// Patterns of the names; empty: all of them.
    pub(super) names: Vec<String>,
    /// Patterns of names that are left out.
    pub(super) left_out: Vec<String>,
    /// True when links among them are followed.
    pub(super) follows_links: bool,
    /// True when names are handed on cut at blanks and quotes, so that a piece of one can name another file.
    pub(super) splits_names: bool,
}

/// Something a command does beyond what its program suggests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objection {
    /// For the question.
    pub(super) reason: String,
    /// The word that does it: a rule that spells it out lifts the objection.
    pub(super) word: String,
}

impl Objection {
    pub(super) fn new(reason: impl Into<String>, word: impl Into<String>) -> Self {
        Self { reason: reason.into(), word: word.into() }
    }
}

/// Which operands of a program are paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    /// It takes none; with one it does something else.
    Nothing,
    /// They are text.
    Text,
    /// All of them.
    Paths,
    /// All but the first, which is a pattern or a script.
    PatternThenPaths,
    /// One at most; a second one is written to.
    OnePath,
}

/// What of a file a program shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sees {
    /// What is in it.
    #[default]
    Content,
    /// That it is there: name, size, kind.
    Names,
}

impl Sees {
    fn of_content(self) -> bool {
        self == Self::Content
    }
}

/// True when a list of words in one text holds this word.
fn lists(list: &str, word: &str) -> bool {
    !word.is_empty() && list.split_ascii_whitespace().any(|listed| listed == word)
}

/// A program that only reads. The lists are words in one text.
struct Reader {
    names: &'static str,
    operands: Operands,
    sees: Sees,
    /// Options that take the next word, or the rest of theirs, as text that is no path.
    text_options: &'static str,
    /// Options that make the first operand a path, too.
    pattern_options: &'static str,
    /// Options that do more than read.
    refused: &'static str,
}

/// Assesses a command whose words are plain.
pub(super) fn assess(command: &Command) -> Assessment {
    let Some(program) = command.words.first().and_then(Word::as_literal) else { return Assessment::default() };
    let arguments = command.arguments();
    let Some(name) = trusted_name(program) else { return unknown(program, command) };
    if is_version_query(name, arguments) {
        return Assessment { is_read_only: true, asks_version: true, ..Assessment::default() };
    }
    match name {
        "git" => return git::assess(arguments),
        "find" => return find::assess(arguments),
        "sed" => return sed::assess(arguments),
        "awk" | "gawk" | "mawk" | "nawk" => return awk::assess(arguments),
        "[" | "[[" | "test" => return condition::assess(name, command),
        "printf" => return printf(arguments),
        "command" => return command_query(arguments),
        "read" => return read(arguments),
        "ps" => return ps(arguments),
        "tar" | "unzip" | "gzip" | "pip" | "pip3" | "man" if listing::is_one(name, arguments) => {
            return listing::assess(name, arguments);
        }
        "xargs" => return xargs::assess(command),
        _ => {}
    }
    match table::READERS.iter().find(|reader| lists(reader.names, name)) {
        Some(reader) => {
            let mut out = assess_reader(reader, arguments);
            special::words(name, arguments, &mut out);
            out
        }
        None => unknown(program, command),
    }
}

/// The bare name of a program that is found through `PATH` or lies in a system folder.
fn trusted_name(program: &str) -> Option<&str> {
    let bare = ["/usr/bin/", "/bin/", "/usr/local/bin/", "/usr/sbin/", "/sbin/"]
        .iter()
        .find_map(|folder| program.strip_prefix(folder))
        .unwrap_or(program);
    (!bare.contains('/')).then_some(bare)
}

/// A program nothing is known of, or that may do anything.
fn unknown(program: &str, command: &Command) -> Assessment {
    let name = program_name(program);
    let arguments = command.arguments();
    let mut objections = Vec::new();
    if SHELLS.contains(&name.as_str()) {
        // A rule for a shell would be a rule for everything: it must spell the script.
        let script = arguments.iter().find(|word| !word.text.starts_with('-')).map_or("", |word| &word.text);
        objections.push(Objection::new(format!("runs a script in `{name}`"), script));
    } else if interpreter(&name).is_some() {
        let code = carried::code_option(&name, arguments);
        objections.extend(code.map(|flag| Objection::new(format!("runs code given to `{name}`"), &flag.text)));
    } else if is_wrapper(&name) {
        // The same for a program that runs another: the rule must spell that one.
        let inner = wrapped_program(command).unwrap_or_default();
        objections.push(Objection::new(format!("`{name}` runs another program"), inner));
    }
    objections.extend(carried::objections(&name, arguments));
    Assessment { objections, ..Assessment::default() }
}

/// `X --version`, `X --help` and the like, for programs where that is all they do.
fn is_version_query(name: &str, arguments: &[Word]) -> bool {
    let [flag] = arguments else { return false };
    let Some(flag) = flag.as_literal() else { return false };
    let asks = |flags: &str| lists(flags, flag) || flag == "--help";
    table::VERSIONED.iter().any(|(known, flags)| lists(known, name) && asks(flags))
}

/// `printf`, whose format can also set a variable: with `-v`, and with `%n`.
fn printf(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let rest = arguments.strip_prefix(&[Word::literal("--")]).unwrap_or(arguments);
    let is_plain = rest.first().is_none_or(|format| {
        let is_known =
            format.kind == WordKind::Literal && (rest.len() < arguments.len() || !format.text.starts_with('-'));
        is_known && !stores_count(&format.text)
    });
    if !is_plain {
        out.refuse("can set variables of the shell", "printf");
    }
    out
}

/// True for a format with a `%n`, however it is padded.
fn stores_count(format: &str) -> bool {
    let mut pieces = format.split('%').skip(1);
    while let Some(piece) = pieces.next() {
        if piece.is_empty() {
            // `%%` stands for itself.
            pieces.next();
        } else if piece
            .trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #'.*hlLqjzt".contains(c))
            .starts_with('n')
        {
            return true;
        }
    }
    false
}

fn assess_reader(reader: &Reader, arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, sees: reader.sees, ..Assessment::default() };
    let mut operands: Vec<&Word> = Vec::new();
    let mut has_pattern_option = false;
    let mut only_operands = false;
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if only_operands || !text.starts_with('-') || text == "-" {
            if word.kind != WordKind::Literal && !reader.refused.is_empty() && !only_operands && may_be_option(word) {
                out.refuse("uses options that are only known when it runs", text);
            }
            operands.push(word);
            continue;
        }
        if text == "--" {
            only_operands = true;
            continue;
        }
        if word.kind == WordKind::Unknown {
            out.refuse("uses options that are only known when it runs", text);
            continue;
        }
        let options = if text.starts_with("--") { long_option(text) } else { short_options(reader, text) };
        for option in options {
            has_pattern_option |= lists(reader.pattern_options, &option.name);
            if reader.refuses(&option.name) {
                out.refuse(&format!("`{}` does more than read", option.name), text);
            }
            let takes_text = lists(reader.text_options, &option.name);
            match option.value {
                Some(value) if !takes_text => out.paths.extend(path_in_option(&value)),
                None if takes_text => {
                    rest.next();
                }
                _ => {}
            }
        }
    }
    reader.place_operands(&operands, has_pattern_option, &mut out);
    out
}

impl Assessment {
    fn refuse(&mut self, reason: &str, word: &str) {
        self.is_read_only = false;
        self.objections.push(Objection::new(reason, word));
    }
}

impl Reader {
    /// True for an option that does more than read, or an abbreviation of one.
    fn refuses(&self, option: &str) -> bool {
        // `--arg` is no short form of `--args` where both are options.
        !lists(self.text_options, option)
            && self.refused.split_ascii_whitespace().any(|refused| {
                refused == option || (option.starts_with("--") && option.len() > 2 && refused.starts_with(option))
            })
    }

    fn place_operands(&self, operands: &[&Word], has_pattern_option: bool, out: &mut Assessment) {
        let paths = match self.operands {
            Operands::Text => return,
            Operands::Nothing => {
                if let Some(word) = operands.first() {
                    out.refuse("is given something to change", &word.text);
                }
                return;
            }
            Operands::Paths => operands,
            Operands::PatternThenPaths if has_pattern_option => operands,
            Operands::PatternThenPaths => operands.get(1..).unwrap_or_default(),
            Operands::OnePath => {
                if let Some(word) = operands.get(1) {
                    out.refuse("writes its result to a file", &word.text);
                }
                operands
            }
        };
        out.paths.extend(paths.iter().map(|word| (*word).clone()));
    }
}

fn may_be_option(word: &Word) -> bool {
    word.kind == WordKind::Unknown || word.text.starts_with(['*', '?', '['])
}

/// An option as written, with the value in the same word.
struct Given {
    name: String,
    value: Option<String>,
}

fn long_option(text: &str) -> Vec<Given> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
    vec![Given { name: name.to_owned(), value }]
}

/// The options of a word such as `-rn` or `-e5`.
fn short_options(reader: &Reader, text: &str) -> Vec<Given> {
    let mut out = Vec::new();
    let letters = text.trim_start_matches('-');
    for (at, letter) in letters.char_indices() {
        let name = format!("-{letter}");
        let tail = letters.get(at + letter.len_utf8()..).unwrap_or_default();
        if lists(reader.text_options, &name) {
            out.push(Given { name, value: (!tail.is_empty()).then(|| tail.to_owned()) });
            return out;
        }
        let starts_path = tail.starts_with(['/', '~', '.']);
        out.push(Given { name, value: starts_path.then(|| tail.to_owned()) });
        if starts_path {
            return out;
        }
    }
    out
}

/// A path that stands in an option's value, if it looks like one.
fn path_in_option(value: &str) -> Option<Word> {
    let looks = value.contains('/') || value.starts_with(['~', '.']);
    looks.then(|| Word::literal(value))
}

/// `command -v NAME`; without the option it runs the rest.
fn command_query(arguments: &[Word]) -> Assessment {
    match arguments {
        [flag, rest @ ..]
            if matches!(flag.as_literal(), Some("-v" | "-V")) && rest.iter().all(|w| w.as_literal().is_some()) =>
        {
            Assessment { is_read_only: true, ..Assessment::default() }
        }
        _ => Assessment::default(),
    }
}

/// `ps`; its old-style `e` prints environments, wherever it stands.
fn ps(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let mut takes_value = false;
    for word in arguments {
        let text = word.text.as_str();
        let is_old_style = !takes_value && text.chars().all(|c| c.is_ascii_alphabetic());
        if is_old_style && text.contains('e') {
            out.refuse("prints the environment of processes", text);
        }
        let values: &[char] = if text.starts_with('-') {
            &['o', 'O', 'C', 'u', 'U', 'G', 'g', 'p', 's', 't', 'q']
        } else {
            &['o', 'O', 'p', 'U', 't', 'q', 'k']
        };
        takes_value = if text.starts_with("--") { !text.contains('=') } else { text.ends_with(values) && !takes_value };
    }
    if arguments.iter().any(|word| word.text.contains("environ")) {
        out.refuse("prints the environment of processes", "ps");
    }
    out
}

/// The shell's `read` into variables that mean nothing elsewhere.
fn read(arguments: &[Word]) -> Assessment {
    let is_read_only = arguments.iter().all(|word| {
        word.as_literal().is_some_and(|text| matches!(text, "-r" | "-d" | "") || super::shell::is_free_name(text))
    });
    Assessment { is_read_only, ..Assessment::default() }
}
