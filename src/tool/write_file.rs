//! `write_file`: a whole file's text.

use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::edit::{self, Edit};
use super::file::{LineEnding, TextFile, blocking, load_text, to_crlf};
use super::path::{ResolvedPath, resolve};
use super::{Prepared, Tool, ToolContext, ToolFailure, ToolSpec, args};

const DESCRIPTION: &str = "Create a file (folders too) or replace its whole content. An existing file must have been \
read before. For a change in part use patch.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    path: String,
    content: String,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("write_file", DESCRIPTION));

/// Writes whole files.
#[derive(Debug)]
pub struct WriteFile;

impl Tool for WriteFile {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let Arguments { path, content } = args::parse(&SPEC, arguments)?;
            let path = resolve(&path, &context.cwd)?;
            let attempt = edit::attempt(&path, context);
            let edit = work_out(path, content, context).await.map_err(|failure| failure.of(attempt))?;
            Ok(edit.prepared(context))
        })
    }
}

async fn work_out(path: ResolvedPath, content: String, context: &ToolContext) -> Result<Edit, ToolFailure> {
    let before = load_text(&path.real, context).await?;
    let context = context.clone();
    blocking(move || edit(path, before, content, &context)).await
}

fn edit(
    path: ResolvedPath,
    before: Option<TextFile>,
    content: String,
    context: &ToolContext,
) -> Result<Edit, ToolFailure> {
    let shown = path.shown(&context.cwd);
    let Some(old) = &before else {
        let report = format!("created {shown} ({} lines)", content.lines().count());
        return Ok(Edit { path, before, after: content, report, line: None });
    };
    if context.state.seen_version(&path.real).is_none() {
        let text = format!("{shown} exists and you have not read it; read it first, or use another path");
        return Err(ToolFailure::new(text));
    }
    edit::refuse_stale(&path, old, context)?;
    let keeps_crlf = old.line_ending() == LineEnding::Crlf && !content.contains('\r');
    let after = if keeps_crlf { to_crlf(&content) } else { content };
    let after = after.strip_prefix('\u{feff}').filter(|_| old.has_bom).map(str::to_owned).unwrap_or(after);
    let mut report = format!("wrote {shown} ({} lines)", edit::stat(before.as_ref(), &after));
    if keeps_crlf {
        report.push_str(", CRLF line ends kept");
    }
    Ok(Edit { path, before, after, report, line: None })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use serde_json::json;

    use super::*;
    use crate::tool::read_file::ReadFile;
    use crate::tool::testing::{FakeEditor, Workspace, run_context, text};
    use crate::tool::{Access, Display};

    async fn read(workspace: &Workspace, path: &str) {
        workspace.succeed(&ReadFile, json!({"path": path})).await;
    }

    async fn write(workspace: &Workspace, path: &str, content: &str) -> String {
        workspace.succeed(&WriteFile, json!({"path": path, "content": content})).await
    }

    #[tokio::test]
    async fn a_new_file_is_made_with_its_folders() {
        let workspace = Workspace::new();
        let prepared = workspace.prepare(&WriteFile, json!({"path": "a/b.txt", "content": "x\ny\n"})).await.unwrap();
        assert_eq!(prepared.plan.title, "Create a/b.txt");
        assert_eq!(prepared.plan.access, [Access::Write(workspace.path("a/b.txt"))]);
        let diff = Display::Diff { path: workspace.path("a/b.txt"), old: None, new: "x\ny\n".into() };
        assert_eq!(prepared.plan.preview.as_slice(), std::slice::from_ref(&diff));
        assert!(!workspace.path("a").exists(), "preparing has no effect");
        let output = prepared.run(run_context()).await;
        assert_eq!((text(&output).as_str(), &output.display), ("created a/b.txt (2 lines)", &vec![diff]));
        assert_eq!(workspace.read("a/b.txt"), "x\ny\n");
        // What the model wrote it knows.
        assert_eq!(write(&workspace, "a/b.txt", "x\n").await, "wrote a/b.txt (+0 -1 lines)");
        assert_eq!(workspace.names(), ["a"]);
    }

    #[tokio::test]
    async fn a_file_the_model_does_not_know_is_not_overwritten() {
        let workspace = Workspace::new();
        let path = workspace.write("f", "mine\n");
        let arguments = json!({"path": "f", "content": "new"});
        let refusal = workspace.fail(&WriteFile, arguments.clone()).await;
        assert!(refusal.contains("you have not read it"), "{refusal}");
        read(&workspace, "f").await;
        std::fs::write(&path, "edited by the user\n").unwrap();
        let refusal = workspace.fail(&WriteFile, arguments.clone()).await;
        assert!(refusal.contains("changed since you read it"), "{refusal}");
        assert_eq!(workspace.read("f"), "edited by the user\n");
        read(&workspace, "f").await;
        workspace.succeed(&WriteFile, arguments).await;
        assert_eq!(workspace.read("f"), "new");
    }

    #[tokio::test]
    async fn a_file_that_changes_during_the_approval_is_not_overwritten() {
        let workspace = Workspace::new();
        let check = async |arguments: Value, change: &dyn Fn()| {
            let prepared = workspace.prepare(&WriteFile, arguments).await.unwrap();
            change();
            let output = prepared.run(run_context()).await;
            assert!(output.is_error && text(&output).contains("nothing was written"), "{output:?}");
        };
        let path = workspace.write("f", "old\n");
        read(&workspace, "f").await;
        check(json!({"path": "f", "content": "new"}), &|| std::fs::write(&path, "user\n").unwrap()).await;
        assert_eq!(workspace.read("f"), "user\n");
        read(&workspace, "f").await;
        check(json!({"path": "f", "content": "new"}), &|| std::fs::remove_file(&path).unwrap()).await;
        check(json!({"path": "g", "content": "new"}), &|| std::fs::write(workspace.path("g"), "user").unwrap()).await;
        assert_eq!(workspace.read("g"), "user");
        assert_eq!(workspace.names(), ["g"]);
    }

    #[tokio::test]
    async fn line_ends_byte_order_mark_and_permissions_are_kept() {
        let workspace = Workspace::new();
        let path = workspace.write("f", "\u{feff}a\r\nb\r\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
        read(&workspace, "f").await;
        assert_eq!(write(&workspace, "f", "a\nc\n").await, "wrote f (+1 -1 lines), CRLF line ends kept");
        assert_eq!(workspace.read("f"), "\u{feff}a\r\nc\r\n");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o751);
        write(&workspace, "f", "\u{feff}x\n").await;
        assert_eq!(workspace.read("f"), "\u{feff}x\r\n");
    }

    #[tokio::test]
    async fn a_link_stays_a_link_and_its_target_is_written() {
        let workspace = Workspace::new();
        let target = workspace.write("target", "t\n");
        symlink("target", workspace.path("link")).unwrap();
        symlink("nowhere", workspace.path("dangling")).unwrap();
        read(&workspace, "link").await;
        let prepared = workspace.prepare(&WriteFile, json!({"path": "link", "content": "n\n"})).await.unwrap();
        assert_eq!(prepared.plan.access, [Access::Write(target.clone())]);
        prepared.run(run_context()).await;
        assert_eq!(workspace.read("target"), "n\n");
        write(&workspace, "dangling", "d").await;
        assert_eq!(workspace.read("nowhere"), "d");
        assert!(workspace.path("link").is_symlink() && workspace.path("dangling").is_symlink());
    }

    #[tokio::test]
    async fn a_link_planted_after_the_approval_leads_nowhere() {
        let workspace = Workspace::new();
        let outside = workspace.root.join("outside");
        std::fs::create_dir(&outside).unwrap();
        let arguments = json!({"path": "sub/PWN", "content": "x"});
        let prepared = workspace.prepare(&WriteFile, arguments).await.unwrap();
        symlink(&outside, workspace.path("sub")).unwrap();
        let output = prepared.run(run_context()).await;
        assert!(output.is_error, "{output:?}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn hard_links_are_told_and_keep_their_text() {
        let workspace = Workspace::new();
        let path = workspace.write("f", "old\n");
        std::fs::hard_link(&path, workspace.path("other")).unwrap();
        read(&workspace, "f").await;
        let report = write(&workspace, "f", "new\n").await;
        assert!(report.ends_with("[the file's 1 other hard links keep the old text]"), "{report}");
        assert_eq!((workspace.read("f"), workspace.read("other")), ("new\n".into(), "old\n".into()));
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_refused_and_nothing_is_left_behind() {
        let workspace = Workspace::new();
        workspace.write("bin", b"a\0b");
        workspace.write("latin", b"\xe4");
        let check = async |path: &str, part: &str| {
            let text = workspace.fail(&WriteFile, json!({"path": path, "content": "x"})).await;
            assert!(text.contains(part), "{text}");
        };
        check("bin", "binary").await;
        check("latin", "not UTF-8").await;
        check(".", "is a folder").await;
        check("/dev/null", "is a device").await;
        check("bin/x", "cannot make the folder").await;
        assert_eq!(workspace.names(), ["bin", "latin"]);
    }

    #[tokio::test]
    async fn the_editor_writes_what_it_offers_to_write() {
        let mut workspace = Workspace::new();
        let path = workspace.write("f", "disk\n");
        let editor = FakeEditor::holding(&path, "unsaved\n");
        workspace.context.editor = Some(editor.clone());
        read(&workspace, "f").await;
        let prepared = workspace.prepare(&WriteFile, json!({"path": "f", "content": "new\n"})).await.unwrap();
        let diff = Display::Diff { path: path.clone(), old: Some("unsaved\n".into()), new: "new\n".into() };
        assert_eq!(prepared.plan.preview, [diff]);
        prepared.run(run_context()).await;
        assert_eq!(editor.buffers.lock().unwrap()[&path], "new\n");
        assert_eq!(workspace.read("f"), "disk\n");
        // Too long for a message to this editor: the disk has it then.
        let long = "long\n".repeat(300);
        let report = write(&workspace, "f", &long).await;
        assert!(report.contains("too long for a message to the editor"), "{report}");
        assert_eq!(workspace.read("f"), long);
        editor.buffers.lock().unwrap().insert(path.clone(), long);
        // The user types between approval and work.
        let prepared = workspace.prepare(&WriteFile, json!({"path": "f", "content": "newer\n"})).await.unwrap();
        editor.buffers.lock().unwrap().insert(path.clone(), "typed\n".into());
        assert!(prepared.run(run_context()).await.is_error);
        assert_eq!(editor.buffers.lock().unwrap()[&path], "typed\n");
    }
}
