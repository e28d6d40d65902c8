//! What to do with one answer of the model: run its tools, take its text, ask again, or give up.
//!
//! Everything asked again is ephemeral: the messages of [`Retake::scaffold`] go out with the next
//! request and are never stored, so a history never shows the model our nudges as the user's words.

use crate::message::{AssistantMessage, FinishReason, Message, NativeItems};

use super::exit::ExitReason;

/// How often an answer cut by the output limit is continued.
const MAX_CONTINUATIONS: u32 = 4;
/// How often a cut tool call is asked for again.
const MAX_REISSUES: u32 = 4;
/// How often an empty answer is asked for again, after the nudge.
const MAX_EMPTY_RETRIES: u32 = 3;
/// How often an answer of thinking alone is asked to go on.
const MAX_THINKING_RETRIES: u32 = 2;
/// Batches in a row in which no call names a tool that exists.
const MAX_UNKNOWN_BATCHES: u32 = 3;

/// The output limit assumed when none is configured, before it is doubled for a cut answer.
pub(super) const BASE_OUTPUT_TOKENS: u64 = 4_096;
/// The largest output limit asked for on our own account.
const MAX_OUTPUT_TOKENS: u64 = 32_768;

const CONTINUE: &str =
    "[The answer above was cut by the output limit. Go on exactly where it stopped; repeat nothing.]";
const NUDGE_AFTER_TOOLS: &str =
    "[The tool results above are complete. Use them and answer the user now, or call the next tool.]";
const NUDGE_EMPTY: &str = "[The answer was empty. Answer the user now.]";
const NUDGE_THINKING: &str = "[Only thinking arrived. Write the answer for the user now.]";
const EMPTY_PLACEHOLDER: &str = "(no answer yet)";

/// What to do with one answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NextMove {
    /// Store it and run its tool calls.
    RunTools,
    /// It ends the turn. The message is what to store as the answer.
    Finish(Box<AssistantMessage>, ExitReason),
    /// Ask again without storing it.
    Again(Retake),
    /// Give up.
    Fail(ExitReason),
}

/// How to ask again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Retake {
    /// Messages that only the next request carries.
    pub(super) scaffold: Vec<Message>,
    /// Output limit of the next request.
    pub(super) output_cap: Option<u64>,
    /// True when the model did nothing wrong: the call does not count.
    pub(super) is_refunded: bool,
    /// Empty answers in a row so far, which the next request waits for as for failures.
    pub(super) silences: u32,
}

/// What was tried so far in this turn.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerPolicy {
    continuations: u32,
    reissues: u32,
    empty_retries: u32,
    thinking_retries: u32,
    unknown_batches: u32,
    was_nudged: bool,
    /// Pieces of an answer that is being continued.
    pieces: Vec<AssistantMessage>,
    /// Text that came with calls of housekeeping tools only.
    housekeeping_text: Option<String>,
}

/// Tools whose use says nothing about the task itself.
const HOUSEKEEPING_TOOLS: [&str; 3] = ["todo", "memory", "session_search"];

impl AnswerPolicy {
    /// Decides about one answer. `follows_tools`: the newest stored message is a tool result.
    pub(super) fn judge(
        &mut self,
        reply: &AssistantMessage,
        follows_tools: bool,
        output_limit: Option<u64>,
    ) -> NextMove {
        let has_text = !reply.text.trim().is_empty();
        match (reply.finish, reply.tool_calls.is_empty()) {
            (FinishReason::Refused, _) => {
                let kept = AssistantMessage { tool_calls: Vec::new(), ..reply.clone() };
                NextMove::Finish(Box::new(self.joined(kept)), ExitReason::Refused)
            }
            (FinishReason::Length, false) => self.reissue(output_limit),
            (_, false) => {
                self.note_tools(reply);
                NextMove::RunTools
            }
            (FinishReason::Paused, true) => self.resume(reply),
            (FinishReason::Length, true) if has_text => self.continue_text(reply, output_limit),
            (FinishReason::Length, true) if !reply.reasoning.is_empty() => {
                NextMove::Fail(ExitReason::ThinkingBudgetExhausted)
            }
            (_, true) if has_text || !self.pieces.is_empty() => {
                NextMove::Finish(Box::new(self.joined(reply.clone())), ExitReason::TextResponse)
            }
            (_, true) => self.ask_for_more(reply, follows_tools),
        }
    }

    /// Counts a batch; returns the reason to stop when too many in a row were of unknown tools only.
    pub(super) fn note_batch(&mut self, is_all_unknown: bool) -> Option<ExitReason> {
        self.unknown_batches = if is_all_unknown { self.unknown_batches + 1 } else { 0 };
        (self.unknown_batches >= MAX_UNKNOWN_BATCHES).then_some(ExitReason::InvalidToolCallsExhausted)
    }

    fn note_tools(&mut self, reply: &AssistantMessage) {
        let is_housekeeping = reply.tool_calls.iter().all(|call| HOUSEKEEPING_TOOLS.contains(&call.name.as_str()));
        self.housekeeping_text = (is_housekeeping && !reply.text.trim().is_empty()).then(|| reply.text.clone());
        self.was_nudged = false;
    }

