//! Errors as the client sees them: a code, one short line, and the detail in `data`.

use jsonrpsee_types::ErrorObjectOwned;
use serde_json::{Value, json};
use turnd_protocol::error_code;

use crate::provider::{ErrorKind, ProviderError};
use crate::session::SessionError;
use crate::turn::{ExitReason, TurnReport, TurnStatus};

use super::to_client::pending_steer;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Error {
    code: i32,
    message: String,
    data: Option<Value>,
}

impl Error {
    pub(super) fn new(code: i32, message: impl Into<String>, data: Option<Value>) -> Self {
        let message: String = message.into();
        let message = bounded(&message.lines().collect::<Vec<_>>().join(" "));
        Self { code, message, data: data.map(bounded_texts) }
    }

    pub(super) fn invalid_params(path: &str, problem: impl std::fmt::Display) -> Self {
        let data = json!({ "path": path, "problem": problem.to_string() });
        let message = if path.is_empty() {
            format!("Invalid params: {problem}")
        } else {
            format!("Invalid params: {path}: {problem}")
        };
        Self::new(error_code::INVALID_PARAMS, message, Some(data))
    }

    pub(super) fn unknown_session(id: &str) -> Self {
        let data = json!({ "sessionId": id });
        Self::new(error_code::RESOURCE_NOT_FOUND, "There is no such session", Some(data))
    }

    pub(super) fn not_initialized() -> Self {
        Self::new(error_code::INVALID_REQUEST, "Call initialize first", None)
    }

    pub(super) fn method_not_found(method: &str) -> Self {
        Self::new(error_code::METHOD_NOT_FOUND, "Method not found", Some(json!({ "method": method })))
    }

    pub(super) fn request_cancelled() -> Self {
        Self::new(error_code::REQUEST_CANCELLED, "Request cancelled", None)
    }

    pub(super) fn internal(problem: impl Into<String>) -> Self {
        Self::new(error_code::INTERNAL_ERROR, problem, Some(json!({ "kind": "internal" })))
    }

    pub(super) fn code(&self) -> i32 {
        self.code
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn data(&self) -> Option<&Value> {
        self.data.as_ref()
    }

    /// A turn that failed, as the answer to its prompt.
    pub(super) fn of_failed_turn(report: &TurnReport) -> Self {
        debug_assert_eq!(report.status(), TurnStatus::Failed);
        let exit = report.exit.as_str();
        let mut error = match &report.error {
            Some(error) => Self::of_provider(error, report.exit),
            None => {
                let detail = report.detail.clone();
                let message = match &detail {
                    Some(detail) => format!("The turn failed: {detail}"),
                    None => format!("The turn failed: {}", failure_text(report)),
                };
                let data = json!({ "kind": exit, "exitReason": exit, "retryable": true, "turnId": report.turn_id });
                Self::new(error_code::INTERNAL_ERROR, message, Some(data))
            }
        };
        if let (Some(words), Some(Value::Object(data))) = (pending_steer(report), &mut error.data) {
            data.insert("pendingSteer".into(), words.into());
        }
        error
    }

    fn of_provider(error: &ProviderError, exit: ExitReason) -> Self {
        let data = json!({
            "kind": error.kind.as_str(),
            "status": error.status,
            "provider": error.provider,
            "model": error.model,
            "exitReason": exit.as_str(),
            // What does not fit the model does not fit it the next time either.
            "retryable": error.kind.hints().retryable && exit != ExitReason::ContextCompressionExhausted,
            "requestId": error.request_id,
        });
        let code =
            if error.kind == ErrorKind::AuthRequired { error_code::AUTH_REQUIRED } else { error_code::INTERNAL_ERROR };
        Self::new(code, format!("The model call failed: {error}"), Some(data))
    }
}

/// The longest text of an error, in characters. What the client sent is echoed to be recognised, not in full.
const MAX_TEXT: usize = 500;

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn bounded_texts(data: Value) -> Value {
    match data {
        Value::String(text) => Value::String(bounded(&text)),
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, bounded_texts(value))).collect(),
        other => other,
    }
}

fn failure_text(report: &TurnReport) -> &'static str {
    match report.exit {
        ExitReason::EmptyResponseExhausted => "the model kept answering with nothing",
        ExitReason::InvalidToolCallsExhausted => "the model kept calling tools that do not exist",
        ExitReason::TruncatedToolCallExhausted => "the model's tool call was cut off by the output limit each time",
        ExitReason::ThinkingBudgetExhausted => {
            "the model spent its whole output limit on thinking; raise max_output_tokens or lower reasoning_effort"
        }
        ExitReason::GuardrailHalt => "the same tool call failed or gained nothing again and again",
        ExitReason::ContextCompressionExhausted => "the conversation no longer fits the model's context",
        ExitReason::RedirectLimitExceeded => "the request was corrected too often in one turn",
        _ => "a fault inside turnd",
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::Unknown(id) => Self::unknown_session(&id),
            SessionError::Owned { id, pid } => {
                let data = json!({ "kind": "session_owned", "sessionId": &*id, "pid": pid });
                Self::new(error_code::INTERNAL_ERROR, message, Some(data))
            }
            SessionError::AtWork(id) => {
                let data = json!({ "kind": "session_at_work", "sessionId": &*id, "retryable": true });
                Self::new(error_code::OVERLOADED, message, Some(data))
            }
            SessionError::Overloaded => Self::new(error_code::OVERLOADED, message, Some(json!({ "retryable": true }))),
            SessionError::Closed => Self::new(error_code::INTERNAL_ERROR, message, Some(json!({ "kind": "closed" }))),
            SessionError::AuthRequired(_) => {
                Self::new(error_code::AUTH_REQUIRED, message, Some(json!({ "kind": "auth_required" })))
            }
            SessionError::Config(_) => {
                Self::new(error_code::INTERNAL_ERROR, message, Some(json!({ "kind": "config" })))
            }
            SessionError::BadParameter { field, problem } => Self::invalid_params(field, problem),
            SessionError::Store(_) => Self::new(error_code::INTERNAL_ERROR, message, Some(json!({ "kind": "store" }))),
            SessionError::Internal(_) => Self::internal(message),
        }
    }
}

impl From<Error> for ErrorObjectOwned {
    fn from(error: Error) -> Self {
        Self::owned(error.code, error.message, error.data)
    }
}
