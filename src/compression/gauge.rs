//! How full the context is, and whether it is time to compact.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::CompressionConfig;
use crate::message::Message;

use super::estimate::tokens;

/// Compactions of one turn: when three did not help, a fourth will not.
pub const MAX_PER_TURN: u32 = 3;
/// Compactions in a row that gained little, after which only an error or the user starts another one.
const MAX_POOR: u32 = 2;
/// Windows from here on are compacted at [`LARGE_SHARE`].
const LARGE_WINDOW: u64 = 512_000;
/// Shares of the window: large windows, usual ones, and those the floor does not fit in.
const LARGE_SHARE: f64 = 0.5;
const USUAL_SHARE: f64 = 0.75;
const SMALL_SHARE: f64 = 0.85;
/// Below this many tokens a summary costs more than it gains.
const FLOOR: u64 = 64_000;
/// The most of a window that is reserved for the answer, as a divisor.
const RESERVE: u64 = 4;
/// How long a model that failed to summarise is not asked again; the next failure waits longer.
const RESTS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(900)];

impl CompressionConfig {
    /// Tokens from which a history is compacted before a model call.
    #[must_use]
    pub fn trigger(&self, window: u64, output_limit: Option<u64>) -> u64 {
        let usable = usable(window, output_limit);
        if let Some(share) = self.threshold {
            return share_of(usable, share);
        }
        let share = if window < LARGE_WINDOW { USUAL_SHARE } else { LARGE_SHARE };
        let trigger = share_of(usable, share).max(FLOOR);
        if trigger < usable { trigger } else { share_of(usable, SMALL_SHARE) }
    }

    /// Tokens from which a history is compacted after a turn, before the next one begins.
    #[must_use]
    pub fn trigger_between_turns(&self, window: u64, output_limit: Option<u64>) -> u64 {
        share_of(usable(window, output_limit), self.between_turns)
    }
}

fn usable(window: u64, output_limit: Option<u64>) -> u64 {
    window - output_limit.unwrap_or(0).min(window / RESERVE)
}

/// A share of a number of tokens; what makes no sense as a share is taken for the nearest that does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a window is far below 2^52 tokens, and the share lies between 0.05 and 1"
)]
fn share_of(tokens: u64, share: f64) -> u64 {
    let share = if share.is_finite() { share.clamp(0.05, 1.0) } else { 1.0 };
    (tokens as f64 * share) as u64
}

/// What a session knows about the size of its context.
#[derive(Debug, Default)]
pub struct Gauge {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Tokens of the newest model call, and how long the history was then; `None` until a call was counted.
    counted: Option<(u64, usize)>,
    /// Set again only by a call that was counted below the trigger: a compaction that did not help is
    /// not repeated.
    is_armed: bool,
    this_turn: u32,
    poor: u32,
    failures: usize,
    rests_until: Option<Instant>,
    /// Ids of calls that are no longer in the context but still belong to the session.
    retired_ids: HashSet<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            counted: None,
            is_armed: true,
            this_turn: 0,
            poor: 0,
            failures: 0,
            rests_until: None,
            retired_ids: HashSet::new(),
        }
    }
}

impl Gauge {
    /// A turn begins.
    pub fn begin_turn(&self) {
        self.lock().this_turn = 0;
    }

    /// The turn goes on with another model, which may have as many compactions as the one before.
    pub fn note_fallback(&self) {
        self.lock().this_turn = 0;
    }

    /// A model call was counted: `tokens` stand in the context now, `messages` of them in the history.
    /// 0 tokens: the provider counts nothing.
    pub fn note_usage(&self, tokens: u64, messages: usize, trigger: u64) {
        let mut state = self.lock();
        state.counted = (tokens > 0).then_some((tokens, messages));
        if tokens < trigger {
            state.is_armed = true;
            state.poor = 0;
        }
    }

    /// Tokens that a request with this history has: counted as far as it was, estimated beyond.
    /// `fixed`: tokens of system prompt and tools, asked for only when nothing was counted.
    #[must_use]
    pub fn level(&self, history: &[Message], fixed: impl FnOnce() -> u64) -> u64 {
        let counted = self.lock().counted;
        match counted {
            Some((counted, messages)) => counted.saturating_add(tokens(history.get(messages..).unwrap_or_default())),
            None => fixed().saturating_add(tokens(history)),
        }
    }

