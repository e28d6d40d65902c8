//! Rules: what they match, and how far an allow rule reaches.
//!
//! Deny and ask rules match generously (any spelling of a program, any case, the path as written and
//! as it really is). Allow rules match narrowly (the program as named, the real path only).

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::config::{RuleConfig, RuleEffect};

use super::place::{Places, Spot, View};

/// Folders in which a program's absolute path means the same as its bare name.
const SYSTEM_BINARIES: [&str; 7] =
    ["/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/", "/opt/homebrew/bin/"];

/// A compiled rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) effect: RuleEffect,
    tool: Pattern,
    command: Option<CommandPattern>,
    path: Option<PathPattern>,
    host: Option<String>,
    /// For foreign tools: what it is an approval of.
    pub(super) definition: Option<String>,
    /// How the rule is named in a reason.
    pub(super) text: String,
}

impl Rule {
    /// Compiles a rule. A pattern that is no valid glob stands for exactly its text.
    pub(super) fn new(config: &RuleConfig, places: &Places) -> Self {
        let text = [Some(&config.tool), config.command.as_ref(), config.path.as_ref(), config.host.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ");
        Self {
            effect: config.effect,
            tool: Pattern::new(&config.tool),
            command: config.command.as_deref().map(CommandPattern::new),
            path: config.path.as_deref().map(|pattern| PathPattern::new(pattern, places)),
            host: config.host.as_ref().map(|host| host.to_ascii_lowercase()),
            definition: config.definition.clone(),
            text,
        }
    }

    pub(super) fn concerns_tool(&self, tool: &str) -> bool {
        self.tool.matches(tool)
    }

    /// True for a rule that names a tool and nothing else.
    pub(super) fn is_whole_tool(&self) -> bool {
        self.command.is_none() && self.path.is_none() && self.host.is_none()
    }

    pub(super) fn command(&self) -> Option<&CommandPattern> {
        self.command.as_ref()
    }

    /// True when a deny or ask rule matches a file, by either of its paths.
    pub(super) fn hits_path(&self, spot: &Spot) -> bool {
        self.path.as_ref().is_some_and(|path| path.hits(spot))
    }

    /// How an allow rule covers a file, by its real path alone.
    pub(super) fn covers_path(&self, spot: &Spot) -> Option<Reach> {
        if self.is_whole_tool() {
            return Some(Reach::Broad);
        }
        self.path.as_ref()?.covers(&spot.real)
    }

    pub(super) fn matches_host(&self, host: &str) -> bool {
        self.is_whole_tool() || self.host.as_ref().is_some_and(|pattern| host_matches(pattern, host))
    }
}

/// How closely an allow rule names what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Through a wildcard.
    Broad,
    /// By its full path.
    Exact,
}

fn host_matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => pattern == host,
    }
}

/// A path glob: relative to the workspace, absolute, or from `~/`. Without a slash it means the name
/// in any folder.
#[derive(Clone, Debug)]
struct PathPattern {
    generous: Vec<GlobMatcher>,
    narrow: Vec<GlobMatcher>,
    exact: Option<PathBuf>,
}

impl PathPattern {
    fn new(pattern: &str, places: &Places) -> Self {
        let anchored = anchor(pattern, places.cwd(), places.user_home());
        let has_wildcard = pattern.contains(['*', '?', '[', '{']);
        let narrow = if pattern.contains('/') || !has_wildcard {
            vec![anchored]
        } else {
            vec![format!("{}/**/{pattern}", globset::escape(&places.cwd().to_string_lossy()))]
        };
        let exact = (!has_wildcard).then(|| View::new(places).spot(places.cwd(), Path::new(pattern)).real);
        Self {
            generous: path_glob(pattern, places.cwd(), places.user_home()),
            narrow: narrow.iter().filter_map(|text| glob(text, Case::Exact)).collect(),
            exact,
        }
    }

    fn hits(&self, spot: &Spot) -> bool {
        let by_glob = self.generous.iter().any(|glob| glob.is_match(&spot.spelled) || glob.is_match(&spot.real));
        by_glob || self.exact.as_ref().is_some_and(|exact| spot.real.starts_with(exact))
    }

