#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use turnd::provider::{Endpoint, chat_completions};
use turnd_fuzz::{check, endpoint};

static ENDPOINT: LazyLock<Endpoint> = LazyLock::new(|| endpoint("chat_completions"));

fuzz_target!(|data: &[u8]| check(data, || chat_completions::decoder(&ENDPOINT)));
