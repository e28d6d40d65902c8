//! Text that a user decides on, with everything invisible made visible.
//!
//! Control, bidirectional, zero-width, tag and look-alike characters come out as `\u{...}`, so that
//! what is shown is what runs. Letters of other scripts stay as they are unless one word mixes them
//! with Latin, which is how a look-alike hides.

/// Escapes text for a title, a question or an option name. One line: newlines become `\n`.
#[must_use]
pub fn escape(text: &str) -> String {
    escape_with(text, Lines::Escaped)
}

/// Like [`escape`], but newlines stay: for a command shown over several lines.
#[must_use]
pub fn escape_lines(text: &str) -> String {
    escape_with(text, Lines::Kept)
}

/// How many characters of the text [`escape_lines`] would change.
#[must_use]
pub fn hidden_count(text: &str) -> usize {
    words(text).map(|word| word.chars().filter(|&c| c != '\n' && must_escape(c, is_mixed(word))).count()).sum()
}

#[derive(Clone, Copy, PartialEq)]
enum Lines {
    Escaped,
    Kept,
}

fn escape_with(text: &str, lines: Lines) -> String {
    let mut out = String::with_capacity(text.len());
    for word in words(text) {
        let mixed = is_mixed(word);
        for c in word.chars() {
            match c {
                '\n' if lines == Lines::Kept => out.push(c),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if must_escape(c, mixed) => out.extend(c.escape_unicode()),
                c => out.push(c),
            }
        }
    }
    out
}

/// The text in pieces that end after each character that is no letter, so that scripts are compared
/// within a word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|c: char| !c.is_alphanumeric())
}

/// True for a word of Latin letters with Greek, Cyrillic or Armenian ones among them.
fn is_mixed(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(is_look_alike_script)
}

fn must_escape(c: char, mixed: bool) -> bool {
    is_invisible(c) || is_look_alike_sign(c) || (mixed && is_look_alike_script(c))
}

fn is_look_alike_script(c: char) -> bool {
    matches!(c, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{531}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}')
}

/// Signs drawn like an ASCII one that means something to a shell or in a path, and alphabets of
/// styled Latin letters.
fn is_look_alike_sign(c: char) -> bool {
    matches!(c,
        '\u{1c3}' | '\u{2c8}' | '\u{2d0}' | '\u{37e}' | '\u{589}' | '\u{5c3}' | '\u{5f3}'
        | '\u{2010}'..='\u{2012}' | '\u{2024}' | '\u{2044}' | '\u{2212}' | '\u{2215}' | '\u{2216}' | '\u{2223}'
        | '\u{2236}' | '\u{223c}' | '\u{2571}' | '\u{2572}' | '\u{2758}' | '\u{29f5}' | '\u{29f8}' | '\u{29f9}'
        | '\u{a789}' | '\u{fe13}'..='\u{fe19}' | '\u{fe50}'..='\u{fe6b}'
        | '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}')
}

/// Characters that show nothing, or that change how their neighbours are shown.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        assert_eq!(escape(text), shown);
    }

    #[test]
    fn plain_text_is_untouched() {
        check(
            "cargo test --lib 'größe' -- naïve 日本語 привет λόγος",
            "cargo test --lib 'größe' -- naïve 日本語 привет λόγος",
        );
        assert_eq!(hidden_count("cargo test\n'größe'"), 0);
    }

    #[test]
    fn what_cannot_be_seen_is_shown_as_code_points() {
        check("a\u{1b}[2Kb", "a\\u{1b}[2Kb");
        check("rm\u{202e}txt", "rm\\u{202e}txt");
        check("l\u{200b}s", "l\\u{200b}s");
        check("x\u{e0041}\u{e007f}", "x\\u{e0041}\\u{e007f}");
        check("a\u{a0}b\u{2003}c", "a\\u{a0}b\\u{2003}c");
        check("two\nlines\ttab\rreturn", "two\\nlines\\ttab\\rreturn");
        check("\u{7f}\u{85}\u{feff}\u{2066}\u{fe0f}", "\\u{7f}\\u{85}\\u{feff}\\u{2066}\\u{fe0f}");
    }

    #[test]
    fn look_alikes_are_shown_as_code_points() {
        check("p\u{430}ypal.test", "p\\u{430}ypal.test");
        check("src\u{2215}x", "src\\u{2215}x");
        check("ls\u{ff1b}rm", "ls\\u{ff1b}rm");
        check("\u{1d5cb}\u{1d5c6} x", "\\u{1d5cb}\\u{1d5c6} x");
    }

    #[test]
    fn kept_lines_escape_everything_else_and_are_counted() {
        assert_eq!(escape_lines("a\nb\rc\u{200d}"), "a\nb\\rc\\u{200d}");
        assert_eq!(hidden_count("a\nb\rc\u{200d}"), 2);
    }
}
