//! The protocol's side of the daemon: which method does what, and how everything looks on the wire.
//!
//! The connection loop in [`serve`] awaits nothing but its own events. Whatever takes longer is a
//! request's future or a session's task; what must keep the order of the wire is done before either is
//! left to itself.

mod capabilities;
mod child;
mod client;
mod connection;
mod dispatch;
mod error;
mod from_client;
mod handlers;
mod inquiry;
mod mcp_servers;
mod terminals;
mod to_client;

pub use connection::{Ending, serve};
