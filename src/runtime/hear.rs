//! What the runtime says, as messages, tool calls and events of ours.

use serde_json::Value;

use crate::message::{AssistantMessage, FinishReason, Message, ToolCall, Usage};
use crate::provider::redact::Redactor;
use crate::tool::{PlanEntry, PlanPriority, PlanStatus};
use crate::turn::event::{Severity, TurnEvent};
use crate::turn::payload::CallStatus;
use crate::turn::port::Record;
use crate::turn::{ExitReason, TurnIo};

use super::connection::{Connection, Heard};
use super::item::Outcome;
use super::stream::Kind;
use super::turn::{Failure, Refusal, RuntimeTurn};
use super::{failure, item, open};

impl<Io: TurnIo> RuntimeTurn<'_, Io> {
    /// Deals with one message; gives the reason when the turn ended.
    pub(super) async fn hear(
        &mut self,
        connection: &mut Connection,
        heard: Heard,
    ) -> Result<Option<ExitReason>, Failure> {
        match heard {
            Heard::Answer { id, result } => self.answered(connection, id, result).await?,
            Heard::Request { id, method, params } => self.asked(connection, id, &method, params).await?,
            Heard::Notification { method, params } => return self.told(connection, &method, &params).await,
        }
        Ok(None)
    }

    async fn told(
        &mut self,
        connection: &mut Connection,
        method: &str,
        params: &Value,
    ) -> Result<Option<ExitReason>, Failure> {
        if !self.is_ours(method, params) {
            return Ok(None);
        }
        match method {
            "turn/started" => self.began(connection, text_at(params, "/turn/id")),
            "turn/completed" => {
                let turn = params.get("turn").unwrap_or(&Value::Null);
                return self.completed(connection, turn).await.map(Some);
            }
            "item/started" => self.item_started(&params["item"]).await?,
            "item/completed" => self.item_completed(connection, &params["item"]).await?,
            "item/agentMessage/delta" | "item/plan/delta" => {
                self.say(item_of(params), item::text(params, "delta")).await;
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                self.think(item_of(params), item::text(params, "delta")).await;
            }
            "item/reasoning/summaryPartAdded" if !self.reasoning.is_empty() => {
                self.think(item_of(params), "\n\n").await;
            }
            "item/commandExecution/outputDelta" => self.output(item_of(params), item::text(params, "delta")).await,
            "item/mcpToolCall/progress" => {
                self.output(item_of(params), &format!("{}\n", item::text(params, "message"))).await;
            }
            "item/fileChange/patchUpdated" => self.changes_updated(item_of(params), &params["changes"]),
            "turn/plan/updated" => self.io.emit(TurnEvent::Plan(plan(&params["plan"]))).await,
            "thread/tokenUsage/updated" => self.count(connection, &params["tokenUsage"]).await?,
            "error" => self.trouble(params).await,
            "model/rerouted" => {
                self.thread.model = item::text(params, "toModel").to_owned();
                self.note(Severity::Info, format!("The runtime goes on with the model {}.", self.thread.model)).await;
            }
            "serverRequest/resolved" => self.resolved_elsewhere(&params["requestId"]).await?,
            _ => tracing::trace!(method, "the runtime told something that has no place in a turn"),
        }
        Ok(None)
    }

    /// Child threads and earlier turns speak on the same line.
    fn is_ours(&self, method: &str, params: &Value) -> bool {
        let is_thread = params.get("threadId").and_then(Value::as_str).is_none_or(|thread| thread == self.thread.id);
        let turn = match method {
            "turn/started" | "turn/completed" => params.pointer("/turn/id"),
            _ => params.get("turnId"),
        };
        let is_turn = match (turn.and_then(Value::as_str), &self.turn) {
            (Some(turn), Some(own)) => turn == own,
            (None, Some(_)) => true,
            // Nothing of this turn comes before its id is known, save the word that it began.
            (_, None) => method == "turn/started",
        };
        is_thread && is_turn
    }

    async fn completed(&mut self, connection: &mut Connection, turn: &Value) -> Result<ExitReason, Failure> {
        self.withdraw_questions(connection);
        if let Some(exit) = self.stop {
            return Ok(exit);
        }
        let status = item::text(turn, "status");
        if !matches!(status, "interrupted" | "failed") && self.answer.is_none() {
            for text in self.streams.take_unfinished() {
                self.keep_answer(&text).await?;
            }
        }
        Ok(match status {
            "interrupted" => ExitReason::InterruptedByUser,
            "failed" => {
                let told = turn.get("error").filter(|error| !error.is_null());
                if told.is_some() || self.error.is_none() {
                    self.note_error(told.unwrap_or(&Value::Null));
                }
                ExitReason::ProviderFailed
            }
            _ if self.answer.is_some() => ExitReason::TextResponse,
            _ => ExitReason::EmptyResponseExhausted,
        })
    }

    // ---- words

    async fn say(&mut self, item: &str, delta: &str) {
        if !delta.is_empty() && !self.streams.is_done(item) {
            self.streams.add(item, Kind::Text, delta);
            self.io.emit(TurnEvent::Text { message_id: self.message_id(), text: delta.to_owned() }).await;
        }
    }

    async fn think(&mut self, item: &str, delta: &str) {
        if !delta.is_empty() && !self.streams.is_done(item) {
            self.streams.add(item, Kind::Reasoning, delta);
            self.reasoning.push_str(delta);
            self.io.emit(TurnEvent::Reasoning { message_id: self.message_id(), text: delta.to_owned() }).await;
        }
    }

    pub(super) async fn note(&mut self, severity: Severity, text: String) {
        self.io.emit(TurnEvent::Notice { severity, text }).await;
    }

    async fn trouble(&mut self, params: &Value) {
        let message = Redactor::process().clean(text_at(params, "/error/message")).into_owned();
        if params.get("willRetry").and_then(Value::as_bool).unwrap_or(false) {
            self.note(Severity::Warning, format!("The runtime tries again: {message}")).await;
        } else {
            self.note_error(&params["error"]);
        }
    }

    fn note_error(&mut self, error: &Value) {
        let provider = &self.context.chain.current().provider;
        self.error = Some(failure::provider_error(error, provider, &self.thread.model));
    }

    /// Stores a whole answer, with the reasoning before it.
    async fn message_completed(&mut self, item: &Value) -> Result<(), Failure> {
        let (id, text) = (item::text(item, "id"), item::text(item, "text"));
        let shown = self.streams.take(id, Kind::Text);
        let rest = text.strip_prefix(shown.as_str()).unwrap_or_default();
        if !rest.is_empty() {
            self.io.emit(TurnEvent::Text { message_id: self.message_id(), text: rest.to_owned() }).await;
        }
        // One that comes whole and empty is the one that was shown.
        let whole = if text.trim().is_empty() { shown.as_str() } else { text };
        self.keep_answer(whole).await
    }

    async fn keep_answer(&mut self, text: &str) -> Result<(), Failure> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let message = self.assistant(text, Vec::new());
        self.answer = Some(message.clone());
        self.store_answer(message, Vec::new()).await
    }

    pub(super) fn assistant(&mut self, text: &str, tool_calls: Vec<ToolCall>) -> AssistantMessage {
        AssistantMessage {
            text: text.to_owned(),
            reasoning: std::mem::take(&mut self.reasoning),
            finish: if tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls },
            tool_calls,
            native: Some(open::mark(self.context, &self.thread)),
        }
    }

    pub(super) async fn store_answer(&mut self, message: AssistantMessage, more: Vec<Record>) -> Result<(), Failure> {
        let mut records = vec![Record::Message(Message::Assistant(message.clone()))];
        records.extend(more);
        self.io.record(records).await?;
        self.history.push(Message::Assistant(message));
        self.stored_answers += 1;
        Ok(())
    }

    // ---- items that do something

    async fn item_started(&mut self, item: &Value) -> Result<(), Failure> {
        let id = item::text(item, "id");
        let is_open = !id.is_empty() && self.call_of(id).is_some();
        if is_open || item::is_known_late(item) {
            return Ok(());
        }
        self.streams.begin(id);
        let Some(described) = item::describe(item, &self.context.tool_context.cwd) else { return Ok(()) };
        let id = self.announce(id, described).await?;
        // A command that has a process runs already, so nothing will be asked.
        if item.get("processId").is_some_and(Value::is_string) {
            self.started(&id).await;
        }
        Ok(())
    }

    async fn item_completed(&mut self, connection: &mut Connection, item: &Value) -> Result<(), Failure> {
        let id = item::text(item, "id");
        if !self.streams.finish(id) {
            return Ok(());
        }
        match item::text(item, "type") {
            "agentMessage" | "plan" => return self.message_completed(item).await,
            "reasoning" => {
                self.reasoning_completed(item).await;
                return Ok(());
            }
            "contextCompaction" => {
                self.note(Severity::Info, "The runtime has compacted its context.".into()).await;
                return Ok(());
            }
            _ => {}
        }
        if self.call_of(id).is_none() {
            match item::describe(item, &self.context.tool_context.cwd) {
                Some(described) => drop(self.announce(id, described).await?),
                None => return Ok(()),
            }
        }
        let Some(index) = self.call_of(id) else { return Ok(()) };
        self.withdraw_question_about(connection, index);
        let mut outcome = item::outcome(item);
        match self.calls.get_mut(index).and_then(|call| call.refusal.take()) {
            // What ran all the same is told as it was.
            Some(Refusal { status, text }) if outcome.status != CallStatus::Done => {
                outcome = Outcome { status, text, raw: None };
            }
            None if outcome.status == CallStatus::CutOff && self.stop.is_none() => outcome.status = CallStatus::Failed,
            _ => {}
        }
        self.close(index, outcome).await
    }

    async fn reasoning_completed(&mut self, item: &Value) {
        let id = item::text(item, "id");
        if self.streams.take(id, Kind::Reasoning).is_empty() {
            let list = |name: &str| {
                let parts = item.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n\n")
            };
            let summary = list("summary");
            let text = if summary.is_empty() { list("content") } else { summary };
            self.reasoning.push_str(&text);
            if !text.is_empty() {
                self.io.emit(TurnEvent::Reasoning { message_id: self.message_id(), text }).await;
            }
        }
    }

    // ---- counting

    /// One model call of the runtime is over.
    async fn count(&mut self, connection: &mut Connection, told: &Value) -> Result<(), Failure> {
        let last = &told["last"];
        let number = |name: &str| last.get(name).and_then(Value::as_u64).unwrap_or(0);
        let usage = Usage {
            input_tokens: number("inputTokens"),
            output_tokens: number("outputTokens"),
            cached_tokens: number("cachedInputTokens"),
            cache_write_tokens: number("cacheWriteInputTokens"),
            reasoning_tokens: number("reasoningOutputTokens"),
            cost_micros: None,
        };
        self.usage.add(&usage);
        self.steps += 1;
        let endpoint = self.context.chain.current();
        let (provider, model) = (endpoint.provider.clone(), self.thread.model.clone());
        self.io.record(vec![Record::Usage { provider, model, usage }]).await?;
        let event = TurnEvent::Usage {
            turn: self.usage,
            context_tokens: usage.total(),
            context_window: told.get("modelContextWindow").and_then(Value::as_u64).unwrap_or_else(|| endpoint.window()),
            cost_usd: None,
        };
        self.io.emit(event).await;
        let tools = std::mem::take(&mut self.step_tools);
        self.io.emit(TurnEvent::Step { step: self.steps, tools }).await;
        let left = self.context.limits.max_iterations.saturating_sub(self.steps);
        self.io.progress(self.steps + 1, left);
        // The last answer is counted too, and what ends by itself is not interrupted.
        let has_answered = matches!(self.history.last(), Some(Message::Assistant(last)) if last.tool_calls.is_empty());
        if left == 0 && !has_answered {
            self.interrupt(connection, ExitReason::MaxIterationsReached);
        }
        Ok(())
    }
}

fn item_of(params: &Value) -> &str {
    item::text(params, "itemId")
}

fn text_at<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

fn plan(steps: &Value) -> Vec<PlanEntry> {
    let steps = steps.as_array().map(Vec::as_slice).unwrap_or_default();
    let entry = |step: &Value| PlanEntry {
        content: item::text(step, "step").to_owned(),
        priority: PlanPriority::Medium,
        status: match item::text(step, "status") {
            "inProgress" => PlanStatus::InProgress,
            "completed" => PlanStatus::Completed,
            _ => PlanStatus::Pending,
        },
    };
    steps.iter().map(entry).collect()
}
