//! What the integration tests share.

pub(crate) mod fake_agent;
pub(crate) mod fake_runtime;
pub(crate) mod lab;
pub(crate) mod mcp;
pub(crate) mod mcp_http;
