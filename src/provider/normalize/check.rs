//! What every request's history must satisfy, as a check.

use std::collections::{HashSet, VecDeque};

use super::{Target, arguments, ids, native, steps};
use crate::message::{AssistantMessage, Message, ToolResult};

/// The first rule a history breaks. `index` is the message's place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The first message is not the user's.
    #[error("message 0 is not the user's")]
    BeginsWrong,
    /// A message stands where the other side had to speak.
    #[error("message {index} follows a message of the same side or unanswered results")]
    NotAlternating {
        /// The message.
        index: usize,
    },
    /// A call has no result where it had to be.
    #[error("call {id:?} has no result before message {index}")]
    Unanswered {
        /// The message that came instead; the length of the history at its end.
        index: usize,
        /// The call.
        id: String,
    },
    /// A result answers no call, or not the next one.
    #[error("message {index} answers {id:?}, which is not the next open call")]
    StrayResult {
        /// The message.
        index: usize,
        /// The id it names.
        id: String,
    },
    /// A call's id is used twice or not legal for the target.
    #[error("message {index} has the call id {id:?}, which is used before or not legal")]
    BadId {
        /// The message.
        index: usize,
        /// The id.
        id: String,
    },
    /// A tool's name is not legal.
    #[error("message {index} has the tool name {name:?}, which is not legal")]
    BadName {
        /// The message.
        index: usize,
        /// The name.
        name: String,
    },
    /// A call's arguments are not a compact JSON object.
    #[error("message {index} has a call {id:?} whose arguments are not a compact JSON object")]
    BadArguments {
        /// The message.
        index: usize,
        /// The call.
        id: String,
    },
    /// A message or one of its parts says nothing.
    #[error("message {index} is blank or has a blank part")]
    Blank {
        /// The message.
        index: usize,
    },
    /// Native items of another issuer, or that do not say what the message says.
    #[error("message {index} has native items that are not the target's or disagree with the message")]
    BadNative {
        /// The message.
        index: usize,
    },
}

/// Checks that a strict provider would take this history. An empty one passes.
///
/// Holds of everything [`super::normalize`] returns:
/// - the user speaks first; user and assistant alternate, results belong to the assistant's side, and
///   an assistant message stands between results and the next user message;
/// - every call is answered exactly once, right behind it, in call order;
/// - call ids are unique and legal for the target, names legal, arguments a compact JSON object;
/// - no content is blank;
/// - native items are the target's own and agree with the message.
///
/// # Errors
/// The first rule broken.
pub fn check(messages: &[Message], target: Target<'_>) -> Result<(), Violation> {
    let mut open: VecDeque<&str> = VecDeque::new();
    let mut used = HashSet::new();
    let mut previous: Option<&Message> = None;
    for (index, message) in messages.iter().enumerate() {
        if let (Some(id), Message::User(_) | Message::Assistant(_)) = (open.front(), message) {
            return Err(Violation::Unanswered { index, id: (*id).to_owned() });
        }
        match (previous, message) {
            (None, Message::User(_)) | (_, Message::Tool(_)) => {}
            (None, Message::Assistant(_)) => return Err(Violation::BeginsWrong),
            (Some(Message::Assistant(_)), Message::User(_))
            | (Some(Message::User(_) | Message::Tool(_)), Message::Assistant(_)) => {}
            _ => return Err(Violation::NotAlternating { index }),
        }
        match message {
            Message::User(user) => check_content(&user.content, index)?,
            Message::Assistant(assistant) => {
                check_answer(assistant, index, target)?;
                for call in &assistant.tool_calls {
                    if !ids::is_legal(&call.id, target) || !used.insert(call.id.as_str()) {
                        return Err(Violation::BadId { index, id: call.id.clone() });
                    }
                    open.push_back(&call.id);
                }
            }
            Message::Tool(result) => check_result(result, open.pop_front(), index)?,
        }
        previous = Some(message);
    }
    match open.front() {
        Some(id) => Err(Violation::Unanswered { index: messages.len(), id: (*id).to_owned() }),
        None => Ok(()),
    }
}

fn check_result(result: &ToolResult, open: Option<&str>, index: usize) -> Result<(), Violation> {
    if open != Some(result.tool_call_id.as_str()) {
        return Err(Violation::StrayResult { index, id: result.tool_call_id.clone() });
    }
    check_content(&result.content, index)
}

fn check_content(parts: &[crate::message::Part], index: usize) -> Result<(), Violation> {
    if parts.is_empty() || parts.iter().any(steps::is_silent) {
        return Err(Violation::Blank { index });
    }
    Ok(())
}

fn check_answer(assistant: &AssistantMessage, index: usize, target: Target<'_>) -> Result<(), Violation> {
    let has_blank_text = !assistant.text.is_empty() && steps::is_blank(&assistant.text);
    if has_blank_text || !steps::says_something(assistant, target) {
        return Err(Violation::Blank { index });
    }
    for call in &assistant.tool_calls {
        if call.name != ids::legal_name(&call.name) {
            return Err(Violation::BadName { index, name: call.name.clone() });
        }
        if !arguments::is_object(&call.arguments) || arguments::compacted(&call.arguments).is_some() {
            return Err(Violation::BadArguments { index, id: call.id.clone() });
        }
    }
    let Some(native) = &assistant.native else { return Ok(()) };
    let mut bound = assistant.clone();
    native::bind(&mut bound, target.api_mode);
    if !native::is_issued_by(native, target) || bound.native.as_ref() != Some(native) {
        return Err(Violation::BadNative { index });
    }
    Ok(())
}
