//! What follows a failed model call, decided from its classified reason. Pure but for the chain it changes.
//!
//! The rules in one place: wait and ask again, ask with another key, ask for less, ask another model, or give up.
//! Each mending is tried once per model call, and the number of requests per call is bounded whatever happens.
//! The caller sends, sleeps and compacts, so that each of these can be cancelled.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
pub use crate::provider::chain::FallbackChain;
use crate::provider::classify::{context_limit, output_cap};
use crate::provider::endpoint::{Adjustments, RetryPolicy};
use crate::provider::{Endpoint, ErrorKind, ProviderError};

/// The most requests of one model call, unless the configuration asks for more retries.
const MAX_REQUESTS: u32 = 6;
/// A provider that asks to wait longer than this is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// The longest wait for a server that is not there at all. Such an attempt costs it nothing, and a person waits for an
/// answer that most often is a wrong address or a server that was not started.
const ABSENT_WAIT: Duration = Duration::from_secs(1);
/// How long an account that cannot pay is left alone.
const BILLING_REST: Duration = Duration::from_secs(60);
/// The window of accounts without the long-context tier, in tokens.
const USUAL_WINDOW: u64 = 200_000;
/// Compactions per model call.
const MAX_COMPACTIONS: u32 = 3;
/// Keys tried per model call.
const MAX_ROTATIONS: u32 = 3;
/// Shorter waits are not worth a notice.
const NOTICEABLE: Duration = Duration::from_secs(1);

/// Whether the client has seen anything of the failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// Nothing was told.
    Nothing,
    /// Text, reasoning or the start of a call was told.
    Something,
}

/// Whether a conversation holds pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pictures {
    /// There are none.
    None,
    /// There is at least one.
    Some,
}

/// What to do after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the chain's current model again.
    Again {
        /// First wait this long, interruptibly.
        after: Duration,
        /// What a person should know.
        notice: Option<String>,
    },
    /// Make the history shorter, then ask again; when it cannot be made shorter, see
    /// [`Recovery::cannot_compact`].
    Compact {
        /// What a person should know.
        notice: Option<String>,
    },
    /// Give up with the error.
    Fail,
}

/// The recovery of one model call: make one per call, ask it after each failed attempt.
#[derive(Debug)]
pub struct Recovery {
    requests: u32,
    /// Failed attempts at the current model.
    failures: u32,
    rotations: u32,
    compactions: u32,
    has_left_refusal: bool,
}

impl Recovery {
    /// For one model call.
    #[must_use]
    pub fn new() -> Self {
        Self { requests: 0, failures: 0, rotations: 0, compactions: 0, has_left_refusal: false }
    }

    /// Requests that have failed so far.
    #[must_use]
    pub fn failed_requests(&self) -> u32 {
        self.requests
    }

    /// What to do about this failure. Puts its key to rest where it is about the key, and changes the chain where
    /// another model or another request is to be tried.
    pub fn next(&mut self, chain: &FallbackChain, error: &ProviderError, visible: Visible) -> Action {
        let endpoint = chain.current();
        endpoint.rest_key(error);
        self.requests += 1;
        self.failures += 1;
        let mut action = self.decide(chain, &endpoint, error);
        if self.requests >= most_requests(&endpoint) {
            action = self.only_others(chain, &endpoint, error, action);
        }
        match action {
            Action::Again { after, notice: None } if visible == Visible::Something => Action::Again {
                after,
                notice: Some(format!("The answer broke off ({}); asking again.", reason(error))),
            },
            other => other,
        }
    }

    /// Enough requests were sent: what is left is to ask each model once that was not asked yet.
    fn only_others(&mut self, chain: &FallbackChain, asked: &Endpoint, error: &ProviderError, next: Action) -> Action {
        match next {
            Action::Again { .. } if chain.current().id() == asked.id() => self.fall_back(chain, error, None),
            Action::Again { .. } => next,
            Action::Compact { .. } | Action::Fail => Action::Fail,
        }
    }

