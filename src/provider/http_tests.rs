//! Calls over real sockets on this machine, against a server that misbehaves to order.

mod server;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::SecretString;

use super::credentials::KeyRing;
use super::endpoint::tests::endpoint;
use super::http::Http;
use super::redact::Redactor;
use super::{Endpoint, ErrorKind, ModelEvent, ModelReply, ModelRequest, ProviderError};
use crate::message::Message;

use server::{
    BEAT, Chunk, Close, DONE, Forever, HEAD, Hang, KEY, Raw, STOP, Server, TEXT, chunks, plain, text, whole_answer,
};

type Outcome = (Vec<ModelEvent>, Result<ModelReply, ProviderError>);

async fn call(endpoint: &Endpoint, http: &Http) -> Outcome {
    let messages = [Message::user("hello")];
    let request =
        ModelRequest { system: "be kind", messages: &messages, tools: &[], max_output_tokens: None, session_id: "s" };
    let mut events = Vec::new();
    let mut stream = match endpoint.open(http, &request).await {
        Ok(stream) => stream,
        Err(error) => return (events, Err(error)),
    };
    loop {
        match stream.next(&mut events).await {
            Ok(None) => {}
            Ok(Some(reply)) => return (events, Ok(reply)),
            Err(error) => return (events, Err(error)),
        }
    }
}

async fn error_of(server: &Server) -> ProviderError {
    call(&server.endpoint(), &Http::default()).await.1.unwrap_err()
}

#[tokio::test]
async fn an_answer_is_streamed_and_the_connection_is_used_again() {
    let server = Server::start(vec![whole_answer(), whole_answer()]);
    let (endpoint, http) = (server.endpoint(), Http::default());
    for _ in 0..2 {
        let (events, reply) = call(&endpoint, &http).await;
        assert_eq!(events, [ModelEvent::Text("hi".into())]);
        assert_eq!(reply.unwrap().message.text, "hi");
    }
    assert_eq!(*server.connections.lock().unwrap(), 1);
    let request = server.requests().remove(0);
    assert!(request.starts_with("post /v1/chat/completions http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: bearer {KEY}\r\n")), "{request}");
    assert!(request.ends_with(
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hello"}]}"#
    ), "{request}");
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_costs_one_silent_request() {
    let server = Server::start(vec![whole_answer(), vec![Close], whole_answer()]);
    let (endpoint, http) = (server.endpoint(), Http::default());
    call(&endpoint, &http).await.1.unwrap();
    call(&endpoint, &http).await.1.unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_new_connection_that_is_closed_is_a_failure_at_once() {
    let server = Server::start(vec![vec![Close], whole_answer()]);
    assert_eq!(error_of(&server).await.kind, ErrorKind::Timeout);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_refused_connection_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let endpoint = Endpoint { base_url: url, ..endpoint("p", "m") };
    let error = call(&endpoint, &Http::default()).await.1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.message.starts_with(&format!("cannot reach {}: ", endpoint.base_url)), "{error}");
    assert!(error.message.to_lowercase().contains("connection refused"), "{error}");
}

#[tokio::test]
async fn a_broken_stream_is_truncated_unless_it_had_its_end() {
    let mut broken = chunks(&[TEXT]);
    broken.push(Close);
    let (events, reply) = call(&Server::start(vec![broken]).endpoint(), &Http::default()).await;
    assert_eq!(events, [ModelEvent::Text("hi".into())]);
    let error = reply.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TruncatedStream);
    assert!(error.message.starts_with("the answer broke off: "), "{error}");

    let clean_end = chunks(&[TEXT, ""]);
    assert_eq!(error_of(&Server::start(vec![clean_end])).await.kind, ErrorKind::TruncatedStream);

    let cut_event = chunks(&[TEXT, "data: {\"choi", ""]);
    assert_eq!(error_of(&Server::start(vec![cut_event])).await.kind, ErrorKind::TruncatedStream);

    let mut after_finish = chunks(&[TEXT, STOP]);
    after_finish.push(Close);
    let reply = call(&Server::start(vec![after_finish]).endpoint(), &Http::default()).await.1.unwrap();
    assert_eq!(reply.message.text, "hi");
}