    fn reissue(&mut self, output_limit: Option<u64>) -> NextMove {
        if self.reissues >= MAX_REISSUES {
            return NextMove::Fail(ExitReason::TruncatedToolCallExhausted);
        }
        self.reissues += 1;
        let output_cap = Some(grown_cap(output_limit, self.reissues));
        NextMove::Again(Retake { output_cap, is_refunded: true, ..Retake::default() })
    }

    fn continue_text(&mut self, reply: &AssistantMessage, output_limit: Option<u64>) -> NextMove {
        if self.continuations >= MAX_CONTINUATIONS {
            return NextMove::Finish(Box::new(self.joined(reply.clone())), ExitReason::TextResponse);
        }
        self.continuations += 1;
        self.pieces.push(reply.clone());
        let so_far = AssistantMessage { text: self.pieces_text(), ..AssistantMessage::default() };
        NextMove::Again(Retake {
            scaffold: vec![Message::Assistant(so_far), Message::user(CONTINUE)],
            output_cap: Some(grown_cap(output_limit, self.continuations)),
            is_refunded: true,
            ..Retake::default()
        })
    }

    /// A paused turn goes on when the provider gets its own content back.
    fn resume(&mut self, reply: &AssistantMessage) -> NextMove {
        self.pieces.push(reply.clone());
        let scaffold = self.pieces.iter().cloned().map(Message::Assistant).collect();
        NextMove::Again(Retake { scaffold, ..Retake::default() })
    }

    fn ask_for_more(&mut self, reply: &AssistantMessage, follows_tools: bool) -> NextMove {
        if let Some(text) = self.housekeeping_text.take() {
            let answer = AssistantMessage { text, ..AssistantMessage::default() };
            return NextMove::Finish(Box::new(answer), ExitReason::FallbackPriorTurnContent);
        }
        let nudge = if follows_tools && !self.was_nudged {
            self.was_nudged = true;
            NUDGE_AFTER_TOOLS
        } else if !reply.reasoning.is_empty() && self.thinking_retries < MAX_THINKING_RETRIES {
            self.thinking_retries += 1;
            NUDGE_THINKING
        } else if self.empty_retries < MAX_EMPTY_RETRIES {
            self.empty_retries += 1;
            NUDGE_EMPTY
        } else {
            return NextMove::Fail(ExitReason::EmptyResponseExhausted);
        };
        let placeholder = AssistantMessage { text: EMPTY_PLACEHOLDER.into(), ..AssistantMessage::default() };
        let scaffold = vec![Message::Assistant(placeholder), Message::user(nudge)];
        NextMove::Again(Retake { scaffold, silences: self.empty_retries, ..Retake::default() })
    }

