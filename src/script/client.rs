//! The client's side of one connection: sends lines, keeps every line of both sides in order.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent::{Agent, Launch, Process};

/// One line of the wire.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who wrote it.
    pub from: Side,
    /// When it was read or written.
    pub at: Instant,
    /// The line without its newline.
    pub line: Vec<u8>,
    /// The line as JSON; null when it is none.
    pub message: Value,
    /// The `id` member byte for byte.
    pub raw_id: Option<String>,
}

/// A side of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The agent wrote it.
    Agent,
    /// The client wrote it.
    Client,
}

#[derive(Deserialize)]
struct IdOnly<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

impl Entry {
    /// Reads a line of the wire.
    #[must_use]
    pub fn from_line(from: Side, line: Vec<u8>) -> Self {
        let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
        let message = serde_json::from_slice(text).unwrap_or_default();
        let raw_id = serde_json::from_slice::<IdOnly<'_>>(text).ok().and_then(|only| only.id);
        let raw_id = raw_id.map(|id| id.get().to_owned());
        Self { from, at: Instant::now(), message, raw_id, line }
    }

    /// The method of a request or notification.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.message.get("method").and_then(Value::as_str)
    }

    /// True for a request.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.method().is_some() && self.message.get("id").is_some()
    }

    /// True for a result or an error.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.method().is_none() && (self.message.get("result").is_some() || self.message.get("error").is_some())
    }

    /// The session a message is about.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.message.pointer("/params/sessionId").and_then(Value::as_str)
    }

    /// The update of a `session/update`.
    #[must_use]
    pub fn update(&self) -> Option<&Value> {
        self.message.pointer("/params/update").filter(|_| self.method() == Some("session/update"))
    }
}

/// A connection to a started agent.
pub struct Client {
    /// The agent's life.
    pub process: Process,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    reading: watch::Sender<Reading>,
    entries: Vec<Entry>,
    /// What was sent of a line that has no end yet.
    partial: Vec<u8>,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

/// Whether the client reads what the agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It reads.
    On,
    /// It leaves everything in the pipe.
    Paused,
    /// It has closed its end.
    Closed,
}

impl Client {
    /// Starts an agent and connects to it.
    ///
    /// # Errors
    /// The agent cannot be started.
    pub fn connect(agent: &Agent, launch: Launch) -> io::Result<Self> {
        let started = agent.start(launch)?;
        let (sender, lines) = mpsc::unbounded_channel();
        let (reading, state) = watch::channel(Reading::On);
        let mut tasks = JoinSet::new();
        tasks.spawn(read_lines(started.stdout, sender, state));
        let stdin = Some(started.stdin);
        Ok(Self {
            process: started.process,
            stdin,
            lines,
            reading,
            entries: Vec::new(),
            partial: Vec::new(),
            _tasks: tasks,
        })
    }

    /// Every line of both sides so far.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Sends one message; `jsonrpc` is added.
    ///
    /// # Errors
    /// The agent closed its stdin.
    pub async fn send(&mut self, message: &Value) -> io::Result<()> {
        self.send_all(std::slice::from_ref(message)).await
    }

    /// Sends messages in one write.
    ///
    /// # Errors
    /// The agent closed its stdin.
    pub async fn send_all(&mut self, messages: &[Value]) -> io::Result<()> {
        self.absorb();
        let mut bytes = Vec::new();
        for message in messages {
            let mut whole = json!({"jsonrpc": "2.0"});
            if let (Some(whole), Some(members)) = (whole.as_object_mut(), message.as_object()) {
                whole.extend(members.clone());
            }
            let line = whole.to_string().into_bytes();
            bytes.extend_from_slice(&line);
            bytes.push(b'\n');
            self.entries.push(Entry::from_line(Side::Client, line));
        }
        self.write(&bytes).await
    }

