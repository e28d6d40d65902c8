//! The models of a session in the order they are tried, and what has been learned about each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::provider::Endpoint;
use crate::provider::endpoint::Adjustments;

/// The session's model and its fallbacks. Kept by the session, changed by recovery.
///
/// A fallback lasts for the rest of the turn: the next one begins with the first model that does not rest.
#[derive(Debug)]
pub struct FallbackChain {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Entry,
    current_at: usize,
    /// All entries but the current one, by position.
    others: Vec<(usize, Entry)>,
}

#[derive(Clone, Debug)]
struct Entry {
    endpoint: Arc<Endpoint>,
    rests_until: Option<Instant>,
}

impl Entry {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint: Arc::new(endpoint), rests_until: None }
    }

    fn is_awake(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }
}

impl FallbackChain {
    /// A chain that begins with `primary`.
    #[must_use]
    pub fn new(primary: Endpoint, fallbacks: Vec<Endpoint>) -> Self {
        let others = fallbacks.into_iter().map(Entry::new).enumerate().map(|(at, entry)| (at + 1, entry)).collect();
        Self { state: Mutex::new(State { current: Entry::new(primary), current_at: 0, others }) }
    }

    /// The model to call now.
    #[must_use]
    pub fn current(&self) -> Arc<Endpoint> {
        Arc::clone(&self.lock().current.endpoint)
    }

    /// Begins a turn with the first model that does not rest; when all do, with the primary.
    pub fn begin_turn(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let awake = |(_, entry): &&(usize, Entry)| entry.is_awake(now);
        let first = state.others.iter().filter(awake).map(|(at, _)| *at).min();
        let primary_or_current = if state.current.is_awake(now) { state.current_at } else { usize::MAX };
        let best = first.unwrap_or(usize::MAX).min(primary_or_current);
        state.select(if best == usize::MAX { 0 } else { best });
    }

    /// Goes on with the next model that does not rest and is not the failed one under another name. Returns it.
    pub fn fall_back(&self, rest: Option<Duration>) -> Option<Arc<Endpoint>> {
        let mut state = self.lock();
        if let Some(rest) = rest {
            state.current.rests_until = Instant::now().checked_add(rest);
        }
        state.advance(|_, _| true)
    }

    /// As [`fall_back`](Self::fall_back), for a conversation that is too long for the current model: only a model whose
    /// window may be larger can take it. Of a window that nobody has named, nothing is known.
    pub fn fall_back_to_larger(&self) -> Option<Arc<Endpoint>> {
        let is_open = |endpoint: &Endpoint| endpoint.is_window_assumed && endpoint.adjustments.context_window.is_none();
        self.lock().advance(|next, failed| is_open(next) || is_open(failed) || next.window() > failed.window())
    }

    /// How many models are left to fall back to.
    #[must_use]
    pub fn fallbacks_left(&self) -> u32 {
        let state = self.lock();
        u32::try_from(state.fallbacks(|_, _| true).count()).unwrap_or(u32::MAX)
    }

    /// A chain of the same models that goes its own way from here: what befalls one does not move the other.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.lock();
        let State { current, current_at, others } = &*state;
        Self { state: Mutex::new(State { current: current.clone(), current_at: *current_at, others: others.clone() }) }
    }

    /// All models, the current one first.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let state = self.lock();
        let entries = std::iter::once(&state.current).chain(state.others.iter().map(|(_, entry)| entry));
        entries.map(|entry| Arc::clone(&entry.endpoint)).collect()
    }

    /// Takes over the context window that the server of this model has named. `None`: it names none, and is not
    /// asked again.
    pub fn learn_window(&self, of: &Endpoint, tokens: Option<u64>) {
        let mut state = self.lock();
        let State { current, others, .. } = &mut *state;
        for entry in std::iter::once(current).chain(others.iter_mut().map(|(_, entry)| entry)) {
            if entry.endpoint.is_window_assumed && is_same(&entry.endpoint, of) {
                let mut endpoint = Endpoint::clone(&entry.endpoint);
                endpoint.context_window = tokens.unwrap_or(endpoint.context_window);
                endpoint.is_window_assumed = false;
                entry.endpoint = Arc::new(endpoint);
            }
        }
    }

    /// Changes what is sent to the current model from now on. Returns whether that changed anything.
    pub fn adjust(&self, change: impl FnOnce(&mut Adjustments)) -> bool {
        let mut state = self.lock();
        let mut endpoint = Endpoint::clone(&state.current.endpoint);
        change(&mut endpoint.adjustments);
        let has_changed = endpoint.adjustments != state.current.endpoint.adjustments;
        state.current.endpoint = Arc::new(endpoint);
        has_changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Goes on with the next model that can be used and that `suits` in the place of the failed one.
    fn advance(&mut self, suits: impl Fn(&Endpoint, &Endpoint) -> bool) -> Option<Arc<Endpoint>> {
        let next = self.fallbacks(suits).min()?;
        self.select(next);
        Some(Arc::clone(&self.current.endpoint))
    }

    /// The positions of the models that can take the failed one's place.
    fn fallbacks(&self, suits: impl Fn(&Endpoint, &Endpoint) -> bool) -> impl Iterator<Item = usize> {
        let now = Instant::now();
        let failed = &self.current.endpoint;
        self.others.iter().filter_map(move |(position, entry)| {
            let endpoint = &entry.endpoint;
            let is_usable = *position > self.current_at && entry.is_awake(now) && !is_same(endpoint, failed);
            (is_usable && suits(endpoint, failed)).then_some(*position)
        })
    }

    fn select(&mut self, position: usize) {
        let current_at = self.current_at;
        if let Some((at, entry)) = self.others.iter_mut().find(|(at, _)| *at == position) {
            std::mem::swap(&mut self.current, entry);
            *at = current_at;
            self.current_at = position;
        }
    }
}