    /// True while the pieces of an answer wait for its end.
    pub(super) fn is_continuing(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The request was corrected: pieces of an answer to what it was before are worth nothing.
    pub(super) fn forget_pieces(&mut self) {
        self.pieces.clear();
    }

    /// The answer that is being continued, as far as it came. A paused one stays: its provider wants it back as it
    /// was.
    pub(super) fn take_cut_answer(&mut self) -> Option<AssistantMessage> {
        if self.pieces.iter().any(|piece| piece.finish != FinishReason::Length) {
            return None;
        }
        let last = self.pieces.pop()?;
        Some(self.joined(last))
    }

    /// Another model is asked: what this one did not say does not count against it.
    pub(super) fn forget_silence(&mut self) {
        (self.empty_retries, self.thinking_retries, self.was_nudged) = (0, 0, false);
    }

    fn pieces_text(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    /// The whole answer: the pieces before and this last one, whose calls it keeps.
    pub(super) fn joined(&mut self, last: AssistantMessage) -> AssistantMessage {
        let mut whole = last;
        for piece in std::mem::take(&mut self.pieces).into_iter().rev() {
            whole.text.insert_str(0, &piece.text);
            whole.reasoning.insert_str(0, &piece.reasoning);
            whole.native = joined_items(piece.native, whole.native);
        }
        whole
    }
}

/// The provider's items of two pieces of one answer; those of another issuer give way to the newer ones.
fn joined_items(before: Option<NativeItems>, next: Option<NativeItems>) -> Option<NativeItems> {
    let issuer = |native: &NativeItems| (native.provider.clone(), native.model.clone(), native.api_mode.clone());
    match (before, next) {
        (Some(mut before), Some(next)) if issuer(&before) == issuer(&next) => {
            before.items.extend(next.items);
            Some(before)
        }
        (before, next) => next.or(before),
    }
}

/// Doubles the output limit with each try, up to what providers take without question.
fn grown_cap(output_limit: Option<u64>, tries: u32) -> u64 {
    let base = output_limit.unwrap_or(BASE_OUTPUT_TOKENS);
    base.saturating_mul(1 << tries.min(16)).min(MAX_OUTPUT_TOKENS.max(base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolCall;

    fn reply(text: &str, finish: FinishReason) -> AssistantMessage {
        AssistantMessage { text: text.into(), finish, ..AssistantMessage::default() }
    }

    fn calling(name: &str, text: &str, finish: FinishReason) -> AssistantMessage {
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: "{}".into(), extra: None };
        AssistantMessage { tool_calls: vec![call], ..reply(text, finish) }
    }

    fn finished(next: NextMove) -> (String, ExitReason) {
        match next {
            NextMove::Finish(message, exit) => (message.text, exit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cut_answer_is_continued_four_times_and_joined() {
        let mut policy = AnswerPolicy::default();
        for piece in ["a", "b", "c", "d"] {
            let next = policy.judge(&reply(piece, FinishReason::Length), false, None);
            assert!(matches!(next, NextMove::Again(_)), "{next:?}");
        }
        let next = policy.judge(&reply("e", FinishReason::Length), false, None);
        assert_eq!(finished(next), ("abcde".into(), ExitReason::TextResponse));
    }

    #[test]
    fn what_was_said_before_a_cut_or_a_pause_stands_in_the_answer_that_calls_tools() {
        let native = |item: &str| {
            let items = vec![serde_json::json!(item)];
            Some(NativeItems { provider: "p".into(), items, ..NativeItems::default() })
        };
        for finish in [FinishReason::Length, FinishReason::Paused] {
            let mut policy = AnswerPolicy::default();
            policy.judge(&AssistantMessage { native: native("one"), ..reply("first ", finish) }, false, None);
            let last = AssistantMessage { native: native("two"), ..calling("t", "second", FinishReason::ToolCalls) };
            assert_eq!(policy.judge(&last, false, None), NextMove::RunTools);
            let message = policy.joined(last);
            assert_eq!((message.text.as_str(), message.tool_calls.len()), ("first second", 1));
            assert_eq!(message.native.unwrap().items, ["one", "two"]);
        }
    }

    #[test]
    fn the_request_that_continues_holds_the_text_so_far_and_a_growing_limit() {
        let mut policy = AnswerPolicy::default();
        policy.judge(&reply("a", FinishReason::Length), false, Some(1_000));
        let NextMove::Again(retake) = policy.judge(&reply("b", FinishReason::Length), false, Some(1_000)) else {
            panic!()
        };
        assert_eq!(retake.scaffold[0].plain_text(), "ab");
        assert_eq!(retake.output_cap, Some(4_000));
    }

    #[test]
    fn a_cut_tool_call_is_never_run_and_asked_for_again_four_times() {
        let mut policy = AnswerPolicy::default();
        let mut caps = Vec::new();
        for _ in 0..4 {
            let NextMove::Again(retake) = policy.judge(&calling("t", "", FinishReason::Length), false, None) else {
                panic!()
            };
            assert!(retake.scaffold.is_empty());
            caps.extend(retake.output_cap);
        }
        assert_eq!(caps, [8_192, 16_384, 32_768, 32_768]);
        let next = policy.judge(&calling("t", "", FinishReason::Length), false, None);
        assert_eq!(next, NextMove::Fail(ExitReason::TruncatedToolCallExhausted));
    }

    #[test]
    fn an_empty_answer_is_nudged_once_after_tools_then_retried_then_fails() {
        let mut policy = AnswerPolicy::default();
        policy.judge(&calling("t", "", FinishReason::ToolCalls), false, None);
        let mut nudges = Vec::new();
        let end = loop {
            match policy.judge(&reply(" ", FinishReason::Stop), true, None) {
                NextMove::Again(retake) => nudges.push(retake.scaffold[1].plain_text()),
                other => break other,
            }
        };
        assert_eq!(nudges, [NUDGE_AFTER_TOOLS, NUDGE_EMPTY, NUDGE_EMPTY, NUDGE_EMPTY]);
        assert_eq!(end, NextMove::Fail(ExitReason::EmptyResponseExhausted));
    }

    #[test]
    fn text_beside_housekeeping_tools_serves_when_nothing_follows() {
        let mut policy = AnswerPolicy::default();
        policy.judge(&calling("todo", "Done: all four.", FinishReason::ToolCalls), false, None);
        let next = policy.judge(&reply("", FinishReason::Stop), true, None);
        assert_eq!(finished(next), ("Done: all four.".into(), ExitReason::FallbackPriorTurnContent));
    }

    #[test]
    fn a_refusal_is_final_and_its_calls_are_dropped() {
        let next = AnswerPolicy::default().judge(&calling("t", "No.", FinishReason::Refused), false, None);
        let NextMove::Finish(message, exit) = next else { panic!() };
        assert_eq!((exit, message.tool_calls.len()), (ExitReason::Refused, 0));
    }

    #[test]
    fn three_batches_of_unknown_tools_in_a_row_are_enough() {
        let mut policy = AnswerPolicy::default();
        let seen: Vec<_> =
            [true, true, false, true, true, true].map(|unknown| policy.note_batch(unknown).is_some()).to_vec();
        assert_eq!(seen, [false, false, false, false, false, true]);
    }
}
