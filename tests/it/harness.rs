//! The harness itself: a transcript passes when it should and fails, with the reason, when it should.

use turnd::script::{format, run};

use crate::support::fake_agent;

/// Runs the steps against the fake agent; `expected` is a part of the failure, or empty for success.
async fn check(steps: &str, expected: &str) {
    let text = format!("{{\"case\": \"c\", \"timeout_ms\": 2000}}\n{steps}");
    let cases = format::parse(&text).unwrap();
    let outcome = run::run_case(&cases[0], &fake_agent::agent(), "chat_completions").await;
    match outcome {
        Ok(()) => assert!(expected.is_empty(), "{steps}\npassed, expected: {expected}"),
        Err(failure) => assert!(
            !expected.is_empty() && failure.message.contains(expected),
            "{steps}\nfailed with: {}\nexpected: {expected}",
            failure.message
        ),
    }
}

#[tokio::test]
async fn a_turn_as_expected_passes() {
    check(
        r#"{"prompt": "hi"}
           {"expect_text": "hi"}
           {"expect_stop": "end_turn"}
           {"expect_said": {"text": "hi"}}"#,
        "",
    )
    .await;
}

#[tokio::test]
async fn a_wrong_expectation_fails_with_what_came() {
    check("{\"prompt\": \"hi\"}\n{\"expect_stop\": \"cancelled\"}", "expected \"cancelled\", got \"end_turn\"").await;
    check("{\"prompt\": \"hi\"}\n{\"expect_text\": \"ho\"}", "so far \"hi\"").await;
    check("{\"prompt\": \"hi\"}\n{\"expect_stop\": \"end_turn\"}\n{\"expect_said\": {\"text\": \"h\"}}", ".text").await;
}

#[tokio::test]
async fn a_hang_ends_after_the_time_of_one_expectation() {
    check("{\"prompt\": \"silent\"}\n{\"expect_stop\": \"end_turn\"}", "nothing came in time").await;
}

#[tokio::test]
async fn closing_rules_hold_without_being_asked_for() {
    let ended = "{\"expect_stop\": \"end_turn\"}";
    check("{\"prompt\": \"hi\"}", "left unread").await;
    check("{\"prompt\": \"silent\"}", "without an answer").await;
    check(&format!("{{\"prompt\": \"twice\"}}\n{ended}"), "left unread").await;
    check(&format!("{{\"prompt\": \"late\"}}\n{ended}"), "although no prompt is running").await;
    check(&format!("{{\"prompt\": \"backwards\"}}\n{ended}"), "from Completed to InProgress").await;
    check("{\"prompt\": \"noise\"}\n{\"expect_text\": \"noise\"}", "expected agent_message_chunk").await;
}

#[tokio::test]
async fn a_reply_nobody_asked_for_is_a_failure() {
    check("{\"model\": {\"text\": \"x\"}}\n{\"prompt\": \"hi\"}\n{\"expect_stop\": \"end_turn\"}", "never asked for")
        .await;
}

#[tokio::test]
async fn files_are_written_and_checked_inside_the_case() {
    check("{\"files\": {\"a/b.txt\": \"x\"}}\n{\"expect_file\": {\"a/b.txt\": \"x\", \"c\": null}}", "").await;
    check("{\"expect_file\": {\"c\": \"x\"}}", "is not there").await;
    check("{\"files\": {\"../c\": \"x\"}}", "outside").await;
}
