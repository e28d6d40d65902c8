//! The only place that opens connections to providers.
//!
//! Clients are built when the first call needs one. Redirects are never followed: a key must not travel to a host
//! that nobody configured. Proxies of the environment are obeyed, but never for this machine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;

use crate::clock;
use crate::provider::allowance::Allowance;
use crate::provider::classify::{ErrorBody, Failure, classify};
use crate::provider::credentials::{Lease, process_env};
use crate::provider::models::MAX_LISTING;
use crate::provider::retry_after::{retry_after, retry_after_in};
use crate::provider::stream::{HttpStream, ModelStream};
use crate::provider::url::BaseUrl;
use crate::provider::{ApiMode, Endpoint, ErrorKind, ModelRequest, ProviderError, anthropic_messages, format};

/// The most of an error body that is read.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// How long an error body may take to arrive.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept; servers commonly close theirs after this or more.
const KEPT_ALIVE: Duration = Duration::from_secs(90);
/// How long a key that was told to slow down rests when nobody says how long.
const RATE_LIMIT_REST: Duration = Duration::from_secs(60);
/// How long a refused key rests.
const REFUSED_REST: Duration = Duration::from_secs(300);
/// How long a key of an account that cannot pay rests.
const BILLING_REST: Duration = Duration::from_secs(3600);
/// A wait that a person is told of in the error itself.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// Rough bytes of JSON per token, for telling a large request from a small one.
const BYTES_PER_TOKEN: u64 = 4;

/// The way to the network, shared by all sessions; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Http {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    clients: BTreeMap<ClientKey, Client>,
    /// When the last answer of a host ended, so that a kept connection may still stand.
    answered: BTreeMap<String, Instant>,
    /// What each provider last said about the account's allowance.
    allowances: BTreeMap<String, Allowance>,
}

/// What clients differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientKey {
    is_loopback: bool,
    connect: Duration,
}

impl Http {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn client(&self, endpoint: &Endpoint) -> Result<Client, String> {
        let is_loopback = BaseUrl::parse(&endpoint.base_url).is_some_and(|base_url| base_url.is_loopback());
        let key = ClientKey { is_loopback, connect: endpoint.timeouts.connect };
        if let Some(client) = self.lock().clients.get(&key) {
            return Ok(client.clone());
        }
        let client = build(key)?;
        self.lock().clients.insert(key, client.clone());
        Ok(client)
    }

    /// What this provider last said about the account's allowance.
    #[must_use]
    pub fn allowance(&self, provider: &str) -> Option<Allowance> {
        self.lock().allowances.get(provider).copied()
    }

    /// Tells that an answer ended, so that its connection may be kept.
    pub(super) fn note_answer(&self, base_url: &str) {
        self.lock().answered.insert(base_url.to_owned(), Instant::now());
    }

    /// True once after an answer: a kept connection may have been closed under the next request.
    fn may_hold_stale_connection(&self, base_url: &str) -> bool {
        self.lock().answered.remove(base_url).is_some_and(|at| at.elapsed() < KEPT_ALIVE)
    }
}

fn build(key: ClientKey) -> Result<Client, String> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls()?)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(key.connect)
        .pool_idle_timeout(KEPT_ALIVE)
        .user_agent(concat!("turnd/", env!("CARGO_PKG_VERSION")));
    if key.is_loopback {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| format!("cannot build the HTTP client: {}", chain(&error)))
}

