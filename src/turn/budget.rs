//! What a turn may spend: model calls and wall-clock time.

use std::time::Duration;

use tokio::time::Instant;

use super::exit::ExitReason;

/// How much of the run budget may pass before the model is told to wrap up.
pub(crate) const WRAP_UP_SHARE: f64 = 0.8;

/// Model calls of one turn, refundable where a call was not the model's choice.
#[derive(Clone, Debug)]
pub(super) struct IterationBudget {
    total: u32,
    used: u32,
    grace: Grace,
}

/// The one call beyond the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    Unused,
    Granted,
    Gone,
}

/// What [`IterationBudget::take`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// One of the budget.
    Counted,
    /// The one call beyond it.
    Grace,
    /// Nothing is left.
    Spent,
}

impl IterationBudget {
    /// A budget of this many calls.
    #[must_use]
    pub(super) fn new(total: u32) -> Self {
        Self { total, used: 0, grace: Grace::Unused }
    }

    /// Takes one call. A granted grace call goes first and is gone then, so it never extends twice.
    pub(super) fn take(&mut self) -> Taken {
        if self.grace == Grace::Granted {
            self.grace = Grace::Gone;
            Taken::Grace
        } else if self.used < self.total {
            self.used += 1;
            Taken::Counted
        } else {
            Taken::Spent
        }
    }

    /// Gives one call back: a restart that the model did not choose.
    pub(super) fn refund(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// Allows one call beyond the budget, once: the last one gave nothing that could be used.
    pub(super) fn grant_grace(&mut self) {
        if self.remaining() == 0 && self.grace == Grace::Unused {
            self.grace = Grace::Granted;
        }
    }

    /// Calls taken and not given back.
    #[must_use]
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Calls left.
    #[must_use]
    pub(super) fn remaining(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }
}

/// Wall-clock time of one turn. Without a limit it is never due and never spent.
#[derive(Clone, Debug)]
pub(super) struct RunBudget {
    started: Instant,
    limit: Option<Duration>,
    told: bool,
}

impl RunBudget {
    /// A budget that starts now; 0 seconds means none.
    #[must_use]
    pub(super) fn new(seconds: u64) -> Self {
        Self { started: Instant::now(), limit: (seconds > 0).then(|| Duration::from_secs(seconds)), told: false }
    }

    /// True once 80 % have passed, until the notice was placed.
    #[must_use]
    pub(super) fn is_wrap_up_due(&self) -> bool {
        !self.told && self.limit.is_some_and(|limit| self.started.elapsed() >= limit.mul_f64(WRAP_UP_SHARE))
    }

    /// The notice was really placed.
    pub(super) fn wrap_up_placed(&mut self) {
        self.told = true;
    }

    /// Why the turn must stop now, if it must.
    #[must_use]
    pub(super) fn spent(&self) -> Option<ExitReason> {
        let limit = self.limit?;
        (self.started.elapsed() >= limit).then_some(ExitReason::RunBudgetExhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_gives_one_call_back_and_grace_is_one_call_once() {
        let mut budget = IterationBudget::new(2);
        assert_eq!([budget.take(), budget.take(), budget.take()], [Taken::Counted, Taken::Counted, Taken::Spent]);
        budget.refund();
        assert_eq!((budget.used(), budget.remaining()), (1, 1));
        assert_eq!(budget.take(), Taken::Counted);
        for expected in [Taken::Grace, Taken::Spent] {
            budget.grant_grace();
            assert_eq!(budget.take(), expected);
        }
        assert_eq!((budget.used(), budget.remaining()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wrap_up_is_due_once_and_only_until_it_was_placed() {
        let mut budget = RunBudget::new(10);
        assert!(!budget.is_wrap_up_due());
        tokio::time::advance(Duration::from_secs(8)).await;
        assert!(budget.is_wrap_up_due() && budget.is_wrap_up_due());
        budget.wrap_up_placed();
        assert!(!budget.is_wrap_up_due() && budget.spent().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(budget.spent(), Some(ExitReason::RunBudgetExhausted));
        assert_eq!(RunBudget::new(0).spent(), None);
    }
}
