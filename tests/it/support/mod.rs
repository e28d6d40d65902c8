//! What the integration tests share.

pub(crate) mod fake_agent;
