//! The first half: sorts a history into questions and answers, each answer with its results.

use super::{NO_TEXT, Target, native};
use crate::message::{AssistantMessage, COMPACTION_OPEN, Message, Origin, Part, ToolResult, UserMessage};

/// One side's say.
#[derive(Debug)]
pub(super) enum Step {
    /// A question.
    User(UserMessage),
    /// An answer.
    Assistant(Answer),
}

/// What the model said, and the result of each call where there is one.
#[derive(Debug)]
pub(super) struct Answer {
    /// The message.
    pub(super) message: AssistantMessage,
    /// As many as the message has calls.
    pub(super) results: Vec<Option<ToolResult>>,
}

/// Sorts a history. A result goes to the newest answer only: once the model has answered again, what
/// an older call gave is settled, and changing it would change a prefix that was already sent.
pub(super) fn gather(history: &[Message], target: Target<'_>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(history.len());
    let mut newest_answer = None;
    for message in history {
        match message {
            Message::User(user) => match steps.last_mut() {
                Some(Step::User(before)) if belongs_to(before, user) => join_users(before, user),
                _ => steps.push(Step::User(clean_user(user))),
            },
            Message::Assistant(assistant) => {
                let Some(assistant) = clean_assistant(assistant, target) else { continue };
                match steps.last_mut() {
                    Some(Step::Assistant(answer)) if answer.results.iter().all(Option::is_none) => {
                        answer.merge(assistant, target);
                    }
                    _ => {
                        newest_answer = Some(steps.len());
                        steps.push(Step::Assistant(Answer::new(assistant)));
                    }
                }
            }
            Message::Tool(result) => {
                if let Some(Step::Assistant(answer)) = newest_answer.and_then(|index: usize| steps.get_mut(index)) {
                    answer.take(result);
                }
            }
        }
    }
    steps
}

impl Answer {
    fn new(message: AssistantMessage) -> Self {
        let results = vec![None; message.tool_calls.len()];
        Self { message, results }
    }

    /// Keeps a result if a call with its id still waits. Calls that share an id are served in order.
    fn take(&mut self, result: &ToolResult) {
        let waiting = self
            .message
            .tool_calls
            .iter()
            .zip(&mut self.results)
            .find(|(call, slot)| call.id == result.tool_call_id && slot.is_none());
        if let Some((_, slot)) = waiting {
            *slot = Some(result.clone());
        }
    }

    /// Joins the next message of the same side. A call that is there already in every respect is the
    /// same row read twice; one that only shares the id is a call of its own.
    fn merge(&mut self, next: AssistantMessage, target: Target<'_>) {
        let message = &mut self.message;
        message.native = native::joined(message, &next, target);
        join_lines(&mut message.text, &next.text);
        join_lines(&mut message.reasoning, &next.reasoning);
        for call in next.tool_calls {
            if !message.tool_calls.contains(&call) {
                message.tool_calls.push(call);
            }
        }
        message.finish = next.finish;
        self.results.resize(message.tool_calls.len(), None);
    }
}

fn join_lines(text: &mut String, next: &str) {
    if !text.is_empty() && !next.is_empty() {
        text.push('\n');
    }
    text.push_str(next);
}

/// Words of the user and a summary that stand side by side are one message: the summary holds the answer
/// that would otherwise be missing between them.
fn belongs_to(before: &UserMessage, next: &UserMessage) -> bool {
    next.origin == Origin::Compaction || before.content.last().is_some_and(is_summary)
}

/// True for a part that stands for an older piece of the conversation.
pub(super) fn is_summary(part: &Part) -> bool {
    matches!(part, Part::Text { text } if text.starts_with(COMPACTION_OPEN))
}

fn join_users(before: &mut UserMessage, next: &UserMessage) {
    before.content.extend(clean_user(next).content);
    if next.origin == Origin::User {
        before.origin = Origin::User;
    }
}

fn clean_user(user: &UserMessage) -> UserMessage {
    let mut content = speaking(&user.content);
    if content.is_empty() {
        content.push(Part::text(NO_TEXT));
    }
    UserMessage { content, origin: user.origin }
}

/// The message without blank text and without what another provider wants back for itself; `None` when nothing is left to say.
fn clean_assistant(assistant: &AssistantMessage, target: Target<'_>) -> Option<AssistantMessage> {
    let mut assistant = assistant.clone();
    if is_blank(&assistant.text) {
        assistant.text.clear();
    }
    if assistant.native.as_ref().is_some_and(|native| !native::is_issued_by(native, target)) {
        assistant.native = None;
        assistant.reasoning.clear();
        assistant.tool_calls.iter_mut().for_each(|call| call.extra = None);
    }
    native::bind(&mut assistant, target.api_mode);
    says_something(&assistant, target).then_some(assistant)
}

/// Whether a message has anything a provider would take for content.
pub(super) fn says_something(assistant: &AssistantMessage, target: Target<'_>) -> bool {
    !is_blank(&assistant.text)
        || !assistant.tool_calls.is_empty()
        || assistant.native.as_ref().is_some_and(|native| native::says_something(native, target.api_mode))
}

/// The parts that say something: no blank text, no picture without bytes.
pub(super) fn speaking(parts: &[Part]) -> Vec<Part> {
    parts.iter().filter(|part| !is_silent(part)).cloned().collect()
}

/// True for a part that strict providers refuse as empty.
pub(super) fn is_silent(part: &Part) -> bool {
    match part {
        Part::Text { text } => is_blank(text),
        Part::Image { mime_type, data } => is_blank(mime_type) || is_blank(data),
        Part::Link { .. } | Part::Resource { .. } => false,
    }
}

pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
