//! `todo`: the model's own task list, shown to the user as the plan.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::output::one_line;
use super::{
    CallPlan, PlanEntry, PlanPriority, PlanStatus, Prepared, RunContext, SessionState, Tool, ToolContext, ToolFailure,
    ToolKind, ToolOutput, ToolSpec, args,
};
use crate::message::Message;

/// The tool's name.
pub const NAME: &str = "todo";

const DESCRIPTION: &str = "Your task list, shown to the user. todos replaces the whole list; without it the list is \
returned. Use it for work of three or more steps; keep one task in_progress.";

/// Entries of a list; more is no plan.
const MAX_TODOS: usize = 100;

/// Characters of one task.
const MAX_CONTENT_CHARS: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    todos: Option<Vec<Todo>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Todo {
    content: String,
    status: Option<Status>,
    priority: Option<Priority>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Priority {
    High,
    Medium,
    Low,
}

impl From<Todo> for PlanEntry {
    fn from(todo: Todo) -> Self {
        Self {
            content: one_line(&todo.content, MAX_CONTENT_CHARS),
            priority: match todo.priority {
                Some(Priority::High) => PlanPriority::High,
                Some(Priority::Medium) | None => PlanPriority::Medium,
                Some(Priority::Low) => PlanPriority::Low,
            },
            status: match todo.status {
                Some(Status::Pending) | None => PlanStatus::Pending,
                Some(Status::InProgress) => PlanStatus::InProgress,
                Some(Status::Completed) => PlanStatus::Completed,
            },
        }
    }
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>(NAME, DESCRIPTION));

/// Keeps the task list.
#[derive(Debug)]
pub struct TodoList;

impl TodoList {
    fn entries(&self, arguments: &Map<String, Value>) -> Result<Option<Vec<PlanEntry>>, ToolFailure> {
        let Arguments { todos } = args::parse(&SPEC, arguments)?;
        let Some(todos) = todos else { return Ok(None) };
        if todos.len() > MAX_TODOS {
            return Err(ToolFailure::new(format!("{} tasks are too many; keep at most {MAX_TODOS}", todos.len())));
        }
        if let Some(index) = todos.iter().position(|todo| todo.content.trim().is_empty()) {
            return Err(ToolFailure::new(format!("`todos[{index}].content` is empty")));
        }
        Ok(Some(todos.into_iter().map(PlanEntry::from).collect()))
    }

    /// Takes the task list from a session's history: the last call that was answered without an error.
    pub fn hydrate(&self, state: &SessionState, history: &[Message]) {
        let mut answered: HashMap<&str, bool> = HashMap::new();
        for message in history.iter().rev() {
            match message {
                Message::Tool(result) => {
                    answered.entry(&result.tool_call_id).or_insert(!result.is_error);
                }
                Message::Assistant(assistant) => {
                    let calls = assistant.tool_calls.iter().rev();
                    let done = calls.filter(|call| call.name == NAME && answered.get(call.id.as_str()) == Some(&true));
                    let lists = done.filter_map(|call| {
                        let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).ok()?;
                        self.entries(&arguments).ok().flatten()
                    });
                    if let Some(entries) = lists.into_iter().next() {
                        state.set_todos(entries);
                        return;
                    }
                }
                Message::User(_) => {}
            }
        }
    }
}

impl Tool for TodoList {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let entries = self.entries(arguments)?;
            let title = match &entries {
                Some(entries) => format!("Plan {} tasks", entries.len()),
                None => "Look at the task list".into(),
            };
            let plan = CallPlan { title, kind: ToolKind::Think, ..CallPlan::default() };
            let state = context.state.clone();
            Ok(Prepared::new(plan, move |_: RunContext| async move {
                if let Some(entries) = &entries {
                    state.set_todos(entries.clone());
                }
                ToolOutput { plan: entries, ..ToolOutput::text(render(&state.todos())) }
            }))
        })
    }
}

fn render(entries: &[PlanEntry]) -> String {
    if entries.is_empty() {
        return "the task list is empty".into();
    }
    let lines: Vec<String> = entries
        .iter()
        .map(|entry| {
            let mark = match entry.status {
                PlanStatus::Pending => "[ ]",
                PlanStatus::InProgress => "[>]",
                PlanStatus::Completed => "[x]",
            };
            let priority = match entry.priority {
                PlanPriority::High => " (high)",
                PlanPriority::Medium => "",
                PlanPriority::Low => " (low)",
            };
            format!("{mark} {}{priority}", entry.content)
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{AssistantMessage, Effect, Part, ToolCall, ToolResult};
    use crate::tool::testing::Workspace;

    #[tokio::test]
    async fn the_list_is_replaced_and_read_back() {
        let workspace = Workspace::new();
        let todo = TodoList;
        assert_eq!(workspace.succeed(&todo, json!({})).await, "the task list is empty");
        let list = json!({"todos": [
            {"content": "look", "status": "completed"},
            {"content": "mend\nit", "status": "in_progress", "priority": "high"},
            {"content": "test"}
        ]});
        let output = workspace.call(&todo, list).await;
        let expected = "[x] look\n[>] mend it (high)\n[ ] test";
        assert_eq!(crate::tool::testing::text(&output), expected);
        assert_eq!(output.plan.as_ref(), Some(&workspace.context.state.todos()));
        assert_eq!(workspace.succeed(&todo, json!({"todos": null})).await, expected);
        assert_eq!(workspace.call(&todo, json!({})).await.plan, None);
        assert_eq!(workspace.succeed(&todo, json!({"todos": []})).await, "the task list is empty");
    }

    #[tokio::test]
    async fn a_list_that_makes_no_sense_is_refused() {
        let workspace = Workspace::new();
        let check = async |arguments: Value, part: &str| {
            let text = workspace.fail(&TodoList, arguments).await;
            assert!(text.contains(part), "{text}");
        };
        check(json!({"todos": [{"content": "a"}, {"content": " "}]}), "`todos[1].content` is empty").await;
        check(json!({"todos": [{"content": "a", "status": "done"}]}), "pending | in_progress | completed").await;
        check(json!({"todos": vec![json!({"content": "a"}); 101]}), "101 tasks are too many").await;
        check(json!({"items": []}), "unknown parameter `items`").await;
        assert!(workspace.context.state.todos().is_empty());
    }

    #[test]
    fn the_list_comes_back_from_the_history_where_its_call_was_answered() {
        let call = |id: &str, content: &str| {
            let arguments = json!({"todos": [{"content": content}]}).to_string();
            let call = ToolCall { id: id.into(), name: NAME.into(), arguments, extra: None };
            Message::Assistant(AssistantMessage { tool_calls: vec![call], ..Default::default() })
        };
        let result = |id: &str, is_error: bool| {
            Message::Tool(ToolResult {
                tool_call_id: id.into(),
                name: NAME.into(),
                content: vec![Part::text("x")],
                is_error,
                effect: Effect::Done,
            })
        };
        let history =
            [call("1", "first"), result("1", false), call("2", "refused"), result("2", true), call("3", "unanswered")];
        let state = SessionState::default();
        TodoList.hydrate(&state, &history);
        let contents: Vec<String> = state.todos().into_iter().map(|entry| entry.content).collect();
        assert_eq!(contents, ["first"]);
    }
}
