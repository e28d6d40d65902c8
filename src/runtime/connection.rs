//! The runtime's process and the JSON-RPC lines that go to and come from it.
//!
//! There is no task behind it: lines are read while a turn listens, and wait in the pipe while none does.

use std::time::Duration;

use futures_util::future::FutureExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use crate::rpc::{Frame, FrameReader};
use crate::tool::process::{Capture, Companion, CompanionLine, CompanionTree, Processes};

use super::error::RuntimeError;

/// The longest line taken from the runtime. Pictures and whole outputs come in one line.
const MAX_LINE_BYTES: usize = 32 << 20;
/// Lines that are no message before the program is taken for something else.
const MAX_JUNK_LINES: u32 = 100;
/// Bytes kept of the start and the end of its standard error.
const KEPT_STDERR_BYTES: usize = 2 << 10;
/// How long the exit status of a program that closed its output is waited for.
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
        self.queue(&json!({ "id": id, "result": result }));
    }

    /// Answers that it cannot be done.
    pub(super) fn refuse(&mut self, id: &Value, method: &str) {
        let message = format!("turnd does not offer {method}");
        self.queue(&json!({ "id": id, "error": { "code": -32601, "message": message } }));
    }

    fn queue(&mut self, message: &Value) {
        tracing::trace!(%message, "to the runtime");
        self.unwritten.extend_from_slice(message.to_string().as_bytes());
        self.unwritten.push(b'\n');
    }

    /// The next message. What is waiting to be written is written meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message and repeats none.
    pub(super) async fn hear(&mut self) -> Result<Heard, RuntimeError> {
        loop {
            tokio::select! {
                biased;
                count = self.stdin.write(&self.unwritten), if !self.unwritten.is_empty() => match count {
                    Ok(count) => drop(self.unwritten.drain(..count)),
                    // It reads no more; what it still says and its end tell why.
                    Err(_) => self.unwritten.clear(),
                },
                frame = self.frames.next() => match frame {
                    Ok(Some(Frame::Line(line))) => {
                        if let Some(heard) = self.read(&line)? {
                            return Ok(heard);
                        }
                    }
                    Ok(Some(Frame::TooLong { .. })) => {
                        return Err(self.protocol(format!("a line of more than {MAX_LINE_BYTES} bytes")));
                    }
                    Ok(None) | Err(_) => return Err(self.ended().await),
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

    /// A line as a message; `None` for one that is none.
    fn read(&mut self, line: &[u8]) -> Result<Option<Heard>, RuntimeError> {
        tracing::trace!(line = %String::from_utf8_lossy(line), "from the runtime");
        let heard = serde_json::from_slice::<Value>(line).ok().and_then(heard);
        if heard.is_none() {
            self.junk_lines += 1;
            if self.junk_lines >= MAX_JUNK_LINES {
                return Err(self.protocol(format!("{MAX_JUNK_LINES} lines that are no message")));
            }
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

    async fn ended(&mut self) -> RuntimeError {
        let how = match tokio::time::timeout(END_LIMIT, self.tree.ended()).await {
            Ok(how) => how,
            Err(_) => "it closed its output".into(),
        };
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
