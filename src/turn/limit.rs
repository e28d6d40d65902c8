//! How much of a tool's result reaches the model.
//!
//! A result over the limit is kept whole in a file, and the model gets its head, its tail and the way there.
//! The limits shrink with the model's window; what one batch gives together is limited too. `read_file` is
//! exempt: it has a window of its own, and it is how the rest is read.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::message::{Part, ToolResult};
use crate::tool::ToolContext;
use crate::tool::output::cap;
use crate::tool::spill::Kept;

use super::context::Scope;

/// Characters that a result keeps which came when its batch had given enough.
const PREVIEW_CHARS: usize = 1_500;

/// Characters of context that one hook may give the model with each request of a turn.
const MAX_HOOK_CHARS: usize = 10_000;

/// Characters that are left of a longer one.
const HOOK_PREVIEW_CHARS: usize = 1_000;

/// The least that a small window leaves for one result.
const MIN_CHARS: usize = 8_000;

/// Characters of a token, roughly.
const CHARS_PER_TOKEN: u64 = 4;

/// Characters that the results of the batch under way have given the model so far.
#[derive(Debug, Default)]
pub(super) struct BatchSize(AtomicUsize);

impl BatchSize {
    /// A new batch begins.
    pub(super) fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Takes the room for a result and says how many characters it may have.
    fn take(&self, wanted: usize, each: usize) -> usize {
        let before = self.0.load(Ordering::Relaxed);
        let is_full = before.saturating_add(wanted.min(each)) > 2 * each;
        let allowed = if is_full { PREVIEW_CHARS.min(each) } else { each };
        self.0.fetch_add(wanted.min(allowed), Ordering::Relaxed);
        allowed
    }
}

/// Characters that one result may have: as configured, but at most 15 % of the window.
fn limit_for(configured: usize, window_tokens: u64) -> usize {
    let share = window_tokens.saturating_mul(CHARS_PER_TOKEN) / 100 * 15;
    configured.min(usize::try_from(share).unwrap_or(usize::MAX).max(MIN_CHARS))
}

/// Shortens what is too long, and keeps it whole where that is possible. `whole` is where it is already.
pub(super) async fn shorten<Io>(scope: &Scope<'_, Io>, result: &mut ToolResult, whole: Option<&Kept>) {
    if result.name == "read_file" {
        return;
    }
    let context = &scope.context.tool_context;
    let each = limit_for(context.limits.max_result_chars, scope.context.chain.current().window());
    for part in &mut result.content {
        let Part::Text { text } = part else { continue };
        let chars = text.chars().count();
        let allowed = scope.batch_size.take(chars, each);
        if chars <= allowed {
            continue;
        }
        let note = match whole {
            Some(kept) => kept.note(),
            None => keep(context, text).await,
        };
        *text = cap(text, allowed, &note).into_owned();
    }
}

/// Keeps a text whole where that is possible; gives the way there.
async fn keep(context: &ToolContext, text: &str) -> String {
    let Some(spill) = context.spill.clone() else { return "ask for less".into() };
    let text = text.to_owned();
    match tokio::task::spawn_blocking(move || spill.keep(&text)).await {
        Ok(Ok(kept)) => kept.note(),
        Ok(Err(error)) => format!("it could not be kept whole: {error}"),
        Err(error) => format!("it could not be kept whole: {error}"),
    }
}

/// What hooks want the model to know, as one text; a long piece becomes its head, its tail and the way to the rest.
pub(crate) async fn hook_context(context: &ToolContext, mut pieces: Vec<String>) -> Option<String> {
    for piece in &mut pieces {
        if piece.chars().count() > MAX_HOOK_CHARS {
            let note = keep(context, piece).await;
            *piece = cap(piece, HOOK_PREVIEW_CHARS, &note).into_owned();
        }
    }
    (!pieces.is_empty()).then(|| pieces.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_window_down_to_a_floor() {
        assert_eq!(limit_for(100_000, 200_000), 100_000);
        assert_eq!(limit_for(100_000, 100_000), 60_000);
        assert_eq!(limit_for(100_000, 4_000), 8_000);
        assert_eq!(limit_for(500, 200_000), 500);
    }

    #[test]
    fn a_batch_gives_two_full_results_and_then_previews() {
        let size = BatchSize::default();
        let given: Vec<usize> = (0..4).map(|_| size.take(250_000, 100_000)).collect();
        assert_eq!(given, [100_000, 100_000, 1_500, 1_500]);
        assert_eq!(size.take(100, 100_000), 1_500);
        size.begin();
        assert_eq!(size.take(250_000, 100_000), 100_000);
    }
}
