//! The table of statuses, codes and words.

use super::*;

fn kind(status: Option<u16>, body: &str) -> ErrorKind {
    classify(&Failure { status, body, context_window: 128_000, ..Failure::default() })
}

#[track_caller]
fn check(status: u16, message: &str, expect: ErrorKind) {
    let body = serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
    assert_eq!(kind(Some(status), &body), expect, "{status} {message}");
}

#[test]
fn the_status_decides_when_the_words_say_nothing() {
    for (status, expect) in [
        (302, ErrorKind::FormatError),
        (400, ErrorKind::FormatError),
        (401, ErrorKind::Auth),
        (402, ErrorKind::Billing),
        (403, ErrorKind::Auth),
        (404, ErrorKind::Unknown),
        (405, ErrorKind::FormatError),
        (408, ErrorKind::Timeout),
        (409, ErrorKind::FormatError),
        (413, ErrorKind::PayloadTooLarge),
        (422, ErrorKind::FormatError),
        (429, ErrorKind::RateLimit),
        (500, ErrorKind::ServerError),
        (502, ErrorKind::ServerError),
        (503, ErrorKind::Overloaded),
        (504, ErrorKind::Timeout),
        (520, ErrorKind::ServerError),
        (529, ErrorKind::Overloaded),
    ] {
        check(status, "something about this request was not right here", expect);
        assert_eq!(kind(Some(status), ""), expect, "{status} without a body");
    }
}

#[test]
fn the_same_words_mean_different_things_under_different_statuses() {
    check(429, "You exceeded your current quota, check your billing details", ErrorKind::RateLimit);
    check(429, "The model is overloaded", ErrorKind::Overloaded);
    check(429, "m:free is temporarily rate-limited upstream", ErrorKind::UpstreamRateLimit);
    check(402, "usage limit reached, try again in 5 minutes", ErrorKind::RateLimit);
    check(402, "usage limit reached", ErrorKind::Billing);
    check(403, "Key limit exceeded", ErrorKind::Billing);
    check(404, "The model `x` does not exist or you do not have access to it.", ErrorKind::ModelNotFound);
    check(404, "model 'x' not found, try pulling it first", ErrorKind::ModelNotFound);
    check(404, "models are served at another address", ErrorKind::Unknown);
    check(404, "No endpoints found matching your data policy", ErrorKind::ProviderPolicyBlocked);
    check(404, "Invalid URL (POST /v1/v1/chat/completions)", ErrorKind::Unknown);
    check(400, "Unsupported parameter: 'max_tokens' is not supported with this model.", ErrorKind::FormatError);
    check(500, "Unknown parameter: 'x'", ErrorKind::FormatError);
    check(500, "the model is overloaded", ErrorKind::Overloaded);
    check(400, "API key not valid. Please pass a valid API key.", ErrorKind::Auth);
    check(400, "Your credit balance is too low to access the Anthropic API.", ErrorKind::Billing);
    check(401, "check your billing", ErrorKind::Auth);
    check(403, "an active subscription is needed", ErrorKind::Auth);
}

#[test]
fn every_servers_word_for_an_overflow_is_understood() {
    let check_all = |statuses: &[u16], message: &str| {
        statuses.iter().for_each(|status| check(*status, message, ErrorKind::ContextOverflow));
    };
    let usual = [400, 413, 500];
    check_all(
        &usual,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    );
    check_all(&usual, "Your input exceeds the context window of this model. Please adjust your input and try again.");
    check_all(&usual, "The decoder prompt (length 5000) is longer than the maximum model length of 4096.");
    check_all(
        &usual,
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages",
    );
    check_all(&usual, "request (9024 tokens) exceeds the available context size (8192 tokens), try increasing it");
    check_all(&usual, "the request exceeds the available context size. try increasing the context size");
    check_all(&usual, "prompt too long; exceeded max context length by 5 tokens");
    check_all(
        &usual,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens",
    );
    check_all(&usual, "prompt is too long: 210000 tokens > 200000 maximum");
    check_all(&usual, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).");
    check_all(&usual, "This model's maximum prompt length is 131072 but the request contains 500000 tokens.");
    check_all(&usual, "Please reduce the length of the messages or completion.");
    check_all(&usual, "Input is too long for requested model.");
    check_all(&usual, "Your request exceeded model token limit: 262144");
    check_all(&usual, "However, the model is loaded with context length of only 4096 tokens");
    check_all(&usual, "input is larger than the max context size. skipped");
    check_all(&usual, "too many tokens: total number of tokens in the prompt cannot exceed 4081");
    check_all(&usual, "prompt token count of 200000 exceeds the limit of 128000");
    check_all(&usual, "输入过长, 超过最大长度");
    let typed = r#"{"error":{"code":400,"message":"too big","type":"exceed_context_size_error","n_ctx":8192}}"#;
    assert_eq!(kind(Some(400), typed), ErrorKind::ContextOverflow);
    let coded = r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#;
    assert_eq!(kind(Some(400), coded), ErrorKind::ContextOverflow);
    assert_eq!(kind(None, coded), ErrorKind::ContextOverflow);
}

