//! The one ordered way out: responses, notifications and our own requests share a queue and a writer.
//!
//! Two kinds of sender share it. The connection loop must never wait, so its replies need no permit.
//! Sessions wait for one of `PERMITS` per message, which a message gives back once it is written: a
//! client that stops reading stops the turns, not the connection, and the queue stays bounded.
//!
//! Text is queued as text and rendered by the writer, which joins neighbouring pieces of one message:
//! a client that keeps up sees every piece at once, one that lags gets fewer and longer lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Messages of sessions that may be queued at a time. At about 200 bytes a piece this is 200 KiB.
const PERMITS: usize = 1024;

/// The longest line written, in bytes: older clients die of lines over 64 KiB.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Room for the text of one chunk after escaping; the rest of the line is the envelope.
const MAX_TEXT_BYTES: usize = 60_000;

/// Messages taken from the queue for one write.
const WRITE_BATCH: usize = 512;

/// Which update a piece of text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// The user's words, replayed.
    User,
    /// The answer.
    Agent,
    /// Reasoning.
    Thought,
}

impl ChunkKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::User => "user_message_chunk",
            Self::Agent => "agent_message_chunk",
            Self::Thought => "agent_thought_chunk",
        }
    }
}

/// A piece of a message's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The session.
    pub session: Arc<str>,
    /// Which update.
    pub kind: ChunkKind,
    /// The message it is part of.
    pub message_id: Arc<str>,
    /// The text.
    pub text: String,
}

#[derive(Debug)]
enum Item {
    /// One rendered message without its newline.
    Line(Vec<u8>, Option<OwnedSemaphorePermit>),
    Chunk(Chunk, OwnedSemaphorePermit),
    Flush(oneshot::Sender<()>),
}

/// The sending end. Cheap to clone; sending after the client is gone does nothing.
#[derive(Clone, Debug)]
pub struct Outbox {
    queue: mpsc::UnboundedSender<Item>,
    permits: Arc<Semaphore>,
    backlog_bytes: Arc<AtomicUsize>,
}

/// The writer's end.
#[derive(Debug)]
pub struct OutboxQueue {
    queue: mpsc::UnboundedReceiver<Item>,
    permits: Arc<Semaphore>,
    backlog_bytes: Arc<AtomicUsize>,
}

impl Outbox {
    /// A queue and its writer's end.
    #[must_use]
    pub fn new() -> (Self, OutboxQueue) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(PERMITS));
        let backlog_bytes = Arc::new(AtomicUsize::new(0));
        let outbox = Self { queue: sender, permits: Arc::clone(&permits), backlog_bytes: Arc::clone(&backlog_bytes) };
        (outbox, OutboxQueue { queue: receiver, permits, backlog_bytes })
    }

    /// Queues a message without waiting: responses and our own requests.
    pub fn reply(&self, line: Vec<u8>) {
        self.push(Item::Line(line, None));
    }

    /// Queues a session's notification once there is room.
    ///
    /// # Cancel safety
    /// Dropped while waiting, nothing is queued.
    pub async fn update(&self, line: Vec<u8>) {
        if let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
            self.push(Item::Line(line, Some(permit)));
        }
    }

    /// Queues a piece of text once there is room.
    ///
    /// # Cancel safety
    /// Dropped while waiting, nothing is queued.
    pub async fn chunk(&self, chunk: Chunk) {
        if let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
            self.push(Item::Chunk(chunk, permit));
        }
    }

    /// Waits until all that was queued before is written, or the client is gone.
    pub async fn flush(&self) {
        let (sender, receiver) = oneshot::channel();
        self.push(Item::Flush(sender));
        // An error means that the writer ended, which is as flushed as it gets.
        drop(receiver.await);
    }

    /// Bytes of replies that wait to be written. The reader slows down when this grows large.
    #[must_use]
    pub fn backlog_bytes(&self) -> usize {
        self.backlog_bytes.load(Ordering::Relaxed)
    }

    fn push(&self, item: Item) {
        if let Item::Line(line, None) = &item {
            self.backlog_bytes.fetch_add(line.len(), Ordering::Relaxed);
        }
        // A closed queue means that the client is gone: there is nobody left to tell.
        drop(self.queue.send(item));
    }
}

impl OutboxQueue {
    /// Writes until every sender is gone.
    ///
    /// # Errors
    /// What the sink said, which means that the client is gone; waiting senders are released.
    pub async fn write_to(mut self, mut sink: impl AsyncWrite + Unpin) -> io::Result<()> {
        let result = self.write_batches(&mut sink).await;
        self.permits.close();
        result
    }

    async fn write_batches(&mut self, sink: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut batch = Vec::with_capacity(WRITE_BATCH);
        let mut bytes = Vec::new();
        while self.queue.recv_many(&mut batch, WRITE_BATCH).await > 0 {
            let mut flushed = Vec::new();
            let mut permits = Vec::with_capacity(batch.len());
            render(&mut batch, &mut bytes, &mut permits, &mut flushed, &self.backlog_bytes);
            sink.write_all(&bytes).await?;
            sink.flush().await?;
            bytes.clear();
            bytes.shrink_to(1 << 20);
            drop(permits);
            for waiter in flushed {
                // The waiter may have given up.
                waiter.send(()).ok();
            }
        }
        Ok(())
    }
}