    fn covers(&self, real: &Path) -> Option<Reach> {
        if self.exact.as_deref() == Some(real) {
            return Some(Reach::Exact);
        }
        self.narrow.iter().any(|glob| glob.is_match(real)).then_some(Reach::Broad)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Case {
    Exact,
    Folded,
}

/// The globs of a deny pattern: the place, all below it, and the bare name in any folder.
pub(super) fn path_glob(pattern: &str, cwd: &Path, home: Option<&Path>) -> Vec<GlobMatcher> {
    let mut patterns = vec![anchor(pattern, cwd, home)];
    if !pattern.trim_end_matches('/').contains('/') {
        patterns.push(format!("/**/{pattern}"));
    }
    patterns
        .iter()
        .map(|text| text.trim_end_matches('/').to_owned())
        .flat_map(|text| [format!("{text}/**"), text])
        .filter_map(|text| glob(&text, Case::Folded))
        .collect()
}

fn anchor(pattern: &str, cwd: &Path, home: Option<&Path>) -> String {
    if pattern.starts_with('/') {
        return pattern.to_owned();
    }
    if let (Some(rest), Some(home)) = (pattern.strip_prefix("~/"), home) {
        return format!("{}/{rest}", globset::escape(&home.to_string_lossy()));
    }
    let relative = pattern.strip_prefix("./").unwrap_or(pattern);
    format!("{}/{relative}", globset::escape(&cwd.to_string_lossy()))
}

fn glob(text: &str, case: Case) -> Option<GlobMatcher> {
    let build =
        |text: &str| GlobBuilder::new(text).literal_separator(true).case_insensitive(case == Case::Folded).build().ok();
    build(text).or_else(|| build(&globset::escape(text))).map(|glob| glob.compile_matcher())
}

/// A pattern over one word: `*` any characters, `?` one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Char(char),
    One,
    Any,
}

/// How two texts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    /// Character by character; wildcards match anything.
    Text,
    /// As a program's path: wildcards never match `/`.
    Program,
    /// As a program's path in any case.
    ProgramFolded,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self(text.chars().map(piece).collect())
    }

    fn literal(text: &str) -> Self {
        Self(text.chars().map(Piece::Char).collect())
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.compare(text, Compare::Text)
    }

    fn is_any(&self) -> bool {
        self.0 == [Piece::Any]
    }

    fn as_literal(&self) -> Option<String> {
        self.0.iter().map(|piece| if let Piece::Char(c) = piece { Some(*c) } else { None }).collect()
    }

    /// Wildcard match in at most pattern × text steps, without recursion.
    fn compare(&self, text: &str, how: Compare) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut from) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        let crosses = |c: char| how == Compare::Text || c != '/';
        while let Some(&c) = text.get(from) {
            let step = match self.0.get(at) {
                Some(Piece::Char(p)) => *p == c || (how == Compare::ProgramFolded && p.eq_ignore_ascii_case(&c)),
                Some(Piece::One) => crosses(c),
                Some(Piece::Any) => {
                    retry = Some((at, from));
                    at += 1;
                    continue;
                }
                None => false,
            };
            if step {
                at += 1;
                from += 1;
                continue;
            }
            match retry {
                Some((star, start)) if text.get(start).is_some_and(|&c| crosses(c)) => {
                    retry = Some((star, start + 1));
                    at = star + 1;
                    from = start + 1;
                }
                _ => return false,
            }
        }
        self.0.get(at..).unwrap_or_default().iter().all(|piece| *piece == Piece::Any)
    }
}

fn piece(c: char) -> Piece {
    match c {
        '*' => Piece::Any,
        '?' => Piece::One,
        c => Piece::Char(c),
    }
}

/// A pattern over the words of one plain command. A lone `*` stands for any number of words.
#[derive(Clone, Debug)]
pub(super) struct CommandPattern {
    words: Vec<Pattern>,
}

impl CommandPattern {
    fn new(text: &str) -> Self {
        Self { words: split(text) }
    }

