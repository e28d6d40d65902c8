//! Notices when a turn goes in circles: the same call failing, the same tool failing, the same question
//! answered the same way again and again.
//!
//! A warning rides on the result. Stopping is the user's choice (`tools.guardrail_hard_stop`), because a
//! legitimate loop looks the same from here.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

/// Failures of one call before the model is warned, and before it is blocked.
const SAME_CALL: (u32, u32) = (2, 5);
/// Failures in a row of one tool before the model is warned, and before the turn halts.
const SAME_TOOL: (u32, u32) = (3, 8);
/// Identical answers to one read-only call before the model is warned, and before it is blocked.
const NO_PROGRESS: (u32, u32) = (2, 5);

type Hash = [u8; 32];

/// Whether circles are stopped or only pointed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Warn.
    #[default]
    Warn,
    /// Warn, then block calls and halt the turn.
    HardStop,
}

/// What is known about the calls of one turn.
#[derive(Debug, Default)]
pub(super) struct Guardrails {
    strictness: Strictness,
    failed_calls: HashMap<Hash, u32>,
    failing_tools: HashMap<String, u32>,
    answers: HashMap<Hash, (Hash, u32)>,
    is_halted: bool,
}

/// One call that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended<'a> {
    pub(super) tool: &'a str,
    /// The arguments as the model wrote them.
    pub(super) arguments: &'a str,
    pub(super) is_failed: bool,
    pub(super) is_read_only: bool,
    pub(super) result: &'a str,
}

impl Guardrails {
    pub(super) fn new(strictness: Strictness) -> Self {
        Self { strictness, ..Self::default() }
    }

    /// Why a call may not run again, if so. Asking for a blocked call counts as a failure of its tool,
    /// so that a model which goes on asking halts the turn.
    pub(super) fn block(&mut self, tool: &str, arguments: &str) -> Option<String> {
        if self.strictness == Strictness::Warn {
            return None;
        }
        let reason = self.reason_to_block(tool, arguments)?;
        self.count_tool_failure(tool);
        Some(reason)
    }

    fn reason_to_block(&self, tool: &str, arguments: &str) -> Option<String> {
        let call = identity(tool, arguments);
        if self.failed_calls.get(&call).is_some_and(|count| *count >= SAME_CALL.1) {
            return Some(format!("this exact call has failed {} times in this turn", SAME_CALL.1));
        }
        let is_stuck = self.answers.get(&call).is_some_and(|(_, count)| *count >= NO_PROGRESS.1);
        is_stuck.then(|| format!("this exact call has given the same result {} times in this turn", NO_PROGRESS.1))
    }

    /// Takes note of a call; returns a warning for the model.
    pub(super) fn note(&mut self, ended: Ended<'_>) -> Option<String> {
        let call = identity(ended.tool, ended.arguments);
        if ended.is_failed {
            return self.note_failure(call, ended.tool);
        }
        self.failed_calls.remove(&call);
        self.failing_tools.remove(ended.tool);
        if !ended.is_read_only {
            // Something may have changed, so asking again makes sense.
            self.answers.clear();
            return None;
        }
        let result: Hash = Sha256::digest(ended.result).into();
        let known = self.answers.entry(call).or_insert((result, 0));
        *known = if known.0 == result { (result, known.1 + 1) } else { (result, 1) };
        let count = known.1;
        (count >= NO_PROGRESS.0).then(|| {
            format!("This exact call has given the same result {count} times. Use what it gave, or try something else.")
        })
    }

    /// True when the turn should halt.
    pub(super) fn is_halted(&self) -> bool {
        self.is_halted
    }

    fn note_failure(&mut self, call: Hash, tool: &str) -> Option<String> {
        let same_call = self.failed_calls.entry(call).or_default();
        *same_call += 1;
        let same_call = *same_call;
        let same_tool = self.count_tool_failure(tool);
        if same_call >= SAME_CALL.0 {
            Some(format!(
                "This exact call has failed {same_call} times. Repeating it will not help; change the approach."
            ))
        } else if same_tool >= SAME_TOOL.0 {
            Some(format!("`{tool}` has failed {same_tool} times in a row. Look at the errors before calling it again."))
        } else {
            None
        }
    }

    fn count_tool_failure(&mut self, tool: &str) -> u32 {
        let count = self.failing_tools.entry(tool.to_owned()).or_default();
        *count += 1;
        if self.strictness == Strictness::HardStop && *count >= SAME_TOOL.1 {
            self.is_halted = true;
        }
        *count
    }
}

/// A call's identity: the tool and its arguments, spelling of the JSON aside.
fn identity(tool: &str, arguments: &str) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(tool.len().to_le_bytes());
    hasher.update(tool);
    match serde_json::from_str::<serde_json::Value>(arguments) {
        Ok(mut value) => {
            value.sort_all_objects();
            hasher.update(value.to_string());
        }
        Err(_) => hasher.update(arguments),
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(tool: &'static str, arguments: &'static str, is_failed: bool) -> Ended<'static> {
        Ended { tool, arguments, is_failed, is_read_only: true, result: "r" }
    }

    #[test]
    fn the_same_failing_call_warns_at_two_and_is_blocked_at_five() {
        let mut guard = Guardrails::new(Strictness::HardStop);
        let warned: Vec<_> = (0..5).map(|_| guard.note(ended("t", r#"{"a":1,"b":2}"#, true)).is_some()).collect();
        assert_eq!(warned, [false, true, true, true, true]);
        assert!(guard.block("t", r#"{ "b": 2, "a": 1 }"#).is_some());
        assert!(guard.block("t", r#"{"a":2}"#).is_none());
        let mut lenient = Guardrails::new(Strictness::Warn);
        for _ in 0..9 {
            lenient.note(ended("t", "{}", true));
        }
        assert!(lenient.block("t", "{}").is_none() && !lenient.is_halted());
    }

    #[test]
    fn a_tool_that_keeps_failing_warns_at_three_and_halts_at_eight() {
        let mut guard = Guardrails::new(Strictness::HardStop);
        let arguments = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let warned: Vec<_> = arguments.map(|arguments| guard.note(ended("t", arguments, true)).is_some()).into();
        assert_eq!(warned, [false, false, true, true, true, true, true, true]);
        assert!(guard.is_halted());
    }

    #[test]
    fn the_same_answer_warns_at_two_and_a_change_in_between_resets_it() {
        let mut guard = Guardrails::default();
        assert!(guard.note(ended("read", "{}", false)).is_none());
        assert!(guard.note(ended("read", "{}", false)).is_some());
        guard.note(Ended { is_read_only: false, ..ended("write", "{}", false) });
        assert!(guard.note(ended("read", "{}", false)).is_none());
    }
}
