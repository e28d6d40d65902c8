//! `session/list`.

use std::path::PathBuf;
use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee_types::Params;
use serde::Deserialize;
use serde_json::json;
use turnd_protocol::acp;

use crate::clock;
use crate::server::dispatch::Server;
use crate::server::error::Error;
use crate::server::from_client;
use crate::session::SessionError;
use crate::store::{Children, ListQuery, SessionRow, StoreError};

/// Sessions of one page. Their rows are short; a page of titles and paths stays well under a line.
const PAGE: usize = 50;

#[derive(Deserialize)]
struct ListParams {
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default, rename = "_meta")]
    meta: serde_json::Value,
}

impl ListParams {
    /// Child agents' sessions are listed only for whoever asks for them.
    fn children(&self) -> Children {
        match self.meta.pointer("/turnd/children") {
            Some(serde_json::Value::Bool(true)) => Children::Shown,
            _ => Children::Hidden,
        }
    }
}

pub(super) async fn list(
    params: Params<'static>,
    server: Arc<Server>,
    _: Extensions,
) -> Result<acp::ListSessionsResponse, Error> {
    let params: ListParams = from_client::params(&params)?;
    let children = params.children();
    let cwd = params.cwd.map(|cwd| std::fs::canonicalize(&cwd).unwrap_or(cwd).to_string_lossy().into_owned());
    let query = ListQuery { cwd, children, cursor: params.cursor, limit: PAGE };
    match server.sessions.host().store.list_sessions(query).await {
        Ok((rows, next)) => {
            let sessions = rows.into_iter().map(info).collect();
            Ok(acp::ListSessionsResponse::new(sessions).next_cursor(next))
        }
        Err(StoreError::BadCursor) => Err(Error::invalid_params("cursor", "it is not one of ours")),
        Err(error) => Err(SessionError::Store(error.to_string()).into()),
    }
}

fn info(row: SessionRow) -> acp::SessionInfo {
    let meta = row.lineage.zip(row.parent_id).map(|(lineage, parent)| {
        json!({ "turnd": { "lineage": lineage, "parentId": parent } }).as_object().cloned().unwrap_or_default()
    });
    acp::SessionInfo::new(row.id, row.cwd)
        .additional_directories(row.additional_roots.into_iter().map(PathBuf::from).collect::<Vec<_>>())
        .title(row.title)
        .updated_at(clock::iso8601(row.updated_at_ms))
        .meta(meta)
}
