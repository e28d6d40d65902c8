//! `memory`: the model reads and changes its notes.

use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::notes::{self, Book, Change, Notes, NotesError};
use crate::tool::output::one_line;
use crate::tool::{
    Access, CallPlan, Display, Location, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput,
    ToolSpec, args,
};

/// The tool's name.
pub const NAME: &str = "memory";

const DESCRIPTION: &str = "Your notes, told to you at the start of every session: memory for what you learned, user \
for who the user is. One short fact an entry; nothing secret, nothing that the project says itself.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    action: Action,
    target: Target,
    /// The entry for add and replace
    text: Option<String>,
    /// Words of the entry to replace or remove
    old: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Add,
    Replace,
    Remove,
    Read,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Target {
    Memory,
    User,
}

impl From<Target> for Book {
    fn from(target: Target) -> Self {
        match target {
            Target::Memory => Self::Memory,
            Target::User => Self::User,
        }
    }
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>(NAME, DESCRIPTION));

/// Keeps notes.
#[derive(Debug)]
pub struct Memory {
    notes: Notes,
}

impl Memory {
    /// The tool, for these notes.
    #[must_use]
    pub fn new(notes: Notes) -> Self {
        Self { notes }
    }

    fn look(&self, book: Book) -> Prepared {
        let path = self.notes.path(book);
        let plan =
            CallPlan { title: format!("Read notes {}", name(&path)), kind: ToolKind::Read, ..CallPlan::default() };
        let notes = self.notes.clone();
        Prepared::new(plan, move |_: RunContext| async move {
            match blocking(move || notes.read(book)).await {
                Ok(text) if text.trim().is_empty() => ToolOutput::text("there are no notes yet"),
                Ok(text) => ToolOutput::text(format!("{}\n{text}", fill(book, &text))),
                Err(error) => ToolOutput::error(error.to_string()),
            }
        })
    }

    async fn change(&self, book: Book, change: Change) -> Result<Prepared, ToolFailure> {
        let path = self.notes.path(book);
        let notes = self.notes.clone();
        let before = blocking(move || notes.read(book)).await.map_err(|error| ToolFailure::new(error.to_string()))?;
        let after = notes::apply(book, &before, &change).map_err(|error| ToolFailure::new(error.to_string()))?;
        let (verb, words) = match &change {
            Change::Add(text) => ("Note", text),
            Change::Replace { text, .. } => ("Change a note to", text),
            Change::Remove(old) => ("Remove the note", old),
        };
        let plan = CallPlan {
            title: format!("{verb} in {}: {}", name(&path), one_line(words, 100)),
            kind: ToolKind::Edit,
            locations: vec![Location { path: path.clone(), line: None }],
            access: vec![Access::Note(path.clone())],
            preview: vec![Display::Diff { path, old: Some(before).filter(|old| !old.is_empty()), new: after }],
        };
        let (notes, shown) = (self.notes.clone(), plan.preview.clone());
        Ok(Prepared::new(plan, move |_: RunContext| async move {
            match blocking(move || notes.change(book, &change)).await {
                Ok(text) => ToolOutput {
                    display: shown,
                    ..ToolOutput::text(format!("saved, {}; sessions that begin later are told", fill(book, &text)))
                },
                Err(error) => ToolOutput::error(error.to_string()),
            }
        }))
    }
}

fn fill(book: Book, text: &str) -> String {
    format!("{} of {} characters used", text.chars().count(), book.max_chars())
}

fn name(path: &std::path::Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NotesError> + Send + 'static,
) -> Result<T, NotesError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(NotesError::Refused("reading the notes failed inside turnd".into())))
}

impl Tool for Memory {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let Arguments { action, target, text, old } = args::parse(&SPEC, arguments)?;
            let given = |value: Option<String>, name: &str| {
                value
                    .filter(|value| !value.trim().is_empty())
                    .ok_or_else(|| ToolFailure::new(format!("`{name}` is missing")))
            };
            let change = match action {
                Action::Read => return Ok(self.look(target.into())),
                Action::Add => Change::Add(given(text, "text")?),
                Action::Replace => Change::Replace { old: given(old, "old")?, text: given(text, "text")? },
                Action::Remove => Change::Remove(given(old, "old")?),
            };
            self.change(target.into(), change).await
        })
    }
}
