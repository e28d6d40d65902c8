//! `delegate_task`: one task or several for child agents, run side by side up to a limit.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::{Assignment, ChildEnd, Children, report};
use crate::tool::output::one_line;
use crate::tool::{
    CallPlan, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec, args,
};

/// The tool's name.
pub const NAME: &str = "delegate_task";

const DESCRIPTION: &str = "Give a task to a child agent, or several that do not depend on each other with tasks. A \
child knows nothing of this conversation: put all it needs into goal and context. Its final answer comes back.";

/// Tasks of one call; what is over waits for nobody and is refused, so that the model splits it.
const MAX_TASKS: usize = 16;

/// Characters of a goal and of a context.
const MAX_GOAL_CHARS: usize = 20_000;
const MAX_CONTEXT_CHARS: usize = 100_000;

/// A child ends by itself soon after a cancel, its tools and stream included; this only bounds a fault.
const CANCEL_GRACE: Duration = Duration::from_secs(30);

/// What models know from other agents and must not set here: a child's budget is the user's choice.
const IGNORED: [&str; 1] = ["max_iterations"];

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    goal: Option<String>,
    context: Option<String>,
    tasks: Option<Vec<Task>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Task {
    goal: String,
    context: Option<String>,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>(NAME, DESCRIPTION));

/// Gives tasks to child agents.
#[derive(Debug)]
pub struct DelegateTask {
    children: Arc<dyn Children>,
    /// Children of this agent that may run at a time.
    room: Arc<Semaphore>,
}

impl DelegateTask {
    /// The tool of one agent. `max_concurrent`: children at a time, at least 1.
    #[must_use]
    pub fn new(children: Arc<dyn Children>, max_concurrent: usize) -> Self {
        let room = max_concurrent.clamp(1, Semaphore::MAX_PERMITS);
        Self { children, room: Arc::new(Semaphore::new(room)) }
    }

    fn tasks(&self, arguments: &Map<String, Value>) -> Result<Vec<Task>, ToolFailure> {
        let Arguments { goal, context, tasks } = args::parse(&SPEC, &without_ignored(arguments))?;
        let tasks = match (goal, tasks.filter(|tasks| !tasks.is_empty())) {
            (Some(goal), None) => vec![Task { goal, context }],
            (None, Some(tasks)) if context.is_none() => tasks,
            (None, Some(_)) => return Err(ToolFailure::new("give each of `tasks` its own `context`")),
            (Some(_), Some(_)) => return Err(ToolFailure::new("give either `goal` or `tasks`, not both")),
            (None, None) => return Err(ToolFailure::new("`goal` is missing; for several tasks give `tasks`")),
        };
        if tasks.len() > MAX_TASKS {
            return Err(ToolFailure::new(format!(
                "{} tasks are too many, and none was started; give at most {MAX_TASKS} in one call",
                tasks.len()
            )));
        }
        for (number, task) in (1..).zip(&tasks) {
            check(number, task)?;
        }
        Ok(tasks)
    }
}

fn check(number: usize, task: &Task) -> Result<(), ToolFailure> {
    let context = task.context.as_deref().unwrap_or_default();
    if task.goal.trim().is_empty() {
        Err(ToolFailure::new(format!("the goal of task {number} is empty")))
    } else if task.goal.chars().count() > MAX_GOAL_CHARS || context.chars().count() > MAX_CONTEXT_CHARS {
        Err(ToolFailure::new(format!(
            "task {number} is too long: {MAX_GOAL_CHARS} characters of goal and {MAX_CONTEXT_CHARS} of context at most; \
             name files instead of quoting them"
        )))
    } else {
        Ok(())
    }
}

fn without_ignored(arguments: &Map<String, Value>) -> Map<String, Value> {
    let mut arguments = arguments.clone();
    let drop_ignored = |map: &mut Map<String, Value>| map.retain(|name, _| !IGNORED.contains(&name.as_str()));
    drop_ignored(&mut arguments);
    if let Some(Value::Array(tasks)) = arguments.get_mut("tasks") {
        tasks.iter_mut().filter_map(Value::as_object_mut).for_each(drop_ignored);
    }
    arguments
}

