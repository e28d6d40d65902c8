//! Each reason, with and without somewhere else to go.

use secrecy::SecretString;
use std::sync::Arc;

use super::*;
use crate::provider::credentials::KeyRing;
use crate::provider::endpoint::tests::endpoint;
use crate::provider::redact::Redactor;

fn error(kind: ErrorKind) -> ProviderError {
    ProviderError {
        kind,
        status: None,
        message: String::new(),
        retry_after: None,
        request_id: None,
        key: None,
        provider: "p".into(),
        model: "m".into(),
    }
}

fn alone() -> FallbackChain {
    FallbackChain::new(endpoint("p", "m"), Vec::new())
}

fn with_fallbacks() -> FallbackChain {
    FallbackChain::new(endpoint("p", "m"), vec![endpoint("f", "n"), endpoint("g", "o")])
}

/// Fails with `kind` until recovery gives up; the model asked in each attempt.
fn asked(chain: &FallbackChain, kind: ErrorKind) -> Vec<String> {
    let mut recovery = Recovery::new();
    let mut asked = Vec::new();
    loop {
        asked.push(chain.current().provider.clone());
        match recovery.next(chain, &error(kind), Visible::Nothing) {
            Action::Again { .. } | Action::Compact { .. } => {}
            Action::Fail => return asked,
        }
        assert!(asked.len() < 20, "endless");
    }
}

#[test]
fn a_server_that_is_not_there_is_not_waited_for_long() {
    let wait = |message: &str| {
        let error = ProviderError { message: message.into(), ..error(ErrorKind::Timeout) };
        match Recovery::new().next(&alone(), &error, Visible::Nothing) {
            Action::Again { after, .. } => after,
            other => panic!("{other:?}"),
        }
    };
    assert!(wait("tcp connect error: Connection refused (os error 111)") <= ABSENT_WAIT);
    assert!(wait("dns error: failed to lookup address information") <= ABSENT_WAIT);
    assert!(wait("connection reset by peer") > ABSENT_WAIT);
}

#[test]
fn without_a_fallback_transient_failures_use_up_the_retries_and_others_none() {
    let check = |kind, requests| assert_eq!(asked(&alone(), kind).len(), requests, "{kind:?}");
    for kind in [
        ErrorKind::RateLimit,
        ErrorKind::UpstreamRateLimit,
        ErrorKind::Overloaded,
        ErrorKind::ServerError,
        ErrorKind::Timeout,
        ErrorKind::TruncatedStream,
        ErrorKind::InvalidResponse,
        ErrorKind::Unknown,
    ] {
        check(kind, 4);
    }
    for kind in [
        ErrorKind::Auth,
        ErrorKind::Billing,
        ErrorKind::ModelNotFound,
        ErrorKind::ContentPolicyBlocked,
        ErrorKind::ProviderPolicyBlocked,
        ErrorKind::SslCertVerification,
        ErrorKind::FormatError,
    ] {
        check(kind, 1);
    }
    for kind in [
        ErrorKind::ImageTooLarge,
        ErrorKind::MultimodalToolContentUnsupported,
        ErrorKind::ThinkingSignature,
        ErrorKind::InvalidEncryptedContent,
        ErrorKind::LlamaCppGrammarPattern,
        ErrorKind::OauthLongContextBetaForbidden,
    ] {
        check(kind, 2);
    }
    check(ErrorKind::ContextOverflow, 4);
}

#[test]
fn with_fallbacks_each_reason_leaves_the_primary_at_its_time() {
    let check = |kind, expect: &[&str]| assert_eq!(asked(&with_fallbacks(), kind), expect, "{kind:?}");
    check(ErrorKind::Auth, &["p", "f", "g"]);
    check(ErrorKind::Billing, &["p", "f", "g"]);
    check(ErrorKind::ModelNotFound, &["p", "f", "g"]);
    check(ErrorKind::FormatError, &["p", "f", "g"]);
    check(ErrorKind::ContentPolicyBlocked, &["p", "f"]);
    check(ErrorKind::RateLimit, &["p", "f", "g", "g", "g", "g"]);
    check(ErrorKind::Overloaded, &["p", "p", "f", "f", "g", "g"]);
    check(ErrorKind::Timeout, &["p", "p", "f", "f", "g", "g"]);
    check(ErrorKind::ServerError, &["p", "p", "p", "p", "f", "g"]);
    check(ErrorKind::SslCertVerification, &["p"]);
}

