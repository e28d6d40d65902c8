//! `[`, `[[` and `test`: only forms that evaluate nothing.
//!
//! The shell reads `a[$(x)]` as an element whose index it works out, and so runs `x`, wherever a test
//! takes a number or the name of a variable.

use super::{Assessment, may_be_option};
use crate::approval::shell::{Command, Word, WordKind};

const UNARY: [&str; 17] =
    ["-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-n", "-z", "-S", "-p", "-b", "-c", "-O", "-G"];

const JOINING: [&str; 9] = ["=", "==", "!=", "!", "-a", "-o", "-nt", "-ot", "-ef"];

const COMPARING_NUMBERS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

pub(super) fn assess(name: &str, command: &Command) -> Assessment {
    let arguments = command.arguments();
    let mut out = Assessment { is_read_only: true, ..Assessment::default() };
    let is_double = name == "[[";
    // In `[[` the operands of these are computed, the value of a variable too.
    let computes = is_double && arguments.iter().any(|word| COMPARING_NUMBERS.contains(&word.text.as_str()));
    if command.may_split && !is_double {
        out.refuse("is given words that are only known when it runs", name);
    }
    let operands = arguments.strip_suffix(&[Word::literal("]")]).unwrap_or(arguments);
    for (at, word) in operands.iter().enumerate() {
        let text = word.text.as_str();
        let is_plain = match word.kind {
            _ if is_operator(word) => true,
            WordKind::Literal if computes => is_number(text),
            WordKind::Literal => (!text.starts_with('-') || is_number(text)) && !text.contains(['[', '$', '`', '(']),
            _ if is_double => !computes,
            WordKind::Glob => !may_be_option(word),
            WordKind::Unknown => is_operand(operands, at),
        };
        if !is_plain {
            out.refuse("evaluates a test that can run commands", text);
        }
    }
    out
}

/// True for a word that cannot be taken for an operator, whatever it turns out to be: it stands beside one,
/// or alone.
fn is_operand(words: &[Word], at: usize) -> bool {
    let is_beside = |neighbour: Option<&Word>| neighbour.is_some_and(is_operator);
    words.len() == 1
        || is_beside(at.checked_sub(1).and_then(|before| words.get(before)))
        || is_beside(words.get(at + 1))
}

fn is_operator(word: &Word) -> bool {
    let listed = |text: &str| UNARY.contains(&text) || JOINING.contains(&text) || COMPARING_NUMBERS.contains(&text);
    word.as_literal().is_some_and(listed)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}
