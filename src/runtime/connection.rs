//! The runtime's process and the JSON-RPC lines that go to and come from it.
//!
//! There is no task behind it: lines are read while a turn listens, and wait in the pipe while none does.

use std::time::Duration;

use futures_util::future::FutureExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use crate::provider::json::without_lone_escapes;
use crate::rpc::{Frame, FrameReader};
use crate::tool::process::{Capture, Companion, CompanionLine, CompanionTree, Processes};

use super::error::RuntimeError;
use super::shape;

/// The longest line taken from the runtime. Pictures and whole outputs come in one line.
const MAX_LINE_BYTES: usize = 32 << 20;
/// Lines in a row that are no message before the program is taken for something else.
const MAX_JUNK_LINES: u32 = 100;
/// Bytes of answers that may wait for a program which asks and does not read.
const MAX_UNREAD_ANSWER_BYTES: usize = 4 << 20;
/// Messages from between two turns that are passed over at once.
const MAX_STALE_MESSAGES: u32 = 10_000;
/// Bytes kept of the start and the end of its standard error.
const KEPT_STDERR_BYTES: usize = 2 << 10;
/// How long the exit status of a program that closed its output is waited for, and the last words of one that closed
/// its input.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A message of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Heard {
    /// It tells something.
    Notification { method: String, params: Value },
    /// It asks something.
    Request { id: Value, method: String, params: Value },
    /// It answers one of our requests.
    Answer { id: u64, result: Result<Value, String> },
}

/// A running runtime.
#[derive(Debug)]
pub(super) struct Connection {
    command: String,
    stdin: pipe::Sender,
    frames: FrameReader<pipe::Receiver>,
    stderr: pipe::Receiver,
    is_stderr_open: bool,
    complaints: Capture,
    /// Where its standard error is read into.
    complaint: Vec<u8>,
    tree: CompanionTree,
    /// Bytes that were not written yet.
    unwritten: Vec<u8>,
    /// How many of them came after the program read last, and answer it.
    unread_answer_bytes: usize,
    /// It reads no more; until then it may still tell why.
    deaf_until: Option<Instant>,
    last_id: u64,
    junk_lines: u32,
}

impl Connection {
    /// Starts the program. Nothing has been said yet.
    pub(super) fn start(processes: &Processes, line: &CompanionLine, command: String) -> Result<Self, RuntimeError> {
        let companion = match processes.start_companion(line) {
            Ok(companion) => companion,
            Err(error) => return Err(RuntimeError::Start { command, problem: error.to_string() }),
        };
        let Companion { input: stdin, output: stdout, errors: stderr, tree } = companion;
        Ok(Self {
            command,
            stdin,
            frames: FrameReader::new(stdout, MAX_LINE_BYTES),
            stderr,
            is_stderr_open: true,
            complaints: Capture::new(KEPT_STDERR_BYTES),
            complaint: vec![0; KEPT_STDERR_BYTES],
            tree,
            unwritten: Vec::new(),
            unread_answer_bytes: 0,
            deaf_until: None,
            last_id: 0,
            junk_lines: 0,
        })
    }

    /// The command, for error texts.
    pub(super) fn command(&self) -> String {
        self.command.clone()
    }

