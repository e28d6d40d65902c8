//! The older HTTP transport: one stream of events from the server, a POST for each message to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};

use crate::provider::sse::SseDecoder;
use crate::provider::sse::SseError;

use super::http::{client, header_map};
use super::wire::{self, Incoming, Outgoing, WireError};

/// An open stream and where messages go.
pub(super) struct Sse {
    client: Client,
    headers: HashMap<HeaderName, HeaderValue>,
    endpoint: Url,
    stream: Stream,
}

impl Sse {
    /// Opens the stream and waits for the server to say where messages go.
    ///
    /// # Errors
    /// In words: what did not work.
    pub(super) async fn open(url: &str, headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let base = Url::parse(url).map_err(|error| format!("its address is no URL: {error}"))?;
        let (client, headers) = (client(url)?, header_map(headers)?);
        let mut request = client.get(base.clone()).header(ACCEPT, "text/event-stream");
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let response = request.send().await.map_err(|error| format!("it cannot be reached: {}", without_url(error)))?;
        if !response.status().is_success() {
            return Err(format!("it answered {}", response.status()));
        }
        let mut stream = Stream { response, decoder: SseDecoder::default(), ready: VecDeque::new(), endpoint: None };
        while stream.endpoint.is_none() {
            if !stream.read().await {
                return Err(
                    "it never said where messages go; if it speaks streamable HTTP, use the type \"http\"".into()
                );
            }
        }
        let endpoint = stream.endpoint.take().unwrap_or_default();
        let endpoint = base.join(&endpoint).map_err(|error| format!("its endpoint is no URL: {error}"))?;
        if endpoint.origin() != base.origin() {
            return Err("it wants messages sent to another host".into());
        }
        Ok(Self { client, headers, endpoint, stream })
    }
}

fn without_url(error: reqwest::Error) -> String {
    let error = error.without_url();
    std::error::Error::source(&error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

struct Stream {
    response: Response,
    decoder: SseDecoder,
    ready: VecDeque<Incoming>,
    endpoint: Option<String>,
}

impl Stream {
    /// Reads on; false at the end. Cancel safe.
    async fn read(&mut self) -> bool {
        let Ok(Some(chunk)) = self.response.chunk().await else { return false };
        let Self { decoder, ready, endpoint, .. } = self;
        let fed = decoder.feed::<SseError>(&chunk, &mut |event| {
            match event.name {
                "endpoint" if endpoint.is_none() => *endpoint = Some(event.data.trim().to_owned()),
                "message" | "" => ready.extend(wire::read(event.data.as_bytes())),
                _ => {}
            }
            Ok(())
        });
        fed.is_ok()
    }
}

impl Sse {
    /// Posts a message.
    pub(super) fn send(&self, item: &Outgoing) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        let mut request = self.client.post(self.endpoint.clone()).header(CONTENT_TYPE, "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = wire::write(item);
        async move {
            let sent = request.body(body?).send().await;
            let response = sent.map_err(|error| WireError(without_url(error)))?;
            if response.status().is_success() {
                Ok(())
            } else {
                Err(WireError(format!("the server answered {}", response.status())))
            }
        }
    }

    /// The next message; `None` at the end. Cancel safe.
    pub(super) async fn receive(&mut self) -> Option<Incoming> {
        loop {
            if let Some(message) = self.stream.ready.pop_front() {
                return Some(message);
            }
            if !self.stream.read().await {
                return None;
            }
        }
    }
}
