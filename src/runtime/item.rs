//! The runtime's items as tool calls: what each would do, and what became of it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::tool::output::clean_for_model;
use crate::tool::{Access, CallPlan, Location, ToolKind};
use crate::turn::payload::CallStatus;

use super::{diff, put, script};

/// Characters of a title.
const MAX_TITLE_CHARS: usize = 120;
/// Bytes of one output that are stored and shown.
const MAX_OUTPUT_BYTES: usize = 100_000;
/// Changed files of one item that are shown.
const MAX_CHANGES: usize = 100;

/// An item that does something, in the words of our tools, so that rules and clients know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Described {
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) plan: CallPlan,
}

/// What became of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) status: CallStatus,
    pub(super) text: String,
    pub(super) raw: Option<Value>,
}

/// A text member.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an item says enough only once it is completed.
pub(super) fn is_known_late(item: &Value) -> bool {
    matches!(text(item, "type"), "webSearch" | "imageView")
}

/// The item as a call; `None` for words, and for what happens inside the runtime only.
pub(super) fn describe(item: &Value, cwd: &Path) -> Option<Described> {
    Some(match text(item, "type") {
        "commandExecution" => command(text(item, "command"), text(item, "cwd"), cwd),
        "fileChange" => changes(item.get("changes").unwrap_or(&Value::Null), cwd),
        "mcpToolCall" => {
            let tool = format!("mcp_{}_{}", text(item, "server"), text(item, "tool"));
            let access = vec![super::shape::foreign(tool.clone())];
            let arguments = item.get("arguments").cloned().unwrap_or(Value::Null);
            described(&tool, arguments, &tool, ToolKind::Other, access)
        }
        "dynamicToolCall" => {
            let arguments = item.get("arguments").cloned().unwrap_or(Value::Null);
            described(text(item, "tool"), arguments, text(item, "tool"), ToolKind::Other, Vec::new())
        }
        "webSearch" => {
            let arguments = json!({ "query": text(item, "query"), "action": item.get("action") });
            let title = format!("Search the web: {}", text(item, "query"));
            described("web_search", arguments, &title, ToolKind::Fetch, Vec::new())
        }
        "imageView" => {
            let path = absolute(text(item, "path"), cwd);
            let title = format!("Look at {}", path.display());
            let access = vec![Access::Read(path)];
            described("view_image", json!({ "path": text(item, "path") }), &title, ToolKind::Read, access)
        }
        "collabAgentToolCall" => {
            let tool = text(item, "tool");
            let arguments = json!({ "prompt": item.get("prompt"), "model": item.get("model") });
            described(&format!("agent_{tool}"), arguments, &format!("Agent: {tool}"), ToolKind::Think, Vec::new())
        }
        // A kind that is newer than this program: what has a status does something, and is shown.
        kind if item.get("status").is_some_and(Value::is_string) => {
            described(kind, json!({}), kind, ToolKind::Other, Vec::new())
        }
        _ => return None,
    })
}

fn described(tool: &str, arguments: Value, title: &str, kind: ToolKind, access: Vec<Access>) -> Described {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = match title.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => format!("{}…", title.get(..end).unwrap_or_default()),
        None => title,
    };
    let locations = access.iter().filter_map(|access| match access {
        Access::Read(path) | Access::Write(path) => Some(Location { path: path.clone(), line: None }),
        _ => None,
    });
    let plan = CallPlan { title, kind, locations: locations.collect(), access, preview: Vec::new() };
    Described { tool: tool.to_owned(), arguments, plan }
}

/// A command as the `terminal` tool would run it.
pub(super) fn command(command: &str, folder: &str, cwd: &Path) -> Described {
    let script = script::of(command);
    let folder = if folder.is_empty() { cwd.to_path_buf() } else { absolute(folder, cwd) };
    let mut arguments = json!({ "command": script });
    if folder != cwd {
        put(&mut arguments, "cwd", folder.to_string_lossy());
    }
    let access = vec![Access::Execute { command: script.clone(), cwd: folder }];
    described("terminal", arguments, &script, ToolKind::Execute, access)
}

/// Changes of files as the `patch` tool would make them.
pub(super) fn changes(changes: &Value, cwd: &Path) -> Described {
    let changes = changes.as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut access, mut preview, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        let path = absolute(text(change, "path"), cwd);
        let shown = path.strip_prefix(cwd).unwrap_or(&path).display().to_string();
        names.push(match change.pointer("/kind/type").and_then(Value::as_str) {
            Some("add") => format!("create {shown}"),
            Some("delete") => format!("delete {shown}"),
            _ => format!("edit {shown}"),
        });
        if preview.len() < MAX_CHANGES {
            preview.push(diff::display(change, &path));
        }
        access.push(Access::Write(path));
        if let Some(target) = change.pointer("/kind/move_path").and_then(Value::as_str) {
            access.push(Access::Write(absolute(target, cwd)));
        }
    }
    let mut described = described("patch", json!({ "changes": changes }), &names.join(", "), ToolKind::Edit, access);
    described.plan.preview = preview;
    described
}

pub(super) fn absolute(path: &str, cwd: &Path) -> PathBuf {
    cwd.join(path)
}

