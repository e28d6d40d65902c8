//! The bytes of HTTP/1.1, as far as the scripted model server needs them.

use std::io;

use serde_json::{Map, Value};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// A request, read whole.
#[derive(Debug)]
pub(super) struct Request {
    /// For example `POST`.
    pub(super) method: String,
    /// With its query.
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: Value,
    /// The body.
    pub(super) body: Vec<u8>,
}

/// A harness reads what the agent under test sends it, so it bounds that too.
const MAX_BODY: usize = 256 << 20;

/// Reads the next request; `None` at the end of the connection.
pub(super) async fn read_request(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = Map::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().into());
    }
    let header = |name: &str| headers.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut body = Vec::new();
    if header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        read_chunks(stream, &mut body).await?;
    } else {
        read_exactly(stream, &mut body, header("content-length").parse().unwrap_or(0)).await?;
    }
    Ok(Some(Request { method, path, headers: Value::Object(headers), body }))
}

async fn read_chunks(stream: &mut (impl AsyncBufRead + Unpin), body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        read_exactly(stream, body, size).await?;
        stream.read_line(&mut String::new()).await?;
        if size == 0 {
            return Ok(());
        }
    }
}

async fn read_exactly(stream: &mut (impl AsyncBufRead + Unpin), body: &mut Vec<u8>, size: usize) -> io::Result<()> {
    if body.len().saturating_add(size) > MAX_BODY {
        return Err(io::Error::other("the request is too large"));
    }
    let begin = body.len();
    body.resize(begin + size, 0);
    stream.read_exact(body.get_mut(begin..).unwrap_or_default()).await?;
    Ok(())
}

/// A whole response. A string body is sent as text, everything else as JSON.
pub(super) fn response(status: u16, headers: &[(&str, &str)], body: &Value) -> Vec<u8> {
    let (kind, body) = match body {
        Value::String(text) => ("text/plain", text.clone()),
        other => ("application/json", other.to_string()),
    };
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head.push_str(&format!("content-type: {kind}\r\n"));
    }
    push_headers(&mut head, headers);
    [head.as_bytes(), body.as_bytes()].concat()
}

/// The head of a stream in chunks.
pub(super) fn stream_head(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = String::from("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        head.push_str("content-type: text/event-stream\r\n");
    }
    push_headers(&mut head, headers);
    head.into_bytes()
}

fn push_headers(head: &mut String, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
}

/// One chunk of a stream; an empty one ends it.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
