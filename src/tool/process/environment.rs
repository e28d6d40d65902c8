//! The environment a command gets: the daemon's without what could hurt.

use std::ffi::OsStr;
use std::process::Command;

use super::marker::{Marker, VARIABLE};

/// Set for every command: no pager, no prompt and no colours, since nobody is there to answer or to look.
pub const COMMAND_ENV: &[(&str, &str)] =
    &[("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0"), ("TERM", "dumb"), ("NO_COLOR", "1")];

/// Variables that make a shell run or mean something else than the text that was approved.
const SHELL_CHANGERS: &[&str] = &["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "CDPATH"];

/// Parts of names that stand for secrets.
const SECRET_PARTS: &[&str] = &["API_KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// Ends of names that stand for secrets.
const SECRET_ENDS: &[&str] = &["_KEY", "_PAT"];

/// Takes out what the command must not see and puts in what it must.
pub(super) fn clean(command: &mut Command, secret_env: &[String], marker: &Marker) {
    for (name, _) in std::env::vars_os() {
        if is_dropped(&name, secret_env) {
            command.env_remove(&name);
        }
    }
    command.envs(COMMAND_ENV.iter().copied()).env(VARIABLE, marker.value());
}

fn is_dropped(name: &OsStr, secret_env: &[String]) -> bool {
    // A name that is no text cannot be judged.
    let Some(name) = name.to_str() else { return true };
    let upper = name.to_ascii_uppercase();
    name.starts_with("TURND_")
        || name.starts_with("BASH_FUNC_")
        || SHELL_CHANGERS.contains(&name)
        || secret_env.iter().any(|secret| secret == name)
        || SECRET_PARTS.iter().any(|part| upper.contains(part))
        || SECRET_ENDS.iter().any(|end| upper.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_what_changes_the_shell_are_dropped() {
        let secret_env = ["MY_PROVIDER".to_owned()];
        let check = |name: &str, expected| assert_eq!(is_dropped(OsStr::new(name), &secret_env), expected, "{name}");
        for name in ["ANTHROPIC_API_KEY", "GITHUB_TOKEN", "aws_secret_access_key", "PGPASSWORD", "MY_PROVIDER"] {
            check(name, true);
        }
        for name in ["TURND_HOME", "BASH_ENV", "BASH_FUNC_ls%%", "ENV", "STRIPE_KEY", "GH_PAT"] {
            check(name, true);
        }
        for name in ["PATH", "HOME", "LANG", "CARGO_HOME", "SSH_AUTH_SOCK", "KEYBOARD", "COMPAT"] {
            check(name, false);
        }
    }
}
