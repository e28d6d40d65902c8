//! A server on this machine that answers byte by byte as it is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use secrecy::SecretString;

use crate::provider::Endpoint;
use crate::provider::credentials::KeyRing;
use crate::provider::endpoint::tests::endpoint;
use crate::provider::redact::Redactor;

pub(super) const KEY: &str = "test-key-0123456789";
pub(super) const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
pub(super) const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
/// A heartbeat.
pub(super) const BEAT: &str = ":\n\n";
pub(super) const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// What the server does after it has read a request, in order.
#[derive(Clone)]
pub(super) enum Step {
    /// Writes these bytes.
    Raw(Vec<u8>),
    /// Writes one chunk of a chunked body; an empty one ends it.
    Chunk(String),
    /// Writes this chunk every 20 ms for ever.
    Forever(&'static str),
    /// Writes nothing more and keeps the connection open until the client closes it.
    Hang,
    /// Closes the connection.
    Close,
}

pub(super) use Step::{Chunk, Close, Forever, Hang, Raw};

pub(super) struct Server {
    pub(super) url: String,
    pub(super) requests: Arc<Mutex<Vec<String>>>,
    pub(super) connections: Arc<Mutex<usize>>,
    /// Tells when a client closed its connection.
    pub(super) closed: mpsc::Receiver<Instant>,
}

impl Server {
    /// Answers the first request with the first list of steps, and so on; more requests are not answered.
    pub(super) fn start(answers: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (closes, closed) = mpsc::channel();
        let shared = (Arc::clone(&requests), Arc::clone(&connections), Arc::new(Mutex::new(answers.into_iter())));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (requests, connections, answers) = shared.clone();
                *connections.lock().unwrap() += 1;
                let closes = closes.clone();
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    while let Some(request) = read_request(&mut stream) {
                        requests.lock().unwrap().push(request);
                        let Some(steps) = answers.lock().unwrap().next() else { return };
                        if steps.iter().any(|step| !perform(&mut stream, step)) {
                            break;
                        }
                    }
                    // The test may be over already.
                    closes.send(Instant::now()).ok();
                });
            }
        });
        Self { url, requests, connections, closed }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        let keys = KeyRing::new("p", vec![SecretString::from(KEY)], None, Redactor::default());
        let mut endpoint = Endpoint { base_url: self.url.clone(), keys: Arc::new(keys), ..endpoint("p", "m") };
        endpoint.timeouts.first_event = Duration::from_secs(60);
        endpoint.timeouts.idle = Duration::from_secs(60);
        endpoint
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// False when the connection is to be closed.
fn perform(stream: &mut TcpStream, step: &Step) -> bool {
    match step {
        Raw(bytes) => stream.write_all(bytes).is_ok(),
        Chunk(text) => write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok(),
        Forever(text) => {
            while write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        }
        Hang => stream.read(&mut [0]).is_ok_and(|count| count > 0),
        Close => false,
    }
}

/// Head and body of the next request; `None` when the client has closed.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(format!("{head}{}", String::from_utf8_lossy(&body)))
}

pub(super) fn text(text: &str) -> Step {
    Raw(text.as_bytes().to_vec())
}

pub(super) fn chunks(events: &[&str]) -> Vec<Step> {
    let mut steps = vec![text(HEAD)];
    steps.extend(events.iter().map(|event| Chunk((*event).to_owned())));
    steps
}

pub(super) fn whole_answer() -> Vec<Step> {
    chunks(&[TEXT, STOP, DONE, ""])
}

/// An answer that is no stream.
pub(super) fn plain(status: &str, headers: &str, body: &str) -> Vec<Step> {
    vec![text(&format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()))]
}
