//! Programs that run what some word of theirs names, after words of their own that differ from one to the next.
//!
//! Only harm is looked for behind them, so every word that could be the program is taken for it.

use super::unwrap::Inner;
use super::word::{Command, Word};

/// Words that are tried as the program.
const MAX_TRIED: usize = 8;

/// Programs that do nothing but run another.
const BARE: &str = "setarch linux64 linux32 i386 x86_64 chronic cpulimit firejail bwrap proot fakeroot dbus-launch \
    ssh-agent hyperfine perf valgrind gosu su-exec tini dumb-init runcon catchsegv trickle softlimit start-stop-daemon sg \
    watchexec concurrently nodemon";

/// Programs that fetch or find another by its name and run it.
const FETCHING: &str = "npx bunx pipx uvx";

/// Programs of which a subcommand runs another.
const WITH_SUBCOMMAND: &str =
    "uv poetry pipenv conda mamba mise asdf bundle pnpm yarn npm bun direnv nix rye pdm hatch devbox ip";

/// The subcommands that do.
const SUBCOMMANDS: &str = "run exec x dlx shell develop";

fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == name)
}

/// True for a program that does nothing but run another.
pub(super) fn is_bare(name: &str) -> bool {
    // The system's loader starts the program that it is given.
    lists(BARE, name) || name.starts_with("ld-linux") || name.starts_with("ld.so")
}

/// What a runner could run; `None` when the program is none.
pub(super) fn inner(name: &str, command: &Command) -> Option<Vec<Inner>> {
    let arguments = command.arguments();
    if is_bare(name) || lists(FETCHING, name) {
        return Some(tails(name, command, arguments));
    }
    let at =
        arguments.iter().position(|word| lists(SUBCOMMANDS, &word.text)).filter(|_| lists(WITH_SUBCOMMAND, name))?;
    Some(tails(name, command, arguments.get(at + 1..).unwrap_or_default()))
}

fn tails(name: &str, command: &Command, words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().take(MAX_TRIED) {
        if word.text.contains(' ') {
            found.push(Inner::Text(word.text.clone()));
        } else if !word.text.starts_with('-') {
            found.push(Inner::Command(Command {
                words: words.get(at..).unwrap_or_default().to_vec(),
                redirects: command.redirects.clone(),
                wrappers: vec![name.to_owned()],
                ..Command::default()
            }));
        }
    }
    found
}
