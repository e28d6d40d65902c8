//! The wire of `turnd`: the Agent Client Protocol, version 1, and our extension to it.
//!
//! The protocol's own types come from the official schema crate and are re-exported as [`acp`], so a
//! new schema release touches this crate first. Our additions live in [`ext`]: names that begin with
//! `_turnd/` or with the field's de-facto `_session/steering`, and what we put under `_meta.turnd`.
//!
//! Null and absent mean the same in every field of [`ext`].

pub mod ext;

pub use agent_client_protocol_schema::ProtocolVersion;
pub use agent_client_protocol_schema::v1 as acp;

/// JSON-RPC error codes of the protocol.
pub mod error_code {
    /// The line is not JSON, or not UTF-8.
    pub const PARSE_ERROR: i32 = -32700;
    /// JSON that is no request, or a line over the limit.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The parameters do not fit the method; `data` names the field.
    pub const INVALID_PARAMS: i32 = -32602;
    /// Our fault, or the model provider's; `data` says whose and what.
    pub const INTERNAL_ERROR: i32 = -32603;
    /// No credential is configured: the client should offer a login.
    pub const AUTH_REQUIRED: i32 = -32000;
    /// Too much is waiting; try again later.
    pub const OVERLOADED: i32 = -32001;
    /// Unknown session or resource; `data` names it.
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
    /// The request was cancelled with `$/cancel_request`.
    pub const REQUEST_CANCELLED: i32 = -32800;
}
