//! The permissive reading of a word: every quote, escape and expansion taken as far as it goes.

use std::collections::HashMap;

use super::word::{Word, WordKind};

/// Words one word may become through braces and splitting.
const MAX_WORDS: usize = 64;

/// Brace groups of one word that are expanded.
const MAX_BRACE_DEPTH: usize = 8;

/// Characters of a word whose braces are expanded; a longer one stays unknown.
const MAX_EXPANDED_CHARS: usize = 4096;

/// Values of variables as they are assigned in the text.
pub(super) type Variables = HashMap<String, String>;

/// A character of a word and whether quotes protect it.
#[derive(Clone, Copy)]
struct Letter {
    c: char,
    is_quoted: bool,
}

/// The words that the raw text of one word comes to.
pub(super) fn decode(raw: &str, variables: &Variables) -> Vec<Word> {
    let mut decoder = Decoder { rest: raw, out: Vec::new(), is_unknown: false, has_expansion: false, variables };
    decoder.run();
    let is_unknown = decoder.is_unknown;
    if decoder.out.len() > MAX_EXPANDED_CHARS && brace_group(&decoder.out).is_some() {
        return vec![Word::unknown(String::new())];
    }
    let mut words = Vec::new();
    expand(decoder.out, MAX_BRACE_DEPTH, &mut words);
    words.iter().flat_map(|letters| split(letters)).take(MAX_WORDS).map(|letters| word(&letters, is_unknown)).collect()
}

/// The raw text of one word when it depends on no expansion, braces and globs as they are.
pub(super) fn outline_text(raw: &str) -> Option<String> {
    let nothing = Variables::new();
    let mut decoder =
        Decoder { rest: raw, out: Vec::new(), is_unknown: false, has_expansion: false, variables: &nothing };
    decoder.run();
    (!decoder.is_unknown && !decoder.has_expansion).then(|| decoder.out.iter().map(|letter| letter.c).collect())
}

fn word(letters: &[Letter], is_unknown: bool) -> Word {
    let text: String = letters.iter().map(|letter| letter.c).collect();
    let is_glob = letters.iter().any(|letter| !letter.is_quoted && matches!(letter.c, '*' | '?' | '['));
    let kind = match (is_unknown, is_glob && text != "[") {
        (true, _) => WordKind::Unknown,
        (false, true) => WordKind::Glob,
        (false, false) => WordKind::Literal,
    };
    Word { text, kind }
}

struct Decoder<'a> {
    rest: &'a str,
    out: Vec<Letter>,
    is_unknown: bool,
    /// True when some part came from a variable.
    has_expansion: bool,
    variables: &'a Variables,
}

