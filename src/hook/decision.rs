//! What the answers of hooks mean.

use serde_json::{Map, Value};

/// What `pre_tool_call` hooks decided about a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ToolDecision {
    /// Nothing: the gate decides alone.
    #[default]
    Pass,
    /// These arguments go over the model's; the result is judged like any other call.
    Modify(Map<String, Value>),
    /// The user must be asked, whatever rules and mode say; about these arguments, where a hook changed any.
    Ask {
        /// Why.
        reason: String,
        /// What goes over the model's arguments.
        changes: Map<String, Value>,
    },
    /// It must not run.
    Block(String),
}

impl ToolDecision {
    /// Reads one answer. An answer that cannot be understood is a block: it was meant to decide.
    pub(super) fn read(answer: &Value) -> Self {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).map(str::to_owned);
        let reason = || text("message").or_else(|| text("reason")).unwrap_or_else(|| "a hook decided so".into());
        let Value::Object(object) = answer else {
            let is_silent = answer.is_null();
            return if is_silent {
                Self::Pass
            } else {
                Self::Block("a hook answered with something that is no decision".into())
            };
        };
        match text("action").or_else(|| text("decision")).as_deref() {
            None if object.is_empty() => Self::Pass,
            Some("pass" | "allow") => Self::Pass,
            Some("block" | "deny") => Self::Block(reason()),
            Some("ask" | "ask_user" | "approve") => Self::Ask { reason: reason(), changes: Map::new() },
            Some("modify") => match answer.get("args") {
                Some(Value::Object(args)) => Self::Modify(args.clone()),
                _ => Self::Block("a hook wanted to change the arguments and named none".into()),
            },
            _ => Self::Block("a hook answered with something that is no decision".into()),
        }
    }

    /// Both decisions together: the stricter one, or both changes with the later one on top.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Block(reason), _) | (_, Self::Block(reason)) => Self::Block(reason),
            (Self::Pass, decision) | (decision, Self::Pass) => decision,
            (first, later) => {
                let (first_reason, mut changes) = first.into_parts();
                let (later_reason, later_changes) = later.into_parts();
                changes.extend(later_changes);
                match first_reason.or(later_reason) {
                    Some(reason) => Self::Ask { reason, changes },
                    None => Self::Modify(changes),
                }
            }
        }
    }

    /// Why the user must be asked, if so, and what goes over the model's arguments.
    pub fn into_parts(self) -> (Option<String>, Map<String, Value>) {
        match self {
            Self::Ask { reason, changes } => (Some(reason), changes),
            Self::Modify(changes) => (None, changes),
            Self::Pass | Self::Block(_) => (None, Map::new()),
        }
    }
}

/// What `pre_verify` hooks said about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// It may end the turn.
    Accept,
    /// The model is sent back with this reason.
    SendBack(String),
}

impl Verification {
    /// Reads one answer. An answer that cannot be understood sends the model back: it was meant to decide.
    pub(super) fn read(answer: &Value) -> Self {
        let text = |key: &str| answer.get(key).and_then(Value::as_str);
        let reason = text("message").or_else(|| text("reason")).unwrap_or("the work is not complete");
        match text("action").or_else(|| text("decision")) {
            Some("continue" | "block" | "deny") => Self::SendBack(reason.to_owned()),
            Some("pass" | "allow" | "accept" | "approve") => Self::Accept,
            None if answer.is_null() || answer.as_object().is_some_and(Map::is_empty) => Self::Accept,
            _ => Self::SendBack("a hook answered with something that is no decision".into()),
        }
    }
}

/// The replacement text of a transforming hook: a string, or `{"text": ...}`; blank is nothing.
pub(super) fn text_of(answer: &Value) -> Option<String> {
    let text = answer.as_str().or_else(|| answer.get("text").and_then(Value::as_str))?;
    (!text.trim().is_empty()).then(|| text.to_owned())
}

/// The name a classifying hook gives a failure: a string, or `{"reason": ...}`; blank is nothing.
pub(super) fn reason_of(answer: &Value) -> Option<String> {
    let text = answer.as_str().or_else(|| answer.get("reason").and_then(Value::as_str))?;
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// The context of a `pre_llm_call` hook: a string, or `{"context": ...}`; blank is nothing.
pub(super) fn context_of(answer: &Value) -> Option<String> {
    let text = answer.as_str().or_else(|| answer.get("context").and_then(Value::as_str))?;
    (!text.trim().is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(answers: &[Value], expected: &ToolDecision) {
        let decision = answers.iter().map(ToolDecision::read).fold(ToolDecision::Pass, ToolDecision::and);
        assert_eq!(&decision, expected, "{answers:?}");
    }

    #[test]
    fn the_stricter_decision_wins_and_changes_are_merged() {
        let ask = json!({ "action": "ask_user", "message": "sure?" });
        let block = json!({ "decision": "block", "reason": "no" });
        let modify = |value: i64| json!({ "action": "modify", "args": { "a": value, "b": value } });
        check(&[Value::Null, json!({})], &ToolDecision::Pass);
        let changes = Map::from_iter([("a".into(), 1.into()), ("b".into(), 1.into())]);
        check(&[modify(1), ask.clone()], &ToolDecision::Ask { reason: "sure?".into(), changes: changes.clone() });
        check(&[ask.clone(), modify(1)], &ToolDecision::Ask { reason: "sure?".into(), changes });
        check(&[ask, block], &ToolDecision::Block("no".into()));
        let merged = json!({ "a": 2, "b": 2 });
        check(&[modify(1), modify(2)], &ToolDecision::Modify(merged.as_object().cloned().unwrap()));
    }

    #[test]
    fn a_verdict_that_makes_no_sense_accepts_nothing() {
        for answer in [Value::Null, json!({}), json!({ "action": "allow" }), json!({ "decision": "approve" })] {
            assert_eq!(Verification::read(&answer), Verification::Accept, "{answer}");
        }
        let check = |answer: Value, reason: &str| {
            assert_eq!(Verification::read(&answer), Verification::SendBack(reason.into()), "{answer}");
        };
        check(json!({ "action": "continue", "message": "more" }), "more");
        check(json!({ "decision": "deny" }), "the work is not complete");
        for answer in [json!("no"), json!(false), json!([]), json!({ "ok": false }), json!({ "action": "maybe" })] {
            check(answer, "a hook answered with something that is no decision");
        }
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_a_block() {
        for answer in
            [json!("yes"), json!(true), json!({ "action": "maybe" }), json!({ "action": "modify" }), json!({ "x": 1 })]
        {
            assert!(matches!(ToolDecision::read(&answer), ToolDecision::Block(_)), "{answer}");
        }
    }
}
