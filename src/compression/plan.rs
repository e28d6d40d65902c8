//! What one compaction does: which messages go, and how far the rest must shrink.

use crate::config::CompressionConfig;
use crate::message::Message;

use super::Change;
use super::estimate::{message_tokens, tokens};
use super::gauge::Gain;
use super::shorten;
use super::split::{self, Protect};

/// The kept end's share of the trigger, as a divisor.
const TAIL_DIVISOR: u64 = 5;
/// Messages at the end that stay whatever their size, while there is another way.
const LEAST: usize = 3;
/// A smaller gain, in percent, is none.
const MIN_GAIN_PERCENT: u64 = 5;
/// A smaller gain, in percent, is a poor one.
const GOOD_GAIN_PERCENT: u64 = 10;

/// Why a history is to be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It has grown past the trigger.
    Due,
    /// The user asks for it.
    Asked,
    /// The provider refused it as too long. Holds how often the turn has compacted before: each time less
    /// stays.
    Refused(u32),
}

/// What is to be compacted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The history.
    pub history: &'a [Message],
    /// Tokens of system prompt and tools.
    pub fixed_tokens: u64,
    /// Tokens of the whole request, as far as the provider has counted them.
    pub level_tokens: u64,
    /// Tokens a request should stay below.
    pub trigger_tokens: u64,
    /// How much is kept.
    pub config: &'a CompressionConfig,
    /// Why.
    pub urgency: Urgency,
}

/// What one compaction does.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    history: &'a [Message],
    dropped: Vec<usize>,
    scale: Scale,
    /// Estimated tokens that the history should come to at most.
    room: u64,
}

/// From the provider's tokens to estimated ones: a tokenizer may make several times as many as were estimated.
#[derive(Clone, Copy, Debug)]
struct Scale {
    fixed: u64,
    counted: u64,
    estimated: u64,
}

impl Scale {
    fn of(request: &Request<'_>) -> Self {
        let estimated = tokens(request.history).max(1);
        let counted = request.level_tokens.saturating_sub(request.fixed_tokens).max(estimated);
        Self { fixed: request.fixed_tokens, counted, estimated }
    }

    fn level(self) -> u64 {
        self.fixed.saturating_add(self.counted)
    }

    fn estimated(self, counted: u64) -> u64 {
        scaled(counted, self.estimated, self.counted)
    }

    fn counted(self, estimated: u64) -> u64 {
        scaled(estimated, self.counted, self.estimated)
    }
}

