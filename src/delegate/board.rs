//! What is shown of children while they run: one short line each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tool::Progress;
use crate::tool::output::one_line;

/// Characters of a goal and of what a child does; a board of the most children stays far below a line's limit.
const GOAL_CHARS: usize = 80;
const DOING_CHARS: usize = 120;

/// The lines of one call's children.
#[derive(Debug)]
pub(super) struct Board {
    lines: Mutex<Vec<Line>>,
    progress: Progress,
}

#[derive(Debug)]
struct Line {
    goal: String,
    doing: String,
}

/// One child's line.
#[derive(Clone, Debug)]
pub struct Slot {
    board: Arc<Board>,
    index: usize,
}

impl Board {
    /// A board with a line for each goal; nothing is shown yet.
    pub(super) fn new<'a>(goals: impl Iterator<Item = &'a str>, progress: Progress) -> Arc<Self> {
        let line = |goal: &str| Line { goal: one_line(goal, GOAL_CHARS), doing: "waits for its turn".into() };
        Arc::new(Self { lines: Mutex::new(goals.map(line).collect()), progress })
    }

    pub(super) fn slot(self: &Arc<Self>, index: usize) -> Slot {
        Slot { board: Arc::clone(self), index }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Says what the child does now.
    pub fn show(&self, doing: &str) {
        let mut lines = self.board.lock();
        if let Some(line) = lines.get_mut(self.index) {
            line.doing = one_line(doing, DOING_CHARS);
        }
        let shown: Vec<_> =
            (1..).zip(lines.iter()).map(|(number, line)| format!("{number}. {}: {}", line.goal, line.doing)).collect();
        drop(lines);
        self.board.progress.show(shown.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Display;

    #[test]
    fn each_child_has_one_short_line() {
        let (progress, shown) = Progress::channel();
        let board = Board::new(["mend\nit", &"x".repeat(500)].into_iter(), progress);
        board.slot(1).show(&"y".repeat(10_000));
        let Display::Text(text) = shown.borrow().clone() else { panic!("no text") };
        assert!(text.starts_with("1. mend it: waits for its turn\n2. xxx"), "{text}");
        assert_eq!(text.lines().count(), 2);
        assert!(text.len() < 600);
    }
}