    /// Asks; the answer comes among what is heard, under the id returned.
    pub(super) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.queue(&json!({ "id": self.last_id, "method": method, "params": params }));
        self.last_id
    }

    /// Tells.
    pub(super) fn notify(&mut self, method: &str) {
        self.queue(&json!({ "method": method }));
    }

    /// Answers.
    pub(super) fn answer(&mut self, id: &Value, result: Value) {
        self.unread_answer_bytes += self.queue(&json!({ "id": id, "result": result }));
    }

    /// Answers that it cannot be done.
    pub(super) fn refuse(&mut self, id: &Value, method: &str) {
        let message = format!("turnd does not offer {method}");
        let refusal = json!({ "id": id, "error": { "code": -32601, "message": message } });
        self.unread_answer_bytes += self.queue(&refusal);
    }

    /// Gives the length of the message in bytes.
    fn queue(&mut self, message: &Value) -> usize {
        tracing::trace!(%message, "to the runtime");
        let line = message.to_string();
        self.unwritten.extend_from_slice(line.as_bytes());
        self.unwritten.push(b'\n');
        line.len() + 1
    }

    /// The next message. What is waiting to be written is written meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message and repeats none.
    pub(super) async fn hear(&mut self) -> Result<Heard, RuntimeError> {
        loop {
            if self.unread_answer_bytes > MAX_UNREAD_ANSWER_BYTES {
                return Err(self.protocol("it asks and does not read the answers"));
            }
            let deaf_until = self.deaf_until;
            tokio::select! {
                biased;
                count = self.stdin.write(&self.unwritten), if !self.unwritten.is_empty() => match count {
                    Ok(count) => {
                        self.unwritten.drain(..count);
                        self.unread_answer_bytes = 0;
                    }
                    Err(_) => {
                        self.unwritten.clear();
                        self.deaf_until = deaf_until.or_else(|| Some(Instant::now() + END_LIMIT));
                    }
                },
                () = sleep_until(deaf_until.unwrap_or_else(Instant::now)), if deaf_until.is_some() => {
                    return Err(self.ended("it closed its input").await);
                }
                frame = self.frames.next() => match frame {
                    Ok(Some(Frame::Line(line))) => {
                        if let Some(heard) = self.read(&line)? {
                            return Ok(heard);
                        }
                    }
                    Ok(Some(Frame::TooLong { .. })) => {
                        return Err(self.protocol(format!("a line of more than {MAX_LINE_BYTES} bytes")));
                    }
                    Ok(None) | Err(_) => return Err(self.ended("it closed its output").await),
                },
                count = self.stderr.read(&mut self.complaint), if self.is_stderr_open => {
                    let piece = self.complaint.get(..count.unwrap_or(0)).unwrap_or_default();
                    self.is_stderr_open = !piece.is_empty();
                    self.complaints.push(piece);
                    tracing::debug!(text = %String::from_utf8_lossy(piece).trim_end(), "the runtime complains");
                }
            }
        }
    }

    /// Passes over what was said between two turns, and declines what was asked.
    pub(super) fn catch_up(&mut self) {
        for _ in 0..MAX_STALE_MESSAGES {
            let Some(Ok(Some(frame))) = self.frames.next().now_or_never() else { break };
            if let Frame::Line(line) = frame
                && let Ok(Some(Heard::Request { id, method, .. })) = self.read(&line)
            {
                self.decline(&id, &method);
            }
        }
    }

    /// Answers with a no that the runtime understands.
    pub(super) fn decline(&mut self, id: &Value, method: &str) {
        match shape::refusal(method) {
            Some(refusal) => self.answer(id, refusal),
            None => self.refuse(id, method),
        }
    }

    /// A line as a message; `None` for one that is none.
    fn read(&mut self, line: &[u8]) -> Result<Option<Heard>, RuntimeError> {
        tracing::trace!(line = %String::from_utf8_lossy(line), "from the runtime");
        let heard = parsed(line).and_then(heard);
        self.junk_lines = if heard.is_some() { 0 } else { self.junk_lines + 1 };
        if self.junk_lines >= MAX_JUNK_LINES {
            return Err(self.protocol(format!("{MAX_JUNK_LINES} lines that are no message")));
        }
        Ok(heard)
    }

    /// What it says is not the protocol.
    pub(super) fn protocol(&self, problem: impl Into<String>) -> RuntimeError {
        RuntimeError::Protocol { command: self.command(), problem: problem.into() }
    }

    /// It did not answer in time.
    pub(super) fn silent(&self, method: &'static str) -> RuntimeError {
        RuntimeError::Silent { command: self.command(), method, seconds: super::open::ANSWER_LIMIT.as_secs() }
    }

    /// `closed`: what is known of a program that lives on.
    async fn ended(&mut self, closed: &str) -> RuntimeError {
        let ended = tokio::time::timeout(END_LIMIT, self.tree.ended()).await;
        let how = ended.unwrap_or_else(|_| closed.to_owned());
        // Its children may hold the pipe open, so only what is there already is taken.
        if let Some(Ok(count)) = self.stderr.read(&mut self.complaint).now_or_never() {
            self.complaints.push(self.complaint.get(..count).unwrap_or_default());
        }
        let said = self.complaints.text();
        let said = said.trim();
        let said = if said.is_empty() { String::new() } else { format!(": {}", last_lines(said)) };
        RuntimeError::Ended { command: self.command(), how, said }
    }
}

