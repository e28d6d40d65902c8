//! One history in, one that every strict provider accepts out.
//!
//! Histories get damaged: turns are aborted, results arrive late or twice, models write broken
//! arguments, providers differ in the ids they allow. [`normalize`] is the only place that mends this.
//! It is pure and idempotent, never touches the store, and [`check`] states what it promises.
//!
//! It works forward only: what it makes of a message depends on the messages before it, so a request
//! is a byte-for-byte prefix of the next one wherever the history was complete, and prompt caches hit.
//!
//! Deliberately absent: how a message looks on the wire (the encoders), and any judgement about the
//! length of a history (compaction).

mod arguments;
mod check;
mod ids;
mod native;
mod steps;

#[cfg(test)]
pub(super) mod random_tests;
#[cfg(test)]
mod tests;

use super::ApiMode;
use crate::message::{AssistantMessage, Effect, Message, Part, ToolResult};
use ids::CallIds;
use steps::{Answer, Step};

pub use check::{Violation, check};

/// Stands for the answer of a turn that ended without one, so that two questions never touch.
pub const TURN_ENDED: &str = "(The turn ended here before an answer was given.)";
/// Stands between tool results and the summary of what followed them.
pub const GOES_ON_BELOW: &str = "(What was done next is part of the summary below.)";
/// Stands for the user's words in front of a history that begins with an answer.
pub const BEGINNING_MISSING: &str = "(The beginning of this conversation is not available.)";
/// Stands for a user message without content.
pub const NO_TEXT: &str = "(no text)";
/// Stands for the output of a silent tool.
pub const NO_OUTPUT: &str = "(no output)";
/// Stands for the result of a call that was never answered.
pub const INTERRUPTED: &str = "interrupted, effect unknown";

/// Who will read the history. Decides which call ids are legal and whose native items may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The wire format.
    pub api_mode: ApiMode,
    /// The provider's name in the configuration.
    pub provider: &'a str,
    /// The model asked.
    pub model: &'a str,
}

/// The history as `target` may see it. See [`check`] for what holds of the result.
///
/// No message with something to say is lost: parts are moved, renamed or joined, and only
/// duplicates, results without a call and blank content are dropped.
#[must_use]
pub fn normalize(history: &[Message], target: Target<'_>) -> Vec<Message> {
    let messages = write(steps::gather(history, target), target);
    debug_assert_eq!(check(&messages, target), Ok(()));
    messages
}

fn write(steps: Vec<Step>, target: Target<'_>) -> Vec<Message> {
    let mut messages = Vec::with_capacity(steps.len());
    let mut ids = CallIds::new(target);
    for step in steps {
        match step {
            Step::User(user) => {
                if matches!(messages.last(), Some(Message::User(_) | Message::Tool(_))) {
                    let is_summary = user.content.first().is_some_and(steps::is_summary);
                    let text = if is_summary { GOES_ON_BELOW } else { TURN_ENDED };
                    messages.push(placeholder(text));
                }
                messages.push(Message::User(user));
            }
            Step::Assistant(answer) => {
                if messages.is_empty() {
                    messages.push(Message::user(BEGINNING_MISSING));
                }
                write_answer(answer, &mut ids, target.api_mode, &mut messages);
            }
        }
    }
    messages
}

fn write_answer(answer: Answer, ids: &mut CallIds, mode: ApiMode, messages: &mut Vec<Message>) {
    let Answer { mut message, results } = answer;
    let mut written = Vec::with_capacity(results.len());
    for (call, result) in message.tool_calls.iter_mut().zip(results) {
        let marker = arguments::mend(&mut call.arguments);
        call.id = ids.claim(&call.id);
        call.name = ids::legal_name(&call.name);
        let mut result = result.unwrap_or_else(interrupted);
        result.tool_call_id.clone_from(&call.id);
        result.name.clone_from(&call.name);
        result.content = steps::speaking(&result.content);
        if result.content.is_empty() {
            result.content.push(Part::text(NO_OUTPUT));
        }
        if let Some(marker) = marker {
            result.content.insert(0, Part::text(marker));
        }
        written.push(Message::Tool(result));
    }
    native::bind(&mut message, mode);
    messages.push(Message::Assistant(message));
    messages.append(&mut written);
}

fn placeholder(text: &str) -> Message {
    Message::Assistant(AssistantMessage { text: text.into(), ..AssistantMessage::default() })
}

fn interrupted() -> ToolResult {
    ToolResult {
        tool_call_id: String::new(),
        name: String::new(),
        content: vec![Part::text(INTERRUPTED)],
        is_error: true,
        effect: Effect::Unknown,
    }
}