    /// True when this exact program and these words are covered.
    pub(super) fn covers(&self, words: &[&str]) -> bool {
        self.matches(words, |pattern, program| {
            let bare = SYSTEM_BINARIES
                .iter()
                .find_map(|folder| program.strip_prefix(folder))
                .filter(|name| !name.contains('/'));
            pattern.compare(program, Compare::Program)
                || bare.is_some_and(|name| pattern.compare(name, Compare::Program))
        })
    }

    /// True when any spelling of the program and these words are meant, whatever options stand before its subcommand.
    pub(super) fn hits(&self, words: &[&str]) -> bool {
        self.hits_words(words) || without_options(words).any(|shorter| self.hits_words(&shorter))
    }

    fn hits_words(&self, words: &[&str]) -> bool {
        self.matches(words, |pattern, program| {
            let name = program.rsplit('/').next().unwrap_or(program);
            let own_name = pattern.as_literal().and_then(|text| text.rsplit('/').next().map(Pattern::literal));
            pattern.compare(program, Compare::ProgramFolded)
                || pattern.compare(name, Compare::ProgramFolded)
                || own_name.is_some_and(|own| own.compare(name, Compare::ProgramFolded))
        })
    }

    /// True when the pattern itself contains this word, not through a wildcard.
    pub(super) fn spells(&self, word: &str) -> bool {
        self.words.iter().any(|pattern| pattern.as_literal().as_deref() == Some(word))
    }

    /// The program the pattern names, when it is named without wildcards.
    pub(super) fn program(&self) -> Option<String> {
        self.words.first()?.as_literal()
    }

    fn matches(&self, words: &[&str], program: impl Fn(&Pattern, &str) -> bool) -> bool {
        let Some((first, rest)) = words.split_first() else { return false };
        let Some((pattern, patterns)) = self.words.split_first() else { return false };
        if !pattern.is_any() && !program(pattern, first) {
            return false;
        }
        if pattern.is_any() && patterns.is_empty() {
            return true;
        }
        match_words(patterns, rest)
    }
}

/// Words before a subcommand that are tried as options and their values.
const MAX_LEADING_OPTIONS: usize = 32;

/// A command with ever more of its first options left out, as in `git -C folder --no-pager push`. Whether an option
/// takes the next word is not known, so both are tried.
fn without_options<'a>(words: &'a [&'a str]) -> impl Iterator<Item = Vec<&'a str>> {
    let is_option = |at: usize| words.get(at).is_some_and(|word| word.starts_with(['-', '+']));
    let starts = (2..words.len()).take_while(move |at| is_option(at - 1) || (*at > 2 && is_option(at - 2)));
    starts.take(MAX_LEADING_OPTIONS).map(|at| words.iter().take(1).chain(words.iter().skip(at)).copied().collect())
}

/// Like [`Pattern::compare`], one level up: words for characters.
fn match_words(patterns: &[Pattern], words: &[&str]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(word) = words.get(from) {
        match patterns.get(at) {
            Some(pattern) if pattern.is_any() => {
                retry = Some((at, from));
                at += 1;
                continue;
            }
            Some(pattern) if pattern.matches(word) => {
                at += 1;
                from += 1;
                continue;
            }
            _ => {}
        }
        let Some((star, start)) = retry else { return false };
        retry = Some((star, start + 1));
        at = star + 1;
        from = start + 1;
    }
    patterns.get(at..).unwrap_or_default().iter().all(Pattern::is_any)
}

/// Splits a rule's command into word patterns. Quotes make a part literal.
fn split(text: &str) -> Vec<Pattern> {
    let mut words = Vec::new();
    let mut word: Option<Vec<Piece>> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => {
                word.get_or_insert_default().extend(chars.next().map(Piece::Char));
            }
            (Some(_), c) => word.get_or_insert_default().push(Piece::Char(c)),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take().map(Pattern)),
            (None, c) => word.get_or_insert_default().push(piece(c)),
        }
    }
    words.extend(word.map(Pattern));
    words
}

