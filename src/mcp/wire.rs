//! The transports as one, and messages as bytes. The protocol crate's code is large and generic: behind one type
//! and one pair of functions it is compiled once.

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::Client;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{StreamableHttpClientTransport, Transport};

use super::sse::Sse;
use super::stdio::Stdio;

/// A message of a server.
pub(super) type Incoming = RxJsonRpcMessage<RoleClient>;

/// A message to a server.
pub(super) type Outgoing = TxJsonRpcMessage<RoleClient>;

/// The message these bytes are, if they are one.
pub(super) fn read(bytes: &[u8]) -> Option<Incoming> {
    let message = serde_json::from_slice(bytes);
    if let Err(error) = &message {
        tracing::debug!(%error, bytes = bytes.len(), "an MCP server sent what is no message");
    }
    message.ok()
}

/// A message as bytes.
pub(super) fn write(message: &Outgoing) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(message).map_err(|error| WireError(error.to_string()))
}

/// Why a message could not be sent, in words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct WireError(pub(super) String);

/// The way to one server.
pub(super) enum Wire {
    /// A program.
    Stdio(Stdio),
    /// Streamable HTTP.
    Http(Box<StreamableHttpClientTransport<Client>>),
    /// The older HTTP.
    Sse(Box<Sse>),
}

impl Transport<RoleClient> for Wire {
    type Error = WireError;

    fn send(&mut self, item: Outgoing) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sent: BoxFuture<'static, Result<(), WireError>> = match self {
            Self::Stdio(stdio) => stdio.send(&item).boxed(),
            Self::Http(http) => {
                let sent = http.send(item);
                async move { sent.await.map_err(|error| WireError(super::connection::chain(&error))) }.boxed()
            }
            Self::Sse(sse) => sse.send(&item).boxed(),
        };
        sent
    }

    async fn receive(&mut self) -> Option<Incoming> {
        match self {
            Self::Stdio(stdio) => stdio.receive().await,
            Self::Http(http) => http.receive().await,
            Self::Sse(sse) => sse.receive().await,
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        match self {
            Self::Stdio(stdio) => stdio.close(),
            Self::Http(http) => http.close().await.map_err(|error| WireError(super::connection::chain(&error)))?,
            Self::Sse(_) => {}
        }
        Ok(())
    }
}
