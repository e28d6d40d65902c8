//! `session/close` and `session/delete`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee_types::Params;
use serde::Deserialize;
use turnd_protocol::acp;

use crate::server::dispatch::Server;
use crate::server::error::Error;
use crate::server::from_client;
use crate::session::SessionError;
use crate::store::{StoreError, Write};
use crate::tool::spill::Spill;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams {
    session_id: Arc<str>,
}

/// Cancels what runs, as `session/cancel` does and in wire order, and answers once the session is quiet.
pub(super) async fn close(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<acp::CloseSessionResponse, Error> {
    let params: SessionParams = from_client::params(&params)?;
    let session = server.sessions.open_or_closing(&params.session_id);
    let session = session.ok_or_else(|| Error::unknown_session(&params.session_id))?;
    session.close();
    session.ended().await;
    Ok(acp::CloseSessionResponse::new())
}

/// Deletes the session and all that is stored of it. One that never was is no error.
pub(super) async fn delete(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<acp::DeleteSessionResponse, Error> {
    let params: SessionParams = from_client::params(&params)?;
    if let Some(session) = server.sessions.open_or_closing(&params.session_id) {
        session.close();
        session.ended().await;
    }
    let host = server.sessions.host();
    if host.at_work.has(&params.session_id) {
        return Err(SessionError::AtWork(params.session_id).into());
    }
    let write = Write::DeleteSession { id: params.session_id.to_string() };
    match host.store.write(vec![write]).await {
        Ok(()) => {
            Spill::new(&host.config.home, &params.session_id).remove();
            Ok(acp::DeleteSessionResponse::new())
        }
        Err(StoreError::Owned { pid }) => Err(SessionError::Owned { id: params.session_id, pid }.into()),
        Err(error) => Err(SessionError::Store(error.to_string()).into()),
    }
}