/// A word as it must be written in a rule to stand for itself.
pub(super) fn quote(word: &str) -> String {
    let plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "*?'\"\\".contains(c));
    if plain {
        return word.to_owned();
    }
    let mut out = String::from("\"");
    for c in word.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    #[test]
    fn a_star_stands_for_any_words_of_one_command() {
        let check = |pattern: &str, command: &str, covered: bool| {
            assert_eq!(CommandPattern::new(pattern).covers(&words(command)), covered, "{pattern} / {command}");
        };
        check("cargo test *", "cargo test", true);
        check("cargo test *", "cargo test --lib a b", true);
        check("cargo test *", "cargo testing", false);
        check("cargo test", "cargo test --lib", false);
        check("git * --stat", "git diff HEAD --stat", true);
        check("git * --stat", "git diff HEAD", false);
        check("npm run test:*", "npm run test:unit", true);
        check("npm run test:*", "npm run build", false);
        check("*", "anything at all", true);
        check("echo '*'", "echo *", true);
        check("echo '*'", "echo x", false);
        check("echo \"a b\"", "echo a", false);
        check("", "ls", false);
    }

    #[test]
    fn a_denied_subcommand_is_known_behind_any_options() {
        let check = |pattern: &str, command: &str, is_meant: bool| {
            assert_eq!(CommandPattern::new(pattern).hits(&words(command)), is_meant, "{pattern} / {command}");
        };
        check("git push *", "git push origin", true);
        check("git push *", "git -C . push origin", true);
        check("git push *", "git --no-pager -c a=b -C x push", true);
        check("git push *", "git --git-dir=x push", true);
        check("npm publish", "npm --silent publish", true);
        check("cargo publish *", "cargo +nightly publish", true);
        check("git push *", "git -C . log push", false);
        check("git push *", "git log --grep push", false);
        check("git push *", "git", false);
        check("git push *", &format!("git {}push", "-v ".repeat(MAX_LEADING_OPTIONS)), true);
    }

    #[test]
    fn wildcards_of_a_program_never_match_a_slash_or_another_case() {
        let check = |pattern: &str, command: &str, covered: bool| {
            assert_eq!(CommandPattern::new(pattern).covers(&words(command)), covered, "{pattern} / {command}");
        };
        check("./tools/?uild", "./tools/build", true);
        check("./tools/?uild", "./tools//uild", false);
        check("./tools/?uild", "./TOOLS/build", false);
        check("./tools/*", "./tools/a/b", false);
        check("ls *", "/bin/ls -l", true);
        check("ls *", "./ls -l", false);
        check("ls *", "/tmp/ls -l", false);
        check("ls *", "/usr/bin/../../tmp/ls", false);
        check("ls *", "LS", false);
    }

    #[test]
    fn a_deny_rule_hits_every_spelling_of_its_program() {
        let check = |pattern: &str, command: &str, hit: bool| {
            assert_eq!(CommandPattern::new(pattern).hits(&words(command)), hit, "{pattern} / {command}");
        };
        check("sudo *", "/usr/bin/sudo id", true);
        check("sudo *", "./../usr/bin/sudo id", true);
        check("sudo *", "SUDO id", true);
        check("sudo *", "sudoku", false);
        check("/usr/bin/sudo *", "sudo id", true);
        check("rm", "rm x", false);
    }

    #[test]
    fn quoted_words_survive_the_way_through_a_rule() {
        for word in ["a b", "", "*", "it's", "\"q\"", "back\\slash", "plain"] {
            let rule = CommandPattern::new(&format!("prog {}", quote(word)));
            assert!(rule.covers(&["prog", word]), "{word}");
            assert!(!rule.covers(&["prog", "other"]), "{word}");
        }
    }

    #[test]
    fn hosts_match_whole_labels() {
        assert!(host_matches("docs.test", "docs.test"));
        assert!(!host_matches("docs.test", "docs.test.evil.test"));
        assert!(host_matches("*.docs.test", "a.docs.test"));
        assert!(!host_matches("*.docs.test", "evildocs.test"));
        assert!(!host_matches("*.docs.test", ".docs.test"));
    }

    #[test]
    fn hostile_patterns_match_in_bounded_time() {
        let pattern = Pattern::new(&"*a".repeat(200));
        assert!(!pattern.matches(&"a".repeat(5_000).replace("aaaaaaaa", "aaaaaaab")[..4_000].replace('a', "c")));
    }
}
