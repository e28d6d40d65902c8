//! The connection loop: one closed set of events, each dealt with at once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use turnd_protocol::error_code;

use crate::rpc::{ClientError, Frame, FrameReader, Incoming, MAX_LINE_BYTES, Outbox, Pending, RequestId};
use crate::session::{Host, Registry};

use super::capabilities::ClientFeatures;
use super::client::Client;
use super::dispatch::{Answer, Dispatcher, Server, Working, error_line};
use super::error::Error;
use super::handlers;

/// How long running turns get to end in good order.
const DRAIN_LIMIT: Duration = Duration::from_secs(4);
/// How long the last lines get to be written to a client that may not read.
const FLUSH_LIMIT: Duration = Duration::from_millis(100);
/// Lines that may wait for the loop.
const LINES: usize = 256;
/// Unwritten replies beyond which no more lines are read.
const MAX_BACKLOG_BYTES: usize = 64 << 20;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client closed its end.
    Closed,
    /// The client no longer reads.
    BrokenPipe,
    /// The process was told to end, by whoever cancelled [`Host::shutdown`].
    Shutdown,
}

/// Serves one client until it leaves, then ends every session in good order.
///
/// # Errors
/// When the method table could not be built, which is a mistake in the program.
pub async fn serve(
    host: Arc<Host>,
    reader: impl AsyncRead + Unpin + Send + 'static,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Ending> {
    let (outbox, queue) = Outbox::new();
    let pending = Pending::new(outbox.clone());
    let client = Client { outbox: outbox.clone(), pending: pending.clone(), features: ClientFeatures::default() };
    let sessions = Registry::new(Arc::clone(&host));
    let server = Arc::new(Server { client, sessions });
    let dispatcher = Dispatcher::new(Arc::clone(&server)).map_err(io::Error::other)?;
    let mut tasks = JoinSet::new();
    let (lines, incoming) = mpsc::channel(LINES);
    tasks.spawn(read_lines(FrameReader::new(reader, MAX_LINE_BYTES), lines, outbox.clone()));
    let mut writing = JoinSet::new();
    writing.spawn(queue.write_to(writer));
    let mut connection = Connection {
        server,
        dispatcher,
        outbox: outbox.clone(),
        pending,
        incoming,
        working: FuturesUnordered::new(),
        open: HashMap::new(),
        last_key: 0,
    };
    let ending = connection.run(&host.shutdown, &mut writing).await;
    connection.end(ending, &host.shutdown).await;
    drop(connection);
    tasks.shutdown().await;
    drop(outbox);
    // The writer ends when it has written everything; a client that does not read gets no more time.
    drop(tokio::time::timeout(FLUSH_LIMIT, writing.join_next()).await);
    writing.shutdown().await;
    Ok(ending)
}

async fn read_lines<R: AsyncRead + Unpin>(mut frames: FrameReader<R>, lines: mpsc::Sender<Line>, outbox: Outbox) {
    loop {
        while outbox.backlog_bytes() > MAX_BACKLOG_BYTES {
            outbox.flush().await;
        }
        let line = match frames.next().await {
            Ok(Some(Frame::Line(bytes))) => Line::Message(Incoming::classify(&bytes)),
            Ok(Some(Frame::TooLong { head })) => Line::TooLong { answers: RequestId::answered_by(&head) },
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "standard input failed");
                return;
            }
        };
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

/// What the reader hands over.
enum Line {
    Message(Incoming),
    /// One that cannot be read, with the id of the call it answers, if it does.
    TooLong {
        answers: Option<RequestId>,
    },
}

struct Connection {
    server: Arc<Server>,
    dispatcher: Dispatcher,
    outbox: Outbox,
    pending: Pending,
    incoming: mpsc::Receiver<Line>,
    working: FuturesUnordered<futures_util::future::Map<Working, KeyOf>>,
    /// Requests without an answer yet, under a key of our own: clients may use an id twice.
    open: HashMap<u64, OpenRequest>,
    last_key: u64,
}

type KeyOf = Box<dyn FnOnce(Answer) -> (u64, Answer) + Send>;

struct OpenRequest {
    id: RequestId,
    cancel: CancellationToken,
}

