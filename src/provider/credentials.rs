//! Keys of providers: where they come from, which one is used next, and that they never show.

use std::sync::{Mutex, PoisonError};

use secrecy::SecretString;

/// The keys of one provider.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: Mutex<Vec<SecretString>>,
}

impl KeyRing {
    /// A ring of these keys, used in this order.
    #[must_use]
    pub fn new(keys: Vec<SecretString>) -> Self {
        Self { keys: Mutex::new(keys) }
    }

    /// True when there is no key at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}