/// What became of a completed item.
pub(super) fn outcome(item: &Value) -> Outcome {
    let status = match text(item, "status") {
        "declined" => CallStatus::Refused,
        "failed" if item.get("exitCode").and_then(Value::as_i64).is_none() => CallStatus::Failed,
        "inProgress" | "interrupted" => CallStatus::CutOff,
        _ => CallStatus::Done,
    };
    let (text, raw) = match text(item, "type") {
        "commandExecution" => command_outcome(item),
        "fileChange" => (changes_outcome(item, status), None),
        "mcpToolCall" => (mcp_outcome(item), item.pointer("/result/structuredContent").cloned()),
        "dynamicToolCall" => (content_text(item.get("contentItems")), None),
        "webSearch" => {
            (item.get("results").filter(|results| results.is_array()).map(Value::to_string).unwrap_or_default(), None)
        }
        _ => (String::new(), None),
    };
    let text = if text.trim().is_empty() { "(no output)".to_owned() } else { bounded(&text) };
    // It is for programs to read, and half of it is worth nothing.
    let raw = raw.filter(|raw| !raw.is_null() && raw.to_string().len() <= MAX_OUTPUT_BYTES);
    Outcome { status, text, raw }
}

fn command_outcome(item: &Value) -> (String, Option<Value>) {
    let output = clean_for_model(text(item, "aggregatedOutput").as_bytes());
    let output = if output.trim().is_empty() { "(no output)" } else { output.trim_end() };
    match item.get("exitCode").and_then(Value::as_i64) {
        Some(code) => {
            let raw = json!({ "exitCode": code, "durationMs": item.get("durationMs") });
            (format!("{}\n[exit code {code}]", bounded(output)), Some(raw))
        }
        None => (output.to_owned(), None),
    }
}

fn changes_outcome(item: &Value, status: CallStatus) -> String {
    let changes = item.get("changes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let paths: Vec<_> = changes.iter().map(|change| text(change, "path")).collect();
    match status {
        CallStatus::Done => format!("Changed {}", paths.join(", ")),
        _ => format!("Not changed: {}", paths.join(", ")),
    }
}

fn mcp_outcome(item: &Value) -> String {
    match item.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => message.to_owned(),
        None => content_text(item.pointer("/result/content")),
    }
}

fn content_text(content: Option<&Value>) -> String {
    let items = content.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| text(item, "text")).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The head and the tail of a long text.
fn bounded(text: &str) -> String {
    if text.len() <= MAX_OUTPUT_BYTES {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(MAX_OUTPUT_BYTES / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_OUTPUT_BYTES / 2);
    let (head, rest) = text.split_at(head);
    let tail = rest.get(tail.saturating_sub(head.len())..).unwrap_or_default();
    format!("{head}\n[... {} bytes left out ...]\n{tail}", text.len() - head.len() - tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_bear_the_names_and_arguments_of_our_tools() {
        let check = |item: Value, tool: &str, title: &str, arguments: Value| {
            let described = describe(&item, Path::new("/w")).unwrap();
            assert_eq!((described.tool.as_str(), described.plan.title.as_str()), (tool, title));
            assert_eq!(described.arguments, arguments);
        };
        let command = json!({"type": "commandExecution", "command": "/bin/bash -lc 'ls  a'", "cwd": "/w/sub"});
        check(command, "terminal", "ls a", json!({"command": "ls  a", "cwd": "/w/sub"}));
        let changes = json!([{"path": "a", "kind": {"type": "update", "move_path": "/x/b"}, "diff": ""}]);
        check(json!({"type": "fileChange", "changes": changes}), "patch", "edit a", json!({"changes": changes}));
        let described = super::changes(&changes, Path::new("/w"));
        assert_eq!(described.plan.access, [Access::Write("/w/a".into()), Access::Write("/x/b".into())]);
        check(json!({"type": "news", "status": "inProgress"}), "news", "news", json!({}));
        assert_eq!(describe(&json!({"type": "news"}), Path::new("/w")), None);
    }

    #[test]
    fn what_became_of_an_item_is_told_as_by_our_tools() {
        let check = |item: Value, status, text: &str| {
            let outcome = outcome(&item);
            assert_eq!((outcome.status, outcome.text.as_str()), (status, text), "{item}");
        };
        let command =
            |status: &str, exit: Value| json!({"type": "commandExecution", "status": status, "exitCode": exit});
        check(command("completed", json!(0)), CallStatus::Done, "(no output)\n[exit code 0]");
        check(command("failed", json!(2)), CallStatus::Done, "(no output)\n[exit code 2]");
        check(command("failed", Value::Null), CallStatus::Failed, "(no output)");
        check(command("declined", Value::Null), CallStatus::Refused, "(no output)");
        let changes = json!([{"path": "/w/a"}]);
        check(
            json!({"type": "fileChange", "status": "completed", "changes": changes}),
            CallStatus::Done,
            "Changed /w/a",
        );
        check(
            json!({"type": "fileChange", "status": "failed", "changes": changes}),
            CallStatus::Failed,
            "Not changed: /w/a",
        );
    }

    #[test]
    fn a_long_output_keeps_head_and_tail() {
        let text = bounded(&format!("{}{}", "ä".repeat(60_000), "z".repeat(60_000)));
        assert!(text.starts_with('ä') && text.ends_with('z') && text.contains("bytes left out"));
        assert!(text.len() < MAX_OUTPUT_BYTES + 100);
    }
}
