#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use turnd::provider::{Endpoint, responses};
use turnd_fuzz::{check, endpoint};

static ENDPOINT: LazyLock<Endpoint> = LazyLock::new(|| endpoint("codex_responses"));

fuzz_target!(|data: &[u8]| check(data, || responses::decoder(&ENDPOINT)));
