//! A service of tools over HTTP in the test's own process, with one tool that echoes.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

/// How it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Streamable HTTP, answers as a stream of events.
    Streamable,
    /// Streamable HTTP, answers as JSON.
    StreamableJson,
    /// The older transport: a stream, and a place for messages.
    Sse,
    /// The older transport, with the place for messages on another host.
    SseElsewhere,
}

/// The service; dropping it ends it.
pub(crate) struct Service {
    url: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    flavour: Flavour,
    authorizations: Mutex<Vec<String>>,
    /// Messages for the open streams.
    events: broadcast::Sender<String>,
}

impl Service {
    pub(crate) async fn start(flavour: Flavour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (events, _) = broadcast::channel(16);
        let shared = Arc::new(Shared { flavour, authorizations: Mutex::default(), events });
        let mut tasks = JoinSet::new();
        let serving = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Self { url, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The `Authorization` headers of all requests.
    pub(crate) fn authorizations(&self) -> Vec<String> {
        self.shared.authorizations.lock().unwrap().clone()
    }
}

/// Serves the requests of one connection.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if read.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let values = head.iter().skip(1).filter_map(|line| line.split_once(':'));
            values.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
        };
        shared.authorizations.lock().unwrap().push(header("authorization").unwrap_or_default());
        let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        if read.read_exact(&mut body).await.is_err() {
            return;
        }
        let is_post = head[0].starts_with("POST");
        let message = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        if !is_post && matches!(shared.flavour, Flavour::Sse | Flavour::SseElsewhere) {
            return stream_events(&mut write, &shared).await;
        }
        let response = if is_post { post(&shared, &message) } else { response(405, "", "") };
        if write.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn stream_events(write: &mut (impl AsyncWriteExt + Unpin), shared: &Shared) {
    let mut events = shared.events.subscribe();
    let endpoint = if shared.flavour == Flavour::Sse { "/messages?session=1" } else { "http://127.0.0.2:1/messages" };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nevent: endpoint\ndata: {endpoint}\n\n"
    );
    if write.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    while let Ok(message) = events.recv().await {
        if write.write_all(format!("event: message\ndata: {message}\n\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn post(shared: &Shared, message: &Value) -> String {
    let Some(answer) = answer(message) else { return response(202, "", "") };
    match shared.flavour {
        Flavour::Streamable => response(200, "text/event-stream", &format!("event: message\ndata: {answer}\n\n")),
        Flavour::StreamableJson => response(200, "application/json", &answer.to_string()),
        Flavour::Sse | Flavour::SseElsewhere => {
            shared.events.send(answer.to_string()).ok();
            response(202, "", "")
        }
    }
}

fn response(status: u16, kind: &str, body: &str) -> String {
    let kind = if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\nmcp-session-id: s1\r\n") };
    format!("HTTP/1.1 {status} X\r\n{kind}content-length: {}\r\n\r\n{body}", body.len())
}

/// The answer to a request; none to a notification.
fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "web", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{
            "name": "echo",
            "description": "Echoes words.",
            "inputSchema": {"type": "object", "properties": {"words": {"type": "string"}}},
        }]}),
        "tools/call" => {
            let words = message["params"]["arguments"]["words"].as_str().unwrap_or_default();
            json!({"content": [{"type": "text", "text": format!("you said {words}")}]})
        }
        _ => return Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