#[tokio::test]
async fn the_end_marker_ends_the_call_though_the_connection_stays() {
    let mut steps = chunks(&[TEXT, STOP, DONE]);
    steps.push(Hang);
    let started = Instant::now();
    call(&Server::start(vec![steps]).endpoint(), &Http::default()).await.1.unwrap();
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn silence_and_heartbeats_alike_end_the_call() {
    let silent_head = vec![Hang];
    let heartbeats_first = vec![text(HEAD), Forever(BEAT)];
    let mut heartbeats_later = chunks(&[TEXT]);
    heartbeats_later.push(Forever(BEAT));
    let mut silence_later = chunks(&[TEXT]);
    silence_later.push(Hang);
    for steps in [silent_head, heartbeats_first, heartbeats_later, silence_later] {
        let server = Server::start(vec![steps]);
        let mut endpoint = server.endpoint();
        endpoint.timeouts.first_event = Duration::from_millis(200);
        endpoint.timeouts.idle = Duration::from_millis(200);
        let started = Instant::now();
        let error = call(&endpoint, &Http::default()).await.1.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        assert_eq!(error.message, "the provider sent nothing for 0.2 s");
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test]
async fn neither_blanks_nor_a_trickle_keep_a_whole_body_alive() {
    for (forever, first_event, expect) in
        [(" \n", 60_000, "the provider sent nothing for 0.2 s"), ("1", 200, "the answer was not complete after 0.2 s")]
    {
        let mut steps = chunks(&["\n\n", "{\"choices\":["]);
        steps.push(Forever(forever));
        let server = Server::start(vec![steps]);
        let mut endpoint = server.endpoint();
        endpoint.timeouts.first_event = Duration::from_millis(first_event);
        endpoint.timeouts.idle = Duration::from_millis(200);
        let started = Instant::now();
        let error = call(&endpoint, &Http::default()).await.1.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Timeout, expect));
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test]
async fn heartbeats_before_an_answer_do_no_harm() {
    let heartbeat = ": PROCESSING\n\n";
    let steps = chunks(&[heartbeat, heartbeat, TEXT, heartbeat, STOP, DONE, ""]);
    call(&Server::start(vec![steps]).endpoint(), &Http::default()).await.1.unwrap();
}

#[tokio::test]
async fn an_error_answer_becomes_one_classified_error() {
    let body = r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#;
    let headers = "retry-after: 7\r\nx-request-id: req_1\r\n";
    let error = error_of(&Server::start(vec![plain("429 Too Many Requests", headers, body)])).await;
    assert_eq!((error.kind, error.status), (ErrorKind::RateLimit, Some(429)));
    assert_eq!(error.message, "HTTP 429: slow down");
    assert_eq!((error.retry_after, error.request_id.as_deref()), (Some(Duration::from_secs(7)), Some("req_1")));
}

#[tokio::test]
async fn an_error_inside_a_stream_is_classified_like_any_other() {
    let steps = chunks(&["data: {\"error\":{\"message\":\"quota\",\"code\":429}}\n\n", ""]);
    let error = error_of(&Server::start(vec![steps])).await;
    assert_eq!((error.kind, error.status), (ErrorKind::RateLimit, Some(429)));
    assert!(error.message.contains("quota"));
}

#[tokio::test]
async fn an_endless_error_body_is_not_read_to_its_end() {
    let mut steps = vec![text("HTTP/1.1 500 Internal Server Error\r\ntransfer-encoding: chunked\r\n\r\n")];
    steps.extend(vec![Chunk("x".repeat(32 * 1024)); 8]);
    steps.push(Hang);
    let started = Instant::now();
    let error = error_of(&Server::start(vec![steps])).await;
    assert_eq!(error.kind, ErrorKind::ServerError);
    assert!(error.message.len() <= 600 && started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn no_secret_survives_in_an_error() {
    let body = format!(
        r#"{{"error":{{"message":"bad header 'Authorization: Bearer {KEY}' for http://h/v1?key=sk-other-abcdef123456"}}}}"#
    );
    let error = error_of(&Server::start(vec![plain("400 Bad Request", "", &body)])).await;
    assert!(!error.message.contains(KEY) && !error.message.contains("sk-other"), "{error}");
    assert!(error.message.contains("bad header"));
}

#[tokio::test]
async fn a_redirect_is_an_error_and_the_key_stays_here() {
    let other = Server::start(vec![whole_answer()]);
    let location = format!("location: {}\r\n", other.url);
    let error = error_of(&Server::start(vec![plain("307 Temporary Redirect", &location, "")])).await;
    assert_eq!(error.kind, ErrorKind::FormatError);
    assert!(error.message.contains("set base_url"), "{error}");
    assert_eq!(*other.connections.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_refused_key_rests_and_the_next_one_is_used() {
    let refusal = r#"{"error":{"message":"Incorrect API key provided"}}"#;
    let server = Server::start(vec![plain("401 Unauthorized", "", refusal), whole_answer()]);
    let keys = ["test-key-first", "test-key-second"].map(SecretString::from).to_vec();
    let keys = Arc::new(KeyRing::new("p", keys, None, Redactor::default()));
    let endpoint = Endpoint { keys, ..server.endpoint() };
    let http = Http::default();
    let error = call(&endpoint, &http).await.1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Auth);
    endpoint.rest_key(&error);
    call(&endpoint, &http).await.1.unwrap();
    let requests = server.requests();
    assert!(requests[0].contains("test-key-first") && requests[1].contains("test-key-second"));
}

#[tokio::test]
async fn a_whole_json_body_is_an_answer_and_a_web_page_is_none() {
    let body = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let server = Server::start(vec![plain("200 OK", "content-type: application/json\r\n", body)]);
    let (events, reply) = call(&server.endpoint(), &Http::default()).await;
    assert_eq!((events, reply.unwrap().message.text), (vec![ModelEvent::Text("hi".into())], "hi".to_owned()));

    let page = Server::start(vec![plain("200 OK", "content-type: text/html\r\n", "<html>log in</html>")]);
    let error = error_of(&page).await;
    assert_eq!(error.kind, ErrorKind::InvalidResponse);
    assert!(error.message.contains("base_url"), "{error}");

    let marked = Server::start(vec![plain("200 OK", "", &format!("\u{feff}{body}"))]);
    assert_eq!(call(&marked.endpoint(), &Http::default()).await.1.unwrap().message.text, "hi");

    let garbage = Server::start(vec![plain("200 OK", "", "lorem ipsum")]);
    assert_eq!(error_of(&garbage).await.kind, ErrorKind::TruncatedStream);
}

#[tokio::test]
async fn a_compression_nobody_asked_for_is_named() {
    let answer = plain("200 OK", "content-encoding: br\r\n", "\u{b}\u{2}");
    let error = error_of(&Server::start(vec![answer])).await;
    assert_eq!(error.kind, ErrorKind::InvalidResponse);
    assert!(error.message.ends_with("nobody asked for (br)"), "{error}");

    let refusal = plain("400 Bad Request", "", "\u{1f}\u{b}\0\0");
    assert_eq!(error_of(&Server::start(vec![refusal])).await.message, "HTTP 400 Bad Request");
}

#[tokio::test]
async fn a_compressed_stream_is_read() {
    let body = gzip_stored(format!("{TEXT}{STOP}{DONE}").as_bytes());
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    let server = Server::start(vec![vec![text(&head), Raw(body)]]);
    assert_eq!(call(&server.endpoint(), &Http::default()).await.1.unwrap().message.text, "hi");
}

/// A gzip file of one stored block.
fn gzip_stored(data: &[u8]) -> Vec<u8> {
    let crc = !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    });
    let length = u16::try_from(data.len()).unwrap();
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    file.extend(length.to_le_bytes());
    file.extend((!length).to_le_bytes());
    file.extend(data);
    file.extend(crc.to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection_at_once() {
    let mut steps = chunks(&[TEXT]);
    steps.push(Hang);
    let server = Server::start(vec![steps]);
    let endpoint = server.endpoint();
    let messages = [Message::user("hello")];
    let request = ModelRequest { system: "", messages: &messages, tools: &[], max_output_tokens: None, session_id: "" };
    let mut stream = endpoint.open(&Http::default(), &request).await.unwrap();
    let mut events = Vec::new();
    assert_eq!(stream.next(&mut events).await.unwrap(), None);
    // A read that is given up loses nothing and leaves the stream usable.
    let given_up = tokio::time::timeout(Duration::from_millis(20), stream.next(&mut events)).await;
    assert!(given_up.is_err());
    drop(stream);
    let dropped = Instant::now();
    let closed = tokio::task::spawn_blocking(move || server.closed.recv_timeout(Duration::from_secs(40)));
    assert!(closed.await.unwrap().unwrap().saturating_duration_since(dropped) < Duration::from_secs(20));
}

#[tokio::test]
async fn what_is_ready_at_once_is_handed_on_at_once() {
    let many: String = (0..50)
        .map(|n| {
            let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{n} \"}}}}]}}\n\n");
            format!("{:x}\r\n{event}\r\n", event.len())
        })
        .collect();
    let mut steps = vec![text(&format!("{HEAD}{many}"))];
    steps.extend([Chunk(STOP.into()), Chunk(DONE.into()), Chunk(String::new())]);
    let (events, reply) = call(&Server::start(vec![steps]).endpoint(), &Http::default()).await;
    assert!(events.len() < 10, "50 pieces of one read came as {} events", events.len());
    assert!(reply.unwrap().message.text.ends_with("48 49 "));
}

#[tokio::test]
async fn a_local_server_is_asked_for_its_window() {
    use super::recovery::FallbackChain;
    let listing = r#"{"object":"list","data":[{"id":"m","meta":{"n_ctx":8192}}]}"#;
    let server = Server::start(vec![plain("200 OK", "content-type: application/json\r\n", listing)]);
    let own = Endpoint { is_window_assumed: true, provider: "llamacpp".into(), ..server.endpoint() };
    let chain = FallbackChain::new(own, Vec::new());
    for _ in 0..2 {
        super::models::learn_window(&chain, &Http::default()).await;
        assert_eq!(chain.current().window(), 8192);
    }
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].starts_with("get /v1/models http/1.1\r\n"));
}

#[tokio::test]
async fn a_server_whose_window_is_known_or_that_is_not_the_users_own_is_never_asked_for_it() {
    use super::recovery::FallbackChain;
    let server = Server::start(vec![whole_answer()]);
    let known = Endpoint { provider: "llamacpp".into(), ..server.endpoint() };
    let foreign = Endpoint { is_window_assumed: true, ..server.endpoint() };
    for endpoint in [known, foreign] {
        super::models::learn_window(&FallbackChain::new(endpoint, Vec::new()), &Http::default()).await;
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn words_between_events_are_passed_over_and_counted_and_damaged_events_are_not() {
    let noisy = Server::start(vec![chunks(&["data: ping\n\n", TEXT, "data: \"x\"\n\n", STOP, DONE, ""])]);
    let messages = [Message::user("hello")];
    let request =
        ModelRequest { system: "", messages: &messages, tools: &[], max_output_tokens: None, session_id: "s" };
    let mut stream = noisy.endpoint().open(&Http::default(), &request).await.unwrap();
    let mut events = Vec::new();
    let reply = loop {
        if let Some(reply) = stream.next(&mut events).await.unwrap() {
            break reply;
        }
    };
    assert_eq!((reply.message.text.as_str(), stream.passed_over()), ("hi", 2));

    let damaged = Server::start(vec![chunks(&["data: {\"choices\":[{\"del\n\n", TEXT, STOP, DONE, ""])]);
    assert_eq!(error_of(&damaged).await.kind, ErrorKind::InvalidResponse);
    let endless = "data: ping\n\n".repeat(200);
    let endless = Server::start(vec![chunks(&[&endless, TEXT, STOP, DONE, ""])]);
    assert_eq!(error_of(&endless).await.kind, ErrorKind::InvalidResponse);
}

#[tokio::test]
async fn words_that_are_no_events_do_not_keep_a_dead_stream_alive() {
    let pings = std::iter::repeat_n(Chunk("data: ping\n\n".into()), 3);
    let mut steps = chunks(&[TEXT]);
    steps.extend(pings);
    steps.push(Forever(BEAT));
    let server = Server::start(vec![steps]);
    let mut endpoint = server.endpoint();
    endpoint.timeouts.idle = Duration::from_millis(300);
    assert_eq!(call(&endpoint, &Http::default()).await.1.unwrap_err().kind, ErrorKind::Timeout);
}

#[tokio::test]
async fn a_server_that_keeps_its_stream_open_after_the_end_is_not_waited_for_long() {
    let mut steps = chunks(&[TEXT, STOP]);
    steps.push(Hang);
    let server = Server::start(vec![steps]);
    let mut endpoint = server.endpoint();
    endpoint.timeouts.idle = Duration::from_secs(40);
    let begun = Instant::now();
    let reply = call(&endpoint, &Http::default()).await.1.unwrap();
    assert_eq!(reply.message.text, "hi");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_accounts_allowance_is_kept_from_every_answer() {
    let headers =
        "content-type: application/json\r\nx-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: ";
    let answer = |status: &str, left: u32| plain(status, &format!("{headers}{left}\r\n"), "{}");
    let server = Server::start(vec![answer("200 OK", 5), answer("429 Too Many Requests", 0)]);
    let (endpoint, http) = (server.endpoint(), Http::default());
    assert_eq!(http.allowance(&endpoint.provider), None);
    for left in [5, 0] {
        call(&endpoint, &http).await.1.unwrap_err();
        let requests = http.allowance(&endpoint.provider).unwrap().requests.unwrap();
        assert_eq!((requests.limit, requests.remaining), (Some(60), left));
    }
}

#[tokio::test]
async fn a_server_that_breaks_every_stream_is_asked_a_few_times_only() {
    use super::recovery::{Action, FallbackChain, Recovery, Visible};
    let mut broken = chunks(&[TEXT]);
    broken.push(Close);
    let server = Server::start(vec![broken; 20]);
    let mut endpoint = server.endpoint();
    endpoint.retry.base = Duration::from_millis(1);
    let (chain, http) = (FallbackChain::new(endpoint, Vec::new()), Http::default());
    let mut recovery = Recovery::new();
    loop {
        let error = call(&chain.current(), &http).await.1.unwrap_err();
        match recovery.next(&chain, &error, Visible::Something) {
            Action::Again { .. } => {}
            Action::Compact { .. } | Action::Fail => break,
        }
    }
    assert_eq!(server.requests().len(), 4);
}