impl Decoder<'_> {
    fn bump(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    }

    fn push(&mut self, c: char, is_quoted: bool) {
        self.out.push(Letter { c, is_quoted });
    }

    fn run(&mut self) {
        while let Some(c) = self.bump() {
            match c {
                '\'' => self.until_quote(),
                '"' => self.double_quoted(),
                '\\' => match self.bump() {
                    Some('\n') | None => {}
                    Some(c) => self.push(c, true),
                },
                '$' => self.dollar(false),
                '`' => self.skip_backquotes(),
                c => self.push(c, false),
            }
        }
    }

    fn until_quote(&mut self) {
        while let Some(c) = self.bump() {
            if c == '\'' {
                return;
            }
            self.push(c, true);
        }
    }

    fn double_quoted(&mut self) {
        while let Some(c) = self.bump() {
            match c {
                '"' => return,
                '$' => self.dollar(true),
                '`' => self.skip_backquotes(),
                '\\' => match self.bump() {
                    Some('\n') | None => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.push(c, true),
                    Some(c) => {
                        self.push('\\', true);
                        self.push(c, true);
                    }
                },
                c => self.push(c, true),
            }
        }
    }

    fn skip_backquotes(&mut self) {
        self.is_unknown = true;
        while let Some(c) = self.bump() {
            match c {
                '`' => return,
                '\\' => {
                    self.bump();
                }
                _ => {}
            }
        }
    }

    fn dollar(&mut self, is_quoted: bool) {
        match self.rest.chars().next() {
            Some('\'') if !is_quoted => {
                self.bump();
                self.ansi_c();
            }
            Some('"') if !is_quoted => {
                self.bump();
                self.double_quoted();
            }
            Some('(') => {
                self.is_unknown = true;
                self.skip_parentheses();
            }
            Some('{') => self.braced(is_quoted),
            Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                let (name, rest) = self.rest.split_at(end);
                self.rest = rest;
                self.variable(name, is_quoted);
            }
            Some('?' | '#' | '@' | '*' | '!' | '-' | '$') => {
                self.bump();
                self.is_unknown = true;
            }
            _ => self.push('$', true),
        }
    }

    fn variable(&mut self, name: &str, is_quoted: bool) {
        self.has_expansion = true;
        match (name, self.variables.get(name)) {
            ("IFS", None) => self.push(' ', is_quoted),
            (_, Some(value)) => value.chars().for_each(|c| self.push(c, is_quoted)),
            ("HOME", None) => self.push('~', true),
            _ => self.is_unknown = true,
        }
    }

    /// `${...}`: a bare name is looked up, a default is taken, the rest is left out.
    fn braced(&mut self, is_quoted: bool) {
        self.bump();
        let mut depth = 1_usize;
        let end = self.rest.char_indices().find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at)
        });
        let end = end.unwrap_or(self.rest.len());
        let (inner, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix('}').unwrap_or(rest);
        let name_end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, operator) = inner.split_at(name_end);
        if operator.is_empty() {
            return self.variable(name, is_quoted);
        }
        self.is_unknown = true;
        match self.variables.get(name) {
            Some(value) => value.chars().for_each(|c| self.push(c, is_quoted)),
            None => {
                let default = [":-", "-", ":=", "=", ":+", "+"].iter().find_map(|sign| operator.strip_prefix(sign));
                for c in default.unwrap_or_default().chars().filter(|c| !matches!(c, '\'' | '"' | '\\')) {
                    self.push(c, is_quoted);
                }
            }
        }
    }

    fn skip_parentheses(&mut self) {
        let mut depth = 0_usize;
        while let Some(c) = self.bump() {
            match c {
                '(' => depth += 1,
                ')' if depth <= 1 => return,
                ')' => depth -= 1,
                '\\' => {
                    self.bump();
                }
                '\'' => {
                    let end = self.rest.find('\'').map_or(self.rest.len(), |end| end + 1);
                    self.rest = self.rest.get(end..).unwrap_or_default();
                }
                _ => {}
            }
        }
    }

    /// `$'...'` with its escapes.
    fn ansi_c(&mut self) {
        while let Some(c) = self.bump() {
            match c {
                '\'' => return,
                '\\' => {
                    if let Some(c) = self.ansi_escape() {
                        self.push(c, true);
                    }
                }
                c => self.push(c, true),
            }
        }
    }

    fn ansi_escape(&mut self) -> Option<char> {
        Some(match self.bump()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' | 'b' | 'e' | 'E' | 'f' | 'v' => '\u{1}',
            'x' => self.number(16, 2)?,
            'u' => self.number(16, 4)?,
            'U' => self.number(16, 8)?,
            'c' => {
                self.bump();
                '\u{1}'
            }
            c if c.is_digit(8) => {
                let first = c.to_digit(8)?;
                let more = self.digits(8, 2);
                char::from_u32(more.chars().fold(first, |n, c| n * 8 + c.to_digit(8).unwrap_or(0)) & 0xff)?
            }
            c => c,
        })
    }

    fn digits(&mut self, radix: u32, most: usize) -> String {
        let digits: String = self.rest.chars().take(most).take_while(|c| c.is_digit(radix)).collect();
        self.rest = self.rest.get(digits.len()..).unwrap_or_default();
        digits
    }

    fn number(&mut self, radix: u32, most: usize) -> Option<char> {
        let digits = self.digits(radix, most);
        char::from_u32(u32::from_str_radix(&digits, radix).ok()?)
    }
}

