//! `patch`: replaces an exact piece of a file's text.

use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::edit::{self, Edit};
use super::file::{LineEnding, TextFile, blocking, load_text, to_crlf, to_lf};
use super::path::{ResolvedPath, resolve};
use super::replacement::{self, Mismatch};
use super::{Prepared, Tool, ToolContext, ToolFailure, ToolSpec, args, diff};

const DESCRIPTION: &str = "Replace a piece of a file's text. old must match exactly one place, white space included \
and without line numbers; add lines around it to make it unique.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    path: String,
    /// Text to replace
    old: String,
    /// Text to put there; may be empty
    new: String,
    /// Replace every match
    #[serde(default)]
    replace_all: bool,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("patch", DESCRIPTION));

/// Replaces pieces of files.
#[derive(Debug)]
pub struct Patch;

impl Tool for Patch {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let arguments: Arguments = args::parse(&SPEC, arguments)?;
            let path = resolve(&arguments.path, &context.cwd)?;
            let attempt = edit::attempt(&path, context);
            let edit = work_out(path, arguments, context).await.map_err(|failure| failure.of(attempt))?;
            Ok(edit.prepared(context))
        })
    }
}

async fn work_out(path: ResolvedPath, arguments: Arguments, context: &ToolContext) -> Result<Edit, ToolFailure> {
    let Some(before) = load_text(&path.real, context).await? else {
        let shown = path.shown(&context.cwd);
        return Err(ToolFailure::new(format!("{shown} does not exist; write_file makes new files")));
    };
    let context = context.clone();
    blocking(move || edit(path, before, &arguments, &context)).await
}

fn edit(
    path: ResolvedPath,
    before: TextFile,
    arguments: &Arguments,
    context: &ToolContext,
) -> Result<Edit, ToolFailure> {
    let shown = path.shown(&context.cwd);
    edit::refuse_stale(&path, &before, context)?;
    if arguments.old.is_empty() {
        return Err(ToolFailure::new("old is empty; give the text to replace"));
    }
    // A file of CRLF lines is matched and changed as if its lines ended with LF, and gets them back.
    let is_crlf = before.line_ending() == LineEnding::Crlf;
    let plain = |text: &str| if is_crlf { to_lf(text) } else { text.to_owned() };
    let (text, old, new) = (plain(&before.text), plain(&arguments.old), plain(&arguments.new));
    if old == new {
        return Err(ToolFailure::new("old and new are the same; nothing to do"));
    }
    let done = replacement::replace(&text, &old, &new, arguments.replace_all.into()).map_err(|mismatch| {
        // Its text could hold what nobody allowed the model to see.
        if context.state.seen_version(&path.real).is_none() {
            let text = format!("old does not match exactly one place in {shown}; read the file first");
            return ToolFailure::new(text);
        }
        ToolFailure::new(explain(&mismatch, &shown))
    })?;
    let after = if is_crlf { to_crlf(&done.text) } else { done.text };
    if after == before.text {
        return Err(ToolFailure::new(format!("{shown} already reads so; nothing to do")));
    }
    let mut report = format!("changed {shown}");
    if done.count > 1 {
        report.push_str(&format!(" in {} places", done.count));
    }
    if done.ignored_trailing_space {
        report.push_str(", ignoring white space at line ends");
    }
    report.push_str(&format!("\n{}", diff::unified(&shown, &before.text, &after)));
    Ok(Edit { path, before: Some(before), after, report, line: Some(done.first_line) })
}