fn scaled(tokens: u64, to: u64, from: u64) -> u64 {
    let exact = u128::from(tokens) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

impl<'a> Plan<'a> {
    /// Decides what to do; `None` when nothing can be made shorter.
    #[must_use]
    pub fn make(request: &Request<'a>) -> Option<Self> {
        let scale = Scale::of(request);
        let (attempt, target) = match request.urgency {
            Urgency::Due => (0, request.trigger_tokens.saturating_mul(4) / 5),
            Urgency::Asked => (0, request.trigger_tokens),
            // The window may be smaller than anybody said: 60 %, 30 %, 20 % of what did not fit.
            Urgency::Refused(attempt) => {
                (attempt, request.trigger_tokens.min(scale.level().saturating_mul(3) / 5 / u64::from(attempt + 1)))
            }
        };
        let usual = Protect {
            first: if attempt == 0 { request.config.protect_first_n } else { 0 },
            last: request.config.protect_last_n.max(LEAST),
            least: if attempt == 0 { LEAST } else { 1 },
            tail_tokens: scale.estimated(request.trigger_tokens.min(scale.level()))
                / TAIL_DIVISOR
                / u64::from(attempt + 1),
        };
        let step_only = Protect { first: 0, last: 0, least: 1, tail_tokens: 0 };
        // The last resort: the newest step goes too, which the model has not answered yet.
        let nothing = Protect { least: 0, ..step_only };
        let ways: &[Protect] = match request.urgency {
            Urgency::Due => &[usual],
            Urgency::Asked => &[usual, step_only],
            Urgency::Refused(_) => &[usual, step_only, nothing],
        };
        let room = scale.estimated(target.saturating_sub(request.fixed_tokens));
        let plans = ways.iter().map(|protect| {
            let dropped = split::dropped(request.history, *protect);
            Self { history: request.history, dropped, scale, room }
        });
        let is_useful = |plan: &Self| !plan.dropped.is_empty() || !plan.change(None).rewritten.is_empty();
        plans.into_iter().find(is_useful)
    }

    /// The messages that go, in order; empty when cutting is enough.
    pub fn dropped(&self) -> impl Iterator<Item = &'a Message> + '_ {
        self.dropped.iter().filter_map(|place| self.history.get(*place))
    }

    /// True when a summary has to take the place of messages.
    #[must_use]
    pub fn needs_summary(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// The change, with what stands for the messages that go.
    #[must_use]
    pub fn change(&self, summary: Option<Message>) -> Change {
        let kept: Vec<(usize, &Message)> =
            self.history.iter().enumerate().filter(|(place, _)| self.dropped.binary_search(place).is_err()).collect();
        let summary_tokens = summary.as_ref().map_or(0, |summary| tokens(std::slice::from_ref(summary)));
        let room = self.room.saturating_sub(summary_tokens);
        Change {
            before: self.history.len(),
            dropped: self.dropped.clone(),
            rewritten: shorten::to_fit(&kept, room),
            summary,
        }
    }

    /// Tokens of a request with the history as it is.
    #[must_use]
    pub fn tokens_before(&self) -> u64 {
        self.scale.level()
    }

    /// Tokens of a request with the history after a change, roughly.
    #[must_use]
    pub fn tokens_after(&self, after: &[Message]) -> u64 {
        let summary: u64 = after.iter().filter(|message| split::is_summary(message)).map(message_tokens).sum();
        let kept = tokens(after).saturating_sub(summary);
        self.scale.fixed.saturating_add(self.scale.counted(kept)).saturating_add(summary)
    }

    /// What a change is worth.
    #[must_use]
    pub fn gain(&self, after: &[Message]) -> Gain {
        let (before, after_tokens) = (self.tokens_before(), self.tokens_after(after));
        let percent = before.saturating_sub(after_tokens).saturating_mul(100) / before.max(1);
        if percent >= GOOD_GAIN_PERCENT {
            Gain::Good
        } else if percent >= MIN_GAIN_PERCENT || after.len() < self.history.len() {
            Gain::Poor
        } else {
            Gain::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::property_tests::{answer, call, result};

    fn request(history: &[Message], urgency: Urgency) -> Option<(Vec<usize>, usize)> {
        let config = CompressionConfig { protect_last_n: 2, ..CompressionConfig::default() };
        let request =
            Request { history, fixed_tokens: 100, level_tokens: 0, trigger_tokens: 1_000, config: &config, urgency };
        Plan::make(&request).map(|plan| (plan.dropped.clone(), plan.change(None).rewritten.len()))
    }

    #[test]
    fn a_short_history_is_compacted_only_when_somebody_insists() {
        let history = [Message::user("1"), answer("2"), Message::user("3")];
        assert_eq!(request(&history, Urgency::Due), None);
        assert_eq!(request(&history, Urgency::Asked), Some((vec![0, 1], 0)));
        assert_eq!(request(&history, Urgency::Refused(0)), Some((vec![0, 1], 0)));
        assert_eq!(request(&history[..1], Urgency::Refused(0)), None);
        let step = [Message::user("1"), call("a"), result("a", "x")];
        assert_eq!(request(&step, Urgency::Asked), None);
        assert_eq!(request(&step, Urgency::Refused(0)), Some((vec![1, 2], 0)), "the last resort");
    }

    #[test]
    fn what_the_provider_counted_makes_the_kept_end_shorter() {
        let history: Vec<_> = (0..10).map(|number| answer(&number.to_string())).collect();
        let config = CompressionConfig { protect_first_n: 0, ..CompressionConfig::default() };
        let dropped = |level_tokens| {
            let request = Request {
                history: &history,
                fixed_tokens: 100,
                level_tokens,
                trigger_tokens: 1_000,
                config: &config,
                urgency: Urgency::Due,
            };
            Plan::make(&request).map(|plan| plan.dropped.len())
        };
        assert_eq!((dropped(0), dropped(1_100)), (Some(3), Some(7)));
    }

    #[test]
    fn a_giant_result_is_cut_when_nothing_can_go() {
        let history = [Message::user("1"), call("a"), result("a", &"x".repeat(100_000))];
        assert_eq!(request(&history, Urgency::Due), Some((vec![], 1)));
    }
}