#[test]
fn an_unexplained_refusal_is_not_asked_for_twice() {
    let not_found = ProviderError { status: Some(404), ..error(ErrorKind::Unknown) };
    assert_eq!(Recovery::new().next(&alone(), &not_found, Visible::Nothing), Action::Fail);
}

#[test]
fn a_failing_fallback_is_passed_over() {
    let chain = with_fallbacks();
    let mut recovery = Recovery::new();
    for _ in 0..4 {
        recovery.next(&chain, &error(ErrorKind::ServerError), Visible::Nothing);
    }
    assert_eq!(chain.current().provider, "f");
    let action = recovery.next(&chain, &error(ErrorKind::Auth), Visible::Nothing);
    assert!(matches!(action, Action::Again { notice: Some(text), .. } if text.contains("going on with g/o")));
}

#[test]
fn the_last_fallback_is_asked_too_however_many_there_are() {
    let names = ["f", "g", "h", "i", "j", "k", "l"];
    let chain = |count: usize| {
        FallbackChain::new(endpoint("p", "m"), names.iter().take(count).map(|name| endpoint(name, "n")).collect())
    };
    for (count, expect) in [(0, "pppp"), (1, "ppppff"), (2, "ppppfg"), (4, "ppfghi"), (7, "pfghijkl")] {
        assert_eq!(asked(&chain(count), ErrorKind::ServerError).concat(), expect);
    }
}

#[test]
fn many_configured_retries_are_granted() {
    let mut patient = endpoint("p", "m");
    patient.retry.max_retries = 9;
    assert_eq!(asked(&FallbackChain::new(patient, Vec::new()), ErrorKind::ServerError).len(), 10);
    let mut hasty = endpoint("p", "m");
    hasty.retry.max_retries = 0;
    assert_eq!(asked(&FallbackChain::new(hasty, Vec::new()), ErrorKind::ServerError).len(), 1);
}

fn wait_of(action: &Action) -> Duration {
    match action {
        Action::Again { after, .. } => *after,
        Action::Compact { .. } | Action::Fail => panic!("{action:?} is no wait"),
    }
}

#[test]
fn the_wait_asked_for_is_kept_with_a_notice_and_an_absurd_one_is_not() {
    let after =
        |seconds| ProviderError { retry_after: Some(Duration::from_secs(seconds)), ..error(ErrorKind::Overloaded) };
    let action = Recovery::new().next(&alone(), &after(2), Visible::Nothing);
    let wait = wait_of(&action);
    assert!(wait >= Duration::from_secs(2) && wait <= Duration::from_millis(2500), "{wait:?}");
    assert!(matches!(action, Action::Again { notice: Some(_), .. }));
    assert_eq!(Recovery::new().next(&alone(), &after(315_360_000), Visible::Nothing), Action::Fail);
    let chain = with_fallbacks();
    assert_eq!(wait_of(&Recovery::new().next(&chain, &after(315_360_000), Visible::Nothing)), Duration::ZERO);
    assert_eq!(chain.current().provider, "f");
}

#[test]
fn the_primary_rests_only_when_it_asked_to() {
    let rate =
        |wait: Option<u64>| ProviderError { retry_after: wait.map(Duration::from_secs), ..error(ErrorKind::RateLimit) };
    for (wait, expect) in [(None, "p"), (Some(30), "f")] {
        let chain = with_fallbacks();
        Recovery::new().next(&chain, &rate(wait), Visible::Nothing);
        assert_eq!(chain.current().provider, "f");
        chain.begin_turn();
        assert_eq!(chain.current().provider, expect, "{wait:?}");
    }
}

#[test]
fn waits_double_up_to_the_longest_and_are_jittered() {
    let policy = RetryPolicy { max_retries: 9, base: Duration::from_secs(2), max: Duration::from_secs(60) };
    let check = |failures, jitter, expect: f64| {
        assert_eq!(backoff(&policy, failures, jitter), Duration::from_secs_f64(expect), "{failures} {jitter}");
    };
    check(1, 0.0, 2.0);
    check(2, 0.0, 4.0);
    check(2, 1.0, 6.0);
    check(6, 0.0, 60.0);
    check(100, 1.0, 90.0);
    assert!((0.0..=1.0).contains(&jitter()));
}

