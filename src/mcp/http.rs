//! Streamable HTTP, and what both HTTP transports share.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::provider::http::tls;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Redirects followed, all on the same host.
const MAX_REDIRECTS: usize = 3;

/// The transport to a server.
///
/// # Errors
/// In words: a header that cannot be sent, TLS that cannot be set up.
pub(super) fn streamable(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransport<Client>, String> {
    let config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(header_map(headers)?);
    Ok(StreamableHttpClientTransport::with_client(client(url)?, config))
}

/// Headers as they are sent.
pub(super) fn header_map(headers: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let mut map = HashMap::new();
    for (name, value) in headers {
        let parsed = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
        let (name, mut value) = parsed.ok_or_else(|| format!("the header {name:?} cannot be sent"))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}

/// The client. Headers hold secrets, so redirects stay on the host that the user named.
pub(super) fn client(url: &str) -> Result<Client, String> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls()?)
        .redirect(Policy::custom(follow))
        .connect_timeout(CONNECT_LIMIT)
        .user_agent(concat!("turnd/", env!("CARGO_PKG_VERSION")));
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| format!("the connection cannot be set up: {error}"))
}

fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let is_same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if is_same && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

fn is_loopback(url: &str) -> bool {
    reqwest::Url::parse(url).ok().is_some_and(|url| match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    })
}
