//! `turnd rules`: approvals that were given for good, to be seen and taken back.

use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand};

use crate::approval::display::escape;
use crate::approval::{RememberedRules, RulesError};

/// Arguments of `turnd rules`.
#[derive(Debug, Args)]
pub(super) struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// List the remembered approvals with their numbers
    List,
    /// Forget one
    Remove {
        /// Its number in the list
        number: usize,
    },
}

/// Lists or removes.
pub(super) fn run(args: &RulesArgs, home: &Path, out: &mut dyn Write) -> Result<(), String> {
    let rules = RememberedRules::new(home);
    match args.command {
        RulesCommand::List => list(&rules, out),
        RulesCommand::Remove { number } => {
            let unknown = || format!("there is no remembered rule {number}; `turnd rules list` shows all");
            let position = number.checked_sub(1).ok_or_else(unknown)?;
            let removed = rules.remove(position).map_err(|error| match error {
                RulesError::NoSuchRule(_) => unknown(),
                RulesError::File(error) => error.to_string(),
            })?;
            writeln!(out, "forgotten: {}", escape(&removed.rule.to_string())).map_err(|error| error.to_string())
        }
    }
}

fn list(rules: &RememberedRules, out: &mut dyn Write) -> Result<(), String> {
    let (rules, problem) = rules.list();
    for (number, remembered) in (1..).zip(rules.iter()) {
        let (words, workspace) =
            (escape(&remembered.rule.to_string()), escape(&remembered.workspace.to_string_lossy()));
        writeln!(out, "{number}  {words}  in {workspace}  since {}", remembered.added)
            .map_err(|error| error.to_string())?;
    }
    if rules.is_empty() && problem.is_none() {
        super::tell("no approval is remembered");
    }
    problem.map_or(Ok(()), Err)
}
