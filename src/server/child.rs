//! A child agent on the wire, for clients that show those.

use serde_json::json;
use turnd_protocol::acp;

use crate::session::port::{ChildPhase, ChildState};
use crate::turn::{TurnReport, TurnStatus};

use super::to_client;

/// What is new about a child, as its parent's session is told.
pub(super) fn update(state: &ChildState) -> acp::SubagentUpdate {
    let update = acp::SubagentUpdate::new(std::sync::Arc::clone(&state.session_id));
    match &state.phase {
        ChildPhase::Began { title } => {
            let meta = json!({ "turnd": { "toolCallId": state.tool_call_id } });
            update
                .title(to_client::shortened(title, 500))
                .meta(meta.as_object().cloned().unwrap_or_default())
                .state(acp::StateUpdate::Running(acp::RunningStateUpdate::new()))
        }
        ChildPhase::Waits => update.state(acp::StateUpdate::RequiresAction(acp::RequiresActionStateUpdate::new())),
        ChildPhase::Works => update.state(acp::StateUpdate::Running(acp::RunningStateUpdate::new())),
        ChildPhase::Ended(report) => {
            let idle = acp::IdleStateUpdate::new().stop_reason(stop_reason(report));
            update.state(acp::StateUpdate::Idle(idle))
        }
    }
}

fn stop_reason(report: &TurnReport) -> acp::IdleStopReason {
    if report.status() == TurnStatus::Failed {
        return acp::IdleStopReason::Error(acp::ErrorStopReason::new());
    }
    match to_client::stop_reason(report) {
        acp::StopReason::MaxTokens => acp::IdleStopReason::MaxTokens,
        acp::StopReason::MaxTurnRequests => acp::IdleStopReason::MaxTurnRequests,
        acp::StopReason::Refusal => acp::IdleStopReason::Refusal,
        acp::StopReason::Cancelled => acp::IdleStopReason::Cancelled,
        _ => acp::IdleStopReason::EndTurn,
    }
}
