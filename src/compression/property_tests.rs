//! Random histories: what compaction leaves is legal for every provider, and nothing is parted.

use proptest::prelude::*;

use super::*;
use crate::message::{AssistantMessage, Effect, Origin, Part, ToolCall, ToolResult, UserMessage};
use crate::provider::ApiMode;
use crate::provider::normalize::{Target, check, normalize};

pub(super) fn answer(text: &str) -> Message {
    Message::Assistant(AssistantMessage { text: text.into(), ..AssistantMessage::default() })
}

pub(super) fn call(id: &str) -> Message {
    call_with(id, "{}")
}

pub(super) fn call_with(id: &str, arguments: &str) -> Message {
    calls(&[id], arguments)
}

fn calls(ids: &[&str], arguments: &str) -> Message {
    let call =
        |id: &&str| ToolCall { id: (*id).to_owned(), name: "t".into(), arguments: arguments.to_owned(), extra: None };
    Message::Assistant(AssistantMessage { tool_calls: ids.iter().map(call).collect(), ..AssistantMessage::default() })
}

pub(super) fn result(id: &str, text: &str) -> Message {
    Message::Tool(ToolResult {
        tool_call_id: id.into(),
        name: "t".into(),
        content: vec![Part::text(text)],
        is_error: false,
        effect: Effect::Done,
    })
}

pub(super) fn summary(text: &str) -> Message {
    Message::User(UserMessage { content: vec![Part::text(text)], origin: Origin::Compaction })
}

/// One turn: how many calls each step has, how long its results are, and whether it was answered.
#[derive(Clone, Debug)]
struct Turn {
    steps: Vec<(u8, u16)>,
    is_answered: bool,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (prop::collection::vec((1_u8..4, 0_u16..3_000), 0..12), any::<bool>())
        .prop_map(|(steps, is_answered)| Turn { steps, is_answered });
    prop::collection::vec(turn, 1..6)
}

fn build(turns: &[Turn]) -> Vec<Message> {
    let mut history = Vec::new();
    let mut count = 0;
    for turn in turns {
        count += 1;
        history.push(Message::user(format!("question {count}")));
        for (size, length) in &turn.steps {
            let ids: Vec<String> = (0..*size).map(|index| format!("c{count}_{}_{index}", history.len())).collect();
            history.push(calls(&ids.iter().map(String::as_str).collect::<Vec<_>>(), r#"{"path":"x"}"#));
            history.extend(ids.iter().map(|id| result(id, &format!("{id} {}", "é".repeat(usize::from(*length))))));
        }
        if turn.is_answered {
            history.push(answer(&format!("answer {count}")));
        }
    }
    history
}

const TARGETS: [Target<'_>; 3] = [
    Target { api_mode: ApiMode::ChatCompletions, provider: "p", model: "m" },
    Target { api_mode: ApiMode::CodexResponses, provider: "p", model: "m" },
    Target { api_mode: ApiMode::AnthropicMessages, provider: "p", model: "m" },
];

fn urgencies() -> impl Strategy<Value = Urgency> {
    prop_oneof![Just(Urgency::Due), Just(Urgency::Asked), (0_u32..3).prop_map(Urgency::Refused)]
}

/// Calls without their result and results without their call.
fn parted(history: &[Message]) -> Vec<String> {
    let mut asked: Vec<&str> = Vec::new();
    let mut parted = Vec::new();
    for message in history {
        match message {
            Message::Tool(result) => match asked.iter().position(|id| *id == result.tool_call_id) {
                Some(at) => drop(asked.remove(at)),
                None => parted.push(result.tool_call_id.clone()),
            },
            Message::Assistant(assistant) => asked.extend(assistant.tool_calls.iter().map(|call| call.id.as_str())),
            Message::User(_) => {}
        }
    }
    parted.extend(asked.into_iter().map(str::to_owned));
    parted
}

fn compact(history: &[Message], urgency: Urgency, trigger: u64, config: &CompressionConfig) -> Option<Vec<Message>> {
    let request = Request { history, fixed_tokens: 500, level_tokens: 0, trigger_tokens: trigger, config, urgency };
    let plan = Plan::make(&request)?;
    let summary = plan.needs_summary().then(|| summary(&format!("{}\nwhat was", crate::message::COMPACTION_OPEN)));
    Some(plan.change(summary).apply(history))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_compacted_stays_legal_and_keeps_the_request(
        turns in turns(),
        urgency in urgencies(),
        trigger in 600_u64..20_000,
        first in 0_usize..6,
        last in 0_usize..30,
        again in any::<bool>(),
    ) {
        let config =
            CompressionConfig { protect_first_n: first, protect_last_n: last, ..CompressionConfig::default() };
        let history = build(&turns);
        let request = history.iter().rev().find(|message| message.is_request()).cloned();
        let Some(mut compacted) = compact(&history, urgency, trigger, &config) else { return Ok(()) };
        if again {
            compacted.extend([call("late"), result("late", "x"), answer("so far")]);
            compacted = compact(&compacted, Urgency::Asked, trigger, &config).unwrap_or(compacted);
        }
        prop_assert_eq!(parted(&compacted), Vec::<String>::new());
        prop_assert_eq!(compacted.iter().rev().find(|message| message.is_request()).cloned(), request);
        prop_assert!(compacted.iter().filter(|message| split::is_summary(message)).count() <= 1);
        prop_assert!(tokens(&compacted) < tokens(&history) + 100, "{} {}", tokens(&compacted), tokens(&history));
        let later = [compacted.clone(), vec![answer("next"), Message::user("and then")]].concat();
        for target in TARGETS {
            let sent = normalize(&compacted, target);
            prop_assert_eq!(check(&sent, target), Ok(()));
            if !matches!(sent.last(), Some(Message::Assistant(_))) {
                let next = normalize(&later, target);
                prop_assert_eq!(next.get(..sent.len()), Some(sent.as_slice()), "the prefix holds");
            }
        }
    }
}