#[test]
fn an_output_limit_that_can_be_mended_is_no_overflow() {
    check(
        400,
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
        ErrorKind::OutputCap,
    );
    check(400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", ErrorKind::OutputCap);
    check(
        400,
        "max_tokens is too large: 50000. This model supports at most 16384 completion tokens",
        ErrorKind::OutputCap,
    );
}

#[test]
fn a_bare_error_on_a_large_request_is_an_overflow() {
    let large = Failure {
        status: Some(400),
        body: "error",
        request_tokens: 90_000,
        context_window: 200_000,
        ..Failure::default()
    };
    assert_eq!(classify(&large), ErrorKind::ContextOverflow);
    assert_eq!(classify(&Failure { request_tokens: 1_000, ..large }), ErrorKind::FormatError);
    assert_eq!(classify(&Failure { request_tokens: 1_000, messages: 81, ..large }), ErrorKind::ContextOverflow);
}

#[test]
fn narrow_rules_come_before_their_status() {
    check(400, "messages.1.content.0: Invalid `signature` in `thinking` block", ErrorKind::ThinkingSignature);
    check(400, "`thinking` blocks in the latest assistant message cannot be modified", ErrorKind::ThinkingSignature);
    check(429, "Extra usage is required for long context requests.", ErrorKind::LongContextTier);
    check(
        400,
        "The long context beta is not yet available for this subscription.",
        ErrorKind::OauthLongContextBetaForbidden,
    );
    check(400, "failed to parse grammar", ErrorKind::LlamaCppGrammarPattern);
    check(
        400,
        "The encrypted content could not be verified: invalid_encrypted_content",
        ErrorKind::InvalidEncryptedContent,
    );
    check(400, "messages.3.content.1.image: image exceeds 5 MB maximum", ErrorKind::ImageTooLarge);
    check(
        500,
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        ErrorKind::ImageTooLarge,
    );
    check(400, "tool message content must be a string", ErrorKind::MultimodalToolContentUnsupported);
    check(400, "Your request was flagged by our safety system", ErrorKind::ContentPolicyBlocked);
    check(500, "The response was filtered due to the content management policy", ErrorKind::ContentPolicyBlocked);
}

#[test]
fn failures_inside_a_stream_have_a_code_or_only_words() {
    let check = |body: &str, expect| assert_eq!(kind(Some(200), body), expect, "{body}");
    check(r#"{"error":{"message":"quota","code":429}}"#, ErrorKind::RateLimit);
    check(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, ErrorKind::Overloaded);
    check(r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, ErrorKind::ServerError);
    check(r#"{"error":{"message":"m","code":"rate_limit_exceeded"}}"#, ErrorKind::RateLimit);
    check(r#"{"error":{"message":"m","code":"model_not_found"}}"#, ErrorKind::ModelNotFound);
    check(r#"{"error":"out of credits"}"#, ErrorKind::Billing);
    check(r#"{"error":"quota reached, try again later"}"#, ErrorKind::RateLimit);
    check(r#"{"error":"prompt is too long"}"#, ErrorKind::ContextOverflow);
    check(r#"{"error":"request timed out"}"#, ErrorKind::Timeout);
    check(r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#, ErrorKind::ModelNotFound);
    check(r#"{"error":{"code":"invalid_prompt","message":"Invalid prompt"}}"#, ErrorKind::FormatError);
    check(
        r#"{"error":{"code":"invalid_prompt","message":"flagged as potentially violating our usage policy"}}"#,
        ErrorKind::ContentPolicyBlocked,
    );
    check(r#"{"error":{"code":"cyber_policy","message":"m"}}"#, ErrorKind::ContentPolicyBlocked);
    check(r#"{"error":{"code":"invalid_base64_image","message":"m"}}"#, ErrorKind::ImageTooLarge);
    check(r#"{"error":"no idea"}"#, ErrorKind::Unknown);
}

#[test]
fn what_an_aggregator_quotes_counts() {
    let quoted = r#"{"error":{"message":"Provider returned error","code":400,
        "metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}"}}}"#;
    assert_eq!(kind(Some(400), quoted), ErrorKind::ContextOverflow);
}

#[test]
fn the_transport_is_asked_last_and_the_certificate_first() {
    let check = |cause, expect| assert_eq!(classify(&Failure { cause, ..Failure::default() }), expect, "{cause}");
    check("error sending request: invalid peer certificate: UnknownIssuer", ErrorKind::SslCertVerification);
    check("error sending request: connection refused", ErrorKind::Timeout);
    check("received fatal alert: HandshakeFailure", ErrorKind::Timeout);
    check("", ErrorKind::Unknown);
}

#[test]
fn captured_error_bodies_get_the_right_reason() {
    for (status, body, expect) in [
        (
            400,
            r#"{"error":{"message":"Bad request.","type":"invalid_request_error","param":null,"code":"bad_request"}}"#,
            ErrorKind::FormatError,
        ),
        (
            403,
            r#"{"error":{"message":"Forbidden.","type":"permission_error","param":null,"code":"forbidden"}}"#,
            ErrorKind::Auth,
        ),
        (
            404,
            r#"{"error":{"message":"Resource not found.","type":"invalid_request_error","code":"not_found"}}"#,
            ErrorKind::Unknown,
        ),
        (413, r#"{"error":{"message":"Payload too large.","code":"request_too_large"}}"#, ErrorKind::PayloadTooLarge),
        (
            529,
            r#"{"error":{"message":"Service overloaded.","type":"server_error","code":"overloaded"}}"#,
            ErrorKind::Overloaded,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"'messages' is required","type":"invalid_request_error"}}"#,
            ErrorKind::FormatError,
        ),
    ] {
        assert_eq!(kind(Some(status), body), expect, "{body}");
    }
}
