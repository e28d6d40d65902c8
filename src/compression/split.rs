//! Which messages stay. Cuts fall between steps only, so a call and its results are never parted.

use crate::message::{Message, Origin};

use super::estimate::{message_tokens, tokens};

/// What is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protect {
    /// Messages at the beginning, as long as there is no summary yet.
    pub(super) first: usize,
    /// Messages at the end.
    pub(super) last: usize,
    /// Messages at the end whatever their size; with 0 not even the newest step is kept.
    pub(super) least: usize,
    /// Tokens at the end.
    pub(super) tail_tokens: u64,
}

/// The places of the messages that go, in order; empty when nothing can.
pub(super) fn dropped(history: &[Message], protect: Protect) -> Vec<usize> {
    let tail = tail(history, protect);
    let head = head(history, protect).min(tail);
    let request = history.iter().rposition(Message::is_request);
    let is_summary_at = |place: usize| history.get(place).is_some_and(is_summary);
    // There is one summary: the new one takes the place of the old one, wherever that stands.
    let goes = |place: &usize| (*place < tail && Some(*place) != request) || is_summary_at(*place);
    let dropped: Vec<usize> = (head..history.len()).filter(goes).collect();
    // To summarise a summary alone gains nothing.
    let is_worth_it = dropped.iter().any(|place| !is_summary_at(*place));
    if is_worth_it { dropped } else { Vec::new() }
}

/// Where the kept end begins.
fn tail(history: &[Message], protect: Protect) -> usize {
    let mut tail = history.len();
    let mut cost = 0_u64;
    for place in (0..history.len()).rev() {
        let Some(message) = history.get(place) else { break };
        cost = cost.saturating_add(message_tokens(message));
        if !begins_step(message) {
            continue;
        }
        let rows = history.len() - place;
        let is_kept = (tail == history.len() && protect.least > 0)
            || rows <= protect.least
            || cost <= protect.tail_tokens
            || (rows <= protect.last && cost <= protect.tail_tokens.saturating_mul(3) / 2);
        if !is_kept {
            break;
        }
        tail = place;
    }
    tail
}

/// Where the kept beginning ends. After a first compaction there is none: the summary is the beginning.
fn head(history: &[Message], protect: Protect) -> usize {
    if history.iter().any(is_summary) {
        return 0;
    }
    let wanted = protect.first.min(history.len());
    let rest = history.iter().skip(wanted).position(begins_step);
    let end = rest.map_or(history.len(), |more| wanted + more);
    let is_small = history.get(..end).is_some_and(|head| tokens(head) <= protect.tail_tokens);
    if is_small { end } else { 0 }
}

/// A tool result belongs to the step before it.
fn begins_step(message: &Message) -> bool {
    !matches!(message, Message::Tool(_))
}

pub(super) fn is_summary(message: &Message) -> bool {
    matches!(message, Message::User(user) if user.origin == Origin::Compaction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::property_tests::{answer, call, result, summary};

    const LOOSE: Protect = Protect { first: 0, last: 2, least: 1, tail_tokens: 10 };

    fn check(history: &[Message], protect: Protect, expected: &[usize]) {
        assert_eq!(dropped(history, protect), expected);
    }

    #[test]
    fn a_call_stays_with_its_results() {
        let user = || Message::user("u".repeat(100));
        check(&[user(), call("a"), result("a", "x"), answer("b"), user()], LOOSE, &[0, 1, 2, 3]);
        check(&[user(), call("a"), result("a", &"x".repeat(100))], LOOSE, &[]);
        check(&[user(), call("a"), result("a", "x"), call("b"), result("b", "x")], LOOSE, &[1, 2]);
    }

    #[test]
    fn the_newest_request_stays_wherever_it_stands() {
        let history = [Message::user("old"), answer("x"), Message::user("new"), call("a"), result("a", "x"), call("b")];
        check(&history, LOOSE, &[0, 1, 3, 4]);
    }

    #[test]
    fn the_beginning_stays_once_and_only_if_it_is_small() {
        let history = [Message::user("1"), answer("2"), Message::user("3"), answer("4"), Message::user("5")];
        check(&history, Protect { first: 1, tail_tokens: 7, ..LOOSE }, &[1, 2, 3]);
        check(&history, Protect { first: 1, tail_tokens: 6, ..LOOSE }, &[0, 1, 2, 3]);
        let again = [summary("s"), answer("2"), Message::user("3"), answer("4"), Message::user("5")];
        check(&again, Protect { first: 1, tail_tokens: 7, ..LOOSE }, &[0, 1, 2, 3]);
    }

    #[test]
    fn a_summary_alone_is_not_summarised_again() {
        check(&[summary("s"), Message::user("1"), call("a"), result("a", "x")], LOOSE, &[]);
    }
}
