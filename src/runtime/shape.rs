//! The shapes of the runtime's questions: what each is about, and how its answer is worded.

use std::path::Path;

use serde_json::{Value, json};

use crate::tool::{Access, CallPlan, ForeignTool, ToolKind};
use crate::turn::port::Answer;

use super::item::{self, Described};

/// How the answer looks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// One word.
    Decision {
        /// The runtime may be told that it need not ask again.
        has_session: bool,
    },
    /// The permissions that are granted.
    Permissions(Value),
    /// The answer to a form without fields.
    Form,
}

impl Shape {
    /// The answer in the runtime's words.
    pub(super) fn answer(&self, answer: Answer) -> Value {
        let is_for_session = matches!(answer, Answer::AllowSession | Answer::AllowAlways);
        match self {
            Self::Decision { has_session } => {
                let decision = match answer {
                    Answer::AllowSession | Answer::AllowAlways if *has_session => "acceptForSession",
                    Answer::AllowOnce | Answer::AllowSession | Answer::AllowAlways => "accept",
                    Answer::RejectOnce | Answer::RejectAlways | Answer::TimedOut | Answer::NotAsked => "decline",
                    Answer::Cancelled => "cancel",
                };
                json!({ "decision": decision })
            }
            Self::Permissions(asked) => {
                let granted = if answer.allows() { asked.clone() } else { json!({}) };
                json!({ "permissions": granted, "scope": if is_for_session { "session" } else { "turn" } })
            }
            Self::Form if answer.allows() => json!({ "action": "accept", "content": {} }),
            Self::Form if answer == Answer::Cancelled => json!({ "action": "cancel" }),
            Self::Form => json!({ "action": "decline" }),
        }
    }
}

/// The no to a question that is put to nobody; `None` for one that nobody knows.
pub(super) fn refusal(method: &str) -> Option<Value> {
    Some(match method {
        "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
            Shape::Decision { has_session: false }.answer(Answer::RejectOnce)
        }
        "item/permissions/requestApproval" => Shape::Permissions(Value::Null).answer(Answer::RejectOnce),
        // How programs asked before there were items.
        "applyPatchApproval" | "execCommandApproval" => json!({ "decision": "denied" }),
        "mcpServer/elicitation/request" => Shape::Form.answer(Answer::RejectOnce),
        "item/tool/requestUserInput" => json!({ "answers": {} }),
        "item/tool/call" => {
            let text = "turnd offers no such tool";
            json!({ "success": false, "contentItems": [{ "type": "inputText", "text": text }] })
        }
        _ => return None,
    })
}

/// A host that a command wants to reach.
pub(super) fn host(network: &Value) -> Described {
    let protocol = item::text(network, "protocol");
    let protocol = if protocol == "http" { "http" } else { "https" };
    let address = format!("{protocol}://{}/", item::text(network, "host"));
    let plan = CallPlan {
        title: format!("Reach {address}"),
        kind: ToolKind::Fetch,
        access: vec![Access::Fetch(address.clone())],
        ..CallPlan::default()
    };
    Described { tool: "web_fetch".into(), arguments: json!({ "url": address }), plan }
}

/// Permissions beyond the sandbox, with the paths they name, so that floor and deny rules see them.
pub(super) fn permissions(params: &Value) -> Described {
    let asked = &params["permissions"];
    let access = permitted(asked, Path::new(item::text(params, "cwd")));
    let plan = CallPlan { title: "Grant more permissions".into(), access, ..CallPlan::default() };
    Described { tool: "request_permissions".into(), arguments: asked.clone(), plan }
}

/// A call that brings permissions for itself along.
pub(super) fn with_permissions(mut described: Described, asked: Option<&Value>, cwd: &Path) -> Described {
    if let Some(asked) = asked.filter(|asked| asked.is_object()) {
        described.plan.access.extend(permitted(asked, cwd));
    }
    described
}

/// A change that asks for a whole folder along with it.
pub(super) fn with_root(mut described: Described, root: &str, cwd: &Path) -> Described {
    if !root.is_empty() {
        described.plan.access.push(Access::Write(cwd.join(root)));
    }
    described
}

/// What permissions let the runtime do.
fn permitted(asked: &Value, cwd: &Path) -> Vec<Access> {
    let mut access = vec![foreign(format!("permissions: {asked}"))];
    let files = &asked["fileSystem"];
    let listed = |name: &str| files.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    access.extend(listed("read").iter().filter_map(Value::as_str).map(|path| Access::Read(cwd.join(path))));
    access.extend(listed("write").iter().filter_map(Value::as_str).map(|path| Access::Write(cwd.join(path))));
    for entry in listed("entries") {
        let path = entry.pointer("/path/path").and_then(Value::as_str).map(|path| cwd.join(path));
        access.extend(path.map(|path| match item::text(entry, "access") {
            "write" => Access::Write(path),
            _ => Access::Read(path),
        }));
    }
    access
}

/// A tool of the runtime's own. It does not tell what its tools say of themselves, so the name stands for that.
pub(super) fn foreign(name: String) -> Access {
    Access::External(ForeignTool { definition: format!("external runtime: {name}"), name, was: None })
}

/// Whether a form only asks for a yes.
pub(super) fn is_consent(params: &Value) -> bool {
    let fields = params.pointer("/requestedSchema/properties").and_then(Value::as_object);
    item::text(params, "mode") == "form" && fields.is_none_or(serde_json::Map::is_empty)
}

pub(super) fn consent(params: &Value) -> Described {
    let server = item::text(params, "serverName");
    let meta = &params["_meta"];
    let tool = match item::text(meta, "tool_name") {
        "" => format!("mcp_{server}"),
        name => format!("mcp_{server}_{name}"),
    };
    let arguments = json!({ "message": params["message"], "arguments": meta.get("tool_params") });
    let plan = CallPlan {
        title: item::text(params, "message").chars().take(200).collect(),
        access: vec![foreign(tool.clone())],
        ..CallPlan::default()
    };
    Described { tool, arguments, plan }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_word_in_each_shape() {
        let check = |shape: &Shape, answer, expected: Value| assert_eq!(shape.answer(answer), expected, "{answer:?}");
        let decision = Shape::Decision { has_session: true };
        check(&decision, Answer::AllowOnce, json!({"decision": "accept"}));
        check(&decision, Answer::AllowSession, json!({"decision": "acceptForSession"}));
        check(&decision, Answer::AllowAlways, json!({"decision": "acceptForSession"}));
        check(&decision, Answer::RejectOnce, json!({"decision": "decline"}));
        check(&decision, Answer::TimedOut, json!({"decision": "decline"}));
        check(&decision, Answer::Cancelled, json!({"decision": "cancel"}));
        check(&Shape::Decision { has_session: false }, Answer::AllowSession, json!({"decision": "accept"}));
        let permissions = Shape::Permissions(json!({"network": {"enabled": true}}));
        let all = json!({"permissions": {"network": {"enabled": true}}, "scope": "turn"});
        check(&permissions, Answer::AllowOnce, all);
        check(&permissions, Answer::RejectOnce, json!({"permissions": {}, "scope": "turn"}));
        check(&Shape::Form, Answer::AllowOnce, json!({"action": "accept", "content": {}}));
        check(&Shape::Form, Answer::RejectOnce, json!({"action": "decline"}));
        check(&Shape::Form, Answer::Cancelled, json!({"action": "cancel"}));
    }
}
