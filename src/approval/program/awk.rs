//! `awk`: asks, but for one-liners that can neither run nor write anything.

use super::Assessment;
use crate::approval::shell::{Word, WordKind};

/// Names that reach a command, a file or the environment.
const REACHING: [&str; 12] =
    ["system", "getline", "close", "fflush", "ENVIRON", "ARGV", "PROCINFO", "extension", "load", "include", "@", "`"];

pub(super) fn assess(arguments: &[Word]) -> Assessment {
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let mut rest = arguments.iter();
    let mut script: Option<&Word> = None;
    while let Some(word) = rest.next() {
        match word.text.as_str() {
            _ if script.is_some() => out.paths.push(word.clone()),
            "-F" => {
                rest.next();
            }
            text if text.starts_with("-F") => {}
            "-v" => {
                let value = rest.next().map(|word| word.text.as_str()).unwrap_or_default();
                if !value.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase())) {
                    out.refuse("sets a variable that can matter", value);
                }
            }
            text if text.starts_with('-') => out.refuse("`awk` options can run files", text),
            _ => script = Some(word),
        }
    }
    let is_plain = script.is_some_and(|word| word.kind == WordKind::Literal && is_plain(&word.text));
    // A word such as `x=1` among the files sets a variable.
    if !is_plain || out.paths.iter().any(|word| word.text.contains('=') || word.kind == WordKind::Unknown) {
        out.refuse("`awk` can run programs and write files", "awk");
    }
    out
}

/// True for a script in which no output can be redirected. `>` and `|` may stand only in patterns and within
/// parentheses, where they compare, and only where nothing could hide where a pattern or a string ends.
fn is_plain(script: &str) -> bool {
    if REACHING.iter().any(|name| script.contains(name)) {
        return false;
    }
    if !script.contains(['>', '|']) {
        return true;
    }
    let Some(script) = without_strings(script) else { return false };
    if script.contains(['\\', '#']) || script.matches('/').count() > 2 {
        return false;
    }
    let (mut braces, mut parentheses) = (0_i32, 0_i32);
    for c in script.chars() {
        match c {
            '{' => braces += 1,
            '}' => braces -= 1,
            '(' => parentheses += 1,
            ')' => parentheses -= 1,
            '>' | '|' if braces != 0 && parentheses <= 0 => return false,
            '/' if script.contains(['{', '}']) && braces != 0 => return false,
            _ => {}
        }
    }
    let in_regex = script.split('/').nth(1).unwrap_or_default();
    !in_regex.contains(['{', '}', '(', ')'])
}

/// The script with nothing left of its strings; `None` where a slash could begin a pattern that holds a quote.
fn without_strings(script: &str) -> Option<String> {
    if !script.contains('"') {
        return Some(script.to_owned());
    }
    if script.contains(['/', '#', '\\', '\n']) {
        return None;
    }
    let pieces: Vec<&str> = script.split('"').collect();
    // An even number of quotes leaves an odd number of pieces; every second one is a string.
    (pieces.len() % 2 == 1).then(|| pieces.into_iter().step_by(2).collect::<Vec<_>>().join("0"))
}
