//! Secrets that stood in the environment, moved out of it before anything else runs.
//!
//! What a process was started with stays readable in `/proc/PID/environ` as long as it lives: always for root,
//! and for the same user wherever the kernel is lenient. A command that the agent runs could read the daemon's
//! keys there, however clean its own environment is. So [`seal`] keeps them here and blanks that memory.
//!
//! The memory is written through `/proc/self/mem`, between the two addresses at which the kernel itself says the
//! first environment lies. No Rust value lies there, and [`seal`] is called while the process has one thread, so
//! nobody reads it meanwhile. A system that refuses the write keeps its variables where they are, and nothing else
//! changes.
//!
//! Absent on purpose: variables whose name tells nothing and that no configuration names. They cannot be told
//! from others.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use secrecy::{ExposeSecret as _, SecretString};

use crate::home_file;

/// Parts of names that stand for secrets.
const SECRET_PARTS: [&str; 9] =
    ["API_KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE"];

/// Ends of names that stand for secrets.
const SECRET_ENDS: [&str; 7] = ["_KEY", "_KEY_ID", "_PAT", "_PWD", "_JWT", "_CREDS", "_AUTH_CONFIG"];

/// The key of the configuration that names a variable with a secret.
const NAMING_KEY: &str = "api_key_env";

/// Fields of `/proc/PID/stat` behind the program's name, counted from 0: where the environment begins and ends
/// (`proc_pid_stat(5)` counts from 1 and has two more before).
const ENVIRONMENT_FIELDS: [usize; 2] = [47, 48];

static SEALED: OnceLock<BTreeMap<String, SecretString>> = OnceLock::new();

/// Whether a variable of this name holds a secret, by all that names can tell.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| upper.contains(part)) || SECRET_ENDS.iter().any(|end| upper.ends_with(end))
}

/// A sealed variable.
#[must_use]
pub fn get(name: &str) -> Option<&'static SecretString> {
    SEALED.get()?.get(name)
}

/// All sealed variables, for the user's own programs: key commands and hooks.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SEALED.get().into_iter().flatten().map(|(name, secret)| (name.as_str(), secret.expose_secret()))
}

/// Takes the secrets out of the environment. To be called before threads, and before the process becomes one whose
/// memory cannot be opened.
pub fn seal() {
    let named = named_by_configuration();
    let is_secret = |name: &str| is_secret_name(name) || named.iter().any(|known| known == name);
    let secrets: BTreeMap<String, SecretString> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_secret(name))
        .map(|(name, value)| (name, SecretString::from(value)))
        .collect();
    if !secrets.is_empty() && blank(is_secret).is_ok() {
        SEALED.set(secrets).ok();
    }
}

/// Overwrites the entries of the first environment that hold secrets. To this process they are unset afterwards.
fn blank(is_secret: impl Fn(&str) -> bool) -> io::Result<()> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let [begin, end] = ENVIRONMENT_FIELDS.map(|field| fields.get(field)?.parse::<u64>().ok());
    let (Some(begin), Some(end)) = (begin, end) else { return Err(io::ErrorKind::Unsupported.into()) };
    let environment = fs::read("/proc/self/environ")?;
    if begin == 0 || end.checked_sub(begin) != u64::try_from(environment.len()).ok() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let memory = fs::OpenOptions::new().write(true).open("/proc/self/mem")?;
    let mut at = begin;
    for entry in environment.split(|byte| *byte == 0) {
        let name = entry.split(|byte| *byte == b'=').next().and_then(|name| std::str::from_utf8(name).ok());
        if name.is_some_and(&is_secret) {
            memory.write_all_at(&vec![0; entry.len()], at)?;
        }
        at += entry.len() as u64 + 1;
    }
    Ok(())
}

/// Variables that the configuration says hold keys, whatever they are called. The text is only searched, not read:
/// a name too many does no harm, and there is no time yet for more.
fn named_by_configuration() -> Vec<String> {
    let text = configuration_file().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    names_in(&text)
}

fn names_in(text: &str) -> Vec<String> {
    let quoted = |rest: &str| {
        let rest = rest.trim_start().strip_prefix('=')?.trim_start();
        let mark = rest.chars().next().filter(|mark| matches!(mark, '"' | '\''))?;
        rest.split(mark).nth(1).map(str::to_owned)
    };
    text.split(NAMING_KEY).skip(1).filter_map(quoted).collect()
}

/// The file named by `--config`, else the one of the home folder.
fn configuration_file() -> Option<PathBuf> {
    let mut arguments = std::env::args_os();
    while let Some(argument) = arguments.next() {
        if argument == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = argument.to_str().and_then(|argument| argument.strip_prefix("--config=")) {
            return Some(path.into());
        }
    }
    Some(home_file::home().ok()?.join("config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_secrets() {
        for name in [
            "ANTHROPIC_API_KEY",
            "GITHUB_TOKEN",
            "aws_secret_access_key",
            "PGPASSWORD",
            "STRIPE_KEY",
            "GH_PAT",
            "MYSQL_PWD",
            "SSH_PASSPHRASE",
            "CI_JOB_JWT",
            "AWS_ACCESS_KEY_ID",
            "DOCKER_AUTH_CONFIG",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "SSH_AUTH_SOCK", "KEYBOARD", "COMPAT", "PWD", "OLDPWD"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn the_configuration_names_others() {
        let text =
            "[providers.a]\napi_key_env = \"MINE\"\napi_key_env='YOURS'\n# api_key_env is a key\napi_key_env = 3";
        assert_eq!(names_in(text), ["MINE", "YOURS"]);
    }
}
