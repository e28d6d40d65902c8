//! Search and replace in a text, and what to say when the search fails. Pure.

use crate::likeness::likeness;

/// Which matches are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The only one; several are an error.
    One,
    /// All of them.
    All,
}

impl From<bool> for Scope {
    fn from(replace_all: bool) -> Self {
        if replace_all { Self::All } else { Self::One }
    }
}

/// A text with its matches replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The new text.
    pub text: String,
    /// Matches replaced.
    pub count: usize,
    /// The line of the first, from 1.
    pub first_line: u32,
    /// Whether the match held only without the white space at line ends.
    pub ignored_trailing_space: bool,
}

/// Why nothing was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// No match.
    Absent {
        /// What comes nearest, in words for the model.
        nearest: Option<String>,
    },
    /// More than one match.
    Several {
        /// How many.
        count: usize,
        /// The lines of the first ones, from 1.
        lines: Vec<u32>,
    },
}

impl Mismatch {
    /// True when the lines of all matches are named.
    #[must_use]
    pub fn names_all(&self) -> bool {
        !matches!(self, Self::Several { count, lines } if *count > lines.len())
    }
}

/// Lines of matches that are named in an error.
const MAX_NAMED_LINES: usize = 10;

/// Replaces `old` by `new`. When there is no exact match, whole lines that differ only in white space at
/// their ends count as one.
///
/// # Errors
/// No match, or several where one is asked for.
pub fn replace(text: &str, old: &str, new: &str, scope: Scope) -> Result<Replaced, Mismatch> {
    let exact: Vec<(usize, usize)> = text.match_indices(old).map(|(at, found)| (at, at + found.len())).collect();
    let ignored_trailing_space = exact.is_empty();
    let matches = if exact.is_empty() { loose_matches(text, old) } else { exact };
    let Some(&(first, _)) = matches.first() else {
        return Err(Mismatch::Absent { nearest: nearest(text, old) });
    };
    if matches.len() > 1 && scope == Scope::One {
        let lines = matches.iter().take(MAX_NAMED_LINES).map(|(at, _)| line_at(text, *at)).collect();
        return Err(Mismatch::Several { count: matches.len(), lines });
    }
    let (new, takes_line_end) = match new.strip_suffix('\n') {
        Some(stripped) if ignored_trailing_space && old.ends_with('\n') => (stripped, false),
        Some(_) => (new, false),
        None => (new, ignored_trailing_space && old.ends_with('\n')),
    };
    let mut replaced = String::with_capacity(text.len() + new.len());
    let mut done = 0;
    for &(start, end) in &matches {
        replaced.push_str(text.get(done..start).unwrap_or_default());
        replaced.push_str(new);
        let rest = text.get(end..).unwrap_or_default();
        let line_end = if takes_line_end { memchr::memchr(b'\n', rest.as_bytes()) } else { None };
        done = end + line_end.map_or(0, |at| at + 1);
    }
    replaced.push_str(text.get(done..).unwrap_or_default());
    Ok(Replaced { text: replaced, count: matches.len(), first_line: line_at(text, first), ignored_trailing_space })
}