/// The same model of the same provider or at the same address fails the same way.
fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    one.model == other.model && (one.provider == other.provider || one.base_url == other.base_url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::endpoint::tests::endpoint;

    fn chain() -> FallbackChain {
        FallbackChain::new(endpoint("p", "m"), vec![endpoint("p", "m"), endpoint("f", "n"), endpoint("g", "o")])
    }

    fn current(chain: &FallbackChain) -> String {
        chain.current().id()
    }

    #[test]
    fn the_same_model_again_is_skipped_and_the_end_is_the_end() {
        let chain = chain();
        assert_eq!(chain.fall_back(None).unwrap().id(), "f/n");
        assert_eq!(chain.fall_back(None).unwrap().id(), "g/o");
        assert!(chain.fall_back(None).is_none());
        assert_eq!(current(&chain), "g/o");
    }

    #[test]
    fn a_turn_begins_with_the_primary_again() {
        let chain = chain();
        chain.fall_back(None);
        chain.begin_turn();
        assert_eq!(current(&chain), "p/m");
        assert_eq!(chain.fall_back(None).unwrap().id(), "f/n", "a failed one is eligible again");
    }

    #[test]
    fn a_resting_primary_is_left_alone() {
        let chain = FallbackChain::new(endpoint("p", "m"), vec![endpoint("f", "n")]);
        chain.fall_back(Some(Duration::from_secs(60)));
        chain.begin_turn();
        assert_eq!(current(&chain), "f/n");
        chain.fall_back(Some(Duration::from_secs(60)));
        chain.begin_turn();
        assert_eq!(current(&chain), "p/m", "when all rest, the primary");
    }

    #[test]
    fn what_is_too_long_goes_to_a_larger_window_only() {
        let sized = |name: &str, context_window| Endpoint { context_window, ..endpoint(name, "m") };
        let unknown = Endpoint { is_window_assumed: true, ..sized("u", 1_000) };
        let chain = FallbackChain::new(sized("p", 8_000), vec![sized("s", 8_000), sized("l", 9_000), unknown]);
        assert_eq!(chain.fall_back_to_larger().unwrap().id(), "l/m");
        assert_eq!(chain.fall_back_to_larger().unwrap().id(), "u/m", "nobody knows that it is no larger");
        assert!(chain.fall_back_to_larger().is_none());
        chain.begin_turn();
        assert_eq!(current(&chain), "p/m");
        let assumed = Endpoint { is_window_assumed: true, ..sized("p", 8_000) };
        let chain = FallbackChain::new(assumed, vec![sized("s", 8_000)]);
        assert_eq!(chain.fall_back_to_larger().unwrap().id(), "s/m");
        chain.begin_turn();
        chain.adjust(|adjustments| adjustments.context_window = Some(8_000));
        assert!(chain.fall_back_to_larger().is_none(), "the provider has named it");
    }

    #[test]
    fn the_servers_word_replaces_an_assumed_window_only() {
        let assumed = Endpoint { is_window_assumed: true, ..endpoint("p", "m") };
        let chain = FallbackChain::new(assumed, vec![endpoint("f", "n")]);
        for endpoint in chain.endpoints() {
            chain.learn_window(&endpoint, Some(8_192));
            chain.learn_window(&endpoint, Some(4_096));
        }
        let windows: Vec<_> = chain.endpoints().iter().map(|endpoint| endpoint.window()).collect();
        assert_eq!(windows, [8_192, 128_000]);
    }

    #[test]
    fn what_was_learned_stays_with_its_model() {
        let chain = FallbackChain::new(endpoint("p", "m"), vec![endpoint("f", "n")]);
        assert!(chain.adjust(|adjustments| adjustments.strip_reasoning = true));
        assert!(!chain.adjust(|adjustments| adjustments.strip_reasoning = true));
        assert!(!chain.fall_back(None).unwrap().adjustments.strip_reasoning);
        chain.begin_turn();
        assert!(chain.current().adjustments.strip_reasoning);
    }
}
