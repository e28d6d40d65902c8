//! How alike two short texts are: what was meant by a misspelled name.

/// Characters of a text that are looked at; nobody misspells more than that.
const MAX_CHARS: usize = 200;

/// The likeness of two texts, from 0 to 1: the share of characters they have in common, in order.
#[must_use]
pub fn likeness(one: &str, other: &str) -> f32 {
    similar::TextDiff::from_chars(start(one), start(other)).ratio()
}

/// The candidate most like the word, when their likeness reaches `threshold`. One of the same letters in another order
/// is what was meant.
pub fn nearest<S: AsRef<str>>(word: &str, candidates: impl IntoIterator<Item = S>, threshold: f32) -> Option<S> {
    let score = |name: &str| if letters(word) == letters(name) { 1.0 } else { likeness(word, name) };
    let scored = candidates.into_iter().map(|candidate| (score(candidate.as_ref()), candidate));
    let alike = scored.filter(|(score, _)| *score >= threshold);
    alike.max_by(|left, right| left.0.total_cmp(&right.0)).map(|(_, candidate)| candidate)
}

fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = start(text).chars().collect();
    letters.sort_unstable();
    letters
}

fn start(text: &str) -> &str {
    text.char_indices().nth(MAX_CHARS).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_strange_one_is_not() {
        let names = ["read_file", "write_file", "patch"];
        assert_eq!(nearest("red_file", names, 0.7), Some("read_file"));
        assert_eq!(nearest("delegate", names, 0.7), None);
        assert_eq!(nearest("modle", ["mode", "model"], 0.7), Some("model"));
        assert!(likeness(&"x".repeat(1_000_000), "x") < 0.1);
    }
}
