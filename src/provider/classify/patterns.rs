//! The wordings by which servers say what went wrong, in lower case.
//!
//! Each list is one idea. The texts come from servers' sources, their documentation and public reports.

pub(super) const CONTENT_POLICY: &[&str] = &[
    "content_policy_violation",
    "content policy",
    "content management policy",
    "responsibleaipolicyviolation",
    "flagged by our safety",
    "violates our usage polic",
    "violating our usage polic",
    "rejected by the safety system",
    "content_filter",
    "safety filter",
    "usage policies",
    "data_inspection_failed",
    "prohibited content",
];

pub(super) const GRAMMAR: &[&str] = &[
    "failed to parse grammar",
    "error parsing grammar",
    "unable to generate parser",
    "grammar-parse",
    "json schema conversion failed",
];

pub(super) const SUBSCRIPTION: &[&str] =
    &["active subscription", "subscription required", "subscription is required", "no subscription", "not subscribed"];

pub(super) const BILLING: &[&str] = &[
    "insufficient credits",
    "insufficient_credits",
    "insufficient balance",
    "insufficient_balance",
    "insufficient funds",
    "insufficient_quota",
    "credit balance is too low",
    "exceeded your current quota",
    "billing",
    "payment required",
    "payment_required",
    "top up your",
    "out of credits",
    "more credits",
    "no credits",
    "credits exhausted",
    "spending limit",
    "prepaid",
    "account is suspended",
    "recharge",
    "arrearage",
];

pub(super) const SPENDING_403: &[&str] = &["spending limit", "spending-limit", "key limit exceeded", "monthly limit"];

pub(super) const USAGE_LIMIT: &[&str] = &["usage limit", "usage_limit", "quota", "limit exceeded"];

pub(super) const TRANSIENT: &[&str] =
    &["try again", "retry", "resets at", "resets in", "reset in", "please wait", "window", "requests remaining"];

pub(super) const RATE: &[&str] = &[
    "rate limit",
    "rate_limit",
    "ratelimit",
    "rate-limit",
    "too many requests",
    "throttl",
    "requests per minute",
    "requests per day",
    "tokens per minute",
    "tokens per day",
    "resource_exhausted",
    "resource has been exhausted",
    "please retry after",
    "concurrency limit",
    "rate increased too quickly",
];

pub(super) const UPSTREAM_RATE: &[&str] =
    &["rate-limited upstream", "rate limited upstream", "upstream rate limit", "provider returned error"];

pub(super) const OVERLOADED: &[&str] = &[
    "overloaded",
    "overloaded_error",
    "at capacity",
    "over capacity",
    "server is busy",
    "service is too busy",
    "high demand",
    "currently unavailable due to",
    "no capacity",
    "capacity exceeded",
    "server busy",
    "slots available",
];

pub(super) const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "context length",
    "context_length",
    "context size",
    "context window",
    "context limit",
    "maximum context",
    "max context",
    "maximum model length",
    "max_model_len",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds",
    "prompt token count",
    "input is too long",
    "input too long",
    "input token count",
    "input length",
    "`inputs` tokens",
    "input tokens exceed",
    "too many tokens",
    "too many input tokens",
    "model token limit",
    "token limit exceeded",
    "exceeds the token limit",
    "maximum number of tokens",
    "max tokens allowed",
    "reduce the length of",
    "shorten your",
    "longer than the maximum",
    "longest sequence",
    "kv cache",
    "上下文长度",
    "超过最大长度",
    "超出最大",
    "输入过长",
];

/// Words of a limit on the answer, not on the prompt.
pub(super) const OUTPUT_FIELDS: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "maxoutputtokens",
    "completion tokens",
];

pub(super) const PAYLOAD: &[&str] =
    &["request entity too large", "payload too large", "request_too_large", "request too large", "body exceeds"];

pub(super) const MULTIMODAL_TOOL: &[&str] = &[
    "tool message content must be a string",
    "tool content must be a string",
    "content for tool role must be string",
    "'tool' messages must be a string",
    "tool messages with image",
    "multimodal tool",
    "image content in tool",
];

pub(super) const IMAGE: &[&str] = &[
    "image exceeds",
    "image is too large",
    "image too large",
    "image dimensions",
    "image size",
    "could not process image",
    "invalid image",
    "unable to process input image",
    "image_parse_error",
    "failed to decode image",
    "unsupported image",
];

pub(super) const NO_VISION: &[&str] = &[
    "does not support image",
    "image input is not supported",
    "image_url is only supported",
    "no endpoints found that support image",
    "mmproj",
    "not a multimodal",
    "does not support vision",
    "unknown variant `image_url`",
    "not support image input",
];

pub(super) const ENCRYPTED: &[&str] = &[
    "invalid_encrypted_content",
    "encrypted content could not",
    "encrypted_content could not",
    "could not be decrypted",
    "encrypted content is invalid",
];

pub(super) const VALIDATION: &[&str] = &[
    "unsupported parameter",
    "unsupported_parameter",
    "unsupported value",
    "unknown parameter",
    "unrecognized request argument",
    "extra inputs are not permitted",
    "extra_forbidden",
    "missing required parameter",
    "is unsupported",
    "is not supported with this model",
    "validation error",
];

pub(super) const EMPTY_PROVIDER: &[&str] =
    &["empty response", "empty_response", "returned no content", "no content was generated", "upstream returned empty"];

pub(super) const DATA_POLICY: &[&str] =
    &["data policy", "privacy settings", "zero data retention", "guardrail restrictions"];

pub(super) const MODEL_NOT_FOUND: &[&str] = &[
    "model_not_found",
    "model not found",
    "no such model",
    "does not exist or you do not have access",
    "is not a valid model",
    "invalid model",
    "unknown model",
    "model_not_available",
    "no endpoints found for",
    "not found, try pulling it first",
    "model is not available",
    "model does not exist",
    "decommissioned",
];

pub(super) const AUTH: &[&str] = &[
    "invalid api key",
    "incorrect api key",
    "invalid_api_key",
    "invalid x-api-key",
    "unauthorized",
    "authentication",
    "invalid token",
    "api key not valid",
    "no auth credentials",
];

pub(super) const TIMEOUT: &[&str] =
    &["timed out", "timeout", "deadline exceeded", "took too long", "gateway time-out", "operation was aborted"];

pub(super) const CERTIFICATE: &[&str] = &[
    "invalid peer certificate",
    "certificate verify failed",
    "unknownissuer",
    "certificate has expired",
    "certificate not valid for name",
    "notvalidforname",
    "self-signed certificate",
    "self signed certificate",
];
