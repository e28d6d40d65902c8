//! Compaction at any point of a long turn, and a process that dies in the middle of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use turnd::script::agent::KILL;

use crate::support::lab::{Lab, WAIT, prompt, said, turnd};

/// Steps of the long turn.
const STEPS: usize = 60;
/// Turns, each with overflows at other places.
const SEEDS: u64 = 12;

const OVERFLOW: &str = "prompt is too long: 210000 tokens > 200000 maximum";
const RECORD: &str = "## Goal\nthe record";

/// The places of three overflows, spread by the seed.
fn places(seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % 59).unwrap_or_default() + 1
    };
    let mut places = vec![next(), next(), next()];
    places.sort_unstable();
    places.dedup();
    places
}

/// A turn of many steps whose model calls overflow at these steps.
fn long_turn(overflows: &[usize]) -> Value {
    let mut replies = vec![json!({"when": {"user_contains": "<conversation>"}, "text": RECORD})];
    for step in 0..STEPS {
        if overflows.contains(&step) {
            replies.push(json!({"status": 400, "error": OVERFLOW}));
        }
        let calls: Vec<_> = (0..=step % 3)
            .map(|index| json!({"id": format!("c{step}_{index}"), "name": "read_file", "arguments": {"path": "a.txt"}}))
            .collect();
        replies.push(json!({"tool_calls": calls}));
    }
    replies.push(json!({"text": "all done"}));
    replies.push(json!({"text": "and on"}));
    json!(replies)
}

async fn run(seed: u64) -> Result<(), String> {
    let overflows = places(seed);
    let lab = Lab::compacting(long_turn(&overflows), json!({})).await;
    std::fs::write(lab.stage.workspace().join("a.txt"), "alpha beta gamma ".repeat(50)).unwrap();
    let mut client = lab.start(&turnd()).await;
    let session = lab.session(&mut client).await;
    for (id, text) in [("long", "do the long work"), ("next", "go on")] {
        let answer = client.request(json!(id), "session/prompt", prompt(&session, text), WAIT).await.unwrap();
        if answer["result"]["stopReason"] != "end_turn" {
            return Err(format!("{overflows:?}: {answer}"));
        }
    }
    let refused = lab.refused();
    if !refused.is_empty() {
        return Err(format!("{overflows:?}: {}", refused.join("; ")));
    }
    let seen = lab.model.seen();
    let of_turn: Vec<_> = seen.iter().filter(|seen| !seen.view.tools.is_empty()).collect();
    let summaries = seen.len() - of_turn.len();
    if summaries == 0 || summaries > overflows.len() {
        return Err(format!("{overflows:?}: {summaries} summaries"));
    }
    let lost = of_turn.iter().position(|seen| {
        let text: String = seen.view.messages.iter().map(|message| message.text.as_str()).collect();
        !text.contains("do the long work")
    });
    // The second prompt may see the first one in the summary's words only.
    match lost {
        Some(index) if index + 1 < of_turn.len() => {
            Err(format!("{overflows:?}: request {index} lost the user's words"))
        }
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overflow_at_any_step_never_makes_a_request_that_a_strict_provider_refuses() {
    let mut failures = Vec::new();
    for seed in 1..=SEEDS {
        failures.extend(run(seed).await.err());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_around_a_compaction_leaves_the_old_history_or_the_new_one() {
    for delay in (0..10).map(|step| Duration::from_millis(step * 4)) {
        let replies = json!([
            {"text": "first answer"},
            {"status": 400, "error": OVERFLOW},
            {"text": RECORD},
            {"text": "second answer", "repeat": true},
        ]);
        let lab = Lab::compacting(replies, json!({})).await;
        let mut client = lab.start(&turnd()).await;
        let session = lab.session(&mut client).await;
        client.request(json!("one"), "session/prompt", prompt(&session, "first question"), WAIT).await.unwrap();
        let params = prompt(&session, "second question");
        client.send(&json!({"id": "two", "method": "session/prompt", "params": params})).await.unwrap();
        lab.model.wait_for(|seen| (seen.len() >= 3).then_some(())).await;
        tokio::time::sleep(delay).await;
        client.process.signal(KILL).unwrap();
        client.process.wait().await.unwrap();
        client.drain(Instant::now() + WAIT).await;

        let mut client = lab.start(&turnd()).await;
        let begin = client.entries().len();
        let loaded = lab.load(&mut client, &session).await;
        assert!(loaded.get("result").is_some(), "{delay:?}: {loaded}");
        assert_eq!(said(&client, begin, "user_message_chunk"), "first questionsecond question", "{delay:?}");
        assert!(said(&client, begin, "agent_message_chunk").starts_with("first answer"), "{delay:?}");
        let answer = client.request(json!("x"), "session/prompt", prompt(&session, "third"), WAIT).await.unwrap();
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{delay:?}: {answer}");
        assert!(lab.refused().is_empty(), "{delay:?}: {:?}", lab.refused());
        let seen = lab.model.seen();
        let text = seen.last().unwrap().body.to_string();
        assert!(text.contains("first answer") != text.contains("the record"), "{delay:?}: {text}");
        client.close_stdin();
        client.process.wait().await.unwrap();
    }
}