    /// What to do when the history cannot be made shorter: leave pictures out, else ask a model that may take it as it
    /// is, else give up.
    pub fn cannot_compact(&mut self, chain: &FallbackChain, error: &ProviderError, pictures: Pictures) -> Action {
        self.compactions = MAX_COMPACTIONS;
        let failed = chain.current().id();
        if error.kind != ErrorKind::PayloadTooLarge {
            return self.go_on(&failed, chain.fall_back_to_larger(), error);
        }
        let without_pictures = match pictures {
            Pictures::Some => {
                let notice = "Pictures were left out of the request because it was too large.";
                self.mend(chain, notice, |adjustments| adjustments.drop_images = true)
            }
            Pictures::None => None,
        };
        // The size of a body is limited by the server, whatever the model reads.
        without_pictures.unwrap_or_else(|| self.fall_back(chain, error, None))
    }

    fn decide(&mut self, chain: &FallbackChain, endpoint: &Endpoint, error: &ProviderError) -> Action {
        match error.kind {
            ErrorKind::SslCertVerification | ErrorKind::ProviderPolicyBlocked => Action::Fail,
            ErrorKind::Auth | ErrorKind::Billing => {
                let rest = (error.kind == ErrorKind::Billing).then_some(BILLING_REST.min(endpoint.retry.max));
                self.rotate(endpoint).unwrap_or_else(|| self.fall_back(chain, error, rest))
            }
            ErrorKind::AuthRequired | ErrorKind::ModelNotFound => self.fall_back(chain, error, None),
            // A wrong address stays wrong: nothing is gained by asking there again.
            ErrorKind::Unknown if error.status.is_some_and(|status| status < 500) => self.fall_back(chain, error, None),
            ErrorKind::ContentPolicyBlocked => self.leave_refusal(chain, error),
            ErrorKind::RateLimit | ErrorKind::UpstreamRateLimit | ErrorKind::InvalidResponse => {
                self.rotate_limited(endpoint, error).unwrap_or_else(|| self.eagerly(chain, endpoint, error))
            }
            ErrorKind::Overloaded | ErrorKind::Timeout if self.failures >= 2 => self.eagerly(chain, endpoint, error),
            ErrorKind::Overloaded
            | ErrorKind::Timeout
            | ErrorKind::ServerError
            | ErrorKind::TruncatedStream
            | ErrorKind::Unknown => self.wait(chain, endpoint, error),
            ErrorKind::ContextOverflow => {
                if let Some(limit) = context_limit(&error.message) {
                    chain.adjust(|adjustments| lower(&mut adjustments.context_window, limit));
                }
                self.compact(error)
            }
            ErrorKind::LongContextTier => {
                chain.adjust(|adjustments| lower(&mut adjustments.context_window, USUAL_WINDOW));
                self.compact(error)
            }
            ErrorKind::PayloadTooLarge => self.compact(error),
            ErrorKind::OutputCap => self.lower_output(chain, error),
            ErrorKind::ImageTooLarge
            | ErrorKind::MultimodalToolContentUnsupported
            | ErrorKind::InvalidEncryptedContent
            | ErrorKind::ThinkingSignature
            | ErrorKind::OauthLongContextBetaForbidden
            | ErrorKind::LlamaCppGrammarPattern
            | ErrorKind::FormatError => {
                self.mend_request(chain, error).unwrap_or_else(|| self.fall_back(chain, error, None))
            }
        }
    }

    /// Another key, when there is one that was not refused. A command is asked for another one once.
    fn rotate(&mut self, endpoint: &Endpoint) -> Option<Action> {
        let keys = &endpoint.keys;
        let has_other = keys.awake(clock::now_ms()) > 0 || (keys.has_command() && self.rotations == 0);
        if self.rotations >= MAX_ROTATIONS || !has_other {
            return None;
        }
        self.rotations += 1;
        Some(Action::Again { after: Duration::ZERO, notice: None })
    }

