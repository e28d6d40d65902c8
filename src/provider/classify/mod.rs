//! From what a failed call left behind to one reason with its hints.
//!
//! The order of the rules is the point of this module: the same words mean different things under different
//! statuses, and the first rule that fits wins. Absent on purpose: what to do about it, see
//! [`crate::provider::recovery`].

mod body;
mod limits;
mod patterns;

use patterns as p;

pub use body::ErrorBody;
pub use limits::{context_limit, output_cap};

use crate::provider::ErrorKind;

/// What a failed call left behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failure<'a> {
    /// The HTTP status; `None` when there was no answer.
    pub status: Option<u16>,
    /// The body, or the event that reported the failure inside a stream. Empty when there was none.
    pub body: &'a str,
    /// What the transport said, with all its causes. Empty when there was an answer.
    pub cause: &'a str,
    /// Rough size of the request in tokens; 0 when unknown.
    pub request_tokens: u64,
    /// The model's context window in tokens; 0 when unknown.
    pub context_window: u64,
    /// Messages in the request.
    pub messages: usize,
}

/// What may be done about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// The same request may succeed later.
    pub retryable: bool,
    /// A shorter request may succeed.
    pub compress: bool,
    /// Another key may succeed.
    pub rotate: bool,
    /// Another model may succeed.
    pub fallback: bool,
}

impl ErrorKind {
    /// What may be done, whatever the status.
    #[must_use]
    pub fn hints(self) -> Hints {
        let (retryable, compress, rotate, fallback) = match self {
            Self::Auth | Self::Billing => (false, false, true, true),
            Self::RateLimit => (true, false, true, true),
            Self::UpstreamRateLimit => (true, false, false, true),
            Self::Overloaded
            | Self::ServerError
            | Self::Timeout
            | Self::TruncatedStream
            | Self::InvalidResponse
            | Self::ImageTooLarge
            | Self::MultimodalToolContentUnsupported
            | Self::InvalidEncryptedContent
            | Self::ThinkingSignature
            | Self::OauthLongContextBetaForbidden
            | Self::LlamaCppGrammarPattern
            | Self::OutputCap
            | Self::Unknown => (true, false, false, false),
            Self::ContextOverflow | Self::PayloadTooLarge | Self::LongContextTier => (true, true, false, false),
            Self::AuthRequired | Self::ModelNotFound | Self::ContentPolicyBlocked | Self::FormatError => {
                (false, false, false, true)
            }
            Self::SslCertVerification | Self::ProviderPolicyBlocked => (false, false, false, false),
        };
        Hints { retryable, compress, rotate, fallback }
    }
}

/// The reason of a failure.
#[must_use]
pub fn classify(failure: &Failure<'_>) -> ErrorKind {
    let body = ErrorBody::parse(failure.body);
    let status = failure.status.filter(|status| *status >= 300).or_else(|| body.status());
    let case = Case { text: body.match_text(failure.body), code: body.code.to_ascii_lowercase(), failure };
    case.before_status(status)
        .or_else(|| status.map(|status| case.by_status(status)))
        .or_else(|| case.by_code())
        .or_else(|| case.by_message())
        .unwrap_or_else(|| case.by_cause())
}

/// One failure, prepared for matching.
struct Case<'a> {
    /// Everything the server said, lower case.
    text: String,
    code: String,
    failure: &'a Failure<'a>,
}

