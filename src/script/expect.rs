//! The expectations of a case: what must come from the agent and what must reach the model.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Entry, Side, Silence, tail};
use super::format::{AnswerStep, StopStep};
use super::matching::{brief, matches};
use super::model_server::Ended;
use super::run::{Run, Step};

impl Run<'_> {
    /// The next unread line of the agent, now read.
    pub(super) async fn next(&mut self, deadline: Instant, wanted: &str) -> Result<Entry, String> {
        let cursor = self.cursor;
        let client = self.client().await?;
        match client.next_from(cursor, deadline).await {
            Ok(index) => {
                let entry = client.entries().get(index).cloned();
                self.cursor = index + 1;
                entry.ok_or_else(|| "the line is gone".into())
            }
            Err(silence) => Err(format!("{silence}; still wanted: {wanted}; before it: {}", self.before())),
        }
    }

    /// The last lines of the agent, for a failure's text.
    pub(super) fn before(&self) -> String {
        let entries = self.client.as_ref().map_or(&[][..], |client| client.entries());
        let read = entries.get(..self.cursor).unwrap_or_default();
        let lines: Vec<_> = read.iter().rev().filter(|entry| entry.from == Side::Agent).take(3).collect();
        lines.iter().rev().map(|entry| brief(&entry.message)).collect::<Vec<_>>().join("\n      ")
    }

    pub(super) async fn expect(&mut self, pattern: &Value) -> Result<Value, String> {
        let deadline = self.deadline();
        let mut nearest = String::new();
        loop {
            let entry = match self.next(deadline, &brief(pattern)).await {
                Ok(entry) => entry,
                Err(error) => return Err(format!("{error}{nearest}")),
            };
            let mismatch = match matches(pattern, &entry.message, &mut self.vars) {
                Ok(()) => {
                    self.settle(&entry);
                    return Ok(entry.message);
                }
                Err(mismatch) => mismatch,
            };
            if !may_pass_over(&entry) {
                return Err(format!(
                    "{mismatch}\n    expected {}\n    got {}{nearest}",
                    brief(pattern),
                    brief(&entry.message)
                ));
            }
            if mismatch.path.len() > 20 {
                nearest = format!("\n    nearest: {mismatch}");
            }
        }
    }

    /// Notes that a prompt was answered.
    pub(super) fn settle(&mut self, entry: &Entry) {
        if entry.is_response() {
            self.unanswered.retain(|id| Some(id) != entry.message.get("id"));
        }
    }

    pub(super) async fn expect_unordered(&mut self, patterns: &[Value]) -> Step {
        let deadline = self.deadline();
        let mut wanted: Vec<&Value> = patterns.iter().collect();
        while !wanted.is_empty() {
            let names: Vec<_> = wanted.iter().map(|pattern| brief(pattern)).collect();
            let entry = self.next(deadline, &names.join(" and ")).await?;
            let found = wanted.iter().position(|pattern| matches(pattern, &entry.message, &mut self.vars).is_ok());
            match found {
                Some(index) => {
                    wanted.swap_remove(index);
                    self.settle(&entry);
                }
                None if may_pass_over(&entry) => {}
                None => return Err(format!("expected {}\n    got {}", names.join(" and "), brief(&entry.message))),
            }
        }
        Ok(())
    }

    pub(super) async fn expect_none(&mut self, millis: u64, pattern: Option<&Value>) -> Step {
        let deadline = Instant::now() + Duration::from_millis(millis);
        let mut from = self.cursor;
        loop {
            let client = self.client().await?;
            let index = match client.next_from(from, deadline).await {
                Ok(index) => index,
                Err(Silence::TooLong) => return Ok(()),
                Err(Silence::Closed) => {
                    tokio::time::sleep_until(deadline).await;
                    return Ok(());
                }
            };
            from = index + 1;
            let message = client.entries().get(index).map(|entry| entry.message.clone()).unwrap_or_default();
            let is_unwanted = pattern.is_none_or(|pattern| matches(pattern, &message, &mut self.vars.clone()).is_ok());
            if is_unwanted {
                return Err(format!("expected silence for {millis} ms, got {}", brief(&message)));
            }
        }
    }

    pub(super) fn expect_never(&mut self, pattern: &Value) -> Step {
        let entries = self.client.as_ref().map_or(&[][..], |client| client.entries());
        let agent = entries.iter().filter(|entry| entry.from == Side::Agent);
        let hit =
            agent.map(|entry| &entry.message).find(|message| matches(pattern, message, &mut self.vars.clone()).is_ok());
        hit.map_or(Ok(()), |message| Err(format!("must never come: {}", brief(message))))
    }

    pub(super) async fn expect_text(&mut self, pattern: &Value, kind: &str) -> Step {
        let deadline = self.deadline();
        let mut text = String::new();
        loop {
            let wanted = format!("{kind} {}, so far {text:?}", brief(pattern));
            let entry = self.next(deadline, &wanted).await?;
            if let Some(piece) = chunk(&entry, kind) {
                text.push_str(piece);
                if matches(pattern, &json!(text), &mut self.vars).is_ok() {
                    return Ok(());
                }
            } else if !may_pass_over(&entry) {
                return Err(format!("expected {wanted}\n    got {}", brief(&entry.message)));
            }
        }
    }

    pub(super) fn expect_said(&mut self, pattern: &Value) -> Step {
        let entries = self.client.as_ref().map_or(&[][..], |client| client.entries());
        let since = entries.get(self.turn_begin..self.cursor).unwrap_or_default();
        let all = |kind: &str| since.iter().filter_map(|entry| chunk(entry, kind)).collect::<String>();
        let said = json!({
            "text": all("agent_message_chunk"), "thought": all("agent_thought_chunk"), "user": all("user_message_chunk"),
        });
        matches(pattern, &said, &mut self.vars).map_err(|mismatch| mismatch.to_string())
    }

    pub(super) async fn expect_stop(&mut self, stop: &StopStep) -> Step {
        let (id, stop) = match stop {
            StopStep::Full { id, stop } => (id.clone(), stop.clone()),
            StopStep::Reason(stop) => {
                (self.unanswered.front().cloned().ok_or("no prompt is unanswered")?, stop.clone())
            }
        };
        self.expect(&json!({"id": id, "result": {"stopReason": stop}})).await.map(|_| ())
    }

    pub(super) async fn answer(&mut self, answer: &AnswerStep) -> Step {
        let (option, mut pattern) = match answer {
            AnswerStep::Option(option) => (option, json!({})),
            AnswerStep::Full { option, question } => (option, json!({"params": question})),
        };
        if let Some(pattern) = pattern.as_object_mut() {
            pattern.insert("method".into(), json!("session/request_permission"));
        }
        let question = self.expect(&pattern).await?;
        let outcome = match option.as_str() {
            "cancelled" => json!({"outcome": "cancelled"}),
            option => json!({"outcome": "selected", "optionId": option}),
        };
        self.send(&[json!({"id": question.get("id"), "result": {"outcome": outcome}})]).await
    }

    pub(super) async fn expect_model_request(&mut self, pattern: &Value) -> Step {
        self.client().await?;
        let (cursor, deadline) = (self.model_cursor, self.deadline());
        let seen = self.server.wait_for(|seen| seen.get(cursor).cloned());
        let Ok(seen) = tokio::time::timeout_at(deadline, seen).await else {
            return Err(format!("no model request came; wanted {}; before it: {}", brief(pattern), self.before()));
        };
        self.model_cursor += 1;
        let previous = cursor.checked_sub(1).and_then(|index| self.server.seen().get(index)?.ended);
        let value = seen.to_value(previous.map(|(_, at)| at));
        matches(pattern, &value, &mut self.vars).map_err(|mismatch| format!("model request {}: {mismatch}", cursor + 1))
    }

    pub(super) fn expect_model_requests(&mut self, count: usize) -> Step {
        let seen = self.server.seen().len();
        self.model_cursor = seen;
        if seen == count { Ok(()) } else { Err(format!("expected {count} model requests so far, got {seen}")) }
    }

    pub(super) async fn expect_model_closed(&mut self, millis: u64) -> Step {
        let ended = self.server.wait_for(|seen| seen.last().and_then(|seen| seen.ended));
        match tokio::time::timeout(Duration::from_millis(millis), ended).await {
            Ok((Ended::ClosedByAgent, _)) => Ok(()),
            Ok((Ended::Sent, _)) => Err("the model's answer was sent whole".into()),
            Err(_) => Err(format!("the model's connection was not closed within {millis} ms")),
        }
    }

    pub(super) async fn expect_log(&mut self, pattern: &Value) -> Step {
        let deadline = self.deadline();
        loop {
            let log = self.log.clone() + &self.client().await?.process.log();
            match matches(pattern, &json!(log), &mut self.vars) {
                Ok(()) => return Ok(()),
                Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(_) => return Err(format!("the log does not match {}: {}", brief(pattern), tail(&log))),
            }
        }
    }
}

/// Notifications may be passed over; answers, requests and lines that are no message may not.
pub(super) fn may_pass_over(entry: &Entry) -> bool {
    entry.method().is_some() && entry.message.get("id").is_none()
}

/// The text of a chunk of this kind.
fn chunk<'a>(entry: &'a Entry, kind: &str) -> Option<&'a str> {
    let update = entry.update().filter(|update| update.get("sessionUpdate").is_some_and(|name| name == kind))?;
    update.pointer("/content/text").and_then(Value::as_str)
}
