//! Values that their type allows and their meaning does not, refused with their place like a wrong type.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A count of which 0 would leave nothing to work with.
pub(super) fn at_least_one<'de, D, N>(deserializer: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: Deserialize<'de> + PartialOrd + From<u8>,
{
    let count = N::deserialize(deserializer)?;
    if count < N::from(1) { Err(D::Error::custom("must be at least 1")) } else { Ok(count) }
}

/// A program and its arguments.
pub(super) fn program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let command = Vec::<String>::deserialize(deserializer)?;
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command),
        _ => Err(D::Error::custom("must name a program")),
    }
}

/// A limit in seconds.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let is_usable = seconds > 0.0 && Duration::try_from_secs_f64(seconds).is_ok();
    if is_usable { Ok(seconds) } else { Err(D::Error::custom("must be a number of seconds above 0")) }
}
