//! What a call that delegated gives back: one section per task in the order of the tasks.

use serde_json::{Value, json};

use super::ChildEnd;
use crate::tool::output::cap;
use crate::tool::{Spent, ToolOutput};
use crate::turn::{TurnReport, TurnStatus};

/// Fewest characters of one child's answer, however many there are.
const MIN_ANSWER_CHARS: usize = 2_000;

/// The call's output. It failed only when no child got anywhere.
pub(super) fn output(ends: &[ChildEnd], max_chars: usize) -> ToolOutput {
    let share = (max_chars / ends.len().max(1)).max(MIN_ANSWER_CHARS);
    let sections: Vec<_> = (1..).zip(ends).map(|(number, end)| section(number, ends.len(), end, share)).collect();
    let children: Vec<_> = ends.iter().map(raw).collect();
    ToolOutput {
        is_error: ends.iter().all(|end| !has_answer(end)),
        raw: Some(json!({ "children": children })),
        spent: Some(spent(ends)),
        ..ToolOutput::text(sections.join("\n\n"))
    }
}

fn has_answer(end: &ChildEnd) -> bool {
    let status = end.outcome.as_ref().ok().map(TurnReport::status);
    matches!(status, Some(TurnStatus::Completed | TurnStatus::BudgetExhausted))
}

fn section(number: usize, of: usize, end: &ChildEnd, max_chars: usize) -> String {
    let session = end.session_id.as_ref().map(|id| format!(", session {id}")).unwrap_or_default();
    let (status, text) = match &end.outcome {
        Err(problem) => ("not started".to_owned(), problem.clone()),
        Ok(report) => (format!("{} after {} steps", report.status().as_str(), report.steps), words(report)),
    };
    let text = cap(&text, max_chars, "the whole answer is in the child's session");
    format!("Task {number} of {of}: {status}{session}\n{text}")
}

/// A child's answer, or why there is none.
fn words(report: &TurnReport) -> String {
    let answer = report.answer.as_deref().map(str::trim).filter(|answer| !answer.is_empty());
    let problem = report.error.as_ref().map(ToString::to_string).or_else(|| report.detail.clone());
    match (answer, problem) {
        (Some(answer), _) => answer.to_owned(),
        (None, Some(problem)) => format!("No answer: {problem}"),
        (None, None) => format!("No answer ({}).", report.exit),
    }
}

fn raw(end: &ChildEnd) -> Value {
    match &end.outcome {
        Err(problem) => json!({ "sessionId": end.session_id, "status": "not_started", "problem": problem }),
        Ok(report) => json!({
            "sessionId": end.session_id,
            "status": report.status().as_str(),
            "exitReason": report.exit.as_str(),
            "steps": report.steps,
            "usage": report.usage,
        }),
    }
}

fn spent(ends: &[ChildEnd]) -> Spent {
    let mut spent = Spent { cost_usd: Some(0.0), ..Spent::default() };
    for report in ends.iter().filter_map(|end| end.outcome.as_ref().ok()) {
        spent.usage.add(&report.usage);
        spent.cost_usd = spent.cost_usd.zip(report.cost_usd).map(|(before, cost)| before + cost);
    }
    spent
}
