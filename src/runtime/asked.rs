//! What a request of the runtime asks for, and whether anybody is asked at all.

use serde_json::Value;

use crate::config::Mode;
use crate::turn::TurnIo;
use crate::turn::port::Answer;

use super::connection::Connection;
use super::item::{self, Described};
use super::shape::{self, Shape};
use super::turn::{Failure, OpenCall, RuntimeTurn};

/// Questions that wait; of a program that asks more at once the rest is declined.
const MAX_WAITING: usize = 64;

const LEAVES_SANDBOX: &str = "it is to run outside the runtime's sandbox";
const TYPES: &str = "it is typed into a program that runs already";

impl<Io: TurnIo> RuntimeTurn<'_, Io> {
    /// Takes a request of the runtime.
    pub(super) async fn asked(
        &mut self,
        connection: &mut Connection,
        id: Value,
        method: &str,
        params: Value,
    ) -> Result<(), Failure> {
        match self.question(method, &params) {
            Some((_, shape)) if self.stop.is_some() => connection.answer(&id, shape.answer(Answer::Cancelled)),
            Some((described, shape)) if self.waiting.len() < MAX_WAITING && !self.is_of_the_past(&params) => {
                self.enqueue(id, described, shape, &params).await?;
            }
            _ => {
                tracing::info!(method, "a question of the runtime is declined");
                connection.decline(&id, method);
            }
        }
        Ok(())
    }

    /// What is asked and how the answer looks; `None` for what cannot be shown to anybody.
    fn question(&self, method: &str, params: &Value) -> Option<(Described, Shape)> {
        match method {
            "item/commandExecution/requestApproval" => self.command_question(params),
            "item/fileChange/requestApproval" => {
                let described = described(self.open_call(params)?);
                let root = item::text(params, "grantRoot");
                let described = shape::with_root(described, root, &self.context.tool_context.cwd);
                Some((described, Shape::Decision { has_session: true }))
            }
            "item/permissions/requestApproval" => Some((
                shape::permissions(params),
                Shape::Permissions(params.get("permissions").cloned().unwrap_or_default()),
            )),
            "mcpServer/elicitation/request" if shape::is_consent(params) => Some((shape::consent(params), Shape::Form)),
            _ => None,
        }
    }

    fn command_question(&self, params: &Value) -> Option<(Described, Shape)> {
        let cwd = &self.context.tool_context.cwd;
        let network = params.get("networkApprovalContext").filter(|network| network.is_object());
        let described = match (network, item::text(params, "command")) {
            (Some(network), _) => shape::host(network),
            // A yes to nothing would be a yes to anything.
            (None, command) if command.trim().is_empty() => described(self.open_call(params)?),
            (None, command) => item::command(command, item::text(params, "cwd"), cwd),
        };
        let described = shape::with_permissions(described, params.get("additionalPermissions"), cwd);
        let offered = params.get("availableDecisions").and_then(Value::as_array);
        let has_session = offered.is_none_or(|offered| offered.iter().any(|one| one == "acceptForSession"));
        Some((described, Shape::Decision { has_session }))
    }

    /// The call that a question is about, if it was announced.
    fn open_call(&self, params: &Value) -> Option<&OpenCall> {
        let item = item::text(params, "itemId");
        self.call_of(item).and_then(|index| self.calls.get(index))
    }

    /// Whether a question comes from another turn of our own thread. Child threads have turns of their own.
    fn is_of_the_past(&self, params: &Value) -> bool {
        let is_own_thread = item::text(params, "threadId") == self.thread.id;
        let turn = params.get("turnId").and_then(Value::as_str);
        is_own_thread && turn.is_some_and(|turn| self.turn.as_deref() != Some(turn))
    }

    /// Why the user is asked whatever the rules say.
    pub(super) fn must_ask(&self, shape: &Shape, params: &Value) -> Option<String> {
        if self.context.gate.mode() == Mode::FullAccess {
            return None;
        }
        let reason = item::text(params, "reason");
        let permissions = params.get("additionalPermissions").filter(|permissions| permissions.is_object());
        let root = item::text(params, "grantRoot");
        match shape {
            Shape::Permissions(_) => Some(with_reason("it grants more than one call", reason)),
            Shape::Decision { .. } if !root.is_empty() => {
                Some(with_reason(&format!("it lets the agent write below {root} from now on"), reason))
            }
            Shape::Decision { .. } if permissions.is_some() => {
                let permissions = permissions.map(Value::to_string).unwrap_or_default();
                Some(with_reason(&format!("it runs with more permissions: {permissions}"), reason))
            }
            Shape::Decision { .. } if !matches!(item::text(params, "kind"), "" | "command") => {
                Some(with_reason(TYPES, reason))
            }
            Shape::Decision { .. } if self.stance.asks_only_to_leave() || !reason.is_empty() => {
                Some(with_reason(LEAVES_SANDBOX, reason))
            }
            _ => None,
        }
    }
}

fn described(call: &OpenCall) -> Described {
    let record = &call.record;
    Described { tool: record.name.clone(), arguments: record.arguments.clone(), plan: record.plan.clone() }
}

fn with_reason(why: &str, reason: &str) -> String {
    if reason.is_empty() { why.to_owned() } else { format!("{why}; the agent says: {reason}") }
}
