//! What the integration tests share.

pub(crate) mod fake_agent;
pub(crate) mod lab;
