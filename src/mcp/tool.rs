//! A tool of a server, as one of the session's tools.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Map, Value};

use crate::approval::display;
use crate::tool::output::{first_chars, one_line};
use crate::tool::{
    Access, CallPlan, Display, ForeignTool, Prepared, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec,
};

use super::connection::CallFailure;
use super::definition::Listed;
use super::result;
use super::server::Server;

/// Characters of the arguments that a question shows in words; the client has the whole in `rawInput`.
const MAX_SHOWN_CHARS: usize = 16_000;

const CHANGED: &str =
    "The tool changed while the question was open, so it was not called; call it again to be asked anew.";

/// One tool, as its server said when the turn began.
#[derive(Debug)]
pub(super) struct McpTool {
    spec: Arc<ToolSpec>,
    server: Arc<Server>,
    listed: Listed,
    /// What it said of itself when this session first saw it, when that was something else.
    was: Option<String>,
}

impl McpTool {
    pub(super) fn new(name: String, server: Arc<Server>, listed: Listed, was: Option<String>) -> Self {
        let spec = ToolSpec { name, description: listed.description.clone(), parameters: listed.parameters.clone() };
        Self { spec: Arc::new(spec), server, listed, was }
    }

    fn plan(&self, arguments: &Map<String, Value>) -> CallPlan {
        let server = self.server.spec.name();
        let title = format!("{server}: {}", one_line(&self.listed.name, 80));
        let shown = serde_json::to_string_pretty(arguments).unwrap_or_default();
        let shown = first_chars(&shown, MAX_SHOWN_CHARS);
        let preview = format!("Tool {} of the MCP server {server}, with\n{shown}", self.listed.name);
        // A change that came since the turn began counts at once for the question, if not for the model.
        let listed = &self.listed.definition;
        let (definition, was) = match self.server.definition_now(&self.listed.name) {
            Some(now) if now != *listed => (now, Some(listed.clone())),
            _ => (listed.clone(), self.was.clone()),
        };
        let tool = ForeignTool { name: self.spec.name.clone(), definition, was };
        CallPlan {
            title: display::escape(&title),
            kind: ToolKind::Other,
            access: vec![Access::External(tool)],
            preview: vec![Display::Text(display::escape_lines(&preview))],
            ..CallPlan::default()
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        let plan = self.plan(arguments);
        let approved = self.server.definition_now(&self.listed.name);
        let (server, name, arguments) = (Arc::clone(&self.server), self.listed.name.clone(), arguments.clone());
        let max_chars = context.limits.max_result_chars;
        let prepared = Prepared::new(plan, move |run| async move {
            if server.definition_now(&name) != approved {
                return ToolOutput::error(CHANGED);
            }
            match server.call(&name, arguments, &run).await {
                Ok(answer) => result::output(&answer, max_chars),
                Err(CallFailure::Answered(text)) => result::failure(&text, max_chars),
                Err(CallFailure::Unreachable(text)) => ToolOutput::error(text),
                Err(CallFailure::CutOff(text)) => ToolOutput { is_cut_off: true, ..ToolOutput::error(text) },
            }
        });
        async move { Ok(prepared) }.boxed()
    }
}
