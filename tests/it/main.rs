//! The integration tests, one binary: transcripts, and what a transcript cannot say.

#[cfg(test)]
mod harness;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod support;
