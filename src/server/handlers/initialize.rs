//! `initialize` and `authenticate`.

use jsonrpsee_types::Params;
use serde::Deserialize;
use turnd_protocol::acp;

use crate::server::capabilities::{self, InitializeParams, KEY_METHOD};
use crate::server::dispatch::Server;
use crate::server::error::Error;
use crate::server::from_client;

/// The method that must come first.
pub(in crate::server) const INITIALIZE: &str = "initialize";

/// Answers at once: nothing is connected and nothing is started here.
pub(super) fn initialize(params: &Params<'_>, server: &Server) -> Result<acp::InitializeResponse, Error> {
    let params: InitializeParams = from_client::params(params)?;
    server.client.features.set(&params);
    Ok(capabilities::initialize_response(&server.sessions.host().config.sandbox))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthenticateParams {
    method_id: String,
}

/// The one method needs nothing done: the key is looked for when a session is opened.
pub(super) fn authenticate(params: &Params<'_>, server: &Server) -> Result<acp::AuthenticateResponse, Error> {
    let params: AuthenticateParams = from_client::params(params)?;
    if params.method_id != KEY_METHOD {
        return Err(Error::invalid_params("methodId", format!("there is no method {:?}", params.method_id)));
    }
    tracing::debug!(home = %server.sessions.host().config.home.display(), "authenticated by key");
    Ok(acp::AuthenticateResponse::new())
}