/// Trusts the Mozilla roots, and those of `SSL_CERT_FILE` (a company's own, a proxy's).
pub(crate) fn tls() -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = process_env("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        let certificates =
            CertificateDer::pem_file_iter(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Endpoint {
    /// Sends one call and waits for the head of its answer. Nothing is retried here but one request that found
    /// its kept connection closed.
    ///
    /// Cancel-safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// The classified failure. The key does not rest yet: [`Recovery`](super::recovery::Recovery) sees to that.
    pub async fn open(&self, http: &Http, request: &ModelRequest<'_>) -> Result<ModelStream, ProviderError> {
        if let Some(script) = &self.script {
            return Ok(ModelStream::scripted(script.stream(request, &self.model)?));
        }
        let encoded = format::encode(self, request).zip(format::decoder(self));
        let Some((body, decoder)) = encoded else {
            let message = format!("this provider cannot be called with api_mode {}", self.mode.as_str());
            return Err(self.failed(ErrorKind::FormatError, None, &message));
        };
        let size = RequestSize {
            tokens: u64::try_from(body.len()).unwrap_or(u64::MAX) / BYTES_PER_TOKEN,
            messages: request.messages.len(),
        };
        let started = tokio::time::Instant::now();
        let lease = self.keys.lease(clock::now_ms()).await;
        let lease = lease.map_err(|error| self.failed(ErrorKind::Auth, None, &error.to_string()))?;
        let context = CallContext { endpoint: self.clone(), http: http.clone(), lease, size, request_id: None };
        let deadline = started + self.timeouts.first_event;
        let Ok(answer) = tokio::time::timeout_at(deadline, context.send(body)).await else {
            return Err(context.endpoint.failed(ErrorKind::Timeout, None, &silence(self.timeouts.first_event)));
        };
        let (response, context) = context.judge(answer?).await?;
        Ok(ModelStream::http(HttpStream::new(response, decoder, context, deadline)))
    }

    /// Fetches another path of the API, whole.
    pub(super) async fn get(&self, http: &Http, path: &str, limit: Duration) -> Result<Vec<u8>, ProviderError> {
        let lease = self.keys.lease(clock::now_ms()).await;
        let lease = lease.map_err(|error| self.failed(ErrorKind::Auth, None, &error.to_string()))?;
        let refused = |message: String| self.failed(ErrorKind::FormatError, None, &message);
        let client = http.client(self).map_err(refused)?;
        let headers = self.headers(lease.as_ref()).map_err(refused)?;
        let size = RequestSize { tokens: 0, messages: 0 };
        let context = CallContext { endpoint: self.clone(), http: http.clone(), lease, size, request_id: None };
        let fetch = async {
            let sent = client.get(format::url(self, path)).headers(headers).send().await;
            let response = sent.map_err(|error| context.transport_failed(&error))?;
            let (mut response, context) = context.judge(response).await?;
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(|error| context.transport_failed(&error))? {
                body.extend_from_slice(&chunk);
                if body.len() > MAX_LISTING {
                    return Err(context.failed(ErrorKind::InvalidResponse, "the answer is too long"));
                }
            }
            Ok(body)
        };
        match tokio::time::timeout(limit, fetch).await {
            Ok(result) => result,
            Err(_) => Err(self.failed(ErrorKind::Timeout, None, &silence(limit))),
        }
    }

    /// An error of this endpoint, cleaned of secrets.
    pub(super) fn failed(&self, kind: ErrorKind, status: Option<u16>, message: &str) -> ProviderError {
        let clean = self.keys.redactor().clean(message);
        ProviderError {
            kind,
            status,
            message: clean.chars().take(500).collect(),
            retry_after: None,
            request_id: None,
            key: None,
            provider: self.provider.clone(),
            model: self.model.clone(),
        }
    }

    /// Puts the key to rest after a failure that is about the key.
    pub(super) fn rest_key(&self, error: &ProviderError) {
        let Some(mark) = error.key else { return };
        let now_ms = clock::now_ms();
        let until = |rest: Duration| now_ms.saturating_add(i64::try_from(rest.as_millis()).unwrap_or(i64::MAX));
        match error.kind {
            ErrorKind::RateLimit => self.keys.rest(mark, until(error.retry_after.unwrap_or(RATE_LIMIT_REST))),
            ErrorKind::Billing => self.keys.rest(mark, until(BILLING_REST)),
            ErrorKind::Auth => self.keys.refuse(mark, until(REFUSED_REST)),
            _ => {}
        }
    }

    fn headers(&self, lease: Option<&Lease>) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
        let is_messages = self.mode == ApiMode::AnthropicMessages;
        if is_messages {
            headers.insert("anthropic-version", HeaderValue::from_static(anthropic_messages::API_VERSION));
            if let Some(beta) = anthropic_messages::beta_header(self) {
                headers.insert("anthropic-beta", HeaderValue::from_static(beta));
            }
        }
        if let Some(lease) = lease {
            let key = lease.secret.expose_secret();
            let is_own_server = self.base_url == "https://api.anthropic.com";
            let secret = |text: String| {
                let mut value =
                    HeaderValue::try_from(text).map_err(|_| "the key has characters no key has".to_owned())?;
                value.set_sensitive(true);
                Ok::<_, String>(value)
            };
            if is_messages {
                headers.insert("x-api-key", secret(key.to_owned())?);
            }
            // Servers that copy the Messages format read one or the other.
            if !is_messages || !is_own_server {
                headers.insert(AUTHORIZATION, secret(format!("Bearer {key}"))?);
            }
        }
        for (name, value) in &self.headers {
            let invalid = || format!("the configured header `{name}` is not valid");
            let name = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
            headers.insert(name, HeaderValue::try_from(value.as_str()).map_err(|_| invalid())?);
        }
        Ok(headers)
    }
}

/// How large a request is.
#[derive(Clone, Copy, Debug)]
struct RequestSize {
    tokens: u64,
    messages: usize,
}

/// What a failure anywhere in a call has to know.
#[derive(Debug)]
pub(super) struct CallContext {
    pub(super) endpoint: Endpoint,
    pub(super) http: Http,
    lease: Option<Lease>,
    size: RequestSize,
    request_id: Option<String>,
}

impl CallContext {
    async fn send(&self, body: Vec<u8>) -> Result<Response, ProviderError> {
        let endpoint = &self.endpoint;
        let refused = |message: String| endpoint.failed(ErrorKind::FormatError, None, &message);
        let client = self.http.client(endpoint).map_err(refused)?;
        let headers = endpoint.headers(self.lease.as_ref()).map_err(refused)?;
        let url = format::url(endpoint, format::path(endpoint.mode));
        let body = bytes_of(body);
        let post = || client.post(&url).headers(headers.clone()).body(body.clone()).send();
        let error = match post().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let is_stale =
            !error.is_connect() && !error.is_timeout() && self.http.may_hold_stale_connection(&endpoint.base_url);
        if is_stale {
            tracing::debug!(provider = endpoint.provider, "a kept connection was closed, sending again");
            return post().await.map_err(|error| self.transport_failed(&error));
        }
        Err(self.transport_failed(&error))
    }

    /// Takes the answer's head: a stream to read, or the failure it stands for.
    async fn judge(mut self, mut response: Response) -> Result<(Response, Self), ProviderError> {
        let id = ["x-request-id", "request-id"].iter().find_map(|name| response.headers().get(*name));
        self.request_id = id.and_then(|id| id.to_str().ok()).map(|id| id.chars().take(200).collect());
        if let Some(allowance) = Allowance::read(response.headers(), clock::now_ms()) {
            tracing::debug!(provider = self.endpoint.provider, ?allowance, "the account's allowance");
            self.http.lock().allowances.insert(self.endpoint.provider.clone(), allowance);
        }
        let status = response.status();
        if status.is_success() {
            return match unread_encoding(response.headers()) {
                Some(encoding) => {
                    let message = format!("the server compresses its answer in a way nobody asked for ({encoding})");
                    Err(self.failed(ErrorKind::InvalidResponse, &message))
                }
                None => Ok((response, self)),
            };
        }
        let wait = retry_after(response.headers(), clock::now_ms());
        let location = response.headers().get("location").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = read_error_body(&mut response).await;
        let mut error = self.reported(Some(status.as_u16()), &body);
        error.retry_after = wait.or(error.retry_after);
        if let Some(wait) = error.retry_after.filter(|wait| *wait >= LONG_WAIT) {
            let said: String = error.message.chars().take(450).collect();
            error.message = format!("{said} (the provider asks to wait {})", in_words(wait));
        }
        if let Some(location) = location.filter(|_| status.is_redirection()) {
            let message = format!("HTTP {status}: redirected to {location}; set base_url to where the server is");
            error.message = self.endpoint.failed(error.kind, None, &message).message;
        }
        Err(error)
    }

    /// The error that a server reported, in an error answer or inside a stream.
    pub(super) fn reported(&self, status: Option<u16>, body: &str) -> ProviderError {
        let endpoint = &self.endpoint;
        let parsed = ErrorBody::parse(body);
        let kind = classify(&Failure {
            status,
            body,
            cause: "",
            request_tokens: self.size.tokens,
            context_window: endpoint.window(),
            messages: self.size.messages,
        });
        let status = status.filter(|status| *status >= 300).or_else(|| parsed.status());
        let name = status.and_then(|status| reqwest::StatusCode::from_u16(status).ok());
        let said = if parsed.message.is_empty() { parsed.code.as_str() } else { parsed.message.as_str() };
        let message = match name {
            Some(status) if said.is_empty() => format!("HTTP {status}"),
            Some(status) => format!("HTTP {}: {said}", status.as_str()),
            None if said.is_empty() => "the provider reported an error without a text".to_owned(),
            None => said.to_owned(),
        };
        let key = self.lease.as_ref().map(|lease| lease.mark);
        let is_about_load = matches!(kind, ErrorKind::RateLimit | ErrorKind::UpstreamRateLimit | ErrorKind::Overloaded);
        let retry_after = if is_about_load { retry_after_in(body) } else { None };
        ProviderError {
            retry_after,
            request_id: self.request_id.clone(),
            key,
            ..endpoint.failed(kind, status, &message)
        }
    }

    /// An error of our own making about this call.
    pub(super) fn failed(&self, kind: ErrorKind, message: &str) -> ProviderError {
        ProviderError { request_id: self.request_id.clone(), ..self.endpoint.failed(kind, None, message) }
    }

    fn transport_failed(&self, error: &reqwest::Error) -> ProviderError {
        let cause = chain(error);
        let kind = classify(&Failure { cause: &cause, ..Failure::default() });
        let server = BaseUrl::parse(&self.endpoint.base_url).map(|url| url.text()).unwrap_or_default();
        let what = if error.is_connect() { "cannot reach" } else { "lost the connection to" };
        self.failed(kind, &format!("{what} {server}: {cause}"))
    }
}

/// The text of a timeout.
pub(super) fn silence(limit: Duration) -> String {
    format!("the provider sent nothing for {} s", limit.as_secs_f64())
}

/// The compression of a body that is still compressed.
fn unread_encoding(headers: &HeaderMap) -> Option<&str> {
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then_some(encoding)
}

/// A long wait for a person.
fn in_words(wait: Duration) -> String {
    let minutes = wait.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2_880 => format!("{} hours", minutes / 60),
        2_880..525_600 => format!("{} days", minutes / 1_440),
        _ => "more than a year".to_owned(),
    }
}

/// An error and all its causes on one line, without the URL, which may hold a key.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let text = text.split(" for url (").next().unwrap_or(&text).to_owned();
        if parts.last() != Some(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}

/// Shared bytes, so that sending a body twice does not copy it.
fn bytes_of(body: Vec<u8>) -> impl Into<reqwest::Body> + Clone {
    tokio_util::bytes::Bytes::from(body)
}

/// At most the first part of an error body; what cannot be read in time is left out.
async fn read_error_body(response: &mut Response) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = MAX_ERROR_BODY.saturating_sub(body.len());
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if body.len() >= MAX_ERROR_BODY {
                return;
            }
        }
    };
    // What came before the time was up is used.
    let _in_time = tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await.is_ok();
    // Compressed without saying so, or no text at all.
    if body.contains(&0) {
        return String::new();
    }
    String::from_utf8_lossy(&body).into_owned()
}
