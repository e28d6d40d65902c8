//! Streams that servers sent, damaged at random: no decoder may panic, and none may say something else when
//! the same bytes arrive in other pieces. `PROPTEST_CASES` asks for more cases.

use proptest::prelude::*;

use super::golden_tests::{bodies, decode_chunks, decode_whole, endpoint};
use super::*;

/// One change of a stream.
#[derive(Clone, Debug)]
enum Damage {
    /// A byte becomes another.
    Replace(prop::sample::Index, u8),
    /// A piece is left out.
    Remove(prop::sample::Index, usize),
    /// A piece comes twice.
    Repeat(prop::sample::Index, usize),
    /// A word of the format stands where another stood.
    Insert(prop::sample::Index, &'static str),
}

const WORDS: [&str; 12] =
    ["null", "{}", "[]", "\"\"", "-1", "1e999", "\\ud83d", "\n\n", "data: ", "\"type\":", "tool_use", "\r"];

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (place(), 1_usize..200).prop_map(|(at, length)| Damage::Remove(at, length)),
        (place(), 1_usize..400).prop_map(|(at, length)| Damage::Repeat(at, length)),
        (place(), prop::sample::select(WORDS.to_vec())).prop_map(|(at, word)| Damage::Insert(at, word)),
    ]
}

fn apply(body: &mut Vec<u8>, damage: &Damage) {
    if body.is_empty() {
        return;
    }
    let (at, length) = match damage {
        Damage::Replace(at, byte) => {
            let at = at.index(body.len());
            body[at] = *byte;
            return;
        }
        Damage::Insert(at, word) => {
            let at = at.index(body.len());
            return drop(body.splice(at..at, word.bytes()));
        }
        Damage::Remove(at, length) | Damage::Repeat(at, length) => (at.index(body.len()), *length),
    };
    let end = (at + length).min(body.len());
    match damage {
        Damage::Remove(..) => drop(body.drain(at..end)),
        _ => {
            let piece = body[at..end].to_vec();
            body.splice(at..at, piece);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_streams_decode_the_same_however_they_are_cut(
        mode in prop::sample::select(vec![ApiMode::ChatCompletions, ApiMode::AnthropicMessages, ApiMode::CodexResponses]),
        foreign in prop::bool::weighted(0.1),
        file in any::<prop::sample::Index>(),
        damages in prop::collection::vec(damage(), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let bodies = bodies(if foreign { ApiMode::CodexResponses } else { mode });
        let mut body = bodies[file.index(bodies.len())].clone();
        damages.iter().for_each(|damage| apply(&mut body, damage));
        let decoder = || format::decoder(&endpoint(mode, "m")).expect("spoken over HTTP");
        let whole = decode_chunks(decoder(), [body.as_slice()]);
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        places.extend([0, body.len()]);
        places.sort_unstable();
        let chunks = places.windows(2).map(|pair| &body[pair[0]..pair[1]]);
        prop_assert_eq!(decode_chunks(decoder(), chunks), whole);
        // Whatever it says, it says it without a panic.
        drop(decode_whole(decoder(), &body));
    }
}
