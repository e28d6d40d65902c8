//! The scripted model: answers read from a JSON Lines file instead of a provider.
//!
//! A script drives the demo, the tests and every reproduction of a bug: each line is one reply with
//! its pace and its faults. [`Script`] chooses the reply, [`ScriptedStream`] plays it in process.
//! The same replies are served over HTTP in every wire format by [`crate::script`]; raw wire bytes
//! (`sse`, `body`) make sense only there. Absent on purpose: any judgement of the request.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{ErrorKind, ModelEvent, ModelReply, ModelRequest, ProviderError};
use crate::message::{AssistantMessage, FinishReason, Message, ToolCall, Usage};

/// One reply of a script, with its pace and its faults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedReply {
    /// Visible text.
    pub text: String,
    /// Reasoning text, sent before the visible text.
    pub reasoning: String,
    /// Tool calls, sent after the text.
    pub tool_calls: Vec<ScriptedCall>,
    /// `stop`, `tool_calls`, `length`, `refused` or `paused`. Default: what the content says.
    pub finish: Option<FinishReason>,
    /// Counted tokens. Default: 100 in, 10 out.
    pub usage: Option<Usage>,
    /// Characters per delta; 0 sends each text whole.
    pub chunk: usize,
    /// Milliseconds between two events.
    pub gap_ms: u64,
    /// Milliseconds before the first byte.
    pub delay_ms: u64,
    /// When this reply is meant. Without it, replies are used up in file order.
    pub when: Option<When>,
    /// For a reply with `when`: one reply per step of the turn; the last one repeats.
    pub replies: Vec<ScriptedReply>,
    /// Keep giving this reply once it is reached.
    pub repeat: bool,
    /// HTTP status; 400 and above is a failure.
    pub status: Option<u16>,
    /// Response headers, for the HTTP server only.
    pub headers: BTreeMap<String, String>,
    /// An error text, answered in the shape of the wire format; status 500 when none is given.
    pub error: Option<String>,
    /// A whole response body, for the HTTP server only.
    pub body: Option<Value>,
    /// The raw response stream, for the HTTP server only: a text is written as it stands, anything else
    /// as one event with this data.
    pub sse: Option<Vec<Value>>,
    /// Bytes per write, to cut characters and events anywhere; 0 writes each event whole. HTTP only.
    pub write_bytes: usize,
    /// Send everything, then neither end nor close.
    pub hang: bool,
    /// Break the connection after this many events.
    pub cut_after: Option<usize>,
    /// Fall silent after this many events.
    pub stall_after: Option<usize>,
    /// Wait after this many events until the transcript says `release`; 0: before the first byte. HTTP only.
    pub hold_after: Option<usize>,
}

/// One tool call of a reply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The call's id; one is made up when absent.
    #[serde(default)]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// An object, or a string that is sent as it stands. Absent: `{}`.
    #[serde(default)]
    pub arguments: Value,
}

impl ScriptedCall {
    /// The arguments as the text a model would stream.
    #[must_use]
    pub fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::Null => "{}".into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// What a request must look like for a reply to be meant. Every field given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// The newest user message contains this.
    pub user_contains: Option<String>,
    /// The request's path contains this. HTTP only.
    pub path_contains: Option<String>,
    /// The model asked for.
    pub model: Option<String>,
}

/// What a reply is chosen by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Text of the newest user message.
    pub user: &'a str,
    /// Answers of the model since that message.
    pub step: usize,
    /// The request's path, empty in process.
    pub path: &'a str,
    /// The model's name.
    pub model: &'a str,
}

impl When {
    fn holds(&self, asked: &Asked<'_>) -> bool {
        let contains = |part: &Option<String>, whole: &str| part.as_ref().is_none_or(|part| whole.contains(part));
        contains(&self.user_contains, asked.user)
            && contains(&self.path_contains, asked.path)
            && self.model.as_ref().is_none_or(|model| model == asked.model)
    }
}

