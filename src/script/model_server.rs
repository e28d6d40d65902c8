//! A scripted model server on loopback: three wire formats, raw bytes, pacing and faults.
//!
//! It is an HTTP/1.1 server of the least size that does the job, so that a reply can be wrong on the
//! wire in ways a library would not allow. Every request is judged by [`super::invariants`].

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http::{self, Request};
use super::invariants::{self, Continuity};
use super::view::View;
use super::wire;
use crate::provider::scripted::{Asked, Script, ScriptedReply};

/// The key the harness configures; it must never be seen again outside a request's headers.
pub const API_KEY: &str = "sk-harness-4f1d7c92e0b35a68";

/// One request to the model.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The request's path.
    pub path: String,
    /// Header names in lower case.
    pub headers: Value,
    /// The body.
    pub body: Value,
    /// The body in neutral words.
    pub view: View,
    /// When it was read whole.
    pub at: Instant,
    /// Requests being answered at that moment, this one included.
    pub in_flight: usize,
    /// When the answer's last bytes went out or the agent had closed the connection.
    pub ended: Option<(Ended, Instant)>,
    /// What a strict provider would refuse in it.
    pub problems: Vec<String>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was sent as the script says.
    Sent,
    /// The agent closed the connection before its end.
    ClosedByAgent,
}

impl Seen {
    /// What patterns of transcripts are matched against.
    #[must_use]
    pub fn to_value(&self, previous_end: Option<Instant>) -> Value {
        let mut whole = self.view.to_value();
        whole.insert("path".into(), json!(self.path));
        whole.insert("headers".into(), self.headers.clone());
        whole.insert("body".into(), self.body.clone());
        whole.insert("in_flight".into(), json!(self.in_flight));
        let since = previous_end.map(|end| self.at.saturating_duration_since(end).as_millis());
        whole.insert("since_ms".into(), json!(since.and_then(|since| u64::try_from(since).ok())));
        Value::Object(whole)
    }
}

#[derive(Debug)]
struct Shared {
    script: Script,
    is_rewritten: bool,
    seen: Mutex<Vec<Seen>>,
    continuity: Mutex<Continuity>,
    in_flight: AtomicUsize,
    is_down: AtomicBool,
    /// One permit for each held reply that may go on.
    releases: Semaphore,
    changed: Notify,
}

/// The server; dropping it ends every connection.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl ModelServer {
    /// Listens on a free port of 127.0.0.1. `prefix_changes`: why a request may rewrite the history, if so.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub async fn start(script: Script, prefix_changes: Option<&str>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
            is_rewritten: prefix_changes.is_some(),
            seen: Mutex::default(),
            continuity: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            releases: Semaphore::new(0),
            changed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// `http://127.0.0.1:PORT`, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Drops new connections without an answer, or serves them again.
    pub fn set_down(&self, is_down: Availability) {
        self.shared.is_down.store(is_down == Availability::Down, Ordering::SeqCst);
    }

    /// Lets this many held replies go on, also ones that come to their hold later.
    pub fn release(&self, replies: usize) {
        self.shared.releases.add_permits(replies);
    }

    /// All requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen().clone()
    }

    /// Waits until `ready` gives something for the requests so far.
    pub async fn wait_for<T>(&self, mut ready: impl FnMut(&[Seen]) -> Option<T>) -> T {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(value) = ready(&self.shared.seen()) {
                return value;
            }
            changed.await;
        }
    }

    /// Replies in order that nobody asked for.
    #[must_use]
    pub fn unused_replies(&self) -> usize {
        self.shared.script.unused()
    }
}

