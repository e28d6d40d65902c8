//! The table of methods, and how one request is carried from its line to its answer.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::core::server::{ConnectionId, MethodResponse, Methods};
use jsonrpsee::{Extensions, MethodCallback, RpcModule};
use jsonrpsee_types::{Id, Params};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::rpc::RequestId;
use crate::session::{Delivered, Registry};

use super::client::Client;
use super::error::Error;
use super::handlers;

/// What handlers share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) sessions: Registry,
}

/// Given to each request beside its parameters.
#[derive(Clone, Debug)]
pub(super) struct RequestContext {
    /// Fires on `$/cancel_request`.
    pub(super) cancel: CancellationToken,
    after_answer: Arc<Mutex<Vec<Delivered>>>,
}

impl RequestContext {
    fn new(cancel: CancellationToken) -> Self {
        Self { cancel, after_answer: Arc::default() }
    }

    /// Keeps a guard until the answer is queued.
    pub(super) fn hold(&self, delivered: Delivered) {
        self.after_answer.lock().unwrap_or_else(PoisonError::into_inner).push(delivered);
    }

    /// The context of a request.
    pub(super) fn of(extensions: &Extensions) -> Result<&Self, Error> {
        extensions.get().ok_or_else(|| Error::internal("a request came without its context"))
    }
}

/// A request that is being worked on. It resolves to the rendered answer.
pub(super) type Working = BoxFuture<'static, Answer>;

/// A rendered answer and what waits for it to be queued.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) line: Vec<u8>,
    context: RequestContext,
}

impl Answer {
    /// Lets go on whatever waited for the answer to be queued.
    pub(super) fn queued(self) {
        self.context.after_answer.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The methods of the protocol.
pub(super) struct Dispatcher {
    methods: Methods,
    server: Arc<Server>,
}

impl Dispatcher {
    pub(super) fn new(server: Arc<Server>) -> Result<Self, RegisterMethodError> {
        let mut module = RpcModule::from_arc(Arc::clone(&server));
        handlers::register(&mut module)?;
        Ok(Self { methods: module.into(), server })
    }

    /// Starts a request. Its code runs up to its first wait before this returns, so that whatever must
    /// happen in wire order has happened.
    pub(super) fn start(
        &self,
        id: &RequestId,
        method: &str,
        params: Option<Box<RawValue>>,
        cancel: CancellationToken,
    ) -> Result<Answer, Working> {
        let context = RequestContext::new(cancel);
        if !self.server.client.features.is_set() && method != handlers::INITIALIZE {
            return Ok(Answer { line: error_line(id, &Error::not_initialized()), context });
        }
        let Some(callback) = self.methods.method(method) else {
            return Ok(Answer { line: error_line(id, &Error::method_not_found(method)), context });
        };
        let mut working = self.call(callback, id.clone(), params, context);
        match (&mut working).now_or_never() {
            Some(answer) => Ok(answer),
            None => Err(working),
        }
    }

    fn call(
        &self,
        callback: &MethodCallback,
        id: RequestId,
        params: Option<Box<RawValue>>,
        context: RequestContext,
    ) -> Working {
        let mut extensions = Extensions::new();
        extensions.insert(context.clone());
        let params = Params::new(params.as_deref().map(RawValue::get)).into_owned();
        let MethodCallback::Async(callback) = callback else {
            let line = error_line(&id, &Error::internal("the method is not asynchronous"));
            return std::future::ready(Answer { line, context }).boxed();
        };
        let future = callback(Id::Null, params, ConnectionId(0), usize::MAX, extensions);
        let cancel = context.cancel.clone();
        async move {
            let line = match AssertUnwindSafe(future).catch_unwind().await {
                // A request that was cancelled and had nothing to say ends as such.
                Ok(response) if cancel.is_cancelled() && is_internal_error(&response) => {
                    error_line(&id, &Error::request_cancelled())
                }
                Ok(response) => response_line(&id, response),
                Err(_) => {
                    tracing::error!(?id, "a handler panicked");
                    error_line(&id, &Error::internal("the request failed inside turnd; see the log"))
                }
            };
            Answer { line, context }
        }
        .boxed()
    }
}

fn is_internal_error(response: &MethodResponse) -> bool {
    response.as_error_code() == Some(turnd_protocol::error_code::REQUEST_CANCELLED)
}

/// What jsonrpsee puts before the rest of an answer to a request whose id it was told is null.
const NULL_ID_PREFIX: &str = r#"{"jsonrpc":"2.0","id":null,"#;

/// Puts the client's own id into an answer: jsonrpsee knows only some kinds of id.
fn response_line(id: &RequestId, response: MethodResponse) -> Vec<u8> {
    let json = response.into_json();
    match json.get().strip_prefix(NULL_ID_PREFIX) {
        Some(rest) => format!(r#"{{"jsonrpc":"2.0","id":{},{rest}"#, id.as_json()).into_bytes(),
        None => error_line(id, &Error::internal("an answer had an unexpected shape")),
    }
}

/// Renders an error answer.
pub(super) fn error_line(id: &RequestId, error: &Error) -> Vec<u8> {
    let mut body = serde_json::Map::new();
    body.insert("code".into(), error.code().into());
    body.insert("message".into(), error.message().into());
    if let Some(data) = error.data() {
        body.insert("data".into(), data.clone());
    }
    let body = serde_json::Value::Object(body);
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{body}}}"#, id.as_json()).into_bytes()
}
