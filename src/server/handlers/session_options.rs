//! `session/set_mode` and `session/set_config_option`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee_types::Params;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;
use turnd_protocol::acp;

use crate::config::Mode;
use crate::server::dispatch::Server;
use crate::server::error::Error;
use crate::server::{from_client, to_client};
use crate::session::port::SessionOptions;
use crate::session::{Command, SessionHandle};

use super::{closed, session};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetModeParams {
    session_id: Arc<str>,
    mode_id: String,
}

pub(super) async fn set_mode(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<acp::SetSessionModeResponse, Error> {
    let params: SetModeParams = from_client::params(&params)?;
    let session = session(&server, &params.session_id)?;
    change_mode(&session, "modeId", &params.mode_id).await?;
    Ok(acp::SetSessionModeResponse::new())
}

async fn change_mode(session: &SessionHandle, field: &str, id: &str) -> Result<SessionOptions, Error> {
    let mode = Mode::from_id(id).ok_or_else(|| Error::invalid_params(field, format!("there is no mode {id:?}")))?;
    let (reply, answer) = oneshot::channel();
    session.send(Command::SetMode(mode, reply))?;
    answer.await.map_err(closed)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetOptionParams {
    session_id: Arc<str>,
    config_id: String,
    value: Value,
}

pub(super) async fn set_config_option(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<acp::SetSessionConfigOptionResponse, Error> {
    let params: SetOptionParams = from_client::params(&params)?;
    let session = session(&server, &params.session_id)?;
    let Value::String(value) = params.value else {
        return Err(Error::invalid_params("value", "expected the id of one of the option's values"));
    };
    let options = match params.config_id.as_str() {
        to_client::MODE_OPTION => change_mode(&session, "value", &value).await?,
        to_client::MODEL_OPTION => change_model(&session, value).await?,
        other => return Err(Error::invalid_params("configId", format!("there is no option {other:?}"))),
    };
    Ok(acp::SetSessionConfigOptionResponse::new(to_client::options(&options)))
}

async fn change_model(session: &SessionHandle, model: String) -> Result<SessionOptions, Error> {
    let (reply, answer) = oneshot::channel();
    session.send(Command::SetModel(model, reply))?;
    let changed = answer.await.map_err(closed)?;
    changed.map_err(|error| Error::invalid_params("value", error))
}