fn explain(mismatch: &Mismatch, shown: &str) -> String {
    match mismatch {
        Mismatch::Absent { nearest: None } => format!("old was not found in {shown}"),
        Mismatch::Absent { nearest: Some(nearest) } => {
            format!("old was not found in {shown}. {nearest}")
        }
        Mismatch::Several { count, lines } => {
            let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
            let lines = lines.join(", ");
            format!(
                "old matches {count} places in {shown} (lines {lines}{}); add lines around it, or set replace_all",
                if mismatch.names_all() { "" } else { ", ..." }
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::read_file::ReadFile;
    use crate::tool::testing::{Workspace, run_context, text};
    use crate::tool::{Display, Location};

    async fn patch(workspace: &Workspace, old: &str, new: &str) -> String {
        workspace.succeed(&Patch, json!({"path": "f", "old": old, "new": new})).await
    }

    async fn refused(workspace: &Workspace, old: &str, new: &str) -> String {
        workspace.fail(&Patch, json!({"path": "f", "old": old, "new": new})).await
    }

    async fn read(workspace: &Workspace) {
        workspace.succeed(&ReadFile, json!({"path": "f"})).await;
    }

    #[tokio::test]
    async fn a_piece_is_replaced_and_the_change_is_shown() {
        let workspace = Workspace::new();
        workspace.write("f", "a\nb\nc\n");
        let arguments = json!({"path": "f", "old": "b", "new": "B"});
        let prepared = workspace.prepare(&Patch, arguments).await.unwrap();
        assert_eq!(prepared.plan.locations, [Location { path: workspace.path("f"), line: Some(2) }]);
        let diff = Display::Diff { path: workspace.path("f"), old: Some("a\nb\nc\n".into()), new: "a\nB\nc\n".into() };
        assert_eq!(prepared.plan.preview, [diff]);
        let output = prepared.run(run_context()).await;
        assert_eq!(text(&output), "changed f\n--- f\n+++ f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        assert_eq!(workspace.read("f"), "a\nB\nc\n");
    }

    #[tokio::test]
    async fn all_matches_are_replaced_when_asked() {
        let workspace = Workspace::new();
        workspace.write("f", "x\nx\n");
        read(&workspace).await;
        assert_eq!(
            refused(&workspace, "x", "y").await,
            "old matches 2 places in f (lines 1, 2); add lines around it, or set replace_all"
        );
        let arguments = json!({"path": "f", "old": "x", "new": "y", "replace_all": true});
        let report = workspace.succeed(&Patch, arguments).await;
        assert!(report.starts_with("changed f in 2 places\n"), "{report}");
        assert_eq!(workspace.read("f"), "y\ny\n");
    }

    #[tokio::test]
    async fn line_ends_of_the_file_are_kept() {
        let workspace = Workspace::new();
        let check = async |before: &str, old: &str, new: &str, after: &str| {
            workspace.write("f", before);
            read(&workspace).await;
            patch(&workspace, old, new).await;
            assert_eq!(workspace.read("f"), after);
        };
        check("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n").await;
        check("a\r\nb\r\n", "b\r\n", "c\r\n", "a\r\nc\r\n").await;
        check("a\r\nb\nc\n", "b", "x\ny", "a\r\nx\ny\nc\n").await;
        check("\u{feff}a\n", "a", "b", "\u{feff}b\n").await;
        check("no end", "end", "line", "no line").await;
        check("größe = 1;\n", "größe", "höhe", "höhe = 1;\n").await;
    }

    #[tokio::test]
    async fn what_does_nothing_is_refused() {
        let workspace = Workspace::new();
        workspace.write("f", "a\n");
        assert_eq!(refused(&workspace, "a", "a").await, "old and new are the same; nothing to do");
        assert_eq!(refused(&workspace, "", "x").await, "old is empty; give the text to replace");
        std::fs::remove_file(workspace.path("f")).unwrap();
        assert_eq!(refused(&workspace, "a", "b").await, "f does not exist; write_file makes new files");
    }

    #[tokio::test]
    async fn a_failure_shows_no_line_the_model_was_not_given() {
        let workspace = Workspace::new();
        workspace.write("f", "KEY=secret\nKEY=secret\n");
        let unread = "old does not match exactly one place in f; read the file first";
        assert_eq!(refused(&workspace, "KEY=secre7", "x").await, unread);
        assert_eq!(refused(&workspace, "KEY=secret", "x").await, unread);
        read(&workspace).await;
        let text = refused(&workspace, "KEY=secre7", "x").await;
        assert_eq!(text, "old was not found in f. The nearest lines are:\n1\tKEY=secret");
    }

    #[tokio::test]
    async fn a_file_that_changed_since_it_was_read_is_not_patched() {
        let workspace = Workspace::new();
        let path = workspace.write("f", "a\nb\n");
        read(&workspace).await;
        std::fs::write(&path, "a\nb\nuser\n").unwrap();
        assert_eq!(refused(&workspace, "a", "x").await, "f changed since you read it; read it again, then edit");
        read(&workspace).await;
        let prepared = workspace.prepare(&Patch, json!({"path": "f", "old": "a", "new": "x"})).await.unwrap();
        std::fs::write(&path, "a\nb\nuser again\n").unwrap();
        assert!(prepared.run(run_context()).await.is_error);
        assert_eq!(workspace.read("f"), "a\nb\nuser again\n");
    }

    #[tokio::test]
    async fn one_patch_after_the_other_needs_no_new_read() {
        let workspace = Workspace::new();
        workspace.write("f", "a\nb\n");
        read(&workspace).await;
        patch(&workspace, "a", "x").await;
        patch(&workspace, "b", "y").await;
        assert_eq!(workspace.read("f"), "x\ny\n");
    }
}
