//! Makes the tool calls of an answer fit to be stored: ids unique in the session, names that exist.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::message::{AssistantMessage, Message};
use crate::tool::registry::{Lookup, ToolRegistry};

/// Every call id of a history.
pub(crate) fn used_ids(history: &[Message], retired: HashSet<String>) -> HashSet<String> {
    let calls = history.iter().filter_map(|message| match message {
        Message::Assistant(assistant) => Some(&assistant.tool_calls),
        _ => None,
    });
    calls.flatten().map(|call| call.id.clone()).chain(retired).collect()
}

/// Repairs names, makes ids unique and takes arguments out of a second coat of JSON or from behind an empty object. The
/// provider's own items are made to agree when they are sent.
pub(super) fn repair(message: &mut AssistantMessage, tools: &ToolRegistry, used: &mut HashSet<String>) {
    for call in &mut message.tool_calls {
        if let Lookup::Repaired(tool) = tools.lookup(&call.name) {
            call.name.clone_from(&tool.spec().name);
        }
        call.id = unique_id(&call.id, used);
        used.insert(call.id.clone());
        if let Some(arguments) = encoded_twice(&call.arguments).or_else(|| after_empty(&call.arguments)) {
            call.arguments = arguments;
        }
    }
}

/// The arguments that a JSON text holds in place of the object itself; `None` for any others.
fn encoded_twice(arguments: &str) -> Option<String> {
    let inner: String = serde_json::from_str(arguments.trim()).ok()?;
    is_object(&inner).then_some(inner)
}

/// The arguments behind an empty object, with which some servers begin every call; `None` for any others.
fn after_empty(arguments: &str) -> Option<String> {
    let rest = arguments.trim_start().strip_prefix("{}")?;
    is_object(rest).then(|| rest.to_owned())
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// An id that no call of the session has, like the given one.
pub(crate) fn unique_id(id: &str, used: &HashSet<String>) -> String {
    let base = if id.trim().is_empty() { "call" } else { id };
    let is_free = |candidate: &str| !used.contains(candidate);
    if base == id && is_free(id) {
        return id.to_owned();
    }
    let numbered = (2_u64..).map(|number| format!("{base}_{number}"));
    numbered.into_iter().find(|candidate| is_free(candidate)).unwrap_or_else(|| base.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_or_missing_id_is_made_unique() {
        let used: HashSet<String> = ["a", "a_2", "call_2"].map(String::from).into();
        assert_eq!(unique_id("b", &used), "b");
        assert_eq!(unique_id("a", &used), "a_3");
        assert_eq!(unique_id("", &used), "call_3");
    }

    #[test]
    fn arguments_encoded_twice_are_read_and_other_texts_are_not() {
        assert_eq!(encoded_twice(r#" "{\"a\": 1}" "#).as_deref(), Some(r#"{"a": 1}"#));
        for other in [r#"{"a":1}"#, r#""text""#, r#""[1]""#, r#""{\"a\"""#, r#""{\"a\":1}"#, ""] {
            assert_eq!(encoded_twice(other), None, "{other}");
        }
    }

    #[test]
    fn arguments_behind_an_empty_object_are_read_and_other_texts_are_not() {
        assert_eq!(after_empty(r#" {}{"a": 1}"#).as_deref(), Some(r#"{"a": 1}"#));
        for other in ["{}", r#"{"a":1}"#, r#"{}{"a":"#, r#"{"a":1}{"b":2}"#, "{}[1]", ""] {
            assert_eq!(after_empty(other), None, "{other}");
        }
    }
}
