//! The end of a turn: the last word, and the one way out.

use std::collections::BTreeMap;

use crate::hook::HookPoint;
use crate::message::{AssistantMessage, Message};

use super::answer::Retake;
use super::event::{Severity, TurnEvent};
use super::exit::{ExitReason, TurnReport, TurnStatus};
use super::payload;
use super::port::{Record, RecordError, TurnIo};
use super::run::{Offered, Turn, TurnEnd};
use super::step::CallEnd;

const SUMMARY_REQUEST: &str = "[The budget of this turn is spent, so no tool can be called any more. Say what was done, \
     what was found and what is left, from what is above.]";
const SUMMARY_FALLBACK: &str = "The turn's budget is spent and the model gave no closing answer. What the tools did \
     so far stands above.";

/// Summaries without a word before the fixed text stands in their place.
const MAX_EMPTY_SUMMARIES: u32 = 2;

/// Characters of words that came too late, as they are shown again.
const MAX_UNREAD_CHARS: usize = 300;

/// What the user reads where the provider refused without a word.
const SILENT_REFUSAL: &str = "The provider refused to answer this and gave no reason.";

/// Paths named in the footer about failed edits.
const MAX_FOOTER_PATHS: usize = 10;

impl<Io: TurnIo> Turn<'_, Io> {
    /// The last word of a turn whose budget is spent: one call without tools, once more when it is
    /// empty, then a fixed text.
    pub(super) async fn summarise(&mut self, exit: ExitReason) -> Result<ExitReason, RecordError> {
        let mut empty_answers = 0;
        while empty_answers < MAX_EMPTY_SUMMARIES {
            let mut retake = Retake::default();
            if let Some(exit) = self.apply_redirect(&mut retake).await? {
                return Ok(exit);
            }
            self.place_words(&mut retake).await?;
            let retake = Retake { scaffold: vec![Message::user(SUMMARY_REQUEST)], ..Retake::default() };
            match self.call(retake, Offered::None).await? {
                CallEnd::Reply(reply) if !reply.message.text.trim().is_empty() => {
                    self.answer = Some(AssistantMessage { tool_calls: Vec::new(), native: None, ..reply.message });
                    return Ok(exit);
                }
                CallEnd::Reply(_) => empty_answers += 1,
                CallEnd::Redirected => {}
                CallEnd::Cancelled => return Ok(ExitReason::InterruptedDuringApiCall),
                CallEnd::Failed(error)
                | CallEnd::TooLong(error)
                | CallEnd::Blind(error)
                | CallEnd::Exhausted(error) => {
                    tracing::warn!(%error, "the closing summary failed");
                    self.say_instead().await;
                    return Ok(ExitReason::BudgetExhausted);
                }
            }
        }
        self.say_instead().await;
        Ok(exit)
    }

    async fn say_instead(&mut self) {
        self.say(SUMMARY_FALLBACK).await;
        self.answer = Some(AssistantMessage { text: SUMMARY_FALLBACK.into(), ..AssistantMessage::default() });
    }

    /// The one way out: what is stored, said and reported is the same for every exit.
    pub(super) async fn finish(mut self, exit: ExitReason) -> TurnEnd {
        // Whatever is said from here on cannot reach the model in this turn.
        let unread = self.scope.io.close_words();
        self.transform_answer().await;
        self.say_footer(exit).await;
        self.tell_unread(exit, unread.as_deref()).await;
        let report = self.report(exit, unread);
        let mut records = Vec::new();
        // A refusal without a word leaves nothing that a provider would take back.
        if let Some(message) = self.answer.take().filter(|message| !message.text.trim().is_empty()) {
            records.push(Record::Message(Message::Assistant(message.clone())));
            self.history.push(Message::Assistant(message));
        }
        records.append(&mut self.unrecorded);
        records.push(Record::End(report.clone()));
        let report = match self.scope.io.record(records).await {
            Ok(()) => report,
            Err(RecordError(detail)) => {
                let report = TurnReport { exit: ExitReason::SessionPersistenceFailed, detail: Some(detail), ..report };
                // What was refused may have been the answer; the end alone may still be taken.
                self.scope.io.record(vec![Record::End(report.clone())]).await.ok();
                report
            }
        };
        self.tell_hooks(&report).await;
        log_end(&report, self.budget.used());
        TurnEnd { history: self.history, report }
    }

    fn report(&mut self, exit: ExitReason, pending_steer: Option<String>) -> TurnReport {
        let answer = self.answer.as_ref();
        TurnReport {
            turn_id: self.scope.context.turn_id.to_string(),
            exit,
            steps: self.steps,
            api_calls: self.api_calls,
            usage: self.usage,
            cost_usd: self.cost_usd,
            finish: answer.map_or(self.finish, |answer| answer.finish),
            answer: answer.map(|answer| answer.text.clone()),
            error: self.error.take(),
            detail: self.detail.take(),
            pending_steer,
        }
    }

    async fn transform_answer(&mut self) {
        let Some(answer) = &self.answer else { return };
        let fields = || payload::final_text(&self.request_text(), &answer.text);
        let replaced = self.scope.context.hooks.transform(HookPoint::TransformLlmOutput, fields).await;
        if let (Some(text), Some(answer)) = (replaced, &mut self.answer) {
            answer.text = text;
            answer.native = None;
        }
    }

    /// What the user should know beside the answer: edits that failed, and why an unusual end came.
    async fn say_footer(&self, exit: ExitReason) {
        let failed = self.failed_edits();
        if !failed.is_empty() && self.answer.is_some() {
            self.say(&format!("\n\nNot changed, although tried: {}", failed.join(", "))).await;
        }
        if let Some(explanation) = exit.explanation() {
            self.say(&format!("\n\n{explanation}")).await;
        }
        let is_silent = self.answer.as_ref().is_some_and(|answer| answer.text.trim().is_empty());
        if exit == ExitReason::Refused && is_silent {
            self.say(SILENT_REFUSAL).await;
        }
    }

    /// Words that the model has not read are worth nothing unless the user knows.
    async fn tell_unread(&self, exit: ExitReason, unread: Option<&str>) {
        let Some(unread) = unread.filter(|_| exit.status() != TurnStatus::Interrupted) else { return };
        let words: String = unread.chars().take(MAX_UNREAD_CHARS).collect();
        let text = format!("This came too late for the turn, so the model has not read it: {words}");
        self.scope.io.emit(TurnEvent::Notice { severity: Severity::Warning, text }).await;
    }

    /// Files whose newest edit failed.
    fn failed_edits(&self) -> Vec<String> {
        let newest: BTreeMap<_, _> = self.edits.iter().map(|edit| (&edit.path, edit.is_failed)).collect();
        let failed = newest.into_iter().filter(|(_, is_failed)| *is_failed);
        failed.take(MAX_FOOTER_PATHS).map(|(path, _)| path.display().to_string()).collect()
    }

    async fn tell_hooks(&self, report: &TurnReport) {
        let hooks = &self.scope.context.hooks;
        if let Some(text) = report.answer.as_deref().filter(|_| report.status() == TurnStatus::Completed) {
            hooks.observe(HookPoint::PostLlmCall, || payload::answer(&self.request_text(), text, &self.history)).await;
        }
        if report.status() == TurnStatus::Interrupted {
            hooks.observe(HookPoint::AgentLoopStopped, || payload::stopped(report)).await;
        }
        hooks.observe(HookPoint::OnSessionEnd, || payload::ended(report)).await;
    }

    /// Shows a text of our own as part of the answer.
    async fn say(&self, text: &str) {
        self.scope.io.emit(TurnEvent::Text { message_id: self.message_id(), text: text.to_owned() }).await;
    }
}

fn log_end(report: &TurnReport, budget_used: u32) {
    let (exit, steps, api_calls) = (report.exit, report.steps, report.api_calls);
    tracing::info!(turn = report.turn_id, %exit, steps, api_calls, budget_used, "turn ended");
}
