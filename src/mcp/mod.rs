//! MCP servers: other people's tools, started beside a session and called through the gate.
//!
//! The servers of a session (the configuration's and the client's) start in the background when it opens, each
//! in a task of its own; opening never waits for one. A turn is given the tools of the servers that are there
//! when it begins, and keeps exactly those bytes to its end; what joins, changes or leaves meanwhile counts from
//! the next turn on. A server that crashes is started again, a few times; one that hangs costs its caller a
//! timeout; neither touches another server.
//!
//! Nothing a server says is believed: its tools always ask unless a rule allows them, whatever they call
//! themselves; descriptions are bounded and shown without hidden characters; a tool that is no longer what was
//! allowed asks again; results reach the model fenced as data.
//!
//! Deliberately absent: prompts, resources and completions of servers, sampling for them (a server must not
//! spend the user's tokens), OAuth (put a token into `headers`), and any listening socket.

mod definition;
mod environment;
mod name;
mod notes;
mod result;
mod server;
mod servers;
mod spec;
mod tool;

#[cfg_attr(not(feature = "mcp"), path = "absent.rs")]
mod connection;
#[cfg(feature = "mcp")]
mod handler;
#[cfg(feature = "mcp")]
mod http;
#[cfg(feature = "mcp")]
mod sse;
#[cfg(feature = "mcp")]
mod stdio;
#[cfg(feature = "mcp")]
mod wire;

pub use servers::{McpServers, Surroundings};
pub use spec::{Address, Origin, ServerSpec};

/// Whether this program was built with what it takes to connect to servers.
pub const IS_SUPPORTED: bool = cfg!(feature = "mcp");
