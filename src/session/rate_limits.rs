//! What is told about the provider's account.

use turnd_protocol::ext::{RateLimit, RateLimits};

use crate::clock;
use crate::provider::allowance::Quota;

use super::open::Session;

impl Session {
    /// What the current model's provider last said about the account's allowance.
    pub(super) fn rate_limits(&self) -> Option<RateLimits> {
        let allowance = self.host.http.allowance(&self.chain.current().provider)?;
        let now_ms = clock::now_ms();
        let limit = |quota: Quota| RateLimit {
            limit: quota.limit,
            remaining: quota.remaining,
            reset_seconds: quota.full_at_ms.map(|at| u64::try_from(at - now_ms).unwrap_or(0).div_ceil(1000)),
        };
        Some(RateLimits { requests: allowance.requests.map(limit), tokens: allowance.tokens.map(limit) })
    }
}
