//! Characters that a person does not see and a model reads: made visible before they reach either.
//!
//! Tag, bidirectional, zero-width and control characters carry instructions past whoever reviews a file. What
//! scripts and emoji need stays: joiners between their letters, one variation selector behind a sign.

/// The text with everything hidden shown as `\u{...}`, and how many characters that were. `None`: it hides nothing.
#[must_use]
pub fn reveal(text: &str) -> Option<(String, usize)> {
    if !text.chars().any(is_hidden) {
        return None;
    }
    let mut shown = String::with_capacity(text.len());
    let mut count = 0;
    let mut before = '\0';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if is_hidden(c) && !is_needed(before, c, chars.peek().copied()) {
            shown.extend(c.escape_unicode());
            count += 1;
        } else {
            shown.push(c);
        }
        before = c;
    }
    (count > 0).then_some((shown, count))
}

fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        || is_selector(c)
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// True where a script or an emoji is not itself without the character.
fn is_needed(before: char, c: char, after: Option<char>) -> bool {
    let is_sign = |c: char| !c.is_ascii() && (!is_hidden(c) || is_selector(c));
    match c {
        '\u{200c}' | '\u{200d}' => is_sign(before) && after.is_some_and(|after| is_sign(after) && !is_selector(after)),
        // The keycap emoji have one behind an ASCII digit.
        '\u{fe0f}' if before.is_ascii_digit() || matches!(before, '#' | '*') => after == Some('\u{20e3}'),
        c if is_selector(c) => !before.is_ascii() && !is_hidden(before),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_shown_and_counted() {
        let check =
            |text: &str, shown: &str, count| assert_eq!(reveal(text), Some((shown.to_owned(), count)), "{text:?}");
        check("a\u{e0073}\u{e0064}b", "a\\u{e0073}\\u{e0064}b", 2);
        check("x\u{202e}y\u{2066}", "x\\u{202e}y\\u{2066}", 2);
        check("no\u{200b}thing", "no\\u{200b}thing", 1);
        check("\u{feff}bom", "\\u{feff}bom", 1);
        check("a\u{1b}[31m\0", "a\\u{1b}[31m\\u{0}", 2);
        check("a\u{200d}b", "a\\u{200d}b", 1);
        check("\u{1f600}\u{fe01}\u{fe02}", "\u{1f600}\u{fe01}\\u{fe02}", 1);
        check("a\u{e0101}\u{e0102}", "a\\u{e0101}\\u{e0102}", 2);
    }

    #[test]
    fn what_scripts_and_emoji_need_stays() {
        for text in ["plain\r\n\ttext", "größe 日本語 שלום مرحبا", "👩‍👩‍👧 ❤️ 1️⃣ 🏳️‍🌈", "می‌خواهم", "क्‍ष", "葛\u{e0100}"]
        {
            assert_eq!(reveal(text), None, "{text:?}");
        }
    }
}
