//! One answer being read: bytes in, events and at the end one whole reply out.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use reqwest::Response;
use tokio::time::Instant;

use crate::provider::endpoint::Timeouts;
use crate::provider::http::{CallContext, chain, silence};
use crate::provider::scripted::ScriptedStream;
use crate::provider::sse::{SseDecoder, SseError};
use crate::provider::{DecodeError, Decoder, ErrorKind, ModelEvent, ModelReply, ProviderError, SseEvent};

/// The most bytes of one answer after decompression. Far above any model's, far below memory trouble.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// The most bytes that are decoded before what they hold is handed on, when more is ready at once.
const MAX_READ_AHEAD: usize = 64 * 1024;
/// What some servers write before everything else.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The most pieces of one answer that are passed over because they are no JSON.
const MAX_NOISE: u32 = 100;
/// The part of the idle time in which a server may still bring its counts after the end of its answer.
const LAST_WORDS: u32 = 10;
/// How long the end of the body is waited for after the end of the answer, so that the connection can be kept.
const DRAIN: Duration = Duration::from_millis(2);

/// One answer being read. Dropping it closes the connection at once.
#[derive(Debug)]
pub struct ModelStream(Inner);

#[derive(Debug)]
enum Inner {
    Http(Box<HttpStream>),
    Scripted(Box<ScriptedStream>),
}

impl ModelStream {
    pub(super) fn http(stream: HttpStream) -> Self {
        Self(Inner::Http(Box::new(stream)))
    }

    pub(super) fn scripted(stream: ScriptedStream) -> Self {
        Self(Inner::Scripted(Box::new(stream)))
    }

    /// Waits until something can be told and appends it to `out`: everything that came with one read of the
    /// network, texts of one kind merged. Returns the whole reply once the answer has ended.
    ///
    /// Cancel-safe: a dropped call loses nothing, the next one goes on.
    ///
    /// # Errors
    /// The classified failure; the stream must not be read again.
    pub async fn next(&mut self, out: &mut Vec<ModelEvent>) -> Result<Option<ModelReply>, ProviderError> {
        match &mut self.0 {
            Inner::Http(stream) => stream.next(out).await,
            Inner::Scripted(stream) => stream.next(out).await,
        }
    }

    /// Pieces of the answer that were passed over because they are no JSON.
    #[must_use]
    pub fn passed_over(&self) -> u32 {
        match &self.0 {
            Inner::Http(stream) => stream.noise,
            Inner::Scripted(_) => 0,
        }
    }
}

/// An answer over HTTP.
pub(super) struct HttpStream {
    response: Response,
    sse: SseDecoder,
    /// `None` once the answer has ended.
    decoder: Option<Box<dyn Decoder>>,
    shape: Shape,
    context: CallContext,
    deadline: Instant,
    /// Something of the answer came, more than heartbeats.
    has_begun: bool,
    received: usize,
    noise: u32,
}

/// What the bytes turned out to be.
#[derive(Debug)]
enum Shape {
    /// Nothing but blanks so far.
    Unknown,
    /// Events.
    Events,
    /// One JSON body, collected until its end.
    Whole {
        /// What came of it.
        body: Vec<u8>,
        /// When it must have come, however steadily it trickles: it was finished before its first byte was sent.
        until: Instant,
    },
}

impl fmt::Debug for HttpStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpStream").field("received", &self.received).finish_non_exhaustive()
    }
}

/// Why a read could not be decoded.
struct Broken(DecodeError);

impl From<SseError> for Broken {
    fn from(error: SseError) -> Self {
        let SseError::EventTooLarge { limit_bytes } = error;
        Self(DecodeError::TooLarge { limit_bytes })
    }
}

impl HttpStream {
    pub(super) fn new(response: Response, decoder: Box<dyn Decoder>, context: CallContext, deadline: Instant) -> Self {
        Self {
            response,
            sse: SseDecoder::default(),
            decoder: Some(decoder),
            shape: Shape::Unknown,
            context,
            deadline,
            has_begun: false,
            received: 0,
            noise: 0,
        }
    }

