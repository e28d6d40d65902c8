//! A turn that failed inside the runtime, as any other failed model call.

use serde_json::Value;

use crate::provider::redact::Redactor;
use crate::provider::{ErrorKind, ProviderError};

/// Characters of the runtime's own words that are passed on.
const MAX_MESSAGE_CHARS: usize = 500;

/// The runtime's error `{message, codexErrorInfo, additionalDetails}` in our words. A text alone is the message.
pub(super) fn provider_error(error: &Value, provider: &str, model: &str) -> ProviderError {
    let message = error.get("message").unwrap_or(error).as_str().unwrap_or("the runtime gave no reason");
    let (kind, status) = classified(error.get("codexErrorInfo").unwrap_or(&Value::Null));
    let message = Redactor::process().clean(message).chars().take(MAX_MESSAGE_CHARS).collect();
    ProviderError {
        kind,
        status,
        message,
        retry_after: None,
        request_id: None,
        key: None,
        provider: provider.to_owned(),
        model: model.to_owned(),
    }
}

fn classified(info: &Value) -> (ErrorKind, Option<u16>) {
    let (name, detail) = match info {
        Value::String(name) => (name.as_str(), &Value::Null),
        Value::Object(members) => members.iter().next().map_or(("", &Value::Null), |(name, value)| (name, value)),
        _ => ("", &Value::Null),
    };
    let status = detail.get("httpStatusCode").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let kind = match name {
        "contextWindowExceeded" => ErrorKind::ContextOverflow,
        "sessionBudgetExceeded" | "usageLimitExceeded" => ErrorKind::Billing,
        "rateLimitExceeded" => ErrorKind::RateLimit,
        "flexUnavailable" | "serverOverloaded" | "policyCapacityUnavailable" => ErrorKind::Overloaded,
        "modelNotFound" => ErrorKind::ModelNotFound,
        "cyberPolicy" | "bioPolicy" | "misalignmentPolicyViolation" => ErrorKind::ContentPolicyBlocked,
        "inferenceHookDenied" => ErrorKind::ProviderPolicyBlocked,
        "internalServerError" => ErrorKind::ServerError,
        "unauthorized" => ErrorKind::Auth,
        "badRequest" => ErrorKind::FormatError,
        "responseStreamDisconnected" => ErrorKind::TruncatedStream,
        _ => match status {
            Some(401 | 403) => ErrorKind::Auth,
            Some(402) => ErrorKind::Billing,
            Some(404) => ErrorKind::ModelNotFound,
            Some(429) => ErrorKind::RateLimit,
            Some(500..=599) => ErrorKind::ServerError,
            _ if matches!(name, "httpConnectionFailed" | "responseStreamConnectionFailed") => ErrorKind::Timeout,
            _ => ErrorKind::Unknown,
        },
    };
    (kind, status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_of_any_shape_has_a_message() {
        for (error, message) in [
            (json!({"message": "boom"}), "boom"),
            (json!("boom"), "boom"),
            (json!(null), "the runtime gave no reason"),
            (json!({"message": 5}), "the runtime gave no reason"),
            (json!([]), "the runtime gave no reason"),
        ] {
            assert_eq!(provider_error(&error, "codex", "m").message, message, "{error}");
        }
    }

    #[test]
    fn the_runtimes_reasons_are_ours() {
        let check = |info: Value, kind, status| assert_eq!(classified(&info), (kind, status), "{info}");
        check(json!("contextWindowExceeded"), ErrorKind::ContextOverflow, None);
        check(json!("unauthorized"), ErrorKind::Auth, None);
        check(json!({"httpConnectionFailed": {"httpStatusCode": 503}}), ErrorKind::ServerError, Some(503));
        check(json!({"httpConnectionFailed": {"httpStatusCode": null}}), ErrorKind::Timeout, None);
        check(json!({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}), ErrorKind::RateLimit, Some(429));
        check(json!("somethingNew"), ErrorKind::Unknown, None);
        check(json!(null), ErrorKind::Unknown, None);
    }
}
