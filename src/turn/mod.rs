//! The turn: from one user message to an answer or a typed stop.
//!
//! `run_turn` is a function over ports. It knows no JSON-RPC, no HTTP and no SQL: what it tells the
//! outside goes through a port, and the history is lent to it for the length of the turn.

pub mod event;
