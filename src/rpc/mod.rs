//! JSON-RPC over newline-delimited JSON: frames in, one ordered queue out, calls to the client.
//!
//! Nothing here knows a method. What a message means is decided in [`crate::server`].

pub mod frame;
pub mod incoming;
pub mod outbox;
pub mod pending;
pub mod stdio;

pub use frame::{Frame, FrameReader, MAX_LINE_BYTES};
pub use incoming::{ClientError, Incoming, RequestId};
pub use outbox::{ChunkKind, Outbox};
pub use pending::{CallError, Pending};
