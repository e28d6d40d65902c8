//! `clarify`: a question of the model to the user, and every way it can end.
//!
//! How it is put is the client's business, behind [`Inquirer`]: a form, buttons, a terminal.

use std::fmt;
use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::output::{cap, one_line};
use super::{CallPlan, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec, args};

/// The tool's name.
pub const NAME: &str = "clarify";

const DESCRIPTION: &str = "Ask the user one question when the task cannot be done well without the answer. Give \
options where you can.";

/// Characters of a question; more is a text, not a question.
const MAX_QUESTION_CHARS: usize = 2_000;

/// Options of a question, and characters of one.
const MAX_OPTIONS: usize = 10;
const MAX_OPTION_CHARS: usize = 200;

/// Characters of an answer that reach the model.
const MAX_ANSWER_CHARS: usize = 20_000;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    question: String,
    options: Option<Vec<String>>,
}

/// A question to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The call that asks it.
    pub call_id: String,
    /// The question.
    pub question: String,
    /// What can be chosen; none: any text.
    pub options: Vec<String>,
}

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InquiryEnd {
    /// With an answer.
    Answered(String),
    /// The user does not want to answer it.
    Declined,
    /// The user closed it.
    Dismissed,
    /// Nobody answered in time.
    TimedOut,
    /// It cannot be put to anybody here, and why.
    Unavailable(&'static str),
    /// The whole turn was called off.
    CalledOff,
}

/// Puts questions to the user.
pub trait Inquirer: Send + Sync + fmt::Debug {
    /// Asks and waits for the end. Dropping the future withdraws the question.
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryEnd>;
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>(NAME, DESCRIPTION));

/// Asks the user.
#[derive(Debug)]
pub struct Clarify {
    inquirer: Arc<dyn Inquirer>,
}

impl Clarify {
    /// The tool, with whoever puts its questions.
    #[must_use]
    pub fn new(inquirer: Arc<dyn Inquirer>) -> Self {
        Self { inquirer }
    }
}

impl Arguments {
    fn checked(self) -> Result<(String, Vec<String>), ToolFailure> {
        let question = self.question.trim().to_owned();
        if question.is_empty() {
            return Err(ToolFailure::new("`question` is empty"));
        }
        if question.chars().count() > MAX_QUESTION_CHARS {
            return Err(ToolFailure::new(format!("`question` is longer than {MAX_QUESTION_CHARS} characters")));
        }
        let mut options: Vec<String> = Vec::new();
        for (index, option) in self.options.unwrap_or_default().iter().enumerate() {
            let option = one_line(option, MAX_OPTION_CHARS);
            if option.is_empty() {
                return Err(ToolFailure::new(format!("`options[{index}]` is empty")));
            }
            if !options.contains(&option) {
                options.push(option);
            }
        }
        if options.len() > MAX_OPTIONS {
            return Err(ToolFailure::new(format!(
                "{} options are too many; give at most {MAX_OPTIONS}",
                options.len()
            )));
        }
        Ok((question, options))
    }
}

impl Tool for Clarify {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn is_interactive(&self) -> bool {
        true
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let (question, options) = args::parse::<Arguments>(&SPEC, arguments)?.checked()?;
            let title = format!("Ask: {}", one_line(&question, 120));
            let plan = CallPlan { title, kind: ToolKind::Think, ..CallPlan::default() };
            let inquirer = Arc::clone(&self.inquirer);
            Ok(Prepared::new(plan, move |run: RunContext| async move {
                let inquiry = Inquiry { call_id: run.call_id, question, options };
                let end = tokio::select! {
                    biased;
                    () = run.cancel.cancelled() => InquiryEnd::CalledOff,
                    end = inquirer.inquire(inquiry) => end,
                };
                if end == InquiryEnd::CalledOff {
                    run.cancel.cancel();
                }
                output(end)
            }))
        })
    }
}

/// What the model is told; each end has words of its own.
fn output(end: InquiryEnd) -> ToolOutput {
    match end {
        InquiryEnd::Answered(answer) => {
            let answer = cap(answer.trim(), MAX_ANSWER_CHARS, "the user's answer was longer");
            ToolOutput::text(format!("The user answered: {answer}"))
        }
        InquiryEnd::Declined => ToolOutput::text(
            "The user declined to answer (declined). Decide it yourself where that is safe, and say what you assumed.",
        ),
        InquiryEnd::Dismissed => ToolOutput::text(
            "The user closed the question without an answer (dismissed). Do not ask it again; go on as well as you can.",
        ),
        InquiryEnd::TimedOut => ToolOutput::text(
            "Nobody answered in time (timed_out). The user may be away: go on as well as you can and repeat the question \
             in your answer.",
        ),
        InquiryEnd::Unavailable(why) => ToolOutput::error(format!("The question was not asked (unavailable): {why}")),
        InquiryEnd::CalledOff => ToolOutput { is_cut_off: true, ..ToolOutput::error("cancelled") },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::tool::testing::Workspace;

    #[derive(Debug)]
    struct Scripted(InquiryEnd, Mutex<Vec<Inquiry>>);

    impl Inquirer for Scripted {
        fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryEnd> {
            self.1.lock().unwrap().push(inquiry);
            Box::pin(std::future::ready(self.0.clone()))
        }
    }

    async fn ask(end: InquiryEnd, arguments: Value) -> (ToolOutput, Vec<Inquiry>) {
        let user = Arc::new(Scripted(end, Mutex::default()));
        let output = Workspace::new().call(&Clarify::new(Arc::clone(&user) as Arc<dyn Inquirer>), arguments).await;
        let asked = user.1.lock().unwrap().clone();
        (output, asked)
    }

    #[tokio::test]
    async fn every_end_of_a_question_has_words_of_its_own() {
        let mut texts = std::collections::HashSet::new();
        for (end, part) in [
            (InquiryEnd::Answered(" blue ".into()), "The user answered: blue"),
            (InquiryEnd::Declined, "declined"),
            (InquiryEnd::Dismissed, "dismissed"),
            (InquiryEnd::TimedOut, "timed_out"),
            (InquiryEnd::Unavailable("no terminal"), "no terminal"),
            (InquiryEnd::CalledOff, "cancelled"),
        ] {
            let (output, _) = ask(end.clone(), json!({"question": "Which colour?"})).await;
            let text = crate::tool::testing::text(&output);
            assert!(text.contains(part), "{text}");
            assert_eq!(output.is_cut_off, end == InquiryEnd::CalledOff);
            texts.insert(text);
        }
        assert_eq!(texts.len(), 6);
    }

    #[tokio::test]
    async fn a_question_is_checked_before_anybody_sees_it() {
        for (arguments, part) in [
            (json!({"question": " "}), "`question` is empty"),
            (json!({"question": "x".repeat(2_001)}), "longer than 2000"),
            (json!({"question": "q", "options": ["a", " "]}), "`options[1]` is empty"),
            (json!({"question": "q", "options": (0..11).map(|n| n.to_string()).collect::<Vec<_>>()}), "11 options"),
        ] {
            let (output, asked) = ask(InquiryEnd::Declined, arguments).await;
            assert!(output.is_error && asked.is_empty());
            assert!(crate::tool::testing::text(&output).contains(part), "{output:?}");
        }
        let (_, asked) = ask(InquiryEnd::Declined, json!({"question": "q", "options": ["a", "b\n", "a"]})).await;
        assert_eq!(asked[0].options, ["a", "b"]);
    }
}
