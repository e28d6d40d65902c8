//! The command line: what each command is called, and where its work is done.

mod demo;
mod doctor;
mod log;
mod login;
mod rules;
mod run;
mod schema;
pub mod sessions;
mod terminal;
mod trust;

use std::ffi::OsString;
use std::io::Write;

use clap::{Parser, Subcommand};

use crate::app::{self, exit_code};
use crate::config::{Config, ConfigFlags};
use crate::home_file;
use crate::provider::redact::Redactor;
use crate::script::ScriptArgs;

/// Hosts an AI agent over stdio and speaks the Agent Client Protocol.
///
/// Without a command it serves the protocol on standard input and output until the client leaves.
#[derive(Debug, Parser)]
#[command(name = "turnd", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    config: ConfigFlags,
    #[command(flatten)]
    log: log::LogFlags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the Agent Client Protocol on stdio (the default)
    Acp,
    /// Run one turn in this folder; the answer goes to stdout, progress to stderr
    Run(run::RunArgs),
    /// Show a whole turn with no key and no network: a scripted model repairs a failing program
    Demo(demo::DemoArgs),
    /// Run transcript files against this or any other ACP agent
    Script(ScriptArgs),
    /// List, show, export and delete stored sessions
    Sessions(sessions::SessionsArgs),
    /// List and take back approvals that were given for good
    Rules(rules::RulesArgs),
    /// Show what a workspace's own configuration would do, and trust exactly that
    Trust(trust::TrustArgs),
    /// Say what works, what does not, and what to do about it
    Doctor,
    /// Store a provider's key in a file that only you can read
    Login(login::LoginArgs),
    /// Remove a stored key
    Logout(login::LoginArgs),
    /// Print the JSON Schema of the protocol extension and of the configuration
    Schema,
}

/// Runs the program and returns its exit code.
#[must_use]
pub fn main() -> u8 {
    run_with(std::env::args_os())
}

fn run_with(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no failures and go to standard output; clap knows which is which.
            error.print().ok();
            return u8::try_from(error.exit_code()).unwrap_or(exit_code::FAILED);
        }
    };
    if let Err(problem) = log::start(&cli.log) {
        return complain(&problem);
    }
    let home = match home_file::home() {
        Ok(home) => home,
        Err(problem) => return complain(&problem),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("cannot start: {error}")),
    };
    let code = runtime.block_on(Box::pin(execute(cli, home)));
    // A blocked read of standard input must not keep the process from ending.
    runtime.shutdown_background();
    code
}

async fn execute(cli: Cli, home: std::path::PathBuf) -> u8 {
    let load = || Config::load(&home, &cli.config);
    let result = match cli.command {
        None | Some(Command::Acp) => app::serve_stdio(load()).await.map_err(|error| error.to_string()),
        Some(Command::Run(args)) => {
            let config = load();
            if let Some(problem) = &config.problem {
                return complain_as(exit_code::CONFIG, problem);
            }
            run::run(&args, config).await
        }
        Some(Command::Demo(args)) => demo::run(&args).await,
        Some(Command::Script(args)) => {
            let passed = crate::script::command(&args, &mut std::io::stdout()).await;
            passed
                .map(|passed| if passed { exit_code::OK } else { exit_code::FAILED })
                .map_err(|error| error.to_string())
        }
        Some(Command::Sessions(args)) => sessions::run(args, &home, &mut std::io::stdout())
            .await
            .map(|()| exit_code::OK)
            .map_err(|error| error.to_string()),
        Some(Command::Rules(args)) => done(rules::run(&args, &home, &mut std::io::stdout())),
        Some(Command::Trust(args)) => done(trust::run(&args, &home, &mut std::io::stdout())),
        Some(Command::Login(args)) => done(login::login(&args, &home)),
        Some(Command::Logout(args)) => done(login::logout(&args, &home)),
        Some(Command::Schema) => {
            done(writeln!(std::io::stdout(), "{:#}", schema::schema()).map_err(|error| error.to_string()))
        }
        Some(Command::Doctor) => doctor::run(&load(), &mut std::io::stdout()).await,
    };
    result.unwrap_or_else(|problem| complain(&problem))
}

fn done(result: Result<(), String>) -> Result<u8, String> {
    result.map(|()| exit_code::OK)
}

/// Tells the user on standard error; the exit code says that it failed.
fn complain(problem: &str) -> u8 {
    complain_as(exit_code::FAILED, problem)
}

fn complain_as(code: u8, problem: &str) -> u8 {
    // Nobody is left to tell when standard error is closed.
    writeln!(std::io::stderr(), "turnd: {}", Redactor::process().clean(problem)).ok();
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