impl Connection {
    async fn run(&mut self, shutdown: &CancellationToken, writing: &mut JoinSet<io::Result<()>>) -> Ending {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ending::Shutdown,
                Some(ended) = writing.join_next() => {
                    tracing::info!(?ended, "the client no longer reads");
                    return Ending::BrokenPipe;
                }
                Some((key, answer)) = self.working.next(), if !self.working.is_empty() => self.answer(key, answer),
                line = self.incoming.recv() => match line {
                    Some(line) => self.take(line),
                    None => return Ending::Closed,
                },
            }
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::TooLong { answers } => {
                let detail = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                let failure = || Err(ClientError { code: error_code::INVALID_REQUEST.into(), message: detail.clone() });
                if answers.is_some_and(|id| self.pending.resolve(&id, failure())) {
                    return;
                }
                self.refuse(&RequestId::null(), error_code::INVALID_REQUEST, "Invalid request", detail);
            }
            Line::Message(Incoming::Malformed { id, code, message, detail }) => self.refuse(&id, code, message, detail),
            Line::Message(Incoming::Bare { id }) => {
                if !self.pending.resolve(&id, Ok(RawValue::NULL.to_owned())) {
                    let detail = "there is no method".to_owned();
                    self.refuse(&id, error_code::INVALID_REQUEST, "Invalid request", detail);
                }
            }
            Line::Message(Incoming::Response { id, outcome }) => {
                if !self.pending.resolve(&id, outcome) {
                    tracing::debug!(?id, "an answer to no open call");
                }
            }
            Line::Message(Incoming::Notification { method, params }) => {
                let params = params.as_deref().map(RawValue::get).unwrap_or("{}");
                if method == "$/cancel_request" {
                    self.cancel_request(params);
                } else {
                    handlers::notification(&self.server, &method, params);
                }
            }
            Line::Message(Incoming::Request { id, method, params }) => self.start(id, &method, params),
        }
    }

    fn refuse(&self, id: &RequestId, code: i32, message: &str, detail: String) {
        let data = serde_json::json!({ "detail": detail });
        self.outbox.reply(error_line(id, &Error::new(code, message, Some(data))));
    }

    fn start(&mut self, id: RequestId, method: &str, params: Option<Box<RawValue>>) {
        let cancel = CancellationToken::new();
        match self.dispatcher.start(&id, method, params, cancel.clone()) {
            Ok(answer) => self.send(answer),
            Err(working) => {
                self.last_key += 1;
                let key = self.last_key;
                self.open.insert(key, OpenRequest { id, cancel });
                let with_key: KeyOf = Box::new(move |answer| (key, answer));
                self.working.push(futures_util::FutureExt::map(working, with_key));
            }
        }
    }

    fn answer(&mut self, key: u64, answer: Answer) {
        self.open.remove(&key);
        self.send(answer);
    }

    fn send(&self, mut answer: Answer) {
        self.outbox.reply(std::mem::take(&mut answer.line));
        answer.queued();
    }

    fn cancel_request(&self, params: &str) {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancel<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let Ok(Cancel { request_id }) = serde_json::from_str(params) else { return };
        let Some(id) = RequestId::from_json(request_id.get()) else { return };
        for request in self.open.values().filter(|request| request.id == id) {
            request.cancel.cancel();
        }
    }

    /// Ends every session, answers what can still be answered, and closes the way to the client.
    async fn end(&mut self, ending: Ending, shutdown: &CancellationToken) {
        self.incoming.close();
        shutdown.cancel();
        self.pending.close();
        let sessions = self.server.sessions.clone();
        let drained = async {
            let mut drained = std::pin::pin!(sessions.drained());
            let mut is_drained = false;
            // What was asked before the end of the input is still answered.
            while !is_drained || !self.working.is_empty() {
                tokio::select! {
                    () = &mut drained, if !is_drained => is_drained = true,
                    Some((key, answer)) = self.working.next(), if !self.working.is_empty() => self.answer(key, answer),
                }
            }
        };
        if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
            tracing::warn!(?ending, "a session or a request did not end in time");
        }
        while let Some(Some((key, answer))) = futures_util::FutureExt::now_or_never(self.working.next()) {
            self.answer(key, answer);
        }
    }
}
