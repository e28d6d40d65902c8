//! The output of one command: head and tail in memory, all of it in a file once that is more.

use crate::tool::spill::{Kept, Spill, SpillFile};

use super::Capture;

/// Takes output in as it comes.
#[derive(Debug)]
pub(super) struct Recorder {
    capture: Capture,
    /// Taken when the file is begun.
    spill: Option<Spill>,
    file: Option<SpillFile>,
}

impl Recorder {
    pub(super) fn new(keep_bytes: usize, spill: Option<Spill>) -> Self {
        Self { capture: Capture::new(keep_bytes), spill, file: None }
    }

    pub(super) fn capture(&self) -> &Capture {
        &self.capture
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        if !self.capture.has_room_for(piece.len())
            && let Some(spill) = self.spill.take()
        {
            self.begin(&spill);
        }
        if let Some(file) = &mut self.file {
            file.push(piece);
        }
        self.capture.push(piece);
    }

    /// Begins the file with what was kept so far, which is all of it.
    fn begin(&mut self, spill: &Spill) {
        match spill.create() {
            Ok(mut file) => {
                self.capture.pieces().into_iter().for_each(|piece| file.push(piece));
                self.file = Some(file);
            }
            Err(error) => tracing::warn!("long output cannot be kept whole: {error}"),
        }
    }

    /// What was kept in memory, and where all of it is.
    pub(super) fn finish(self) -> (Capture, Option<Kept>) {
        let whole = self.file.and_then(|file| match file.finish() {
            Ok(kept) => Some(kept),
            Err(error) => {
                tracing::warn!("long output cannot be kept whole: {error}");
                None
            }
        });
        (self.capture, whole)
    }
}
