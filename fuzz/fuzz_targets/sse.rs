#![no_main]

use libfuzzer_sys::fuzz_target;
use turnd::provider::SseEvent;
use turnd::provider::sse::{SseDecoder, SseError};
use turnd_fuzz::cuts;

/// Small enough that inputs reach it.
const LIMIT: usize = 512;

type Read = (Vec<(String, String)>, Option<SseError>, u64);

fn read(pieces: &[&[u8]]) -> Read {
    let mut decoder = SseDecoder::with_limit(LIMIT);
    let mut events = Vec::new();
    let mut take = |event: &SseEvent<'_>| {
        assert!(!event.data.is_empty(), "an event without data was handed on");
        events.push((event.name.to_owned(), event.data.to_owned()));
        Ok::<(), SseError>(())
    };
    let fed = pieces.iter().try_for_each(|piece| decoder.feed(piece, &mut take));
    let error = fed.and_then(|()| decoder.finish(&mut take)).err();
    // Comments after a refused event may or may not have been reached.
    let comments = if error.is_some() { 0 } else { decoder.comments() };
    (events, error, comments)
}

fuzz_target!(|data: &[u8]| {
    let whole = read(&[data]);
    for pieces in cuts(data) {
        assert_eq!(read(&pieces), whole, "the events depend on how the bytes were cut");
    }
});