/// Expands unquoted `{a,b}` groups, bounded in depth and number.
fn expand(letters: Vec<Letter>, depth_left: usize, out: &mut Vec<Vec<Letter>>) {
    if out.len() >= MAX_WORDS {
        return;
    }
    let group = if depth_left == 0 { None } else { brace_group(&letters) };
    let Some((open, close, commas)) = group else {
        out.push(letters);
        return;
    };
    let bounds: Vec<usize> = std::iter::once(open).chain(commas).chain([close]).collect();
    for pair in bounds.windows(2) {
        let &[from, to] = pair else { continue };
        let choice: Vec<Letter> = [letters.get(..open), letters.get(from + 1..to), letters.get(close + 1..)]
            .into_iter()
            .flatten()
            .flatten()
            .copied()
            .collect();
        expand(choice, depth_left - 1, out);
    }
}

/// The first unquoted brace group with a comma: positions of its braces and top-level commas.
fn brace_group(letters: &[Letter]) -> Option<(usize, usize, Vec<usize>)> {
    let bare = |at: usize| letters.get(at).filter(|letter| !letter.is_quoted).map(|letter| letter.c);
    (0..letters.len()).filter(|&at| bare(at) == Some('{')).take(MAX_WORDS).find_map(|open| {
        let (mut depth, mut commas) = (0_usize, Vec::new());
        for at in open..letters.len() {
            match bare(at) {
                Some('{') => depth += 1,
                Some(',') if depth == 1 => commas.push(at),
                Some('}') if depth == 1 => return (!commas.is_empty()).then_some((open, at, commas)),
                Some('}') => depth -= 1,
                _ => {}
            }
        }
        None
    })
}

/// Splits at unquoted blanks, which come from expansions only.
fn split(letters: &[Letter]) -> Vec<Vec<Letter>> {
    let is_blank = |letter: &Letter| !letter.is_quoted && matches!(letter.c, ' ' | '\t' | '\n');
    if !letters.iter().any(is_blank) {
        return vec![letters.to_vec()];
    }
    letters.split(is_blank).filter(|piece| !piece.is_empty()).map(<[Letter]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, words: &[&str]) {
        let variables = Variables::from([("x".to_owned(), "rm -rf".to_owned()), ("q".to_owned(), "a b".to_owned())]);
        let texts: Vec<String> = decode(raw, &variables).into_iter().map(|word| word.text).collect();
        assert_eq!(texts, words, "{raw}");
    }

    #[test]
    fn every_spelling_of_a_word_comes_to_the_same_text() {
        check("rm", &["rm"]);
        check("r''m", &["rm"]);
        check("\\rm", &["rm"]);
        check("\"r\"'m'", &["rm"]);
        check("r\\\nm", &["rm"]);
        check("$'\\x72\\155'", &["rm"]);
        check("$'\\u0072m'", &["rm"]);
        check("r$()m", &["rm"]);
        check("r${unset}m", &["rm"]);
        check("r${unset:-m}", &["rm"]);
        check("r``m", &["rm"]);
        check("{rm,-rf,/}", &["rm", "-rf", "/"]);
        check("rm${IFS}-rf", &["rm", "-rf"]);
        check("$x", &["rm", "-rf"]);
        check("\"$q\"", &["a b"]);
        check("'{a,b}'", &["{a,b}"]);
        check("{}", &["{}"]);
        check("a{b,{c,d}}", &["ab", "ac", "ad"]);
    }

    #[test]
    fn nested_braces_stay_bounded() {
        assert!(decode(&"{a,b}".repeat(40), &Variables::new()).len() <= MAX_WORDS);
        assert!(decode(&"{".repeat(20_000), &Variables::new()).len() <= MAX_WORDS);
    }
}
