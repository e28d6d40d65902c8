//! A connection to a server: opened over one of the transports, used for calls, watched for its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, PeerRequestOptions, RequestHandle, RunningServiceCancellationToken, ServiceError,
};
use rmcp::{Peer, RoleClient, serve_client};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::tool::RunContext;

use super::handler::{Handler, ProgressSlots};
use super::notes::words;
use super::server::Trouble;
use super::servers::Surroundings;
use super::spec::{Address, ServerSpec};
use super::wire::Wire;
use super::{http, sse, stdio};

/// Pages of a list of tools that are asked for; a server that always has another one must not keep us.
const MAX_PAGES: usize = 50;

/// Tools of one list that are looked at.
const MAX_ENTRIES: usize = 1_000;

/// A call's time limit is begun anew by its progress, but not beyond this many times the limit.
const MAX_EXTENSIONS: u32 = 10;

/// How long telling a server of a cancel may take. A turn waits for it, and a deaf server must not keep a turn.
const CANCEL_LIMIT: Duration = Duration::from_millis(40);

/// Characters of a server's error that are told.
const MAX_CAUSE_CHARS: usize = 400;

/// Why a call gave no result.
#[derive(Clone, Debug)]
pub(super) enum CallFailure {
    /// The server said so.
    Answered(String),
    /// It could not be asked.
    Unreachable(String),
    /// It was asked, and what came of it is unknown.
    CutOff(String),
}

/// An open connection. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    address: Address,
    slots: ProgressSlots,
    changed: Arc<Notify>,
    broken: Arc<Notify>,
}

/// Holds a connection open. Dropping it closes the connection and ends the server's process.
pub(super) struct Life {
    running: BoxFuture<'static, ()>,
    stop: Option<RunningServiceCancellationToken>,
    broken: Arc<Notify>,
    process: Option<stdio::Process>,
    address: Address,
}

/// Opens a connection to a server.
pub(super) async fn open(spec: &ServerSpec, around: &Surroundings) -> Result<(Connection, Life), Trouble> {
    let address = spec.address();
    let (wire, process) = match address {
        Address::Stdio { .. } => {
            let (stdio, process) = stdio::start(spec, around)?;
            (Wire::Stdio(stdio), Some(process))
        }
        Address::Http { url, headers } => {
            let http = http::streamable(url, headers);
            (Wire::Http(Box::new(http.map_err(|cause| Trouble { cause, is_final: true })?)), None)
        }
        Address::Sse { url, headers } => {
            let sse = sse::Sse::open(url, headers).await;
            (Wire::Sse(Box::new(sse.map_err(|cause| trouble(&cause, address))?)), None)
        }
    };
    serve(wire, process, spec, around).await
}

fn trouble(cause: &str, address: &Address) -> Trouble {
    Trouble { cause: words(cause, address, MAX_CAUSE_CHARS), is_final: false }
}

async fn serve(
    wire: Wire,
    mut process: Option<stdio::Process>,
    spec: &ServerSpec,
    around: &Surroundings,
) -> Result<(Connection, Life), Trouble> {
    let address = spec.address().clone();
    let (slots, changed, broken) = (ProgressSlots::default(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = Handler::new(spec, around, slots.clone(), Arc::clone(&changed));
    let running = match Box::pin(serve_client(handler, wire)).await {
        Ok(running) => running,
        Err(error) => {
            let own = refusal(&error);
            let cause = match (&mut process, &error) {
                // Its own answer says more than that it was ended after that.
                (_, ClientInitializeError::JsonRpcError(_)) | (None, _) => own,
                (Some(process), _) => process.obituary().await.unwrap_or(own),
            };
            return Err(trouble(&cause, &address));
        }
    };
    let peer = running.peer().clone();
    let stop = Some(running.cancellation_token());
    let running = async move { drop(running.waiting().await) }.boxed();
    let connection = Connection { peer, address: address.clone(), slots, changed, broken: Arc::clone(&broken) };
    Ok((connection, Life { running, stop, broken, process, address }))
}

/// Why a connection could not be begun, in words.
fn refusal(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => error.error.to_string(),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection before it answered".into(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it answered with error {}: {}", error.code.0, error.message)
        }
        other => chain(other),
    }
}

impl Life {
    /// Waits for the end of the connection, and says why it ended.
    pub(super) async fn ended(&mut self) -> String {
        tokio::select! {
            () = &mut self.running => {}
            () = self.broken.notified() => return "a request to it failed".into(),
        }
        let cause = match &mut self.process {
            Some(process) => process.obituary().await,
            None => None,
        };
        words(cause.as_deref().unwrap_or("it closed the connection"), &self.address, MAX_CAUSE_CHARS)
    }

