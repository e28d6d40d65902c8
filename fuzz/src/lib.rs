//! What the fuzz targets share: bytes cut into pieces, and an answer decoded from them.
//!
//! A target fails when anything panics, hangs, grows without bound, or when the same bytes come to something else
//! because they arrived in other pieces.

use serde_json::json;
use turnd::config::Config;
use turnd::provider::catalog::resolve;
use turnd::provider::sse::{SseDecoder, SseError};
use turnd::provider::{DecodeError, Decoder, Endpoint, ModelEvent, ModelReply, SseEvent};

/// Inputs up to this length are also cut after every byte.
const BYTE_BY_BYTE: usize = 4096;

/// The ways in which the same bytes may arrive: in two, in a few pieces, and byte by byte. The places depend on the
/// bytes, so that a finding repeats.
pub fn cuts(data: &[u8]) -> Vec<Vec<&[u8]>> {
    let seed = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let place = |salt: u64| {
        let mixed = (seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 17;
        usize::try_from(mixed).unwrap_or(0) % (data.len() + 1)
    };
    let mut places: Vec<usize> = (2..7).map(place).collect();
    places.extend([0, data.len()]);
    places.sort_unstable();
    let (front, back) = data.split_at(place(1));
    let mut ways = vec![vec![front, back], places.windows(2).map(|pair| &data[pair[0]..pair[1]]).collect()];
    if data.len() <= BYTE_BY_BYTE {
        ways.push(data.chunks(1).collect());
    }
    ways
}

/// An endpoint of this format with nothing special about it.
pub fn endpoint(api_mode: &str) -> Endpoint {
    let config = json!({"providers": {"p": {"api_mode": api_mode, "base_url": "http://127.0.0.1:1"}}});
    let config: Config = serde_json::from_value(config).expect("a configuration");
    resolve(&config, &|_| None, "p/m").expect("an endpoint")
}

/// Why an answer could not be decoded.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// The stream is no event stream.
    Sse(SseError),
    /// Its events are no answer.
    Decode(DecodeError),
}

impl From<SseError> for Failure {
    fn from(error: SseError) -> Self {
        Self::Sse(error)
    }
}

/// What was shown and what it came to.
pub type Decoded = Result<(Vec<ModelEvent>, ModelReply), Failure>;

/// Decodes an answer that arrives in these pieces.
pub fn decode(mut decoder: Box<dyn Decoder>, pieces: &[&[u8]]) -> Decoded {
    let mut events = Vec::new();
    let mut sse = SseDecoder::default();
    let mut push = |event: &SseEvent<'_>| {
        if decoder.is_done() { Ok(()) } else { decoder.push(event, &mut events).map_err(Failure::Decode) }
    };
    for piece in pieces {
        sse.feed(piece, &mut push)?;
    }
    sse.finish(&mut push)?;
    let reply = decoder.finish(&mut events).map_err(Failure::Decode)?;
    Ok((events, reply))
}

/// Checks one input of a decoder: as a stream in every way it may arrive, and as a whole body.
pub fn check(data: &[u8], decoder: impl Fn() -> Box<dyn Decoder>) {
    let whole = decode(decoder(), &[data]);
    for pieces in cuts(data) {
        assert_eq!(decode(decoder(), &pieces), whole, "the answer depends on how its bytes were cut");
    }
    if let Ok((_, reply)) = &whole {
        let ids: std::collections::HashSet<_> = reply.message.tool_calls.iter().map(|call| &call.id).collect();
        assert_eq!(ids.len(), reply.message.tool_calls.len(), "two calls share an id");
        assert!(!ids.iter().any(|id| id.trim().is_empty()), "a call has no id");
    }
    let mut body = decoder();
    let mut events = Vec::new();
    if body.whole(data, &mut events).is_ok() {
        drop(body.finish(&mut events));
    }
}
