//! The marker at the end of a prefix that a provider should keep, in Messages and behind aggregators.

use serde::Serialize;

use crate::provider::endpoint::CacheTtl;

/// One marker.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CacheControl {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    pub(super) fn new(ttl: CacheTtl) -> Self {
        // Five minutes are what no `ttl` means, and servers that copy the format may not know the field.
        Self { r#type: "ephemeral", ttl: (ttl == CacheTtl::OneHour).then_some("1h") }
    }
}
