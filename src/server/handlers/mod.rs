//! One file per method. A handler does what must keep the wire's order before its first wait.

mod initialize;
mod session_close;
mod session_list;
mod session_open;
mod session_options;
mod session_prompt;
mod steering;

use std::sync::Arc;

use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use serde::Deserialize;
use turnd_protocol::ext;

use super::dispatch::Server;
use super::error::Error;
use crate::session::SessionHandle;

pub(super) use initialize::INITIALIZE;

/// Puts every method into the table.
pub(super) fn register(module: &mut RpcModule<Server>) -> Result<(), RegisterMethodError> {
    module.register_async_method(
        INITIALIZE,
        |params, server, _| async move { initialize::initialize(&params, &server) },
    )?;
    module.register_async_method("authenticate", |params, server, _| async move {
        initialize::authenticate(&params, &server)
    })?;
    module.register_async_method("session/new", session_open::new)?;
    module.register_async_method("session/load", session_open::load)?;
    module.register_async_method("session/resume", session_open::resume)?;
    module.register_async_method("session/fork", session_open::fork)?;
    module.register_async_method("session/list", session_list::list)?;
    module.register_async_method("session/delete", session_close::delete)?;
    module.register_async_method("session/close", session_close::close)?;
    module.register_async_method("session/prompt", session_prompt::prompt)?;
    module.register_async_method("session/set_mode", session_options::set_mode)?;
    module.register_async_method("session/set_config_option", session_options::set_config_option)?;
    module.register_async_method(ext::SESSION_STEERING, steering::steer)?;
    module.register_async_method(ext::REDIRECT, steering::redirect)?;
    module.register_async_method(ext::STATUS, steering::status)?;
    Ok(())
}

/// Obeys a notification. Unknown ones are ignored, as the protocol asks.
pub(super) fn notification(server: &Arc<Server>, method: &str, params: &str) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancel {
        session_id: String,
    }
    if method == "session/cancel" {
        match serde_json::from_str::<Cancel>(params) {
            Ok(cancel) => {
                if let Some(session) = server.sessions.get(&cancel.session_id) {
                    session.cancel();
                }
            }
            Err(error) => tracing::debug!(%error, "a cancel without a session"),
        }
    } else {
        tracing::debug!(method, "an unknown notification");
    }
}

/// The open session with this id.
fn session(server: &Server, id: &str) -> Result<SessionHandle, Error> {
    server.sessions.get(id).ok_or_else(|| Error::unknown_session(id))
}

/// What a request is answered with when the session went away meanwhile.
fn closed<T>(_: T) -> Error {
    crate::session::SessionError::Closed.into()
}