/// The newest lines of a complaint, as one line: what stopped a program stands last.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let newest = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default();
    newest.join("; ").chars().take(400).collect()
}

/// A line as JSON. Half a character costs its place in the text, and not the message that it stands in.
fn parsed(line: &[u8]) -> Option<Value> {
    if let Ok(message) = serde_json::from_slice(line) {
        return Some(message);
    }
    serde_json::from_str(&without_lone_escapes(&String::from_utf8_lossy(line))).ok()
}

fn heard(message: Value) -> Option<Heard> {
    let Value::Object(mut message) = message else { return None };
    let params = message.remove("params").unwrap_or(Value::Null);
    let id = message.remove("id").filter(|id| !id.is_null());
    match (message.remove("method"), id) {
        (Some(Value::String(method)), None) => Some(Heard::Notification { method, params }),
        (Some(Value::String(method)), Some(id)) => Some(Heard::Request { id, method, params }),
        (None, Some(id)) => {
            let result = match (message.remove("result"), message.remove("error")) {
                (_, Some(error)) => Err(error_text(&error)),
                (result, None) => Ok(result.unwrap_or(Value::Null)),
            };
            Some(Heard::Answer { id: id.as_u64()?, result })
        }
        _ => None,
    }
}

fn error_text(error: &Value) -> String {
    match error.get("message").and_then(Value::as_str) {
        Some(message) => message.chars().take(400).collect(),
        None => "no reason given".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_does_not_cost_the_message() {
        let text = |line: &[u8]| parsed(line).and_then(|line| Some(line.get("text")?.as_str()?.to_owned()));
        assert_eq!(text(br#"{"text":"a\ud83d"}"#).as_deref(), Some("a\u{fffd}"));
        assert_eq!(text(b"{\"text\":\"a\xff\"}").as_deref(), Some("a\u{fffd}"));
        assert_eq!(text(br#"{"text":"a\ud83d\ude00"}"#).as_deref(), Some("a\u{1f600}"));
        assert_eq!(parsed(b"Warning: {"), None);
    }

    #[test]
    fn lines_are_told_apart_by_their_members() {
        let read = |text: &str| heard(serde_json::from_str(text).unwrap());
        let notification = Heard::Notification { method: "m".into(), params: json!({"a": 1}) };
        assert_eq!(read(r#"{"method":"m","params":{"a":1},"emittedAtMs":3}"#), Some(notification));
        let request = Heard::Request { id: json!(0), method: "m".into(), params: Value::Null };
        assert_eq!(read(r#"{"id":0,"method":"m"}"#), Some(request));
        assert_eq!(read(r#"{"id":7,"result":{}}"#), Some(Heard::Answer { id: 7, result: Ok(json!({})) }));
        let refused = Heard::Answer { id: 7, result: Err("no".into()) };
        assert_eq!(read(r#"{"id":7,"error":{"code":-1,"message":"no"}}"#), Some(refused));
        for junk in ["[]", "{}", "3", r#"{"id":"x","result":1}"#, r#"{"method":4}"#] {
            assert_eq!(read(junk), None, "{junk}");
        }
    }
}
