//! Servers that are programs: lines of JSON on their pipes.
//!
//! What is not a message is left aside, since programs print what they like; a line without end is the end of
//! the connection, since the answer in it is lost anyway. Standard error goes to the log, so much and no more,
//! and its end is kept to say why a server died.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use memchr::memchr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::tool::process::{Companion, CompanionLine, CompanionTree, find_program};

use super::notes::words;
use super::server::Trouble;
use super::servers::Surroundings;
use super::spec::{Address, ServerSpec};
use super::wire::{self, Incoming, Outgoing, WireError};

/// The longest message that is read.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Messages that wait for a server that does not read.
const OUTGOING: usize = 64;

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// Bytes of standard error that are logged of one life of a server.
const MAX_LOGGED_BYTES: usize = 64 << 10;

/// Bytes of standard error that are kept to say why it ended.
const KEPT_BYTES: usize = 1_000;

/// How long the end of a process is awaited once its output has ended.
const END_GRACE: Duration = Duration::from_millis(300);

/// Starts the program of a server.
pub(super) fn start(spec: &ServerSpec, around: &Surroundings) -> Result<(Stdio, Process), Trouble> {
    let Address::Stdio { command, args, env, cwd } = spec.address() else {
        return Err(Trouble { cause: "it is no program".into(), is_final: true });
    };
    let cwd = cwd.as_ref().map_or_else(|| around.cwd.clone(), |cwd| around.cwd.join(cwd));
    let folders: Vec<_> = std::iter::once(&around.cwd).chain(&around.additional_roots).cloned().collect();
    let program = find_program(command, &cwd, &folders);
    let program = program.map_err(|problem| Trouble {
        cause: format!("{problem}; install it, or give its full path as the command"),
        is_final: true,
    })?;
    let line = CompanionLine {
        program,
        args: args.clone(),
        cwd,
        env: env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        secret_env: Arc::clone(&around.secret_env),
    };
    let started = around.processes.start_companion(&line);
    let Companion { input, output, errors, tree } =
        started.map_err(|error| Trouble { cause: format!("it could not be started: {error}"), is_final: true })?;
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let mut reader = JoinSet::new();
    reader.spawn(read_errors(errors, spec.clone(), Arc::clone(&tail)));
    let breach = Arc::new(Mutex::new(None));
    let process = Process { tree, tail, breach: Arc::clone(&breach), reader };
    Ok((Stdio::new(input, output, breach), process))
}

/// The process of a server. Dropping it ends the process and all it started.
pub(super) struct Process {
    tree: CompanionTree,
    tail: Arc<Mutex<VecDeque<u8>>>,
    breach: Arc<Mutex<Option<String>>>,
    /// Reads its standard error.
    reader: JoinSet<()>,
}

impl Process {
    /// Why the connection to it ended, in words.
    pub(super) async fn obituary(&mut self) -> Option<String> {
        let breach = self.breach.lock().unwrap_or_else(PoisonError::into_inner).take();
        if breach.is_some() {
            return breach;
        }
        let ended = tokio::time::timeout(END_GRACE, self.tree.ended()).await;
        let ended = ended.map_or_else(|_| "it closed its output".to_owned(), |status| format!("it ended ({status})"));
        // Its last words may still be on their way; a child it left may keep the pipe open.
        tokio::time::timeout(END_GRACE, self.reader.join_next()).await.ok();
        let tail: Vec<u8> = self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let tail = String::from_utf8_lossy(&tail);
        let last: Vec<&str> = tail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match last.last() {
            Some(line) => Some(format!("{ended}; its last words: {line}")),
            None => Some(ended),
        }
    }
}

async fn read_errors(mut errors: pipe::Receiver, spec: ServerSpec, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; 4096];
    let mut logged = 0_usize;
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        let piece = buffer.get(..count).unwrap_or_default();
        {
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.extend(piece);
            let excess = tail.len().saturating_sub(KEPT_BYTES);
            tail.drain(..excess);
        }
        if logged < MAX_LOGGED_BYTES {
            let said = words(&String::from_utf8_lossy(piece), spec.address(), 1_000);
            tracing::debug!(server = spec.name(), said, "an MCP server's standard error");
        }
        logged = logged.saturating_add(count);
    }
}