fn render(
    batch: &mut Vec<Item>,
    bytes: &mut Vec<u8>,
    permits: &mut Vec<OwnedSemaphorePermit>,
    flushed: &mut Vec<oneshot::Sender<()>>,
    backlog_bytes: &AtomicUsize,
) {
    let mut items = batch.drain(..).peekable();
    while let Some(item) = items.next() {
        match item {
            Item::Line(line, permit) => {
                if permit.is_none() {
                    backlog_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                }
                permits.extend(permit);
                bytes.extend_from_slice(&line);
                bytes.push(b'\n');
            }
            Item::Chunk(mut chunk, permit) => {
                permits.push(permit);
                while let Some(Item::Chunk(next, permit)) = items.next_if(|next| continues(&chunk, next)) {
                    chunk.text.push_str(&next.text);
                    permits.push(permit);
                }
                render_chunk(&chunk, bytes);
            }
            Item::Flush(waiter) => flushed.push(waiter),
        }
    }
}

fn continues(chunk: &Chunk, next: &Item) -> bool {
    matches!(next, Item::Chunk(next, _)
        if next.kind == chunk.kind && next.session == chunk.session && next.message_id == chunk.message_id)
}

/// Writes a chunk as one or more lines. Written by hand because every token passes here; a test holds
/// it against the schema crate's own output.
fn render_chunk(chunk: &Chunk, bytes: &mut Vec<u8>) {
    for piece in pieces(&chunk.text) {
        bytes.extend_from_slice(br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"#);
        push_string(&chunk.session, bytes);
        bytes.extend_from_slice(br#","update":{"sessionUpdate":""#);
        bytes.extend_from_slice(chunk.kind.as_str().as_bytes());
        bytes.extend_from_slice(br#"","content":{"type":"text","text":"#);
        push_string(piece, bytes);
        bytes.extend_from_slice(br#"},"messageId":"#);
        push_string(&chunk.message_id, bytes);
        bytes.extend_from_slice(b"}}}\n");
    }
}

fn push_string(text: &str, bytes: &mut Vec<u8>) {
    // Writing a string into a vector cannot fail.
    drop(serde_json::to_writer(bytes, text));
}

/// Cuts a text so that each piece fits a line once escaped.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(escaped_prefix(rest, MAX_TEXT_BYTES));
        rest = after;
        Some(piece)
    })
}

/// The length of the longest prefix whose JSON escape has at most `limit` bytes.
#[must_use]
pub fn escaped_prefix(text: &str, limit: usize) -> usize {
    if text.len() <= limit / 6 {
        return text.len();
    }
    let mut size = 0;
    for (offset, character) in text.char_indices() {
        size += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            control if control < ' ' => 6,
            other => other.len_utf8(),
        };
        if size > limit {
            return offset;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnd_protocol::acp;

    fn chunk(text: &str) -> Chunk {
        Chunk { session: "s\"1".into(), kind: ChunkKind::Thought, message_id: "m".into(), text: text.into() }
    }

    async fn written(fill: impl AsyncFnOnce(&Outbox)) -> String {
        let (outbox, queue) = Outbox::new();
        fill(&outbox).await;
        drop(outbox);
        let mut bytes = Vec::new();
        queue.write_to(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn a_chunk_is_what_the_schema_crate_would_write() {
        let got = written(async |outbox| outbox.chunk(chunk("a\n\u{1}\"é😀")).await).await;
        let content = acp::ContentChunk::new("a\n\u{1}\"é😀".into()).message_id(acp::MessageId::new("m"));
        let expected = acp::SessionNotification::new("s\"1", acp::SessionUpdate::AgentThoughtChunk(content));
        let got: serde_json::Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got["params"], serde_json::to_value(expected).unwrap());
    }

    #[tokio::test]
    async fn neighbours_of_one_message_are_joined_and_order_is_kept() {
        let got = written(async |outbox| {
            outbox.chunk(chunk("one ")).await;
            outbox.chunk(chunk("two")).await;
            outbox.reply(b"{}".to_vec());
            outbox.chunk(chunk("three")).await;
        })
        .await;
        let lines: Vec<_> = got.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("one two") && lines[1] == "{}" && lines[2].contains("three"));
    }

    #[tokio::test]
    async fn no_line_passes_the_limit_whatever_the_text() {
        for text in ["x".repeat(300_000), "\u{1}".repeat(100_000), "😀\"".repeat(60_000)] {
            let got = written(async |outbox| outbox.chunk(chunk(&text)).await).await;
            let mut joined = String::new();
            for line in got.lines() {
                assert!(line.len() <= MAX_LINE_BYTES, "{}", line.len());
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                joined.push_str(value["params"]["update"]["content"]["text"].as_str().unwrap());
            }
            assert!(joined == text);
        }
    }

    #[tokio::test]
    async fn a_client_that_never_reads_stops_senders_at_the_bound_and_its_end_releases_them() {
        let (outbox, queue) = Outbox::new();
        for _ in 0..PERMITS {
            outbox.update(Vec::new()).await;
        }
        let mut blocked = std::pin::pin!(outbox.update(Vec::new()));
        assert!(futures_util::poll!(&mut blocked).is_pending());
        let (client, daemon) = tokio::io::duplex(8);
        drop(client);
        queue.write_to(daemon).await.unwrap_err();
        blocked.await;
        outbox.flush().await;
    }
}