fn line_at(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    u32::try_from(memchr::memchr_iter(b'\n', before).count()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Byte ranges of the runs of whole lines that equal those of `old` but for white space at line ends.
/// A range ends before the last line's end.
fn loose_matches(text: &str, old: &str) -> Vec<(usize, usize)> {
    let wanted: Vec<&str> = old.strip_suffix('\n').unwrap_or(old).split('\n').map(str::trim_end).collect();
    if wanted.iter().all(|line| line.is_empty()) {
        return Vec::new();
    }
    let mut at = 0;
    let lines: Vec<(usize, &str)> = text
        .split('\n')
        .map(|line| {
            let start = at;
            at += line.len() + 1;
            (start, line)
        })
        .collect();
    let mut matches = Vec::new();
    let mut free_from = 0;
    for window in lines.windows(wanted.len()) {
        let is_match = window.iter().zip(&wanted).all(|((_, line), wanted)| line.trim_end() == *wanted);
        let (Some(&(start, _)), Some(&(last, line))) = (window.first(), window.last()) else { continue };
        if is_match && start >= free_from {
            let end = last + line.strip_suffix('\r').unwrap_or(line).len();
            matches.push((start, end));
            free_from = end + 1;
        }
    }
    matches
}

/// Lines of a text that are looked through for a near miss; more would take too long.
const MAX_LINES_COMPARED: usize = 50_000;

/// Lines of a near miss that are shown.
const MAX_LINES_SHOWN: usize = 12;

/// Words about the place that comes nearest to `old`.
fn nearest(text: &str, old: &str) -> Option<String> {
    let wanted: Vec<&str> = old.trim_matches('\n').lines().collect();
    if let Some(bare) = without_line_numbers(&wanted)
        && text.contains(&bare)
    {
        return Some("It holds the line numbers of read_file; leave those out".into());
    }
    let lines: Vec<&str> = text.lines().take(MAX_LINES_COMPARED).collect();
    let (start, score) = best_window(&lines, &wanted)?;
    if score == 0.0 {
        return None;
    }
    let end = (start + wanted.len().min(MAX_LINES_SHOWN)).min(lines.len());
    let window = lines.get(start..end)?;
    let same_words = window.len() == wanted.len()
        && window.iter().zip(&wanted).all(|(line, wanted)| squeeze(line) == squeeze(wanted));
    let shown: Vec<String> = window
        .iter()
        .enumerate()
        .map(|(index, line)| {
            let line = super::output::first_chars(line, 200);
            let line = if same_words { visible_space(line) } else { line.to_owned() };
            format!("{}\t{line}", start + index + 1)
        })
        .collect();
    let lead = if same_words {
        "Only white space differs (shown as · space, → tab). The file has:"
    } else {
        "The nearest lines are:"
    };
    Some(format!("{lead}\n{}", shown.join("\n")))
}

/// The lines without the gutter of `read_file`, when every line has one.
fn without_line_numbers(lines: &[&str]) -> Option<String> {
    let bare: Option<Vec<&str>> = lines
        .iter()
        .map(|line| {
            let (number, rest) = line.split_once('\t')?;
            let number = number.trim_start();
            (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
        })
        .collect();
    Some(bare?.join("\n")).filter(|bare| !bare.is_empty())
}

/// Where as many lines as `wanted` has are most like it; the score is 0 when nothing is.
fn best_window(lines: &[&str], wanted: &[&str]) -> Option<(usize, f32)> {
    let squeezed: Vec<String> = lines.iter().map(|line| squeeze(line)).collect();
    let wanted: Vec<String> = wanted.iter().map(|line| squeeze(line)).collect();
    let anchor = wanted.iter().position(|line| !line.is_empty())?;
    let anchor_line = wanted.get(anchor)?;
    // Equal lines decide; among places with as many, the likeness of the first line.
    let mut best: Option<(usize, f32)> = None;
    let mut compared = 0;
    for start in 0..squeezed.len() {
        let pairs = squeezed.get(start..)?.iter().zip(&wanted);
        let equal = pairs.filter(|(line, wanted)| line == wanted && !line.is_empty()).count();
        let Some(line) = squeezed.get(start + anchor) else { break };
        let mut score = f32::from(u16::try_from(equal).unwrap_or(u16::MAX));
        if equal == 0 && compared < MAX_LINES_LIKENED && is_alike_in_length(line, anchor_line) {
            compared += 1;
            let ratio = likeness(line, anchor_line);
            score = if ratio >= 0.6 { ratio } else { 0.0 };
        }
        if best.is_none_or(|(_, highest)| score > highest) {
            best = Some((start, score));
        }
    }
    best
}

/// Lines that are compared letter by letter.
const MAX_LINES_LIKENED: usize = 2000;

fn is_alike_in_length(line: &str, other: &str) -> bool {
    let (short, long) = (line.len().min(other.len()), line.len().max(other.len()));
    short * 2 >= long && long <= 400
}

/// A line without its white space.
fn squeeze(line: &str) -> String {
    line.chars().filter(|character| !character.is_whitespace()).collect()
}

fn visible_space(line: &str) -> String {
    line.replace(' ', "·").replace('\t', "→")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, old: &str, new: &str, scope: Scope, expected: &str) -> Replaced {
        let replaced = replace(text, old, new, scope).unwrap();
        assert_eq!(replaced.text, expected);
        replaced
    }

    fn absent(text: &str, old: &str) -> String {
        match replace(text, old, "new", Scope::One).unwrap_err() {
            Mismatch::Absent { nearest } => nearest.unwrap_or_default(),
            several @ Mismatch::Several { .. } => panic!("{several:?}"),
        }
    }

    #[test]
    fn an_exact_match_is_replaced() {
        let replaced = check("a\nb\nc\n", "b", "B\nB", Scope::One, "a\nB\nB\nc\n");
        assert_eq!((replaced.count, replaced.first_line, replaced.ignored_trailing_space), (1, 2, false));
        let replaced = check("x=1; x=2", "x", "y", Scope::All, "y=1; y=2");
        assert_eq!(replaced.count, 2);
        check("grüße 世界", "ß", "ss", Scope::One, "grüsse 世界");
        check("a\nb\n", "b\n", "", Scope::One, "a\n");
    }

    #[test]
    fn white_space_at_line_ends_does_not_matter_for_whole_lines() {
        let replaced = check("if x {  \n\ty();\t\n}\n", "if x {\n\ty();\n}", "z();", Scope::One, "z();\n");
        assert!(replaced.ignored_trailing_space);
        check("a  \nb\n", "a\nb\n", "c\n", Scope::One, "c\n");
        check("a \nb\na\t\nb\n", "a\nb", "c", Scope::All, "c\nc\n");
        check("a\r\nb\n", "a\nb", "c", Scope::One, "c\n");
        check("a  \nb\n", "a\n", "", Scope::One, "b\n");
        assert!(absent("xa  \nb\n", "a\nb").starts_with("The nearest lines are"));
        assert_eq!(absent("\n \n", " \n\n\n"), "");
    }

    #[test]
    fn several_matches_are_counted_and_placed() {
        let mismatch = replace("a\nb\na\n", "a", "c", Scope::One).unwrap_err();
        assert_eq!(mismatch, Mismatch::Several { count: 2, lines: vec![1, 3] });
        assert!(mismatch.names_all());
        assert!(!replace(&"a\n".repeat(20), "a", "c", Scope::One).unwrap_err().names_all());
    }

    #[test]
    fn a_failed_search_shows_what_comes_nearest() {
        let text = "fn main() {\n\tlet x  = 1;\n    call(x);\n}\n";
        assert_eq!(
            absent(text, "    let x = 1;\n    call(x);"),
            "Only white space differs (shown as · space, → tab). The file has:\n2\t→let·x··=·1;\n3\t····call(x);"
        );
        assert_eq!(absent(text, "    call(y);"), "The nearest lines are:\n3\t    call(x);");
        assert!(absent(text, "2\t\tlet x  = 1;\n3\t    call(x);").contains("line numbers"));
        assert_eq!(absent(text, "nothing like it at all, by far"), "");
    }
}
