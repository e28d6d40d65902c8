//! The permissive reading: every command a full parser can find, however it is hidden.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use tree_sitter::{Node, ParseOptions, Parser, Tree};

use super::decode::{self, Variables};
use super::strict::Reading;
use super::unwrap::{self, Inner};
use super::word::{Command, Plainness, Redirect, RedirectKind, Word};
use super::{Analysis, MAX_COMMAND_BYTES, MAX_COMMANDS, MAX_DEPTH, MAX_WORDS};

/// Longest time one parse may take. Reached only by text that was made to be slow.
const MAX_PARSE: Duration = Duration::from_millis(250);

/// What the tree of a text says.
#[derive(Debug, Default)]
pub(super) struct Outline {
    is_sound: bool,
    /// Words of each command as written, `None` where a word depends on an expansion.
    written: Vec<Vec<Option<String>>>,
    analysis: Analysis,
}

impl Outline {
    /// True when the strict reading saw the same commands with the same words.
    pub(super) fn agrees_with(&self, reading: &Reading) -> bool {
        let sorted = |words: &[Vec<Option<String>>]| {
            let mut words = words.to_vec();
            words.sort();
            words
        };
        self.is_sound && !self.analysis.is_cut && sorted(&self.written) == sorted(&reading.outline)
    }

    pub(super) fn into_analysis(self, plain: Plainness) -> Analysis {
        Analysis { plain, ..self.analysis }
    }
}

/// Reads a text of at most [`MAX_COMMAND_BYTES`].
pub(super) fn outline(text: &str) -> Outline {
    let mut search = Search { budget: 4 * MAX_COMMAND_BYTES, ..Search::default() };
    // The parser takes a line continuation for a blank; the shell takes it out.
    let mut outline = if text.contains("\\\n") {
        search.read(text, 0);
        search.read(&text.replace("\\\n", ""), 0)
    } else {
        search.read(text, 0)
    };
    outline.analysis = search.analysis;
    outline
}

/// A text over a limit: opaque, and every word in it may be a program.
pub(super) fn too_long(text: &str) -> Analysis {
    let mut seen = HashSet::new();
    let bare: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let found = bare
        .split(|c: char| c.is_whitespace() || ";|&(){}`$<>".contains(c))
        .filter(|word| !word.is_empty() && word.len() <= 256 && seen.insert(*word))
        .take(MAX_COMMANDS * 8)
        .map(|word| Command { words: vec![Word::literal(word)], ..Command::default() })
        .collect();
    Analysis { plain: Plainness::Opaque("it is too long"), found, is_cut: true, ..Analysis::default() }
}

#[derive(Default)]
struct Search {
    analysis: Analysis,
    /// Bytes that may still be parsed, nested texts included.
    budget: usize,
    n_words: usize,
}

/// A command with where it stands in its text.
struct Placed {
    at: usize,
    command: Command,
}

impl Search {
    fn read(&mut self, text: &str, depth: usize) -> Outline {
        if depth > MAX_DEPTH || text.len() > self.budget {
            self.analysis.is_cut = true;
            return Outline::default();
        }
        self.budget -= text.len();
        let Some(tree) = parse(text) else {
            self.analysis.is_cut = true;
            self.split_roughly(text, depth);
            return Outline::default();
        };
        let is_sound = !tree.root_node().has_error();
        let mut walk = Walk { text, ..Walk::default() };
        walk.variables(&tree);
        walk.commands(&tree);
        self.analysis.is_fork_bomb |= walk.is_fork_bomb;
        let written = std::mem::take(&mut walk.written);
        if walk.found.len() > MAX_COMMANDS * 4 || walk.pipes.len() > MAX_COMMANDS {
            self.analysis.is_cut = true;
            walk.found.truncate(MAX_COMMANDS * 4);
            walk.pipes.truncate(MAX_COMMANDS);
        }
        self.pipes(&walk);
        for placed in walk.found {
            self.take(placed.command, depth);
        }
        if !is_sound {
            self.split_roughly(text, depth);
        }
        Outline { is_sound, written, analysis: Analysis::default() }
    }

