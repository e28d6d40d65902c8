//! The environment a command gets: the daemon's without what could hurt.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use super::marker::{Marker, VARIABLE};
use super::search_path::search_path;
use crate::tool::GitCare;
use crate::vault;

/// Set for every command: no pager, no prompt and no colours, since nobody is there to answer or to look.
pub const COMMAND_ENV: &[(&str, &str)] =
    &[("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0"), ("TERM", "dumb"), ("NO_COLOR", "1")];

/// Settings over every repository's own. Git starts a monitor behind commands that only look, and takes any folder
/// that looks like one for a repository; nobody means that by `git status`.
const WARY_GIT: &[(&str, &str)] =
    &[("core.fsmonitor", "false"), ("core.pager", "cat"), ("safe.bareRepository", "explicit")];

/// Besides, for commands that nobody was asked about.
const QUIET_GIT: &[(&str, &str)] = &[("core.hooksPath", "/dev/null")];

/// Begins of git's variables that a command keeps: who commits, and how to reach a server.
const KEPT_GIT: &[&str] = &["GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSH", "GIT_SSL_", "GIT_HTTP_", "GIT_ASKPASS"];

/// Keeps the command from programs and repositories that a workspace could have put in its way.
pub(super) fn guard(command: &mut Command, workspace: &[PathBuf], git: GitCare) {
    if let Some(path) = std::env::var_os("PATH") {
        let virtual_env = std::env::var_os("VIRTUAL_ENV");
        command.env("PATH", search_path(&path, workspace, virtual_env.as_deref()));
    }
    for (name, _) in std::env::vars_os() {
        let is_git = name.to_str().is_some_and(|name| name.starts_with("GIT_"));
        if is_git && !KEPT_GIT.iter().any(|kept| name.to_str().is_some_and(|name| name.starts_with(kept))) {
            command.env_remove(&name);
        }
    }
    let quiet = match git {
        GitCare::AsConfigured => return,
        GitCare::Wary => &[],
        GitCare::Quiet => QUIET_GIT,
    };
    let settings = WARY_GIT.iter().chain(quiet);
    command.env("GIT_CONFIG_COUNT", settings.clone().count().to_string());
    for (number, (name, value)) in settings.enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{number}"), name).env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    // A look that refreshes the index runs a hook.
    command.env("GIT_OPTIONAL_LOCKS", "0");
}

/// Variables that make a shell run or mean something else than the text that was approved.
const SHELL_CHANGERS: &[&str] = &["BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "CDPATH"];

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
    name.starts_with("TURND_")
        || name.starts_with("BASH_FUNC_")
        || SHELL_CHANGERS.contains(&name)
        || secret_env.iter().any(|secret| secret == name)
        || vault::is_secret_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_what_changes_the_shell_are_dropped() {
        let secret_env = ["MY_PROVIDER".to_owned()];
        let check = |name: &str, expected| assert_eq!(is_dropped(OsStr::new(name), &secret_env), expected, "{name}");
        for name in
            ["ANTHROPIC_API_KEY", "MY_PROVIDER", "TURND_HOME", "BASH_ENV", "BASH_FUNC_ls%%", "ENV", "STRIPE_KEY"]
        {
            check(name, true);
        }
        for name in ["PATH", "HOME", "LANG", "CARGO_HOME", "SSH_AUTH_SOCK", "KEYBOARD", "COMPAT"] {
            check(name, false);
        }
    }
}
