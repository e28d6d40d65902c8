//! `session/prompt`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee_types::Params;
use turnd_protocol::acp;

use crate::server::dispatch::{RequestContext, Server};
use crate::server::error::Error;
use crate::server::{from_client, to_client};
use crate::session::PromptOutcome;
use crate::turn::TurnStatus;

use super::{closed, session};

/// Admits the prompt before the first wait, so that a cancel right behind it on the wire reaches it.
pub(super) async fn prompt(
    params: Params<'static>,
    server: Arc<Server>,
    extensions: Extensions,
) -> Result<acp::PromptResponse, Error> {
    let params: acp::PromptRequest = from_client::params(&params)?;
    let context = RequestContext::of(&extensions)?;
    let session = session(&server, &params.session_id.0)?;
    let parts = from_client::prompt(params.prompt)?;
    let (cancel, mut reply) = session.admit(parts)?;
    let reply = tokio::select! {
        biased;
        reply = &mut reply => reply,
        () = context.cancel.cancelled() => {
            cancel.cancel();
            reply.await
        }
    };
    let end = reply.map_err(closed)??;
    context.hold(end.delivered);
    match end.outcome {
        PromptOutcome::Turn(report) if report.status() == TurnStatus::Failed => Err(Error::of_failed_turn(&report)),
        PromptOutcome::Turn(report) => Ok(to_client::prompt_response(&report)),
        PromptOutcome::Obeyed => Ok(acp::PromptResponse::new(acp::StopReason::EndTurn)),
        PromptOutcome::NotStarted => Ok(acp::PromptResponse::new(acp::StopReason::Cancelled)),
    }
}