    /// True when a compaction may begin by itself.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        let state = self.lock();
        state.is_armed && state.this_turn < MAX_PER_TURN && state.poor < MAX_POOR
    }

    /// The number of the turn's next compaction, from 0; `None` when the turn has had all it may have.
    #[must_use]
    pub fn next_of_turn(&self) -> Option<u32> {
        let done = self.lock().this_turn;
        (done < MAX_PER_TURN).then_some(done)
    }

    /// The history was compacted.
    pub fn note_compaction(&self, gain: Gain) {
        let mut state = self.lock();
        state.this_turn += 1;
        state.is_armed = false;
        state.poor = if gain == Gain::Poor { state.poor + 1 } else { 0 };
        state.counted = None;
    }

    /// The user asks for a compaction: what was tried before does not count.
    pub fn forgive(&self) {
        let mut state = self.lock();
        (state.poor, state.failures, state.rests_until) = (0, 0, None);
    }

    /// Whether the model for summaries is to be asked at all.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.lock().rests_until.is_none_or(|until| until <= Instant::now())
    }

    /// The model for summaries failed.
    pub fn note_failure(&self) {
        let mut state = self.lock();
        let rest = RESTS.get(state.failures).or(RESTS.last()).copied().unwrap_or_default();
        state.failures += 1;
        state.rests_until = Instant::now().checked_add(rest);
    }

    /// The model for summaries answered.
    pub fn note_success(&self) {
        let mut state = self.lock();
        (state.failures, state.rests_until) = (0, None);
    }

    /// Remembers ids of calls that left the context.
    pub fn retire_ids(&self, ids: impl IntoIterator<Item = String>) {
        self.lock().retired_ids.extend(ids);
    }

    /// Ids of calls that left the context.
    #[must_use]
    pub fn retired_ids(&self) -> HashSet<String> {
        self.lock().retired_ids.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a compaction was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// A good summary that made room.
    Good,
    /// Little room, or a summary without a model.
    Poor,
    /// Nothing changed.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(threshold: Option<f64>) -> CompressionConfig {
        CompressionConfig { threshold, ..CompressionConfig::default() }
    }

    #[test]
    fn the_trigger_follows_the_window() {
        let check = |window, output, expected| {
            assert_eq!(config(None).trigger(window, output), expected, "{window} {output:?}");
        };
        check(1_000_000, None, 500_000);
        check(200_000, None, 150_000);
        check(200_000, Some(64_000), 112_500);
        check(80_000, None, 64_000);
        check(64_000, None, 54_400);
        check(8_192, Some(8_192), 5_222);
        assert_eq!(config(Some(0.3)).trigger(10_000, None), 3_000, "what the user says counts");
        assert_eq!(config(Some(f64::NAN)).trigger(10_000, None), 10_000);
        assert_eq!(config(None).trigger_between_turns(100_000, None), 85_000);
    }

    #[test]
    fn a_compaction_that_did_not_help_is_not_repeated() {
        let gauge = Gauge::default();
        gauge.begin_turn();
        assert!(gauge.may_begin());
        gauge.note_compaction(Gain::Good);
        assert!(!gauge.may_begin());
        gauge.note_usage(1_000, 1, 500);
        gauge.begin_turn();
        assert!(!gauge.may_begin(), "still above the trigger, in the next turn too");
        gauge.note_usage(400, 1, 500);
        assert!(gauge.may_begin());
        gauge.note_compaction(Gain::Poor);
        gauge.note_usage(400, 1, 500);
        assert!(gauge.may_begin(), "a counted call below the trigger makes up for it");
    }

    #[test]
    fn a_turn_has_three_compactions() {
        let gauge = Gauge::default();
        gauge.begin_turn();
        for number in 0..MAX_PER_TURN {
            assert_eq!(gauge.next_of_turn(), Some(number));
            gauge.note_compaction(Gain::Good);
            gauge.note_usage(1, 1, 500);
        }
        assert_eq!((gauge.next_of_turn(), gauge.may_begin()), (None, false));
        gauge.begin_turn();
        assert_eq!(gauge.next_of_turn(), Some(0));
        (0..MAX_PER_TURN).for_each(|_| gauge.note_compaction(Gain::Good));
        gauge.note_fallback();
        assert_eq!(gauge.next_of_turn(), Some(0), "another model begins anew");
    }

    #[test]
    fn what_was_counted_is_not_estimated() {
        let gauge = Gauge::default();
        let history = [Message::user("x".repeat(4_000)), Message::user("y".repeat(400))];
        assert_eq!(gauge.level(&history, || 50), 50 + 1_000 + 100 + 12);
        gauge.note_usage(10, 1, 500);
        assert_eq!(gauge.level(&history, || panic!("not needed")), 10 + 106);
        gauge.note_compaction(Gain::Good);
        assert_eq!(gauge.level(&[], || 50), 50);
    }

    #[test]
    fn a_failing_model_rests_longer_each_time_until_the_user_asks() {
        let gauge = Gauge::default();
        assert!(gauge.may_ask());
        (0..5).for_each(|_| gauge.note_failure());
        assert!(!gauge.may_ask());
        gauge.forgive();
        assert!(gauge.may_ask());
    }
}
