//! An edit that is worked out to the byte and waits to be carried out; what `write_file` and `patch` share.

use super::file::{self, TextFile};
use super::path::ResolvedPath;
use super::replace::store_text;
use super::{
    Access, CallPlan, Display, Location, Prepared, RunContext, ToolContext, ToolFailure, ToolKind, ToolOutput, diff,
};

/// The new text of one file.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) path: ResolvedPath,
    /// The file as it is; `None` for a new one.
    pub(super) before: Option<TextFile>,
    /// The text it gets, without byte order mark.
    pub(super) after: String,
    /// What the model reads when it is done, before any remarks.
    pub(super) report: String,
    /// The first changed line, from 1.
    pub(super) line: Option<u32>,
}

impl Edit {
    /// The call that carries it out: exactly these bytes, and only while the file is what it was.
    pub(super) fn prepared(self, context: &ToolContext) -> Prepared {
        let plan = self.plan(context);
        let context = context.clone();
        Prepared::new(plan, move |run| self.run(run, context))
    }

    fn plan(&self, context: &ToolContext) -> CallPlan {
        let verb = if self.before.is_some() { "Edit" } else { "Create" };
        CallPlan {
            title: format!("{verb} {}{}", self.path.shown(&context.cwd), self.path.link_note(&context.cwd)),
            kind: ToolKind::Edit,
            locations: vec![Location { path: self.path.real.clone(), line: self.line }],
            access: vec![Access::Write(self.path.real.clone())],
            preview: vec![self.display()],
        }
    }

    fn display(&self) -> Display {
        Display::Diff {
            path: self.path.real.clone(),
            old: self.before.as_ref().map(|before| before.text.clone()),
            new: self.after.clone(),
        }
    }

    async fn run(self, run: RunContext, context: ToolContext) -> ToolOutput {
        let path = self.path.real.clone();
        let before = self.before.as_ref().map(|before| before.hash);
        let content = self.before.as_ref().map_or_else(|| self.after.clone(), |before| before.with_mark(&self.after));
        let asks_editor = file::reading_editor(&path, &context).is_some()
            || file::writing_editor(&path, &content, &context).is_some();
        let store = store_text(&path, content, before, &context);
        let result = if asks_editor {
            // An editor may never answer. A local write ends by itself, and better whole than unknown.
            tokio::select! {
                biased;
                () = run.cancel.cancelled() => return cut_off(),
                result = store => result,
            }
        } else {
            store.await
        };
        match result {
            Ok(notes) => self.done(&notes),
            Err(failure) => ToolOutput::error(failure.text),
        }
    }

    fn done(&self, notes: &[String]) -> ToolOutput {
        let mut text = self.report.clone();
        if !notes.is_empty() {
            text.push_str(&format!("\n[{}]", notes.join("; ")));
        }
        ToolOutput { display: vec![self.display()], ..ToolOutput::text(text) }
    }
}

fn cut_off() -> ToolOutput {
    ToolOutput { is_cut_off: true, ..ToolOutput::error("cancelled while the editor was asked; read the file to see") }
}

/// What an edit of this file was to do, when it could not be worked out.
pub(super) fn attempt(path: &ResolvedPath, context: &ToolContext) -> CallPlan {
    CallPlan {
        title: format!("Edit {}{}", path.shown(&context.cwd), path.link_note(&context.cwd)),
        kind: ToolKind::Edit,
        locations: vec![Location { path: path.real.clone(), line: None }],
        access: vec![Access::Write(path.real.clone())],
        preview: Vec::new(),
    }
}

/// Says no to an edit of a file that is no longer what the model has seen.
pub(super) fn refuse_stale(path: &ResolvedPath, before: &TextFile, context: &ToolContext) -> Result<(), ToolFailure> {
    match context.state.seen_version(&path.real) {
        Some(version) if version != before.hash => Err(ToolFailure::new(format!(
            "{} changed since you read it; read it again, then edit",
            path.shown(&context.cwd)
        ))),
        _ => Ok(()),
    }
}

/// `+3 -1` of an edit.
pub(super) fn stat(before: Option<&TextFile>, after: &str) -> String {
    diff::stat(before.map_or("", |before| before.text.as_str()), after)
}
