//! The completion check: whether a finished answer may end the turn, or the model is sent back.
//!
//! Sent back, the answer stays in the history, and the reason goes out with the next request only.

use crate::hook::{HookPoint, Verification};
use crate::message::{AssistantMessage, FinishReason, Message};
use crate::provider::ApiMode;

use super::answer::Retake;
use super::payload;
use super::port::{Record, RecordError, TurnIo};
use super::run::Turn;

/// How often `pre_verify` hooks may send the model back.
const MAX_SENT_BACK: u32 = 2;
/// How often a model that only says what it will do is told to do it.
const MAX_INTENT_NUDGES: u32 = 2;
/// A longer text is an answer, whatever it announces.
const MAX_INTENT_CHARS: usize = 1_200;

const ACT_NOW: &str = "[You said what you will do. Do it now with the tools, or answer if nothing is left to do.]";

/// What was sent back so far in this turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentBack {
    by_hooks: u32,
    for_intent: u32,
}

impl<Io: TurnIo> Turn<'_, Io> {
    /// How to ask again after an answer that does not end the turn; `None`: it ends it.
    pub(super) async fn send_back(&mut self, message: &AssistantMessage) -> Result<Option<Retake>, RecordError> {
        if message.finish == FinishReason::Refused {
            return Ok(None);
        }
        let nudge = if self.only_announces(message) {
            self.sent_back.for_intent += 1;
            ACT_NOW.to_owned()
        } else if let Some(reason) = self.rejected_by_hooks(message).await {
            self.sent_back.by_hooks += 1;
            format!("[The work is not accepted yet: {reason}]")
        } else {
            return Ok(None);
        };
        let mut records = vec![Record::Message(Message::Assistant(message.clone()))];
        records.append(&mut self.unrecorded);
        self.scope.io.record(records).await?;
        self.note_stored();
        self.history.push(Message::Assistant(message.clone()));
        Ok(Some(Retake { scaffold: vec![Message::user(nudge)], ..Retake::default() }))
    }

    /// Models behind the Responses API tend to end a turn with a plan in words. Others mean it when they stop.
    fn only_announces(&self, message: &AssistantMessage) -> bool {
        self.scope.context.chain.current().mode == ApiMode::CodexResponses
            && message.finish == FinishReason::Stop
            && self.steps_with_tools == 0
            && self.sent_back.for_intent < MAX_INTENT_NUDGES
            && !self.scope.context.tools.specs().is_empty()
            && announces_work(&message.text)
    }

    async fn rejected_by_hooks(&self, message: &AssistantMessage) -> Option<String> {
        let hooks = &self.scope.context.hooks;
        if self.sent_back.by_hooks >= MAX_SENT_BACK || !hooks.has(HookPoint::PreVerify) {
            return None;
        }
        let changed = self.edits.iter().filter(|edit| !edit.is_failed);
        let changed: Vec<_> = changed.map(|edit| edit.path.to_string_lossy().into_owned()).collect();
        match hooks.verify(|| payload::verify(&message.text, self.sent_back.by_hooks, &changed)).await {
            Verification::SendBack(reason) => Some(reason),
            Verification::Accept => None,
        }
    }
}

/// True for a short text whose last sentence promises work on the task and asks the user nothing.
fn announces_work(text: &str) -> bool {
    const PROMISES: [&str; 7] =
        ["i'll ", "i will ", "let me ", "i'm going to ", "i am going to ", "next i ", "first, i "];
    const WORK: [&str; 22] = [
        "analyze",
        "check",
        "create",
        "edit",
        "examine",
        "explore",
        "find",
        "fix",
        "implement",
        "inspect",
        "list",
        "look",
        "open",
        "read",
        "review",
        "run",
        "scan",
        "search",
        "start",
        "test",
        "update",
        "write",
    ];
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_INTENT_CHARS || text.ends_with('?') {
        return false;
    }
    let text = text.to_lowercase().replace('\u{2019}', "'");
    let last_line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let last = last_line.rsplit(". ").next().and_then(|part| part.rsplit("! ").next()).unwrap_or_default();
    let Some(promised) = PROMISES.iter().find_map(|promise| last.split_once(promise)).map(|(_, rest)| rest) else {
        return false;
    };
    // "Let me know" and "I will wait" leave the next word to the user.
    let mut words = promised.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_for_user = last.contains("let me know") || last.contains(" if you") || last.contains(" when you");
    !is_for_user && words.by_ref().take(4).any(|word| WORK.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_to_work_is_told_from_an_answer() {
        for text in [
            "I'll read the file first.",
            "The test fails.\nLet me check why.",
            "I\u{2019}m going to run the tests now...",
            "Sure! First, I will look at `src/main.rs`.",
        ] {
            assert!(announces_work(text), "{text}");
        }
        for text in [
            "",
            "Done: the file is fixed.",
            "I will read the file. Shall I?",
            "Let me know if you want me to run the tests.",
            "I'll run it when you are ready.",
            "I will read it. It holds three lines.",
            "The function will check its input.",
        ] {
            assert!(!announces_work(text), "{text}");
        }
        assert!(!announces_work(&format!("{} I'll read it.", "x".repeat(1_200))));
    }
}
