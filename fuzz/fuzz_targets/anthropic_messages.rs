#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use turnd::provider::{Endpoint, anthropic_messages};
use turnd_fuzz::{check, endpoint};

static ENDPOINT: LazyLock<Endpoint> = LazyLock::new(|| endpoint("anthropic_messages"));

fuzz_target!(|data: &[u8]| check(data, || anthropic_messages::decoder(&ENDPOINT)));