    /// Sends bytes as they stand.
    ///
    /// # Errors
    /// The agent closed its stdin.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.absorb();
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let rest = self.partial.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.partial, rest);
            line.pop();
            if !line.trim_ascii().is_empty() {
                self.entries.push(Entry::from_line(Side::Client, line));
            }
        }
        self.write(bytes).await
    }

    /// Notes what the agent has written already, so that the order of both sides is as close to the
    /// truth as can be known.
    fn absorb(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.entries.push(Entry::from_line(Side::Agent, line));
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or_else(|| io::Error::other("stdin is already closed"))?;
        stdin.write_all(bytes).await?;
        stdin.flush().await
    }

    /// Closes the agent's stdin.
    pub fn close_stdin(&mut self) {
        let last = std::mem::take(&mut self.partial);
        if !last.trim_ascii().is_empty() {
            self.entries.push(Entry::from_line(Side::Client, last));
        }
        self.stdin = None;
    }

    /// Stops, resumes or ends reading.
    pub fn set_reading(&self, reading: Reading) {
        self.reading.send_replace(reading);
    }

    /// The next line of the agent from entry `from` on, waiting until `deadline`; its index in the entries.
    ///
    /// # Errors
    /// Nothing came in time, or the agent closed its stdout.
    pub async fn next_from(&mut self, from: usize, deadline: Instant) -> Result<usize, Silence> {
        let known = self.entries.iter().enumerate().skip(from).find(|(_, entry)| entry.from == Side::Agent);
        if let Some((index, _)) = known {
            return Ok(index);
        }
        match tokio::time::timeout_at(deadline, self.lines.recv()).await {
            Ok(Some(line)) => {
                self.entries.push(Entry::from_line(Side::Agent, line));
                Ok(self.entries.len() - 1)
            }
            Ok(None) => Err(Silence::Closed),
            Err(_) => Err(Silence::TooLong),
        }
    }

    /// Sends a request and waits for its answer; requests of the agent in between are left unanswered.
    ///
    /// # Errors
    /// The connection broke or no answer came within `wait`.
    pub async fn request(&mut self, id: Value, method: &str, params: Value, wait: Duration) -> io::Result<Value> {
        let mut from = self.entries.len();
        self.send(&json!({"id": id, "method": method, "params": params})).await?;
        let deadline = Instant::now() + wait;
        loop {
            let index = self.next_from(from, deadline).await.map_err(|silence| {
                io::Error::other(format!("no answer to {method}: {silence}; log: {}", tail(&self.process.log())))
            })?;
            from = index + 1;
            let answer = self.entries.get(index).filter(|entry| entry.is_response());
            if let Some(entry) = answer.filter(|entry| entry.message.get("id") == Some(&id)) {
                return Ok(entry.message.clone());
            }
        }
    }

    /// Reads everything until the agent closes its stdout, at most until `deadline`.
    pub async fn drain(&mut self, deadline: Instant) {
        while let Ok(Some(line)) = tokio::time::timeout_at(deadline, self.lines.recv()).await {
            self.entries.push(Entry::from_line(Side::Agent, line));
        }
    }
}

/// The last lines of a log.
#[must_use]
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n")
}

/// Why no line came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// The time was up.
    #[error("nothing came in time")]
    TooLong,
    /// The agent closed its stdout.
    #[error("the agent closed its stdout")]
    Closed,
}

async fn read_lines(
    stdout: impl AsyncRead + Unpin,
    lines: mpsc::UnboundedSender<Vec<u8>>,
    mut reading: watch::Receiver<Reading>,
) {
    let mut stdout = BufReader::new(stdout);
    loop {
        // An error means the client is gone; then nobody wants the lines.
        if reading.wait_for(|state| *state != Reading::Paused).await.is_err() {
            return;
        }
        if *reading.borrow() == Reading::Closed {
            return;
        }
        let mut line = Vec::new();
        let mut state = reading.clone();
        tokio::select! {
            read = stdout.read_until(b'\n', &mut line) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    if line.last() == Some(&b'\n') {
                        line.pop();
                    }
                    if lines.send(line).is_err() {
                        return;
                    }
                }
            },
            () = closed(&mut state) => return,
        }
    }
}

async fn closed(reading: &mut watch::Receiver<Reading>) {
    if reading.wait_for(|state| *state == Reading::Closed).await.is_err() {
        std::future::pending::<()>().await;
    }
}