/// The connection to a program.
pub(super) struct Stdio {
    output: pipe::Receiver,
    buffer: Vec<u8>,
    /// Bytes of the buffer that hold no line end.
    scanned: usize,
    ready: VecDeque<Incoming>,
    /// `None` once closed, which closes the program's input.
    outgoing: Option<mpsc::Sender<Line>>,
    /// What the server did that ended the connection.
    breach: Arc<Mutex<Option<String>>>,
    writer: JoinSet<()>,
}

struct Line {
    bytes: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Stdio {
    fn new(input: pipe::Sender, output: pipe::Receiver, breach: Arc<Mutex<Option<String>>>) -> Self {
        let (outgoing, lines) = mpsc::channel(OUTGOING);
        let mut writer = JoinSet::new();
        writer.spawn(write_lines(input, lines));
        let (buffer, ready) = (Vec::new(), VecDeque::new());
        Self { output, buffer, scanned: 0, ready, outgoing: Some(outgoing), breach, writer }
    }

    /// Takes the whole lines out of the buffer.
    fn take_lines(&mut self) {
        let mut begin = 0;
        while let Some(length) = memchr(b'\n', self.buffer.get(begin + self.scanned..).unwrap_or_default()) {
            let end = begin + self.scanned + length;
            let line = self.buffer.get(begin..end).unwrap_or_default();
            self.ready.extend(messages(line));
            begin = end + 1;
            self.scanned = 0;
        }
        self.buffer.drain(..begin);
        self.scanned = self.buffer.len();
    }
}

async fn write_lines(mut input: pipe::Sender, mut lines: mpsc::Receiver<Line>) {
    while let Some(Line { bytes, written }) = lines.recv().await {
        let result = match input.write_all(&bytes).await {
            Ok(()) => input.flush().await,
            Err(error) => Err(error),
        };
        let is_over = result.is_err();
        // Whoever sent it may have gone.
        written.send(result).ok();
        if is_over {
            return;
        }
    }
}

/// The messages of one line: one, several in an array, or none when it is no message.
fn messages(line: &[u8]) -> Vec<Incoming> {
    // A result with a few bytes that are no text is still a result, and somebody waits for it.
    let text = String::from_utf8_lossy(line.trim_ascii());
    let line = text.as_bytes();
    if line.first() == Some(&b'[') {
        let parts: Vec<&serde_json::value::RawValue> = serde_json::from_slice(line).unwrap_or_default();
        return parts.into_iter().filter_map(|part| wire::read(part.get().as_bytes())).collect();
    }
    if line.first() == Some(&b'{') { wire::read(line).into_iter().collect() } else { Vec::new() }
}

impl Stdio {
    /// Sends a message; the future ends once the program's input has taken it.
    pub(super) fn send(&self, item: &Outgoing) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        let bytes = wire::write(item);
        async move {
            let closed = || WireError("its input is closed".into());
            let mut bytes = bytes?;
            bytes.push(b'\n');
            let (written, result) = oneshot::channel();
            let outgoing = outgoing.ok_or_else(closed)?;
            outgoing.send(Line { bytes, written }).await.map_err(|_| closed())?;
            result.await.map_err(|_| closed())?.map_err(|error| WireError(error.to_string()))
        }
    }

    /// The next message; `None` at the end. Cancel safe: what was read stays in the buffer.
    pub(super) async fn receive(&mut self) -> Option<Incoming> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                let mut breach = self.breach.lock().unwrap_or_else(PoisonError::into_inner);
                *breach = Some(format!("it sent a message of more than {} MiB", MAX_LINE_BYTES >> 20));
                return None;
            }
            self.buffer.reserve(READ_BYTES);
            match self.output.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => self.take_lines(),
            }
        }
    }

    /// Closes the program's input.
    pub(super) fn close(&mut self) {
        self.outgoing = None;
        self.writer.abort_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_are_read_from_what_a_program_prints() {
        let count = |line: &str| messages(line.as_bytes()).len();
        assert_eq!(count(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 1);
        assert_eq!(count("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\r"), 1);
        assert_eq!(count(r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}},7]"#), 2);
        assert_eq!(messages(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xff\xfe\"}}").len(), 1);
        for junk in ["", "Server ready!", "{", "{}", "[", "[1]", "\u{0}\u{1}", "null", "{\"id\":1}"] {
            assert_eq!(count(junk), 0, "{junk}");
        }
    }
}