    async fn next(&mut self, out: &mut Vec<ModelEvent>) -> Result<Option<ModelReply>, ProviderError> {
        let now = Instant::now();
        if self.deadline <= now {
            // The time was used up by a slow client, not by the server.
            self.deadline = now + self.context.endpoint.timeouts.idle;
        }
        loop {
            let Ok(mut read) = tokio::time::timeout_at(self.deadline, self.response.chunk()).await else {
                return self.fell_silent(out);
            };
            let mut taken = 0;
            // What is ready at once is told at once.
            loop {
                match read {
                    Err(error) => return self.broke(&chain(&error), out),
                    Ok(None) => {
                        self.context.http.note_answer(&self.context.endpoint.base_url);
                        return self.finish(out).map(Some);
                    }
                    Ok(Some(chunk)) => {
                        taken += chunk.len();
                        self.take(&chunk, out)?;
                    }
                }
                if taken >= MAX_READ_AHEAD || self.is_done() {
                    break;
                }
                let Some(next) = self.response.chunk().now_or_never() else { break };
                read = next;
            }
            if self.is_done() {
                self.drain().await;
                return self.finish(out).map(Some);
            }
            if !out.is_empty() {
                return Ok(None);
            }
            // A server that never pauses between its heartbeats leaves the timer no moment to fire.
            if self.deadline <= Instant::now() {
                return self.fell_silent(out);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.decoder.as_ref().is_none_or(|decoder| decoder.is_done())
    }

    /// Decodes one read.
    fn take(&mut self, chunk: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        self.received += chunk.len();
        if self.received > MAX_ANSWER_BYTES {
            return Err(self.undecodable(DecodeError::TooLarge { limit_bytes: MAX_ANSWER_BYTES }));
        }
        let chunk = match self.shape {
            Shape::Unknown => chunk.strip_prefix(BYTE_ORDER_MARK).unwrap_or(chunk),
            Shape::Events | Shape::Whole { .. } => chunk,
        };
        let first = chunk.iter().find(|byte| !byte.is_ascii_whitespace());
        let timeouts = self.context.endpoint.timeouts;
        if matches!(self.shape, Shape::Unknown) {
            self.shape = match first {
                None => return Ok(()),
                Some(b'{' | b'[') => Shape::Whole { body: Vec::new(), until: Instant::now() + whole_limit(&timeouts) },
                Some(b'<') => {
                    let message = "the server answered with a web page, so base_url does not point to an API";
                    return Err(self.context.failed(ErrorKind::InvalidResponse, message));
                }
                Some(_) => Shape::Events,
            };
        }
        if let Shape::Whole { body, until } = &mut self.shape {
            body.extend_from_slice(chunk);
            self.has_begun = true;
            // Blanks are how servers keep such a connection open.
            if first.is_some() {
                self.deadline = (Instant::now() + timeouts.idle).min(*until);
            }
            return Ok(());
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let (noise, before) = (&mut self.noise, decoder.progress());
        let fed = self.sse.feed(chunk, &mut |event| {
            // What follows the end of the answer is of no concern.
            if decoder.is_done() {
                return Ok(());
            }
            if is_noise(event) {
                return pass_over(noise).map_err(Broken);
            }
            decoder.push(event, out).map_err(Broken)
        });
        if decoder.progress() > before {
            self.has_begun = true;
            let idle = timeouts.idle;
            self.deadline = Instant::now() + if decoder.has_ended() { idle / LAST_WORDS } else { idle };
        }
        fed.map_err(|Broken(error)| self.undecodable(error))
    }

    /// Reads the end of the body, which lets the connection be used again.
    async fn drain(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.response.chunk().await {} };
        if tokio::time::timeout(DRAIN, rest).await.is_ok() {
            self.context.http.note_answer(&self.context.endpoint.base_url);
        }
    }

    /// No bytes come any more: the reply is whole, or it never will be.
    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<ModelReply, ProviderError> {
        let Some(mut decoder) = self.decoder.take() else {
            return Err(self.context.failed(ErrorKind::InvalidResponse, "the answer was read to its end before"));
        };
        let read = match &self.shape {
            Shape::Whole { body, .. } => decoder.whole(body, out).map_err(cut_short),
            Shape::Unknown | Shape::Events if decoder.is_done() => Ok(()),
            Shape::Unknown | Shape::Events => {
                let noise = &mut self.noise;
                let fed = self.sse.finish(&mut |event| {
                    let read = if is_noise(event) { pass_over(noise) } else { decoder.push(event, out) };
                    read.map_err(Broken)
                });
                fed.map_err(|Broken(error)| cut_short(error))
            }
        };
        read.and_then(|()| decoder.finish(out)).map_err(|error| self.undecodable(error))
    }

    /// The connection broke. An answer that had its terminal marker is whole all the same.
    fn broke(&mut self, cause: &str, out: &mut Vec<ModelEvent>) -> Result<Option<ModelReply>, ProviderError> {
        let error = match self.finish(out) {
            Ok(reply) => return Ok(Some(reply)),
            Err(error) => error,
        };
        if error.kind != ErrorKind::TruncatedStream {
            return Err(error);
        }
        Err(self.context.failed(ErrorKind::TruncatedStream, &format!("the answer broke off: {cause}")))
    }

    /// Nothing came in time. An answer that had its terminal marker is whole all the same.
    fn fell_silent(&mut self, out: &mut Vec<ModelEvent>) -> Result<Option<ModelReply>, ProviderError> {
        let timeouts = self.context.endpoint.timeouts;
        let message = match self.shape {
            Shape::Whole { until, .. } if until <= Instant::now() => {
                format!("the answer was not complete after {} s", whole_limit(&timeouts).as_secs_f64())
            }
            _ => silence(if self.has_begun { timeouts.idle } else { timeouts.first_event }),
        };
        match self.finish(out) {
            Ok(reply) => Ok(Some(reply)),
            Err(_) => Err(self.context.failed(ErrorKind::Timeout, &message)),
        }
    }

    fn undecodable(&self, error: DecodeError) -> ProviderError {
        match error {
            DecodeError::Reported { body } => self.context.reported(None, &body),
            DecodeError::Truncated => {
                let message = "the answer ended before its end: no finish reason and no end marker came";
                self.context.failed(ErrorKind::TruncatedStream, message)
            }
            DecodeError::Malformed(_) | DecodeError::Invalid(_) | DecodeError::TooLarge { .. } => {
                self.context.failed(ErrorKind::InvalidResponse, &error.to_string())
            }
        }
    }
}

/// How long a whole body may take from its first byte to its last.
fn whole_limit(timeouts: &Timeouts) -> Duration {
    timeouts.first_event.max(timeouts.idle)
}

/// True for an event that no format has: proxies write words such as `ping` where an object belongs. An object that is
/// damaged is none of these, because a piece of the answer may be lost with it.
fn is_noise(event: &SseEvent<'_>) -> bool {
    let data = event.data.trim_start();
    event.name != "error" && !data.starts_with(['{', '[']) && data.trim_end() != "null"
}

fn pass_over(noise: &mut u32) -> Result<(), DecodeError> {
    *noise += 1;
    let is_too_much = *noise > MAX_NOISE;
    if is_too_much { Err(DecodeError::Malformed("too many pieces of it are no JSON".into())) } else { Ok(()) }
}

/// What is malformed at the very end is most likely cut.
fn cut_short(error: DecodeError) -> DecodeError {
    if matches!(error, DecodeError::Malformed(_)) { DecodeError::Truncated } else { error }
}
