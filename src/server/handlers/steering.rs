//! `_session/steering`, `_turnd/redirect` and `_turnd/status`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee_types::Params;
use tokio::sync::oneshot;
use turnd_protocol::ext::{RedirectParams, StatusParams, StatusResult, SteeringParams, SteeringResult};

use crate::server::dispatch::Server;
use crate::server::error::Error;
use crate::server::from_client;
use crate::session::{Command, Steer};

use super::{closed, session};

pub(super) async fn steer(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<Answered<SteeringResult>, Error> {
    let params: SteeringParams = from_client::params(&params)?;
    let session = session(&server, &params.session_id.0)?;
    let wants_prompt_when_idle = params.wants_prompt_when_idle();
    let parts = from_client::prompt(params.prompt)?;
    let steer = Steer { parts, expected_turn_id: params.expected_turn_id, wants_prompt_when_idle };
    let (reply, answer) = oneshot::channel();
    session.send(Command::Steer(steer, reply))?;
    answer.await.map(Answered).map_err(closed)
}

pub(super) async fn redirect(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<Answered<SteeringResult>, Error> {
    let params: RedirectParams = from_client::params(&params)?;
    let session = session(&server, &params.session_id.0)?;
    let parts = from_client::prompt(params.prompt)?;
    let steer = Steer { parts, expected_turn_id: params.expected_turn_id, wants_prompt_when_idle: true };
    let (reply, answer) = oneshot::channel();
    session.send(Command::Redirect(steer, reply))?;
    answer.await.map(Answered).map_err(closed)
}

pub(super) async fn status(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<Answered<StatusResult>, Error> {
    let params: StatusParams = from_client::params(&params)?;
    let session = session(&server, &params.session_id.0)?;
    let (reply, answer) = oneshot::channel();
    session.send(Command::Status(reply))?;
    answer.await.map(Answered).map_err(closed)
}

/// A result of the extension. The protocol crate's types stay free of the server's traits.
#[derive(Clone)]
pub(super) struct Answered<T>(T);

impl<T: serde::Serialize> serde::Serialize for Answered<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
