//! The command line: what each command is called, and where its work is done.

mod demo;
mod doctor;
mod log;
mod login;
mod output;
mod rules;
mod run;
mod schema;
pub mod sessions;
mod terminal;
mod trust;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::app::{self, exit_code};
use crate::config::{Config, ConfigFlags};
use crate::home_file;
use crate::provider::redact::Redactor;
use crate::script::ScriptArgs;

use output::Output;

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
    Acp(ConfigFlags),
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
    Doctor(ConfigFlags),
    /// Store a provider's key in a file that only you can read
    Login(login::LoginArgs),
    /// Remove a stored key
    Logout(login::LogoutArgs),
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

async fn execute(cli: Cli, home: PathBuf) -> u8 {
    let (flags, out) = (cli.config, &mut Output);
    let result = match cli.command {
        None => serve(Config::load(&home, &flags)).await,
        Some(Command::Acp(own)) => serve(Config::load(&home, &own.or(flags))).await,
        Some(Command::Run(args)) => run::run(&args, Config::load(&home, &args.config.clone().or(flags))).await,
        Some(Command::Demo(args)) => demo::run(args.trace, args.config.or(flags)).await,
        Some(Command::Doctor(own)) => doctor::run(&Config::load(&home, &own.or(flags)), out).await,
        Some(_) if flags != ConfigFlags::default() => {
            return complain_as(exit_code::USAGE, "this command uses no option of the configuration; see its --help");
        }
        Some(Command::Script(args)) => {
            let passed = crate::script::command(&args, out).await;
            passed.map(|passed| if passed { exit_code::OK } else { exit_code::FAILED }).map_err(text)
        }
        Some(Command::Sessions(args)) => sessions::run(args, &home, out).await.map(|()| exit_code::OK).map_err(text),
        Some(Command::Rules(args)) => done(rules::run(&args, &home, out)),
        Some(Command::Trust(args)) => done(trust::run(&args, &home, out)),
        Some(Command::Login(args)) => done(login::login(&args, &home)),
        Some(Command::Logout(args)) => done(login::logout(&args, &home)),
        Some(Command::Schema) => done(writeln!(out, "{:#}", schema::schema()).map_err(text)),
    };
    result.unwrap_or_else(|problem| complain(&problem))
}

async fn serve(config: Config) -> Result<u8, String> {
    if std::io::stdin().is_terminal() {
        tell("waits for a client of the Agent Client Protocol; for a person there are `turnd run` and `turnd demo`");
    }
    app::serve_stdio(config).await.map_err(text)
}

fn done(result: Result<(), String>) -> Result<u8, String> {
    result.map(|()| exit_code::OK)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Tells the user on standard error; the exit code says that it failed.
fn complain(problem: &str) -> u8 {
    complain_as(exit_code::FAILED, problem)
}

fn complain_as(code: u8, problem: &str) -> u8 {
    tell(&Redactor::process().clean(problem));
    code
}

/// A line for the user beside what the command puts out.
fn tell(line: &str) {
    // Nobody is left to tell when standard error is closed.
    writeln!(std::io::stderr(), "turnd: {line}").ok();
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