    /// Closes the connection in good order.
    pub(super) async fn close(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.cancel();
            (&mut self.running).await;
        }
    }
}

impl Connection {
    /// Waits until the server says that its list of tools has changed.
    pub(super) async fn list_changed(&self) {
        self.changed.notified().await;
    }

    /// Every tool the server lists, as it says it.
    pub(super) async fn list_tools(&self) -> Result<Vec<Value>, String> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let page = match self.peer.send_request(request).await {
                Ok(ServerResult::ListToolsResult(page)) => serde_json::to_value(page).unwrap_or_default(),
                // A list with one entry that makes no sense is still a list.
                Ok(ServerResult::CustomResult(page)) => page.0,
                Ok(_) => return Err("its list of tools makes no sense".into()),
                Err(ServiceError::McpError(error)) if error.code.0 == METHOD_NOT_FOUND => return Ok(entries),
                Err(error) => return Err(words(&chain(&error), &self.address, MAX_CAUSE_CHARS)),
            };
            entries.extend(page.get("tools").and_then(Value::as_array).into_iter().flatten().cloned());
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if next.is_none() || next == cursor || entries.len() > MAX_ENTRIES {
                break;
            }
            cursor = next;
        }
        entries.truncate(MAX_ENTRIES);
        Ok(entries)
    }

    /// Calls a tool and waits for what comes of it. The server is told when the wait ends before its answer.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Duration,
        run: &RunContext,
    ) -> Result<Value, CallFailure> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle = tokio::select! {
            biased;
            () = run.cancel.cancelled() => return Err(CallFailure::CutOff("cancelled".into())),
            sent = sent => sent.map_err(|error| self.failure(&error))?,
        };
        let mut progress = self.slots.watch(&handle.progress_token);
        let latest = Instant::now() + limit * MAX_EXTENSIONS;
        let mut deadline = Instant::now() + limit;
        loop {
            tokio::select! {
                biased;
                () = run.cancel.cancelled() => {
                    give_up(handle, "the user cancelled").await;
                    return Err(CallFailure::CutOff("Cancelled; whether the call had an effect is unknown.".into()));
                }
                answer = &mut handle.rx => return match answer {
                    Ok(Ok(ServerResult::CallToolResult(result))) => Ok(serde_json::to_value(result).unwrap_or_default()),
                    // A result with one piece of content that makes no sense is still a result.
                    Ok(Ok(ServerResult::CustomResult(result))) => Ok(result.0),
                    Ok(Ok(ServerResult::EmptyResult(_))) => Ok(Value::Null),
                    Ok(Ok(_)) => Err(CallFailure::Answered("the server's answer is no result of a call".into())),
                    Ok(Err(error)) => Err(self.failure(&error)),
                    Err(_) => Err(CallFailure::Unreachable("the connection was closed".into())),
                },
                Some(text) = progress.next() => {
                    run.progress.show(words(&text, &self.address, MAX_CAUSE_CHARS));
                    deadline = latest.min(Instant::now() + limit);
                }
                () = tokio::time::sleep_until(deadline) => {
                    give_up(handle, "timed out").await;
                    let seconds = limit.as_secs();
                    return Err(CallFailure::CutOff(format!(
                        "No answer within {seconds} s; the call was called off, and whether it had an effect is unknown."
                    )));
                }
            }
        }
    }

    fn failure(&self, error: &ServiceError) -> CallFailure {
        match error {
            ServiceError::McpError(error) => CallFailure::Answered(words(
                &format!("error {}: {}", error.code.0, error.message),
                &self.address,
                4_000,
            )),
            ServiceError::TransportSend(error) => {
                self.broken.notify_one();
                CallFailure::Unreachable(words(&error.error.to_string(), &self.address, MAX_CAUSE_CHARS))
            }
            ServiceError::TransportClosed => CallFailure::Unreachable("the connection was closed".into()),
            other => CallFailure::Answered(words(&chain(other), &self.address, MAX_CAUSE_CHARS)),
        }
    }
}

/// JSON-RPC's code for a method that a server does not have.
const METHOD_NOT_FOUND: i32 = -32601;

/// Tells the server that nobody waits any more.
async fn give_up(handle: RequestHandle<RoleClient>, why: &str) {
    // A server that cannot be told will find out by itself.
    tokio::time::timeout(CANCEL_LIMIT, handle.cancel(Some(why.to_owned()))).await.ok();
}

/// An error with its causes, which say what really happened.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
