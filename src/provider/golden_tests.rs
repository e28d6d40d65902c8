//! Answers that servers really sent, in `tests/providers/MODE`: each decodes to the reply that stands beside
//! it, however it is cut, and no beginning of it is taken for the whole.
//!
//! `NAME.sse` is a stream, `NAME.json` a whole body, `NAME.expect` what it must come to. Building the tests
//! with `TURND_BLESS=1` writes the expectations anew.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::provider::sse::{SseDecoder, SseError};

/// Bytes up to which every single cut is tried; of larger files every seventeenth.
const EVERY_CUT: usize = 3000;

#[derive(Debug, PartialEq)]
pub(super) enum Failure {
    Sse(SseError),
    Decode(DecodeError),
}

impl From<SseError> for Failure {
    fn from(error: SseError) -> Self {
        Self::Sse(error)
    }
}

/// What was shown and what it came to.
pub(super) type Decoded = Result<(Vec<ModelEvent>, ModelReply), Failure>;

/// Decodes a stream that arrives in these chunks.
pub(super) fn decode_chunks<'a>(mut decoder: Box<dyn Decoder>, chunks: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut events = Vec::new();
    let mut sse = SseDecoder::default();
    let mut push = |event: &SseEvent<'_>| {
        if decoder.is_done() { Ok(()) } else { decoder.push(event, &mut events).map_err(Failure::Decode) }
    };
    for chunk in chunks {
        sse.feed(chunk, &mut push)?;
    }
    sse.finish(&mut push)?;
    let reply = decoder.finish(&mut events).map_err(Failure::Decode)?;
    Ok((events, reply))
}

/// Decodes a body that came whole.
pub(super) fn decode_whole(mut decoder: Box<dyn Decoder>, body: &[u8]) -> Decoded {
    let mut events = Vec::new();
    decoder.whole(body, &mut events).map_err(Failure::Decode)?;
    let reply = decoder.finish(&mut events).map_err(Failure::Decode)?;
    Ok((events, reply))
}

/// Text and reasoning that the events show.
pub(super) fn shown(events: &[ModelEvent]) -> (String, String) {
    let mut shown = (String::new(), String::new());
    for event in events {
        match event {
            ModelEvent::Text(piece) => shown.0.push_str(piece),
            ModelEvent::Reasoning(piece) => shown.1.push_str(piece),
            ModelEvent::ToolCallStarted { .. } => {}
        }
    }
    shown
}

/// All streams of a mode's folder, read once.
pub(super) fn bodies(mode: ApiMode) -> &'static [Vec<u8>] {
    static ALL: std::sync::OnceLock<Vec<(ApiMode, Vec<Vec<u8>>)>> = std::sync::OnceLock::new();
    let read = |mode: ApiMode| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/providers").join(mode.as_str());
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect("the folder exists")
            .map(|entry| entry.expect("readable").path())
            .collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "sse"));
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).expect("readable")).collect()
    };
    let modes = [ApiMode::ChatCompletions, ApiMode::AnthropicMessages, ApiMode::CodexResponses];
    let all = ALL.get_or_init(|| modes.into_iter().map(|mode| (mode, read(mode))).collect());
    all.iter().find(|(of, _)| *of == mode).map_or(&[], |(_, bodies)| bodies)
}

/// Checks every file of a mode's folder.
pub(super) fn check_folder(mode: ApiMode, decoder: fn() -> Box<dyn Decoder>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/providers").join(mode.as_str());
    let entries = std::fs::read_dir(&folder).expect("the folder exists");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let is_input =
        |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "sse" || extension == "json");
    let inputs: Vec<_> = files.iter().filter(is_input).collect();
    assert!(inputs.len() > 5, "{} has too few files", folder.display());
    for path in inputs {
        check_file(path, decoder);
    }
}

fn check_file(path: &Path, decoder: fn() -> Box<dyn Decoder>) {
    let name = path.display();
    let body = std::fs::read(path).expect("readable");
    if path.extension().is_some_and(|extension| extension == "json") {
        return check_expectation(path, &decode_whole(decoder(), &body));
    }
    let whole = decode_chunks(decoder(), [body.as_slice()]);
    check_expectation(path, &whole);
    assert_eq!(decode_chunks(decoder(), body.chunks(1)), whole, "{name} byte by byte");
    let step = if body.len() > EVERY_CUT { 17 } else { 1 };
    for cut in (0..body.len()).step_by(step) {
        let (front, back) = body.split_at(cut);
        assert_eq!(decode_chunks(decoder(), [front, back]), whole, "{name} cut at {cut}");
        match decode_chunks(decoder(), [front]) {
            Ok((_, reply)) => {
                let (_, wanted) = whole.as_ref().expect("a beginning is no more than the whole");
                assert_eq!(reply.message, wanted.message, "{name} taken for whole after {cut} bytes");
            }
            // A last line that is cut is no JSON; both say that the answer is not whole.
            Err(failure) => assert!(
                matches!(failure, Failure::Decode(DecodeError::Truncated | DecodeError::Malformed(_)))
                    || whole.is_err(),
                "{name} ended after {cut} bytes: {failure:?}"
            ),
        }
    }
}

fn check_expectation(path: &Path, decoded: &Decoded) {
    let got = describe(decoded);
    let expected_path = path.with_extension("expect");
    if option_env!("TURND_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&got).expect("serializable");
        std::fs::write(&expected_path, format!("{text}\n")).expect("writable");
        return;
    }
    let text = std::fs::read_to_string(&expected_path).expect("an expectation stands beside each file");
    let expected: Value = serde_json::from_str(&text).expect("an expectation is JSON");
    assert_eq!(got, expected, "{}", path.display());
}

fn describe(decoded: &Decoded) -> Value {
    match decoded {
        Ok((events, reply)) => {
            let message = &reply.message;
            assert_eq!(shown(events), (message.text.clone(), message.reasoning.clone()), "shown is what is kept");
            json!({"message": message, "usage": reply.usage})
        }
        Err(Failure::Decode(DecodeError::Malformed(_))) => json!({"error": "malformed"}),
        Err(Failure::Decode(error)) => json!({"error": error.to_string()}),
        Err(Failure::Sse(error)) => json!({"error": error.to_string()}),
    }
}

/// An endpoint with nothing special about it.
pub(super) fn endpoint(mode: ApiMode, model: &str) -> Endpoint {
    Endpoint {
        provider: "p".into(),
        model: model.into(),
        mode,
        base_url: String::new(),
        keys: std::sync::Arc::new(credentials::KeyRing::new(
            "p",
            Vec::new(),
            None,
            crate::provider::redact::Redactor::default(),
        )),
        headers: Vec::new(),
        quirks: endpoint::ServerQuirks::default(),
        timeouts: endpoint::Timeouts::default(),
        retry: endpoint::RetryPolicy::default(),
        context_window: 200_000,
        is_window_assumed: false,
        max_output_tokens: None,
        reasoning_effort: None,
        script: None,
        adjustments: endpoint::Adjustments::default(),
    }
}
