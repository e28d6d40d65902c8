//! How a turn ends: one reason for every exit, and the status that follows from it.

use std::fmt;

use crate::message::{FinishReason, Usage};
use crate::provider::ProviderError;

/// Makes the reasons from one list, so that none can miss its text or its place in [`ExitReason::ALL`].
macro_rules! exit_reasons {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Why a turn stopped. The text of [`ExitReason::as_str`] is stored and queryable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ExitReason {
            $($(#[$doc])+ $name,)+
        }

        impl ExitReason {
            /// Every reason, for tests and for the schema.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stored text.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

exit_reasons! {
    /// The model answered with text.
    TextResponse = "text_response",
    /// The model answered nothing after tools, so the text it wrote beside them is the answer.
    FallbackPriorTurnContent = "fallback_prior_turn_content",
    /// The provider or the model refused.
    Refused = "refused",
    /// Cancelled between model calls.
    InterruptedByUser = "interrupted_by_user",
    /// Cancelled during a model call.
    InterruptedDuringApiCall = "interrupted_during_api_call",
    /// Nobody answered a permission question in time, and the turn was told to end at that.
    ApprovalTimedOut = "approval_timed_out",
    /// A budget is spent, and the call for a closing summary failed.
    BudgetExhausted = "budget_exhausted",
    /// The turn made as many model calls as it may; a closing summary was asked for.
    MaxIterationsReached = "max_iterations_reached",
    /// The wall-clock budget is spent.
    RunBudgetExhausted = "run_budget_exhausted",
    /// A background review read more than it may.
    ReviewInputBudgetExhausted = "review_input_budget_exhausted",
    /// The same tool call failed or gained nothing again and again.
    GuardrailHalt = "guardrail_halt",
    /// Every way to get more than an empty answer was tried.
    EmptyResponseExhausted = "empty_response_exhausted",
    /// The model kept calling tools that do not exist.
    InvalidToolCallsExhausted = "invalid_tool_calls_exhausted",
    /// A tool call stayed cut off however large the output limit.
    TruncatedToolCallExhausted = "truncated_tool_call_exhausted",
    /// The output limit was spent on thinking alone.
    ThinkingBudgetExhausted = "thinking_budget_exhausted",
    /// The model call failed and no retry or fallback was left.
    ProviderFailed = "all_retries_exhausted_no_response",
    /// The history does not fit the model, compacted or not.
    ContextCompressionExhausted = "context_compression_exhausted",
    /// The request was corrected more often than one turn allows.
    RedirectLimitExceeded = "redirect_restart_limit_exceeded",
    /// What happened could not be stored, so nothing more may happen.
    SessionPersistenceFailed = "session_persistence_failed",
    /// The external runtime that had taken the turn over could not go on.
    RuntimeFailed = "external_runtime_failed",
    /// A fault of our own.
    LocalProcessingError = "local_processing_error",
}

/// How a turn ended, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnStatus {
    /// An answer was given.
    Completed,
    /// A budget ran out; a summary was given.
    BudgetExhausted,
    /// Cancelled, or nobody was there to answer.
    Interrupted,
    /// No answer, and an error says why.
    Failed,
}

impl ExitReason {
    /// The status that follows.
    #[must_use]
    pub fn status(self) -> TurnStatus {
        match self {
            Self::TextResponse | Self::FallbackPriorTurnContent | Self::Refused => TurnStatus::Completed,
            Self::InterruptedByUser | Self::InterruptedDuringApiCall | Self::ApprovalTimedOut => {
                TurnStatus::Interrupted
            }
            Self::BudgetExhausted
            | Self::MaxIterationsReached
            | Self::RunBudgetExhausted
            | Self::ReviewInputBudgetExhausted => TurnStatus::BudgetExhausted,
            Self::GuardrailHalt
            | Self::EmptyResponseExhausted
            | Self::InvalidToolCallsExhausted
            | Self::TruncatedToolCallExhausted
            | Self::ThinkingBudgetExhausted
            | Self::ProviderFailed
            | Self::ContextCompressionExhausted
            | Self::RedirectLimitExceeded
            | Self::SessionPersistenceFailed
            | Self::RuntimeFailed
            | Self::LocalProcessingError => TurnStatus::Failed,
        }
    }

    /// True when the turn broke off in the middle of its work, so that only the store knows what holds.
    #[must_use]
    pub fn is_torn(self) -> bool {
        matches!(self, Self::SessionPersistenceFailed | Self::LocalProcessingError)
    }

    /// A line for the user about an exit that is not a plain answer; `None` where the answer, the
    /// cancel or the error already says it.
    #[must_use]
    pub fn explanation(self) -> Option<&'static str> {
        match self {
            Self::ApprovalTimedOut => Some("Stopped: nobody answered the question in time (halt_on_timeout)."),
            Self::BudgetExhausted => Some("Stopped: the turn's budget is spent (max_iterations, run_budget_seconds)."),
            Self::MaxIterationsReached => Some("Stopped: the turn used all its model calls (max_iterations)."),
            Self::RunBudgetExhausted => Some("Stopped: the turn used all its time (run_budget_seconds)."),
            Self::ContextCompressionExhausted => Some(
                "Stopped: the conversation does not fit the model's context window, however short it was made. Send a \
                 shorter prompt, choose a model with a larger window (/model), or begin a new session.",
            ),
            Self::ReviewInputBudgetExhausted => Some("Stopped: the review read as much as it may."),
            _ => None,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl TurnStatus {
    /// The stored text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// What is known about a turn once it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnReport {
    /// The turn.
    pub turn_id: String,
    /// Why it stopped.
    pub exit: ExitReason,
    /// Model calls that counted.
    pub steps: u32,
    /// Requests sent, retries included.
    pub api_calls: u32,
    /// Tokens of all calls.
    pub usage: Usage,
    /// US dollars of all calls, where prices are known.
    pub cost_usd: Option<f64>,
    /// How the last answer finished.
    pub finish: FinishReason,
    /// The answer, when there was one.
    pub answer: Option<String>,
    /// Why the model call failed, when that is the reason.
    pub error: Option<ProviderError>,
    /// What went wrong on our side, when that is the reason.
    pub detail: Option<String>,
    /// Steers that could not be placed.
    pub pending_steer: Option<String>,
}

impl TurnReport {
    /// The status that follows from the reason.
    #[must_use]
    pub fn status(&self) -> TurnStatus {
        self.exit.status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_text() {
        let texts: std::collections::HashSet<_> = ExitReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(texts.len(), ExitReason::ALL.len());
    }
}