#[test]
fn a_retry_after_visible_text_is_announced() {
    let quick = || {
        let mut endpoint = endpoint("p", "m");
        endpoint.retry.base = Duration::ZERO;
        FallbackChain::new(endpoint, Vec::new())
    };
    let action = |visible| Recovery::new().next(&quick(), &error(ErrorKind::TruncatedStream), visible);
    assert!(matches!(action(Visible::Nothing), Action::Again { notice: None, .. }));
    assert!(
        matches!(action(Visible::Something), Action::Again { notice: Some(text), .. } if text.contains("broke off"))
    );
}

#[test]
fn other_keys_are_used_before_other_models() {
    let mut two_keys = endpoint("p", "m");
    let keys = ["test-key-1", "test-key-2"].map(SecretString::from).to_vec();
    two_keys.keys = Arc::new(KeyRing::new("p", keys, None, Redactor::default()));
    let ring = Arc::clone(&two_keys.keys);
    let chain = FallbackChain::new(two_keys, vec![endpoint("f", "n")]);
    let mut recovery = Recovery::new();
    let action = recovery.next(&chain, &error(ErrorKind::RateLimit), Visible::Nothing);
    assert_eq!((wait_of(&action), chain.current().provider.as_str()), (Duration::ZERO, "p"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..2 {
        let lease = runtime.block_on(ring.lease(clock::now_ms())).unwrap().unwrap();
        ring.rest(lease.mark, i64::MAX);
    }
    recovery.next(&chain, &error(ErrorKind::Auth), Visible::Nothing);
    assert_eq!(chain.current().provider, "f");
}

#[test]
fn limits_that_the_provider_names_are_taken_over() {
    let chain = alone();
    let said = |kind, message: &str| ProviderError { message: message.into(), ..error(kind) };
    let overflow = said(ErrorKind::ContextOverflow, "This model's maximum context length is 8192 tokens.");
    let action = Recovery::new().next(&chain, &overflow, Visible::Nothing);
    assert!(matches!(action, Action::Compact { .. }));
    assert_eq!(chain.current().window(), 8_192);

    let capped =
        said(ErrorKind::OutputCap, "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens");
    let mut recovery = Recovery::new();
    assert_eq!(wait_of(&recovery.next(&chain, &capped, Visible::Nothing)), Duration::ZERO);
    assert_eq!(chain.current().output_limit(Some(100_000)), Some(64_000));
    assert_eq!(recovery.next(&chain, &capped, Visible::Nothing), Action::Fail, "the same cap twice helps nobody");
}

#[test]
fn a_payload_that_cannot_be_compacted_loses_its_pictures_once() {
    let chain = alone();
    let large = error(ErrorKind::PayloadTooLarge);
    let mut recovery = Recovery::new();
    assert!(matches!(recovery.next(&chain, &large, Visible::Nothing), Action::Compact { .. }));
    assert!(matches!(recovery.cannot_compact(&chain, &large, Pictures::Some), Action::Again { .. }));
    assert!(chain.current().adjustments.drop_images);
    assert_eq!(recovery.cannot_compact(&chain, &large, Pictures::Some), Action::Fail);
    assert_eq!(recovery.cannot_compact(&alone(), &error(ErrorKind::ContextOverflow), Pictures::Some), Action::Fail);
}

#[test]
fn what_cannot_be_made_shorter_goes_to_a_model_that_may_take_it() {
    let sized = |name: &str, context_window| Endpoint { context_window, ..endpoint(name, "m") };
    let chain = || FallbackChain::new(sized("p", 8_000), vec![sized("s", 4_000), sized("l", 16_000)]);
    for (kind, expect) in [(ErrorKind::ContextOverflow, "l"), (ErrorKind::LongContextTier, "l")] {
        let chain = chain();
        let action = Recovery::new().cannot_compact(&chain, &error(kind), Pictures::None);
        assert!(matches!(&action, Action::Again { notice: Some(text), .. } if text.contains("going on with l/m")));
        assert_eq!(chain.current().provider, expect);
        assert_eq!(Recovery::new().cannot_compact(&chain, &error(kind), Pictures::None), Action::Fail);
    }
    let (chain, large) = (chain(), error(ErrorKind::PayloadTooLarge));
    Recovery::new().cannot_compact(&chain, &large, Pictures::Some);
    assert!(chain.current().adjustments.drop_images, "pictures go first, where there are some");
    Recovery::new().cannot_compact(&chain, &large, Pictures::Some);
    assert_eq!(chain.current().provider, "s", "another server, whatever its window");
}