    /// Records a command and what it runs in turn.
    fn take(&mut self, command: Command, depth: usize) {
        self.n_words += command.words.len();
        if self.analysis.found.len() >= MAX_COMMANDS * 4 || depth > MAX_DEPTH || self.n_words > MAX_WORDS {
            self.analysis.is_cut = true;
            return;
        }
        for inner in unwrap::inner(&command) {
            match inner {
                Inner::Command(command) => self.take(command, depth + 1),
                Inner::Text(text) => {
                    self.read(&text, depth + 1);
                }
            }
        }
        self.analysis.found.push(command);
    }

    /// Text flowing into an interpreter.
    fn pipes(&mut self, walk: &Walk<'_>) {
        for (left, right) in &walk.pipes {
            let within = |range: &Range<usize>| walk.found.iter().filter(|placed| range.contains(&placed.at)).collect();
            let (sources, sinks): (Vec<&Placed>, Vec<&Placed>) = (within(left), within(right));
            let reads_code = sinks.iter().any(|sink| unwrap::reads_code_from_input(&sink.command));
            if !reads_code {
                continue;
            }
            self.analysis.dangers.push("pipes text into an interpreter");
            let texts: Vec<String> =
                sources.iter().filter_map(|source| unwrap::printed_text(&source.command)).collect();
            for text in texts {
                self.read(&text, MAX_DEPTH / 2);
            }
        }
    }

    /// Cuts a text that does not parse at everything that could separate commands.
    fn split_roughly(&mut self, text: &str, depth: usize) {
        let variables = Variables::new();
        let outer = text.split([';', '|', '&', '\n', '(', ')', '`']).take(MAX_COMMANDS);
        let inner = text.split([';', '|', '&', '\n', '(', ')', '`', '{', '}']).take(MAX_COMMANDS);
        for piece in outer.chain(inner) {
            let words: Vec<Word> =
                piece.split_whitespace().take(64).flat_map(|word| decode::decode(word, &variables)).collect();
            let start = words.iter().position(|word| !word.text.is_empty() && !is_assignment(&word.text));
            if let Some(words) = start.and_then(|start| words.get(start..)) {
                self.take(Command { words: words.to_vec(), ..Command::default() }, depth + MAX_DEPTH / 2);
            }
        }
    }
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '[' | ']'))
    })
}

fn parse(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let start = Instant::now();
    let mut stop = |_: &tree_sitter::ParseState| {
        if start.elapsed() > MAX_PARSE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let bytes = text.as_bytes();
    let options = ParseOptions::new().progress_callback(&mut stop);
    parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options))
}

#[derive(Default)]
struct Walk<'a> {
    text: &'a str,
    variables: Variables,
    found: Vec<Placed>,
    written: Vec<Vec<Option<String>>>,
    /// Redirections that belong to a command met later, by its node.
    pending: HashMap<usize, Vec<Redirect>>,
    /// Words that the parser hung on a redirection, by the command's node.
    stray: HashMap<usize, Vec<String>>,
    pipes: Vec<(Range<usize>, Range<usize>)>,
    is_fork_bomb: bool,
}

impl<'a> Walk<'a> {
    /// The raw text of a node.
    fn raw(&self, node: Node<'_>) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    fn decode(&self, node: Node<'_>) -> Vec<Word> {
        decode::decode(self.raw(node), &self.variables)
    }

