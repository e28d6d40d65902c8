//! Makes the tool calls of an answer fit to be stored: ids unique in the session, names that exist.

use std::collections::HashSet;

use crate::message::{AssistantMessage, Message};
use crate::tool::registry::{Lookup, ToolRegistry};

/// Every call id of a history.
pub(super) fn used_ids(history: &[Message], retired: HashSet<String>) -> HashSet<String> {
    let calls = history.iter().filter_map(|message| match message {
        Message::Assistant(assistant) => Some(&assistant.tool_calls),
        _ => None,
    });
    calls.flatten().map(|call| call.id.clone()).chain(retired).collect()
}

/// Repairs names and makes ids unique. The provider's own items go when a call no longer matches them.
pub(super) fn repair(message: &mut AssistantMessage, tools: &ToolRegistry, used: &mut HashSet<String>) {
    let mut is_changed = false;
    for call in &mut message.tool_calls {
        if let Lookup::Repaired(tool) = tools.lookup(&call.name) {
            call.name.clone_from(&tool.spec().name);
            is_changed = true;
        }
        let unique = unique_id(&call.id, used);
        if unique != call.id {
            call.id.clone_from(&unique);
            is_changed = true;
        }
        used.insert(unique);
    }
    if is_changed {
        message.native = None;
    }
}

fn unique_id(id: &str, used: &HashSet<String>) -> String {
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
}
