//! Where hooks are called.

use serde::{Deserialize, Serialize};

/// A point of a turn at which hooks are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// The session's first turn begins.
    OnSessionStart,
    /// Once per turn, before the first model call.
    PreLlmCall,
    /// Before each request to a provider.
    PreApiRequest,
    /// After each answer of a provider.
    PostApiRequest,
    /// After each failed request.
    ApiRequestError,
    /// Before the classification of a failed request takes effect.
    TransformApiErrorClassification,
    /// Before each tool call.
    PreToolCall,
    /// After each tool call, whatever became of it.
    PostToolCall,
    /// Before a tool result reaches history and model.
    TransformToolResult,
    /// Before the final answer is stored.
    TransformLlmOutput,
    /// After the final answer.
    PostLlmCall,
    /// Before a question is put to the user.
    PreApprovalRequest,
    /// After the user's answer.
    PostApprovalResponse,
    /// A child agent begins.
    SubagentStart,
    /// A child agent ended.
    SubagentStop,
    /// The history was made shorter.
    PostCompaction,
    /// The model considers the task done.
    PreVerify,
    /// The turn was stopped from outside.
    AgentLoopStopped,
    /// The turn ended, exactly once per turn.
    OnSessionEnd,
}

/// What hooks of a point may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Stop or change what happens; fails closed.
    Deciding,
    /// Replace a text; fails open.
    Transforming,
    /// Watch; fails open.
    Observing,
}

impl HookPoint {
    /// All points in the order of a turn.
    pub const ALL: [Self; 19] = [
        Self::OnSessionStart,
        Self::PreLlmCall,
        Self::PreApiRequest,
        Self::PostApiRequest,
        Self::ApiRequestError,
        Self::TransformApiErrorClassification,
        Self::PreToolCall,
        Self::PostToolCall,
        Self::TransformToolResult,
        Self::TransformLlmOutput,
        Self::PostLlmCall,
        Self::PreApprovalRequest,
        Self::PostApprovalResponse,
        Self::SubagentStart,
        Self::SubagentStop,
        Self::PostCompaction,
        Self::PreVerify,
        Self::AgentLoopStopped,
        Self::OnSessionEnd,
    ];

    /// The name in configuration and payloads.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnSessionStart => "on_session_start",
            Self::PreLlmCall => "pre_llm_call",
            Self::PreApiRequest => "pre_api_request",
            Self::PostApiRequest => "post_api_request",
            Self::ApiRequestError => "api_request_error",
            Self::TransformApiErrorClassification => "transform_api_error_classification",
            Self::PreToolCall => "pre_tool_call",
            Self::PostToolCall => "post_tool_call",
            Self::TransformToolResult => "transform_tool_result",
            Self::TransformLlmOutput => "transform_llm_output",
            Self::PostLlmCall => "post_llm_call",
            Self::PreApprovalRequest => "pre_approval_request",
            Self::PostApprovalResponse => "post_approval_response",
            Self::SubagentStart => "subagent_start",
            Self::SubagentStop => "subagent_stop",
            Self::PostCompaction => "post_compaction",
            Self::PreVerify => "pre_verify",
            Self::AgentLoopStopped => "agent_loop_stopped",
            Self::OnSessionEnd => "on_session_end",
        }
    }

    /// True for a point whose hooks hear of something that is done already, so that they hear of it in a cancelled
    /// turn too.
    #[must_use]
    pub fn tells_what_happened(self) -> bool {
        match self {
            Self::PostApiRequest
            | Self::PostToolCall
            | Self::TransformToolResult
            | Self::TransformLlmOutput
            | Self::PostLlmCall
            | Self::PostApprovalResponse
            | Self::SubagentStop
            | Self::PostCompaction
            | Self::AgentLoopStopped
            | Self::OnSessionEnd => true,
            Self::OnSessionStart
            | Self::PreLlmCall
            | Self::PreApiRequest
            | Self::ApiRequestError
            | Self::TransformApiErrorClassification
            | Self::PreToolCall
            | Self::PreApprovalRequest
            | Self::SubagentStart
            | Self::PreVerify => false,
        }
    }

    /// What its hooks may do.
    #[must_use]
    pub fn kind(self) -> HookKind {
        match self {
            Self::PreToolCall | Self::PreVerify => HookKind::Deciding,
            Self::PreLlmCall
            | Self::TransformApiErrorClassification
            | Self::TransformToolResult
            | Self::TransformLlmOutput => HookKind::Transforming,
            _ => HookKind::Observing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_calls_the_points_what_payloads_call_them() {
        for point in HookPoint::ALL {
            assert_eq!(serde_json::to_value(point).unwrap(), point.as_str());
        }
    }
}