    fn decode_one(&self, node: Node<'_>) -> Word {
        let words = self.decode(node);
        match words.as_slice() {
            [word] => word.clone(),
            _ => Word::unknown(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")),
        }
    }

    /// Collects what variables are set to, in text order; the last value wins.
    fn variables(&mut self, tree: &Tree) {
        each_node(tree, |node| {
            if node.kind() == "variable_assignment"
                && let (Some(name), Some(value)) = (node.child_by_field_name("name"), node.child_by_field_name("value"))
            {
                let value = self.decode_one(value);
                self.variables.insert(self.raw(name).to_owned(), value.text);
            }
        });
    }

    fn commands(&mut self, tree: &Tree) {
        each_node(tree, |node| match node.kind() {
            "command" => self.command(node),
            "declaration_command" | "unset_command" => self.declaration(node),
            "test_command" => self.test(node),
            "redirected_statement" => self.redirected(node),
            "pipeline" => self.pipeline(node),
            "function_definition" => self.function(node),
            _ => {}
        });
    }

    fn command(&mut self, node: Node<'_>) {
        let mut command = Command::default();
        let mut written = Vec::new();
        let mut cursor = node.walk();
        let mut is_named = false;
        for child in node.named_children(&mut cursor) {
            match child.kind() {
                "variable_assignment" if !is_named => {
                    let parts = (child.child_by_field_name("name"), child.child_by_field_name("value"));
                    if let (Some(name), value) = parts {
                        let value = value.map_or_else(|| Word::literal(""), |value| self.decode_one(value));
                        command.assignments.push((self.raw(name).to_owned(), value));
                    }
                }
                "file_redirect" => {
                    let (redirects, extra) = self.redirect(child);
                    command.redirects.extend(redirects);
                    for raw in extra {
                        command.words.extend(decode::decode(&raw, &self.variables));
                        written.push(decode::outline_text(&raw));
                    }
                }
                "herestring_redirect" => command.redirects.extend(self.here_string(child)),
                "comment" => {}
                "process_substitution" => {
                    command.words.push(Word::unknown("/dev/fd/63"));
                    written.push(None);
                }
                _ => {
                    is_named = true;
                    command.words.extend(self.decode(child));
                    written.push(decode::outline_text(self.raw(child)));
                }
            }
        }
        for raw in self.stray.remove(&node.id()).unwrap_or_default() {
            command.words.extend(decode::decode(&raw, &self.variables));
            written.push(decode::outline_text(&raw));
        }
        command.redirects.extend(self.pending.remove(&node.id()).unwrap_or_default());
        self.written.push(written);
        self.found.push(Placed { at: node.start_byte(), command });
    }

    fn declaration(&mut self, node: Node<'_>) {
        let words: Vec<Word> = self.raw(node).split_whitespace().take(64).map(Word::literal).collect();
        let written = words.iter().map(|word| Some(word.text.clone())).collect();
        self.written.push(written);
        self.found.push(Placed { at: node.start_byte(), command: Command { words, ..Command::default() } });
    }

    fn test(&mut self, node: Node<'_>) {
        let words: Vec<Word> = self.raw(node).split_whitespace().take(64).map(Word::unknown).collect();
        self.found.push(Placed { at: node.start_byte(), command: Command { words, ..Command::default() } });
    }

    /// Gives the redirections of a statement to the command they end at.
    fn redirected(&mut self, node: Node<'_>) {
        let mut redirects = Vec::new();
        let mut stray = Vec::new();
        let mut cursor = node.walk();
        for child in node.children_by_field_name("redirect", &mut cursor) {
            match child.kind() {
                "file_redirect" => {
                    let (more, extra) = self.redirect(child);
                    redirects.extend(more);
                    stray.extend(extra);
                }
                "heredoc_redirect" => self.here_document(child, &mut redirects, &mut stray),
                "herestring_redirect" => redirects.extend(self.here_string(child)),
                _ => {}
            }
        }
        let Some(target) = node.child_by_field_name("body").and_then(last_command) else {
            let command = Command { redirects, ..Command::default() };
            self.found.push(Placed { at: node.start_byte(), command });
            return;
        };
        self.pending.entry(target.id()).or_default().extend(redirects);
        self.stray.entry(target.id()).or_default().extend(stray);
    }

    /// The redirection, and the words the parser took for more of its targets.
    fn redirect(&self, node: Node<'_>) -> (Vec<Redirect>, Vec<String>) {
        let mut cursor = node.walk();
        let targets: Vec<Node<'_>> = node.children_by_field_name("destination", &mut cursor).collect();
        let mut cursor = node.walk();
        let sign =
            node.children(&mut cursor).find(|child| !child.is_named()).map(|child| child.kind()).unwrap_or_default();
        let extra = targets.iter().skip(1).map(|target| self.raw(*target).to_owned()).collect();
        let Some(target) = targets.first().map(|target| self.decode_one(*target)) else { return (Vec::new(), extra) };
        let is_number = target.text.chars().all(|c| c.is_ascii_digit() || c == '-') && !target.text.is_empty();
        let kind = match sign {
            ">&" | "<&" if is_number => RedirectKind::Plain,
            "<&-" | ">&-" => RedirectKind::Plain,
            "<" | "<&" => RedirectKind::Read,
            _ => RedirectKind::Write,
        };
        (vec![Redirect { kind, target }], extra)
    }

    fn here_string(&self, node: Node<'_>) -> Vec<Redirect> {
        let text = node.named_child(0).map(|word| self.decode_one(word).text).unwrap_or_default();
        vec![Redirect { kind: RedirectKind::Plain, target: Word::unknown(text) }]
    }

    fn here_document(&mut self, node: Node<'_>, redirects: &mut Vec<Redirect>, stray: &mut Vec<String>) {
        let mut cursor = node.walk();
        let mut body = String::new();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "heredoc_body" => self.raw(child).clone_into(&mut body),
                "file_redirect" => {
                    let (more, extra) = self.redirect(child);
                    redirects.extend(more);
                    stray.extend(extra);
                }
                "herestring_redirect" => redirects.extend(self.here_string(child)),
                "pipeline" => {
                    let start = node.start_byte();
                    self.pipes.push((0..start, child.byte_range()));
                }
                "heredoc_start" | "heredoc_end" => {}
                _ if child.is_named() && !is_statement(child.kind()) => stray.push(self.raw(child).to_owned()),
                _ => {}
            }
        }
        redirects.push(Redirect { kind: RedirectKind::Plain, target: Word::unknown(body) });
    }

    fn pipeline(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let members: Vec<Range<usize>> = node.named_children(&mut cursor).map(|child| child.byte_range()).collect();
        for pair in members.windows(2) {
            if let [left, right] = pair {
                self.pipes.push((left.clone(), right.clone()));
            }
        }
    }

    fn function(&mut self, node: Node<'_>) {
        let (Some(name), Some(body)) = (node.child_by_field_name("name"), node.child_by_field_name("body")) else {
            return;
        };
        let compact: String = self.raw(body).chars().filter(|c| !c.is_whitespace()).collect();
        let name = self.raw(name);
        self.is_fork_bomb |=
            compact.contains(&format!("{name}|{name}&")) || compact.contains(&format!("{name}&{name}"));
    }
}

fn is_statement(kind: &str) -> bool {
    matches!(
        kind,
        "command"
            | "redirected_statement"
            | "list"
            | "pipeline"
            | "subshell"
            | "compound_statement"
            | "negated_command"
    )
}

/// The command that ends last within a statement.
fn last_command(node: Node<'_>) -> Option<Node<'_>> {
    let mut node = node;
    for _ in 0..MAX_DEPTH {
        if node.kind() == "command" {
            return Some(node);
        }
        let last = u32::try_from(node.named_child_count()).ok()?.checked_sub(1)?;
        node = node.named_child(last)?;
    }
    None
}

/// Visits every node, parents first, without recursion.
fn each_node<'t>(tree: &'t Tree, mut visit: impl FnMut(Node<'t>)) {
    let mut cursor = tree.walk();
    loop {
        visit(cursor.node());
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}