impl Case<'_> {
    fn says(&self, patterns: &[&str]) -> bool {
        patterns.iter().any(|pattern| self.text.contains(pattern) || self.code == *pattern)
    }

    fn overflows(&self) -> bool {
        self.says(p::OVERFLOW)
    }

    /// The overflow of the answer, when the text gives the number that would fit; else that of the prompt.
    fn overflow_kind(&self) -> ErrorKind {
        if output_cap(&self.text).is_some() { ErrorKind::OutputCap } else { ErrorKind::ContextOverflow }
    }

    /// Rules that hold whatever the status, or that are narrower than their status.
    fn before_status(&self, status: Option<u16>) -> Option<ErrorKind> {
        let is = |wanted: u16| status == Some(wanted);
        let thinking = self.says(&["thinking"])
            && self.says(&["signature", "cannot be modified", "must remain as they were", "expected `thinking`"]);
        if self.says(p::CONTENT_POLICY) && !is(429) {
            return Some(ErrorKind::ContentPolicyBlocked);
        }
        if is(400) && (thinking || self.text.contains("thought_signature")) {
            return Some(ErrorKind::ThinkingSignature);
        }
        if is(429) && self.says(&["extra usage"]) && self.says(&["long context"]) {
            return Some(ErrorKind::LongContextTier);
        }
        if is(400)
            && self.says(&["long context beta", "context-1m"])
            && self.says(&["not yet available", "not available"])
        {
            return Some(ErrorKind::OauthLongContextBetaForbidden);
        }
        if (is(400) || is(500)) && self.says(p::GRAMMAR) {
            return Some(ErrorKind::LlamaCppGrammarPattern);
        }
        self.says(p::SUBSCRIPTION).then_some(ErrorKind::Auth)
    }

    fn by_status(&self, status: u16) -> ErrorKind {
        match status {
            400 => self.bad_request(),
            401 => ErrorKind::Auth,
            402 if self.says(p::USAGE_LIMIT) && self.says(p::TRANSIENT) => ErrorKind::RateLimit,
            402 => ErrorKind::Billing,
            403 if self.says(p::SPENDING_403) || self.says(p::BILLING) => ErrorKind::Billing,
            403 => ErrorKind::Auth,
            404 => self.not_found(),
            408 => ErrorKind::Timeout,
            413 if self.overflows() => self.overflow_kind(),
            413 => ErrorKind::PayloadTooLarge,
            429 if self.says(p::OVERLOADED) => ErrorKind::Overloaded,
            429 if self.says(p::UPSTREAM_RATE) => ErrorKind::UpstreamRateLimit,
            429 => ErrorKind::RateLimit,
            422 if self.overflows() => self.overflow_kind(),
            503 | 529 if self.overflows() => self.overflow_kind(),
            503 | 529 => ErrorKind::Overloaded,
            500 | 502 => self.server_error(),
            504 | 524 => ErrorKind::Timeout,
            _ if status < 500 => ErrorKind::FormatError,
            _ => ErrorKind::ServerError,
        }
    }

    fn not_found(&self) -> ErrorKind {
        if self.says(p::BILLING) {
            ErrorKind::Billing
        } else if self.says(p::DATA_POLICY) {
            ErrorKind::ProviderPolicyBlocked
        } else if self.says(p::MODEL_NOT_FOUND) || self.names_missing_model() {
            ErrorKind::ModelNotFound
        } else {
            // A wrong URL must not look like a missing model.
            ErrorKind::Unknown
        }
    }

    /// In the words of many servers, and in Anthropic's few: `model: NAME`.
    fn names_missing_model(&self) -> bool {
        let is_missing = self.says(&["not found", "not exist"]) && self.says(&["model"]);
        is_missing || (self.code == "not_found_error" && self.text.starts_with("model:"))
    }

    fn server_error(&self) -> ErrorKind {
        if self.says(p::VALIDATION) {
            ErrorKind::FormatError
        } else if self.says(p::NO_VISION) {
            ErrorKind::ImageTooLarge
        } else if self.says(p::EMPTY_PROVIDER) {
            ErrorKind::ServerError
        } else if self.overflows() {
            self.overflow_kind()
        } else if self.says(p::OVERLOADED) {
            ErrorKind::Overloaded
        } else {
            ErrorKind::ServerError
        }
    }

    fn bad_request(&self) -> ErrorKind {
        // Before the validation texts: this one is about a number and can be mended.
        let is_output_cap = self.says(p::OUTPUT_FIELDS) && output_cap(&self.text).is_some();
        if self.says(p::MULTIMODAL_TOOL) {
            ErrorKind::MultimodalToolContentUnsupported
        } else if self.says(p::IMAGE) || self.says(p::NO_VISION) || self.code.contains("image") {
            ErrorKind::ImageTooLarge
        } else if self.says(p::ENCRYPTED) {
            ErrorKind::InvalidEncryptedContent
        } else if is_output_cap {
            ErrorKind::OutputCap
        } else if self.says(p::VALIDATION) {
            // Before overflow: "max_tokens is not supported" holds an overflow word.
            ErrorKind::FormatError
        } else if self.says(p::EMPTY_PROVIDER) {
            ErrorKind::ServerError
        } else if self.overflows() {
            self.overflow_kind()
        } else if self.says(p::PAYLOAD) {
            ErrorKind::PayloadTooLarge
        } else if self.says(p::DATA_POLICY) {
            ErrorKind::ProviderPolicyBlocked
        } else if self.says(p::MODEL_NOT_FOUND) {
            ErrorKind::ModelNotFound
        } else if self.says(p::RATE) {
            ErrorKind::RateLimit
        } else if self.says(p::BILLING) {
            ErrorKind::Billing
        } else if self.says(&["api key not valid", "invalid api key", "api_key_invalid"]) {
            ErrorKind::Auth
        } else if self.is_generic() && self.is_large() {
            ErrorKind::ContextOverflow
        } else {
            ErrorKind::FormatError
        }
    }

    /// Some servers answer an overflow with nothing but "error".
    fn is_generic(&self) -> bool {
        self.text.trim() == "error" || self.text.trim().chars().count() < 30
    }

    fn is_large(&self) -> bool {
        let Failure { request_tokens: tokens, context_window: window, messages, .. } = *self.failure;
        let share_exceeded = window > 0 && tokens.saturating_mul(10) > window.saturating_mul(4);
        share_exceeded || (window <= 256_000 && (tokens > 80_000 || messages > 80))
    }

    fn by_code(&self) -> Option<ErrorKind> {
        Some(match self.code.as_str() {
            "resource_exhausted" | "throttled" | "rate_limit_exceeded" | "rate_limit_error" => ErrorKind::RateLimit,
            "insufficient_quota"
            | "billing_not_active"
            | "payment_required"
            | "insufficient_credits"
            | "insufficient_balance"
            | "billing_hard_limit_reached"
            | "credit_balance_too_low"
            | "account_deactivated" => ErrorKind::Billing,
            "model_not_found" | "model_not_available" | "invalid_model" => ErrorKind::ModelNotFound,
            "context_length_exceeded" | "max_tokens_exceeded" | "exceed_context_size_error" => self.overflow_kind(),
            "invalid_encrypted_content" => ErrorKind::InvalidEncryptedContent,
            "overloaded_error" | "overloaded" | "server_is_overloaded" | "slow_down" => ErrorKind::Overloaded,
            "authentication_error" | "invalid_api_key" | "permission_error" => ErrorKind::Auth,
            "request_too_large" => ErrorKind::PayloadTooLarge,
            "not_found_error" => self.not_found(),
            "invalid_request_error" => self.bad_request(),
            "api_error" | "server_error" | "internal_error" | "internal_server_error" => self.server_error(),
            "timeout_error" => ErrorKind::Timeout,
            "invalid_prompt" => ErrorKind::FormatError,
            "cyber_policy" | "bio_policy" => ErrorKind::ContentPolicyBlocked,
            code if code.contains("image") => ErrorKind::ImageTooLarge,
            _ => return None,
        })
    }

    /// What the words alone say, for failures without a usable status.
    fn by_message(&self) -> Option<ErrorKind> {
        if self.failure.body.trim().is_empty() {
            return None;
        }
        let rules: [(&[&str], ErrorKind); 4] = [
            (p::PAYLOAD, ErrorKind::PayloadTooLarge),
            (p::MULTIMODAL_TOOL, ErrorKind::MultimodalToolContentUnsupported),
            (p::IMAGE, ErrorKind::ImageTooLarge),
            (p::NO_VISION, ErrorKind::ImageTooLarge),
        ];
        if let Some((_, kind)) = rules.iter().find(|(patterns, _)| self.says(patterns)) {
            return Some(*kind);
        }
        if self.says(p::USAGE_LIMIT) {
            let is_transient = self.says(p::TRANSIENT);
            return Some(if is_transient { ErrorKind::RateLimit } else { ErrorKind::Billing });
        }
        let rules: [(&[&str], ErrorKind); 9] = [
            (p::OVERLOADED, ErrorKind::Overloaded),
            (p::BILLING, ErrorKind::Billing),
            (p::RATE, ErrorKind::RateLimit),
            (p::EMPTY_PROVIDER, ErrorKind::ServerError),
            (p::OVERFLOW, ErrorKind::ContextOverflow),
            (p::AUTH, ErrorKind::Auth),
            (p::DATA_POLICY, ErrorKind::ProviderPolicyBlocked),
            (p::MODEL_NOT_FOUND, ErrorKind::ModelNotFound),
            (p::TIMEOUT, ErrorKind::Timeout),
        ];
        let kind = rules.iter().find(|(patterns, _)| self.says(patterns)).map(|(_, kind)| *kind)?;
        Some(if kind == ErrorKind::ContextOverflow { self.overflow_kind() } else { kind })
    }

    /// What the transport says. A certificate is looked for first: its text also looks like a TLS hiccup.
    fn by_cause(&self) -> ErrorKind {
        let cause = self.failure.cause.to_ascii_lowercase();
        if cause.is_empty() {
            ErrorKind::Unknown
        } else if p::CERTIFICATE.iter().any(|pattern| cause.contains(pattern)) {
            ErrorKind::SslCertVerification
        } else {
            ErrorKind::Timeout
        }
    }
}

#[cfg(test)]
mod tests;
