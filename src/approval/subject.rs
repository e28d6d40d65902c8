//! What a question is about, as the user sees it.

use std::path::Path;

use serde_json::Value;

use crate::tool::Access;

use super::case::Case;
use super::display;

/// Characters of a command shown in a question; the client has the whole of it in `rawInput`.
const MAX_SHOWN_CHARS: usize = 4_000;

/// The command, path or address that the question is about, escaped and bounded.
pub(super) fn subject(case: &Case<'_>) -> String {
    let shown = |access: &Access| match access {
        Access::Read(path) | Access::Write(path) => file(case, path),
        Access::Execute { command, cwd } if cwd == case.places.cwd() => command_text(command),
        Access::Execute { command, cwd } => {
            format!("{}\n(in {})", command_text(command), display::escape(&cwd.to_string_lossy()))
        }
        Access::Note(path) => display::escape(&path.to_string_lossy()),
        Access::Fetch(address) => display::escape(address),
        Access::External(tool) => display::escape(&tool.name),
        Access::Feed(_) => String::new(),
    };
    let subjects = case.plan.access.iter().filter(|access| !matches!(access, Access::Feed(_)));
    subjects.map(shown).collect::<Vec<_>>().join("\n")
}

fn command_text(command: &str) -> String {
    let end = command.char_indices().nth(MAX_SHOWN_CHARS).map_or(command.len(), |(end, _)| end);
    let (head, tail) = command.split_at(end);
    let mut shown = display::escape_lines(head);
    if !tail.is_empty() {
        shown.push_str(&format!("\n… and {} more bytes", tail.len()));
    }
    let hidden = display::hidden_count(head);
    if hidden > 0 {
        shown.push_str(&format!("\n({hidden} hidden or look-alike characters are shown as \\u{{...}})"));
    }
    shown
}

/// The path as written, with where it really leads when that is elsewhere.
fn file(case: &Case<'_>, path: &Path) -> String {
    let real = case.places.spot(case.places.cwd(), path).real;
    let shown = display::escape(&real.to_string_lossy());
    let as_written = case.arguments.get("path").and_then(Value::as_str);
    match as_written.filter(|text| case.places.spot(case.places.cwd(), Path::new(text)).spelled != real) {
        Some(text) => format!("{} (really {shown})", display::escape(text)),
        None => shown,
    }
}