impl Tool for DelegateTask {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let tasks = self.tasks(arguments)?;
            let title = match tasks.as_slice() {
                [task] => format!("Delegate: {}", one_line(&task.goal, 100)),
                tasks => format!("Delegate {} tasks", tasks.len()),
            };
            let plan = CallPlan { title, kind: ToolKind::Think, ..CallPlan::default() };
            let (children, room) = (Arc::clone(&self.children), Arc::clone(&self.room));
            let max_chars = context.limits.max_result_chars;
            let prepared = Prepared::new(plan, move |run| carry_out(children, room, tasks, max_chars, run));
            Ok(prepared.with_cancel_grace(CANCEL_GRACE))
        })
    }
}

async fn carry_out(
    children: Arc<dyn Children>,
    room: Arc<Semaphore>,
    tasks: Vec<Task>,
    max_chars: usize,
    run: RunContext,
) -> ToolOutput {
    let RunContext { call_id, cancel, progress, .. } = run;
    let board = Board::new(tasks.iter().map(|task| task.goal.as_str()), progress);
    let assignments = tasks.into_iter().enumerate().map(|(index, task)| Assignment {
        call_id: call_id.clone(),
        number: index + 1,
        goal: task.goal.trim().to_owned(),
        context: task.context.filter(|context| !context.trim().is_empty()),
        slot: board.slot(index),
    });
    let ends = join_all(assignments.map(|assignment| one(&*children, &room, assignment, &cancel))).await;
    let output = report::output(&ends, max_chars);
    ToolOutput { is_cut_off: cancel.is_cancelled(), ..output }
}

/// Runs one child once there is room for it.
async fn one(
    children: &dyn Children,
    room: &Semaphore,
    assignment: Assignment,
    cancel: &CancellationToken,
) -> ChildEnd {
    let slot = assignment.slot.clone();
    let not_started = |why: &str| ChildEnd { session_id: None, outcome: Err(why.into()) };
    let place = tokio::select! {
        biased;
        () = cancel.cancelled() => return not_started("the turn was cancelled before this task began"),
        place = room.acquire() => place,
    };
    let Ok(_place) = place else { return not_started("no more children can be started") };
    slot.show("begins");
    // The turn's own token: who calls a child off at a question calls the whole turn off.
    let end = children.run(assignment, cancel.clone()).await;
    match &end.outcome {
        Ok(report) => slot.show(report.status().as_str()),
        Err(problem) => slot.show(&format!("not started: {problem}")),
    }
    end
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Children for Nobody {
        fn run(&self, _: Assignment, _: CancellationToken) -> BoxFuture<'_, ChildEnd> {
            Box::pin(std::future::ready(ChildEnd { session_id: None, outcome: Err("nobody".into()) }))
        }
    }

    fn tasks(arguments: &Value) -> Result<Vec<String>, String> {
        let tool = DelegateTask::new(Arc::new(Nobody), 3);
        let tasks = tool.tasks(arguments.as_object().unwrap());
        tasks.map(|tasks| tasks.into_iter().map(|task| task.goal).collect()).map_err(|failure| failure.text)
    }

    #[test]
    fn one_task_or_several_and_never_a_budget() {
        assert_eq!(tasks(&json!({"goal": "a", "context": "b", "max_iterations": 9000})).unwrap(), ["a"]);
        let several = json!({"tasks": [{"goal": "a", "max_iterations": 1}, {"goal": "a"}]});
        assert_eq!(tasks(&several).unwrap(), ["a", "a"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_whole() {
        let many: Vec<_> = (0..17).map(|_| json!({"goal": "a"})).collect();
        for (arguments, part) in [
            (json!({}), "`goal` is missing"),
            (json!({"tasks": []}), "`goal` is missing"),
            (json!({"goal": "a", "tasks": [{"goal": "b"}]}), "not both"),
            (json!({"tasks": [{"goal": "b"}], "context": "c"}), "own `context`"),
            (json!({"tasks": [{"goal": "b"}, {"goal": " "}]}), "the goal of task 2 is empty"),
            (json!({"goal": "x".repeat(20_001)}), "too long"),
            (json!({"tasks": many}), "17 tasks are too many, and none was started"),
            (json!({"goal": "a", "agent": "b"}), "unknown parameter `agent`"),
        ] {
            let error = tasks(&arguments).unwrap_err();
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}