impl ScriptedReply {
    /// The finish reason: as given, else by content.
    #[must_use]
    pub fn finish_reason(&self) -> FinishReason {
        self.finish.unwrap_or(if self.tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls })
    }

    /// The counted tokens: as given, else 100 in and 10 out.
    #[must_use]
    pub fn counted(&self) -> Usage {
        self.usage.unwrap_or(Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() })
    }

    /// A text cut into deltas of [`Self::chunk`] characters.
    #[must_use]
    pub fn pieces(&self, text: &str) -> Vec<String> {
        if text.is_empty() {
            return Vec::new();
        }
        if self.chunk == 0 {
            return vec![text.to_owned()];
        }
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(self.chunk).map(|piece| piece.iter().collect()).collect()
    }
}

/// A line of a script.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    model: ScriptedReply,
}

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read model script {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not a reply.
    #[error("line {line} of the model script is not a {{\"model\": {{...}}}} line: {problem}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

/// The replies of a script and how far they are used up.
#[derive(Debug, Default)]
pub struct Script {
    /// Replies with `when`, reusable.
    conditional: Vec<ScriptedReply>,
    /// Replies in order; a `repeat` reply stays.
    waiting: Mutex<VecDeque<ScriptedReply>>,
}

impl Script {
    /// Sorts replies into those in order and those with a condition.
    #[must_use]
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        let (conditional, waiting) = replies.into_iter().partition::<Vec<_>, _>(|reply| reply.when.is_some());
        Self { conditional, waiting: Mutex::new(waiting.into()) }
    }

    /// Reads JSON Lines; blank lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// The first line that is not a reply.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut replies = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed: Line = serde_json::from_str(line)
                .map_err(|error| ScriptError::Line { line: index + 1, problem: error.to_string() })?;
            replies.push(parsed.model);
        }
        Ok(Self::new(replies))
    }

    /// Reads a script file.
    ///
    /// # Errors
    /// The file cannot be read or a line is not a reply.
    pub fn open(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// The reply to a request: the first whose condition holds, else the next in order.
    #[must_use]
    pub fn choose(&self, asked: &Asked<'_>) -> Option<ScriptedReply> {
        let meant = |reply: &&ScriptedReply| reply.when.as_ref().is_some_and(|when| when.holds(asked));
        if let Some(reply) = self.conditional.iter().find(meant) {
            let step = reply.replies.get(asked.step).or_else(|| reply.replies.last());
            return Some(step.unwrap_or(reply).clone());
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match waiting.front() {
            Some(reply) if reply.repeat => Some(reply.clone()),
            _ => waiting.pop_front(),
        }
    }

    /// Replies in order that nobody asked for yet; a repeating one does not count.
    #[must_use]
    pub fn unused(&self) -> usize {
        let waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        waiting.iter().filter(|reply| !reply.repeat).count()
    }

    /// Begins to play the reply to this request.
    ///
    /// # Errors
    /// No reply is left.
    pub fn stream(&self, request: &ModelRequest<'_>, model: &str) -> Result<ScriptedStream, ProviderError> {
        let newest = request.messages.iter().rposition(|message| matches!(message, Message::User(_)));
        let user = newest.and_then(|at| request.messages.get(at)).map(Message::plain_text).unwrap_or_default();
        let since = request.messages.get(newest.map_or(0, |at| at + 1)..).unwrap_or_default();
        let step = since.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
        let asked = Asked { user: &user, step, path: "", model };
        match self.choose(&asked) {
            Some(reply) => Ok(ScriptedStream::new(reply, model)),
            None => Err(failure(
                model,
                ErrorKind::InvalidResponse,
                "the model script has no reply left: add a line, or \"repeat\": true to the last one",
            )),
        }
    }
}

fn failure(model: &str, kind: ErrorKind, message: &str) -> ProviderError {
    ProviderError {
        kind,
        status: None,
        message: message.to_owned(),
        retry_after: None,
        request_id: None,
        key: None,
        provider: "scripted".into(),
        model: model.to_owned(),
    }
}

/// The kind a bare HTTP status stands for.
fn kind_of(status: u16) -> ErrorKind {
    match status {
        401 | 403 => ErrorKind::Auth,
        402 => ErrorKind::Billing,
        404 => ErrorKind::ModelNotFound,
        408 | 504 => ErrorKind::Timeout,
        413 => ErrorKind::PayloadTooLarge,
        429 => ErrorKind::RateLimit,
        503 | 529 => ErrorKind::Overloaded,
        400..=499 => ErrorKind::FormatError,
        _ => ErrorKind::ServerError,
    }
}

/// One reply being played in process.
#[derive(Debug)]
pub struct ScriptedStream {
    reply: ScriptedReply,
    model: String,
    events: VecDeque<ModelEvent>,
    sent: usize,
    next_at: Option<tokio::time::Instant>,
}

impl ScriptedStream {
    /// Plays this reply.
    #[must_use]
    pub fn new(reply: ScriptedReply, model: &str) -> Self {
        let mut events: VecDeque<_> = reply.pieces(&reply.reasoning).into_iter().map(ModelEvent::Reasoning).collect();
        events.extend(reply.pieces(&reply.text).into_iter().map(ModelEvent::Text));
        events.extend(reply.tool_calls.iter().map(|call| ModelEvent::ToolCallStarted { name: call.name.clone() }));
        Self { reply, model: model.to_owned(), events, sent: 0, next_at: None }
    }

    /// Waits for the next event and pushes it to `out`, or returns the whole reply at its end.
    ///
    /// Cancel-safe: a dropped call loses nothing, the next one goes on waiting.
    ///
    /// # Errors
    /// The failure the reply stands for.
    pub async fn next(&mut self, out: &mut Vec<ModelEvent>) -> Result<Option<ModelReply>, ProviderError> {
        let wait = if self.sent == 0 { self.reply.delay_ms } else { self.reply.gap_ms };
        if wait > 0 {
            let now = tokio::time::Instant::now();
            tokio::time::sleep_until(*self.next_at.get_or_insert(now + Duration::from_millis(wait))).await;
        }
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        if self.reply.cut_after.is_some_and(|count| self.sent >= count) {
            return Err(failure(&self.model, ErrorKind::TruncatedStream, "the stream was cut by the script"));
        }
        if self.reply.stall_after.is_some_and(|count| self.sent >= count) {
            return pending().await;
        }
        self.next_at = None;
        self.sent += 1;
        match self.events.pop_front() {
            Some(event) => {
                out.push(event);
                Ok(None)
            }
            None if self.reply.hang => pending().await,
            None => Ok(Some(self.whole())),
        }
    }

    fn refusal(&self) -> Option<ProviderError> {
        if self.reply.sse.is_some() || self.reply.body.is_some() {
            let message = "raw `sse` and `body` replies need the HTTP model server of `turnd script`";
            return Some(failure(&self.model, ErrorKind::InvalidResponse, message));
        }
        let status = self.reply.status.or(self.reply.error.as_ref().map(|_| 500)).filter(|status| *status >= 400)?;
        let message = self.reply.error.clone().unwrap_or_else(|| format!("HTTP {status}"));
        Some(ProviderError { status: Some(status), ..failure(&self.model, kind_of(status), &message) })
    }

    fn whole(&self) -> ModelReply {
        let tool_calls = self.reply.tool_calls.iter().map(|call| ToolCall {
            id: call.id.clone().unwrap_or_else(|| format!("call_{}", uuid::Uuid::now_v7().simple())),
            name: call.name.clone(),
            arguments: call.arguments_text(),
            extra: None,
        });
        let message = AssistantMessage {
            text: self.reply.text.clone(),
            reasoning: self.reply.reasoning.clone(),
            tool_calls: tool_calls.collect(),
            finish: self.reply.finish_reason(),
            native: None,
        };
        ModelReply { message, usage: self.reply.counted() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        Script::parse(text).unwrap()
    }

    fn asked<'a>(user: &'a str, step: usize) -> Asked<'a> {
        Asked { user, step, ..Asked::default() }
    }

    fn texts(script: &Script, user: &str, steps: usize) -> Vec<Option<String>> {
        (0..steps).map(|step| script.choose(&asked(user, step)).map(|reply| reply.text)).collect()
    }

    async fn play(line: &str) -> (Vec<ModelEvent>, Result<ModelReply, ProviderError>) {
        let reply = script(line).choose(&asked("", 0)).unwrap();
        let mut stream = ScriptedStream::new(reply, "script");
        let mut events = Vec::new();
        loop {
            match stream.next(&mut events).await {
                Ok(None) => {}
                Ok(Some(reply)) => return (events, Ok(reply)),
                Err(error) => return (events, Err(error)),
            }
        }
    }

    #[test]
    fn replies_are_used_up_in_order_and_a_repeating_one_stays() {
        let script = script(
            "# comment\n{\"model\":{\"text\":\"a\"}}\n\n{\"model\":{\"text\":\"b\",\"repeat\":true}}\n{\"model\":{\"text\":\"c\"}}",
        );
        assert_eq!(texts(&script, "x", 3), [Some("a".into()), Some("b".into()), Some("b".into())]);
        assert_eq!(script.unused(), 1);
    }

    #[test]
    fn an_exhausted_script_gives_nothing() {
        assert_eq!(texts(&script("{\"model\":{\"text\":\"a\"}}"), "x", 2), [Some("a".into()), None]);
    }

    #[test]
    fn a_condition_beats_the_order_and_its_replies_follow_the_steps() {
        let script = script(
            "{\"model\":{\"text\":\"other\"}}\n{\"model\":{\"when\":{\"user_contains\":\"fix\"},\"replies\":[{\"text\":\"one\"},{\"text\":\"two\"}]}}",
        );
        assert_eq!(texts(&script, "please fix", 3), [Some("one".into()), Some("two".into()), Some("two".into())]);
        assert_eq!(texts(&script, "hello", 1), [Some("other".into())]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = Script::parse("{\"model\":{}}\n{\"model\":{\"txt\":\"a\"}}").unwrap_err().to_string();
        assert!(error.starts_with("line 2 ") && error.contains("txt"), "{error}");
    }

    #[tokio::test]
    async fn a_reply_streams_reasoning_text_and_calls_in_this_order() {
        let (events, reply) = play(
            r#"{"model":{"text":"héé","reasoning":"r","chunk":2,"tool_calls":[{"id":"c1","name":"t","arguments":{"a":1}}]}}"#,
        )
        .await;
        let reply = reply.unwrap();
        assert_eq!(
            events,
            [
                ModelEvent::Reasoning("r".into()),
                ModelEvent::Text("hé".into()),
                ModelEvent::Text("é".into()),
                ModelEvent::ToolCallStarted { name: "t".into() }
            ]
        );
        assert_eq!((reply.message.finish, reply.usage.total()), (FinishReason::ToolCalls, 110));
        assert_eq!(reply.message.tool_calls[0].arguments, r#"{"a":1}"#);
    }

    #[tokio::test]
    async fn faults_of_a_reply_are_played() {
        let (_, reply) = play(r#"{"model":{"status":429,"error":"slow down"}}"#).await;
        let error = reply.unwrap_err();
        assert_eq!((error.kind, error.status), (ErrorKind::RateLimit, Some(429)));
        let (events, reply) = play(r#"{"model":{"text":"abc","chunk":1,"cut_after":2}}"#).await;
        assert_eq!((events.len(), reply.unwrap_err().kind), (2, ErrorKind::TruncatedStream));
    }

    #[tokio::test]
    async fn a_dropped_wait_loses_nothing() {
        let reply = script(r#"{"model":{"text":"ab","chunk":1,"gap_ms":30}}"#).choose(&asked("", 0)).unwrap();
        let (mut stream, mut events) = (ScriptedStream::new(reply, "script"), Vec::new());
        let mut cut_short = 0;
        while let Err(_) | Ok(Ok(None)) = tokio::time::timeout(Duration::from_millis(5), stream.next(&mut events))
            .await
            .inspect_err(|_| cut_short += 1)
        {}
        assert!(cut_short > 0);
        assert_eq!(events, [ModelEvent::Text("a".into()), ModelEvent::Text("b".into())]);
    }
}
