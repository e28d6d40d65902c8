#![no_main]

use std::pin::Pin;
use std::task::{Context, Poll};

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};
use turnd::rpc::{Frame, FrameReader, Incoming};
use turnd_fuzz::cuts;

/// Small enough that inputs reach it.
const LIMIT: usize = 512;

/// Gives one piece per read.
struct Pieces<'a>(std::vec::IntoIter<&'a [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // An empty read would be the end.
        if let Some(piece) = self.0.by_ref().find(|piece| !piece.is_empty()) {
            buffer.put_slice(piece);
        }
        Poll::Ready(Ok(()))
    }
}

fn read(pieces: Vec<&[u8]>) -> Vec<Frame> {
    let pieces: Vec<_> = pieces.into_iter().flat_map(|piece| piece.chunks(1024)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut reader = FrameReader::new(Pieces(pieces.into_iter()), LIMIT);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await.expect("the source does not fail") {
            frames.push(frame);
        }
        frames
    })
}

fuzz_target!(|data: &[u8]| {
    let whole = read(vec![data]);
    for pieces in cuts(data) {
        assert_eq!(read(pieces), whole, "the lines depend on how the bytes were cut");
    }
    for frame in whole {
        if let Frame::Line(line) = frame {
            assert!(line.len() <= LIMIT, "a line passed the limit");
            drop(Incoming::classify(&line));
        }
    }
});
