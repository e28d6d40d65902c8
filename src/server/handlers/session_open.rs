//! `session/new`, `session/load`, `session/resume` and `session/fork`.

use std::path::PathBuf;
use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee_types::Params;
use serde::Deserialize;
use tokio::sync::oneshot;
use turnd_protocol::acp;

use crate::server::dispatch::{RequestContext, Server};
use crate::server::error::Error;
use crate::server::mcp_servers::{self, PassedServers};
use crate::server::{from_client, to_client};
use crate::session::{Command, OpenKind, OpenRequest, Opened, ReplayWish, SessionError};

use super::closed;

pub(super) async fn new(
    params: Params<'static>,
    server: Arc<Server>,
    extensions: Extensions,
) -> Result<acp::NewSessionResponse, Error> {
    let params: acp::NewSessionRequest = from_client::params(&params)?;
    let context = RequestContext::of(&extensions)?;
    let id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
    let folders = Folders::check(&params.cwd, &params.additional_directories)?;
    let servers = mcp_servers::read(params.mcp_servers);
    let opened = open(&server, Arc::clone(&id), OpenKind::New, folders, servers).await?;
    context.hold(opened.delivered);
    Ok(acp::NewSessionResponse::new(id)
        .modes(to_client::modes(opened.options.mode))
        .config_options(to_client::options(&opened.options)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredParams {
    session_id: Arc<str>,
    cwd: PathBuf,
    #[serde(default)]
    additional_directories: Vec<PathBuf>,
    mcp_servers: Option<Vec<serde_json::Value>>,
}

pub(super) async fn load(
    params: Params<'static>,
    server: Arc<Server>,
    extensions: Extensions,
) -> Result<acp::LoadSessionResponse, Error> {
    let params: StoredParams = from_client::params(&params)?;
    let opened = stored(&server, params, ReplayWish::Replay).await?;
    RequestContext::of(&extensions)?.hold(opened.delivered);
    Ok(acp::LoadSessionResponse::new()
        .modes(to_client::modes(opened.options.mode))
        .config_options(to_client::options(&opened.options)))
}

pub(super) async fn resume(
    params: Params<'static>,
    server: Arc<Server>,
    extensions: Extensions,
) -> Result<acp::ResumeSessionResponse, Error> {
    let params: StoredParams = from_client::params(&params)?;
    let opened = stored(&server, params, ReplayWish::Silent).await?;
    RequestContext::of(&extensions)?.hold(opened.delivered);
    Ok(acp::ResumeSessionResponse::new()
        .modes(to_client::modes(opened.options.mode))
        .config_options(to_client::options(&opened.options)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForkParams {
    session_id: Arc<str>,
    cwd: PathBuf,
    #[serde(default)]
    additional_directories: Vec<PathBuf>,
    #[serde(default)]
    mcp_servers: Vec<serde_json::Value>,
    #[serde(default)]
    cursor_id: Option<serde_json::Value>,
}

/// Copies a stored session, also while a turn of it runs: what that turn has not finished is closed in the copy.
pub(super) async fn fork(
    params: Params<'static>,
    server: Arc<Server>,
    extensions: Extensions,
) -> Result<acp::ForkSessionResponse, Error> {
    let params: ForkParams = from_client::params(&params)?;
    if params.cursor_id.is_some() {
        return Err(Error::invalid_params("cursorId", "sessions have no cursors here"));
    }
    let context = RequestContext::of(&extensions)?;
    let id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
    let folders = Folders::check(&params.cwd, &params.additional_directories)?;
    let servers = mcp_servers::read_values(params.mcp_servers);
    let opened = open(&server, Arc::clone(&id), OpenKind::Fork(params.session_id), folders, servers).await?;
    context.hold(opened.delivered);
    Ok(acp::ForkSessionResponse::new(id)
        .modes(to_client::modes(opened.options.mode))
        .config_options(to_client::options(&opened.options)))
}

async fn stored(server: &Server, params: StoredParams, wish: ReplayWish) -> Result<Opened, Error> {
    let folders = Folders::check(&params.cwd, &params.additional_directories)?;
    if let Some(session) = server.sessions.get(&params.session_id) {
        let (reply, answer) = oneshot::channel();
        let servers = params.mcp_servers.clone().map(|servers| mcp_servers::read_values(servers).specs);
        match session.send(Command::Reopen(wish, servers, reply)) {
            Ok(()) => return Ok(answer.await.map_err(closed)??),
            Err(SessionError::Closed) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let servers = mcp_servers::read_values(params.mcp_servers.unwrap_or_default());
    open(server, params.session_id, OpenKind::Stored(wish), folders, servers).await
}

async fn open(
    server: &Server,
    id: Arc<str>,
    kind: OpenKind,
    folders: Folders,
    servers: PassedServers,
) -> Result<Opened, Error> {
    let client = server.client.session(Arc::clone(&id));
    let Folders { cwd, additional_roots } = folders;
    let PassedServers { specs: mcp_servers, notices } = servers;
    let request = OpenRequest { id, kind, cwd, additional_roots, client, mcp_servers, notices };
    let (_, opening) = server.sessions.open(request);
    Ok(opening.await.map_err(closed)??)
}

/// The folders of a session, checked.
struct Folders {
    cwd: PathBuf,
    additional_roots: Vec<PathBuf>,
}

impl Folders {
    fn check(cwd: &std::path::Path, additional: &[PathBuf]) -> Result<Self, Error> {
        let cwd = from_client::folder("cwd", cwd)?;
        let roots = additional.iter().enumerate();
        let roots = roots.map(|(index, root)| from_client::folder(&format!("additionalDirectories[{index}]"), root));
        Ok(Self { cwd, additional_roots: roots.collect::<Result<_, _>>()? })
    }
}