/// Whether the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// New connections are dropped.
    Down,
    /// New connections are served.
    Up,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, request: &Request, body: &Value) -> (usize, View) {
        let format = wire::format_of(&request.path);
        let view = View::of(format, body);
        let mut problems = invariants::refusals(format, body, &view);
        if body.to_string().contains(API_KEY) {
            problems.push("the request's body holds the API key".into());
        }
        let mut continuity = self.continuity.lock().unwrap_or_else(PoisonError::into_inner);
        problems.extend(continuity.check(&request.path, &view, self.is_rewritten));
        drop(continuity);
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        let mut seen = self.seen();
        seen.push(Seen {
            path: request.path.clone(),
            headers: request.headers.clone(),
            body: body.clone(),
            view: view.clone(),
            at: Instant::now(),
            in_flight,
            ended: None,
            problems,
        });
        let index = seen.len() - 1;
        drop(seen);
        self.changed.notify_waiters();
        (index, view)
    }

    fn end(&self, index: usize, ended: Ended, at: Instant) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(seen) = self.seen().get_mut(index) {
            seen.ended = Some((ended, at));
        }
        self.changed.notify_waiters();
    }

    fn add_problem(&self, index: usize, problem: &str) {
        if let Some(seen) = self.seen().get_mut(index) {
            seen.problems.push(problem.to_owned());
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if !shared.is_down.load(Ordering::SeqCst) => {
                    let shared = shared.clone();
                    connections.spawn(async move {
                        // A connection that breaks is the agent's choice or the script's.
                        serve(stream, &shared).await.ok();
                    });
                }
                Ok((stream, _)) => reset(&stream),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Makes the close of this connection a reset instead of an orderly end.
fn reset(stream: &TcpStream) {
    // Without it the peer sees an orderly end, which is only a weaker fault.
    stream.set_zero_linger().ok();
}

async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = http::read_request(&mut stream).await? {
        if request.method == "GET" {
            let models = json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]});
            stream.write_all(&http::response(200, &[], &models)).await?;
            continue;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (index, view) = shared.admit(&request, &body);
        let asked = Asked { user: view.newest_user(), step: view.step(), path: &request.path, model: &view.model };
        let reply = shared.script.choose(&asked).unwrap_or_else(|| {
            shared.add_problem(index, "the case has no `model` line left for this request");
            ScriptedReply { status: Some(400), error: Some("the script is used up".into()), ..ScriptedReply::default() }
        });
        let releases = &shared.releases;
        let mut answer = Answer { stream: &mut stream, reply: &reply, index, releases, last_write: Instant::now() };
        let sent = answer.send(&request, &view).await;
        let last_write = answer.last_write;
        match sent {
            Ok(_) => shared.end(index, Ended::Sent, last_write),
            Err(_) => shared.end(index, Ended::ClosedByAgent, Instant::now()),
        }
        if sent? == Next::Close {
            return Ok(());
        }
    }
    Ok(())
}

/// What happens to the connection after an answer.
#[derive(PartialEq, Eq)]
enum Next {
    KeepOpen,
    Close,
}

struct Answer<'a> {
    stream: &'a mut BufReader<TcpStream>,
    reply: &'a ScriptedReply,
    index: usize,
    releases: &'a Semaphore,
    /// The moment before the newest bytes went out: the agent cannot have had them earlier.
    last_write: Instant,
}

impl Answer<'_> {
    /// Sends the reply; an error is the agent closing the connection.
    async fn send(&mut self, request: &Request, view: &View) -> io::Result<Next> {
        let reply = self.reply;
        self.pause(reply.delay_ms).await?;
        self.hold(0).await?;
        let format = wire::format_of(&request.path);
        let headers: Vec<_> = reply.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let status = reply.status.unwrap_or(if reply.error.is_some() { 500 } else { 200 });
        if status != 200 || reply.body.is_some() {
            let message = reply.error.clone().unwrap_or_else(|| format!("HTTP {status}"));
            let body = reply.body.clone().unwrap_or_else(|| wire::error_body(format, status, &message));
            self.write(&http::response(status, &headers, &body)).await?;
            return Ok(Next::KeepOpen);
        }
        if reply.cut_after == Some(0) {
            reset(self.stream.get_ref());
            return Ok(Next::Close);
        }
        self.write(&http::stream_head(&headers)).await?;
        let events = match &reply.sse {
            Some(pieces) => pieces.iter().map(wire::raw_event).collect(),
            None => wire::events(format, reply, &view.model, self.index + 1),
        };
        for (sent, event) in events.iter().enumerate() {
            if reply.cut_after.is_some_and(|count| sent >= count) {
                reset(self.stream.get_ref());
                return Ok(Next::Close);
            }
            if reply.stall_after.is_some_and(|count| sent >= count) {
                return Err(self.wait_for_close().await);
            }
            for piece in event.as_bytes().chunks(if reply.write_bytes == 0 { usize::MAX } else { reply.write_bytes }) {
                self.write(&http::chunk(piece)).await?;
            }
            self.hold(sent + 1).await?;
            self.pause(reply.gap_ms).await?;
        }
        if reply.hang {
            return Err(self.wait_for_close().await);
        }
        self.write(&http::chunk(b"")).await?;
        Ok(Next::KeepOpen)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.last_write = Instant::now();
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Waits, and notices at once when the agent closes the connection.
    async fn pause(&mut self, millis: u64) -> io::Result<()> {
        if millis == 0 {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(millis)) => Ok(()),
            error = self.wait_for_close() => Err(error),
        }
    }

    /// Waits for the transcript's `release` if the reply says so at this event.
    async fn hold(&mut self, sent: usize) -> io::Result<()> {
        if self.reply.hold_after != Some(sent) {
            return Ok(());
        }
        let releases = self.releases;
        tokio::select! {
            // The semaphore is never closed; were it, the reply would go on.
            permit = releases.acquire() => {
                permit.into_iter().for_each(tokio::sync::SemaphorePermit::forget);
                Ok(())
            }
            error = self.wait_for_close() => Err(error),
        }
    }

    async fn wait_for_close(&mut self) -> io::Error {
        match self.stream.read_u8().await {
            Ok(_) => io::Error::other("the agent sent more than its request"),
            Err(error) => error,
        }
    }
}
