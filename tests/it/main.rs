//! The integration tests, one binary: transcripts, and what a transcript cannot say.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod contained;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod executed;
#[cfg(test)]
mod exits;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod headless;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod steering;
#[cfg(test)]
mod store;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transcripts;
#[cfg(test)]
mod trust;