    fn rotate_limited(&mut self, endpoint: &Endpoint, error: &ProviderError) -> Option<Action> {
        let has_awake = endpoint.keys.awake(clock::now_ms()) > 0;
        if error.kind == ErrorKind::RateLimit && has_awake { self.rotate(endpoint) } else { None }
    }

    /// Another model at once where there is one, else wait.
    fn eagerly(&mut self, chain: &FallbackChain, endpoint: &Endpoint, error: &ProviderError) -> Action {
        match self.fall_back(chain, error, error.retry_after.map(|wait| wait.min(MAX_WAIT))) {
            Action::Fail => self.wait(chain, endpoint, error),
            other => other,
        }
    }

    /// Waits, as long as attempts are left; then another model.
    fn wait(&mut self, chain: &FallbackChain, endpoint: &Endpoint, error: &ProviderError) -> Action {
        let asked = asked_wait(endpoint, error);
        let is_too_long = asked.is_some_and(|wait| wait > MAX_WAIT);
        // A request is kept for each model that is left.
        let is_enough = self.requests.saturating_add(chain.fallbacks_left()) >= most_requests(endpoint);
        if self.failures > endpoint.retry.max_retries || is_enough || is_too_long {
            return self.fall_back(chain, error, asked.map(|wait| wait.min(MAX_WAIT)));
        }
        let after = match asked {
            Some(asked) => asked + asked.mul_f64(0.1 * jitter()).min(Duration::from_millis(500)),
            None if is_absent(error) => backoff(&endpoint.retry, self.failures, jitter()).min(ABSENT_WAIT),
            None => backoff(&endpoint.retry, self.failures, jitter()),
        };
        let notice = (after >= NOTICEABLE).then(|| {
            format!(
                "{} failed ({}); asking again in {:.0} s.",
                endpoint.id(),
                reason(error),
                after.as_secs_f64().ceil()
            )
        });
        Action::Again { after, notice }
    }

    fn fall_back(&mut self, chain: &FallbackChain, error: &ProviderError, rest: Option<Duration>) -> Action {
        let failed = chain.current().id();
        self.go_on(&failed, chain.fall_back(rest), error)
    }

    fn go_on(&mut self, failed: &str, next: Option<Arc<Endpoint>>, error: &ProviderError) -> Action {
        let Some(next) = next else { return Action::Fail };
        self.failures = 0;
        let notice = format!("{failed} failed ({}); going on with {}.", reason(error), next.id());
        Action::Again { after: Duration::ZERO, notice: Some(notice) }
    }

    /// A refusal is never asked for twice: at most one other model sees the request.
    fn leave_refusal(&mut self, chain: &FallbackChain, error: &ProviderError) -> Action {
        if std::mem::replace(&mut self.has_left_refusal, true) {
            Action::Fail
        } else {
            self.fall_back(chain, error, None)
        }
    }

    fn compact(&mut self, error: &ProviderError) -> Action {
        if self.compactions >= MAX_COMPACTIONS {
            return Action::Fail;
        }
        self.compactions += 1;
        Action::Compact { notice: Some(format!("The conversation is too long for the model ({}).", reason(error))) }
    }

    fn lower_output(&mut self, chain: &FallbackChain, error: &ProviderError) -> Action {
        let Some(cap) = output_cap(&error.message) else { return self.compact(error) };
        let mended = self.mend(chain, "", |adjustments| lower(&mut adjustments.output_cap, cap));
        mended.unwrap_or(Action::Fail)
    }

