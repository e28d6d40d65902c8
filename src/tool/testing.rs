//! What the tests of the tools share: a workspace, and a call from arguments to output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    Editor, GitCare, Prepared, Progress, RunContext, SessionState, Shell, Tool, ToolContext, ToolFailure, ToolLimits,
    ToolOutput,
};
use crate::message::plain_text;

pub(super) struct Workspace {
    _folder: TempDir,
    pub(super) root: PathBuf,
    pub(super) context: ToolContext,
}

impl Workspace {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let cwd = root.join("w");
        std::fs::create_dir(&cwd).unwrap();
        let context = ToolContext {
            cwd,
            additional_roots: Vec::new(),
            limits: ToolLimits::default(),
            editor: None,
            terminals: None,
            spill: None,
            secret_env: Arc::from([]),
            state: Arc::new(SessionState::default()),
        };
        Self { _folder: folder, root, context }
    }

    /// A path in the working folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.context.cwd.join(name)
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Names in the working folder, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.context.cwd).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(super) async fn prepare(&self, tool: &dyn Tool, arguments: Value) -> Result<Prepared, ToolFailure> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        tool.prepare(&arguments, &self.context).await
    }

    /// The output of a whole call; a call that could not be prepared gives its text as an error.
    pub(super) async fn call(&self, tool: &dyn Tool, arguments: Value) -> ToolOutput {
        match self.prepare(tool, arguments).await {
            Ok(prepared) => prepared.run(run_context()).await,
            Err(failure) => ToolOutput::error(failure.text),
        }
    }

    /// The text of a call that must succeed.
    pub(super) async fn succeed(&self, tool: &dyn Tool, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(!output.is_error, "{output:?}");
        text(&output)
    }

    /// The text of a call that must fail.
    pub(super) async fn fail(&self, tool: &dyn Tool, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(output.is_error, "{output:?}");
        text(&output)
    }
}

pub(super) fn run_context() -> RunContext {
    RunContext {
        call_id: "call".into(),
        cancel: CancellationToken::new(),
        progress: Progress::channel().0,
        sandbox: None,
        shell: Shell::Any,
        git: GitCare::AsConfigured,
    }
}

pub(super) fn text(output: &ToolOutput) -> String {
    plain_text(&output.content)
}

/// An editor that holds texts of its own.
#[derive(Debug, Default)]
pub(super) struct FakeEditor {
    pub(super) buffers: Mutex<HashMap<PathBuf, String>>,
    pub(super) cannot_write: bool,
}

impl FakeEditor {
    pub(super) fn holding(path: &Path, text: &str) -> Arc<Self> {
        let editor = Self::default();
        editor.buffers.lock().unwrap().insert(path.to_path_buf(), text.into());
        Arc::new(editor)
    }
}

impl Editor for FakeEditor {
    fn can_read(&self) -> bool {
        true
    }

    fn can_write(&self, text: &str) -> bool {
        !self.cannot_write && text.len() < 1000
    }

    fn read_text(&self, path: PathBuf) -> BoxFuture<'_, Result<String, ToolFailure>> {
        let text = self.buffers.lock().unwrap().get(&path).cloned();
        Box::pin(async move { text.ok_or_else(|| ToolFailure::new("the editor does not know this file")) })
    }

    fn write_text(&self, path: PathBuf, text: String) -> BoxFuture<'_, Result<(), ToolFailure>> {
        self.buffers.lock().unwrap().insert(path, text);
        Box::pin(async { Ok(()) })
    }
}
