//! `turnd login` and `turnd logout`: a provider's key in a file that only its owner can read.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;

use crate::config::{Config, ConfigFlags};
use crate::provider::catalog::check_provider;
use crate::provider::credentials::{remove_key, store_key};

/// Arguments of `turnd login`.
#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    /// The provider's name, for example anthropic
    provider: String,
    /// Configuration file that has the provider (default: config.toml in TURND_HOME)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Arguments of `turnd logout`.
#[derive(Debug, Args)]
pub(super) struct LogoutArgs {
    /// The provider's name, as it was given to `turnd login`
    provider: String,
}

/// Asks for a key, without showing it, and keeps it. A key on stdin is taken when there is no terminal.
pub(super) fn login(args: &LoginArgs, home: &Path) -> Result<(), String> {
    let config = Config::load(home, &ConfigFlags { config: args.config.clone(), ..ConfigFlags::default() });
    // A configuration that cannot be read does not say which providers there are.
    if config.problem.is_none() {
        check_provider(&config, &args.provider).map_err(|error| error.to_string())?;
    }
    let key = read_key(&args.provider)?;
    let key = key.trim();
    if key.is_empty() {
        return Err(format!("no key was given for {}: type one, or pass it on standard input", args.provider));
    }
    store_key(home, &args.provider, &SecretString::from(key)).map_err(|error| error.to_string())?;
    writeln!(std::io::stderr(), "The key for {} is stored in {}.", args.provider, home.display()).ok();
    Ok(())
}

/// Removes a stored key.
pub(super) fn logout(args: &LogoutArgs, home: &Path) -> Result<(), String> {
    match remove_key(home, &args.provider).map_err(|error| error.to_string())? {
        true => Ok(()),
        false => Err(format!("there is no stored key for {}", args.provider)),
    }
}

fn read_key(provider: &str) -> Result<String, String> {
    let _hidden = if std::io::stdin().is_terminal() {
        write!(std::io::stderr(), "Key for {provider} (not shown): ").ok();
        Some(HiddenInput::begin())
    } else {
        None
    };
    let mut key = String::new();
    std::io::stdin().lock().read_line(&mut key).map_err(|error| format!("cannot read the key: {error}"))?;
    Ok(key)
}

/// Keeps the terminal from showing what is typed, until dropped.
struct HiddenInput(Option<Termios>);

impl HiddenInput {
    fn begin() -> Self {
        let Ok(before) = tcgetattr(std::io::stdin()) else { return Self(None) };
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        let is_hidden = tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden).is_ok();
        Self(is_hidden.then_some(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Nothing can be done about a terminal that is gone.
            tcsetattr(std::io::stdin(), OptionalActions::Flush, before).ok();
            writeln!(std::io::stderr()).ok();
        }
    }
}