    /// What can be changed about a request that was not accepted; `None` when it was changed before.
    fn mend_request(&mut self, chain: &FallbackChain, error: &ProviderError) -> Option<Action> {
        let says = |word: &str| error.message.contains(word);
        match error.kind {
            ErrorKind::ImageTooLarge => {
                self.mend(chain, "The model did not accept a picture; pictures are left out.", |a| {
                    a.drop_images = true;
                })
            }
            ErrorKind::MultimodalToolContentUnsupported => self.mend(chain, "", |a| a.flatten_tool_results = true),
            // Calls of another model have no signature that this one accepts.
            ErrorKind::ThinkingSignature
                if says("thought_signature") && says("missing") && chain.adjust(|a| a.sign_tool_calls = true) =>
            {
                Some(Action::Again { after: Duration::ZERO, notice: None })
            }
            ErrorKind::InvalidEncryptedContent | ErrorKind::ThinkingSignature => self.mend(chain, "", |a| {
                a.strip_reasoning = true;
                a.sign_tool_calls |= says("thought_signature");
            }),
            ErrorKind::OauthLongContextBetaForbidden => self.mend(chain, "", |a| a.drop_beta_headers = true),
            ErrorKind::LlamaCppGrammarPattern => self.mend(chain, "", |a| a.strip_schema_patterns = true),
            // A server that wants reasoning with every answer, also with those that have none of its own.
            ErrorKind::FormatError
                if says("reasoning_content")
                    && ["must be passed back", "missing", "required"].into_iter().any(says)
                    && chain.adjust(|a| a.pad_reasoning = true) =>
            {
                Some(Action::Again { after: Duration::ZERO, notice: None })
            }
            // A server that does not know the field and says so.
            ErrorKind::FormatError
                if says("reasoning_content") || says("reasoning_details") || says("extra_content") =>
            {
                self.mend(chain, "", |a| a.strip_reasoning = true)
            }
            _ => None,
        }
    }

    fn mend(&mut self, chain: &FallbackChain, notice: &str, change: impl FnOnce(&mut Adjustments)) -> Option<Action> {
        let notice = (!notice.is_empty()).then(|| notice.to_owned());
        chain.adjust(change).then_some(Action::Again { after: Duration::ZERO, notice })
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Self::new()
    }
}

/// The most requests of one model call, but for those that each further model gets.
fn most_requests(endpoint: &Endpoint) -> u32 {
    MAX_REQUESTS.max(endpoint.retry.max_retries.saturating_add(1))
}

fn lower(known: &mut Option<u64>, limit: u64) {
    *known = Some(known.map_or(limit, |known| known.min(limit)));
}

/// True when nobody listens at the address, or it has no such host.
fn is_absent(error: &ProviderError) -> bool {
    let says = |words: &str| error.message.contains(words);
    error.status.is_none() && (says("Connection refused") || says("dns error"))
}

/// The wait the provider asks for. Of several keys that rest, the first to wake is enough.
fn asked_wait(endpoint: &Endpoint, error: &ProviderError) -> Option<Duration> {
    let asked = error.retry_after?;
    let shortest = endpoint.keys.shortest_rest(clock::now_ms()).filter(|_| error.kind == ErrorKind::RateLimit);
    Some(shortest.map_or(asked, |shortest| shortest.min(asked)))
}

/// The reason for a person.
fn reason(error: &ProviderError) -> String {
    let kind = error.kind.as_str().replace('_', " ");
    let mut said: String = error.message.chars().take(120).collect();
    if said.len() < error.message.len() {
        said.push('…');
    }
    match error.kind {
        _ if said.is_empty() => kind,
        // This kind holds every lost connection, also one that was refused at once.
        ErrorKind::Timeout => said,
        _ => format!("{kind}: {said}"),
    }
}

/// The wait before attempt `failures + 1`: doubled each time up to the longest, plus up to half of it.
///
/// `jitter` is a share from 0 to 1.
#[must_use]
pub fn backoff(policy: &RetryPolicy, failures: u32, jitter: f64) -> Duration {
    let doubled = policy.base.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let delay = doubled.min(policy.max);
    delay + delay.mul_f64(0.5 * jitter.clamp(0.0, 1.0))
}

/// The wait before the next request after so many failures in a row.
#[must_use]
pub fn pause(endpoint: &Endpoint, failures: u32) -> Duration {
    backoff(&endpoint.retry, failures, jitter())
}

/// A share from 0 to 1, another one each time; nothing secret depends on it.
fn jitter() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    let bits = u32::try_from(random >> 32).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
