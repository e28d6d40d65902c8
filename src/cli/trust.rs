//! `turnd trust`: what a workspace's own configuration would do, and whether it may.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::approval::display::escape;
use crate::trust::{Decision, Ledger, Project};

/// Arguments of `turnd trust`.
#[derive(Debug, Args)]
pub(super) struct TrustArgs {
    /// The workspace; default: this folder
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Trust without asking
    #[arg(long)]
    yes: bool,
    /// Take back what was decided about the workspace
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,
    /// List every decision and whether it still holds
    #[arg(long, conflicts_with_all = ["folder", "yes", "revoke"])]
    list: bool,
}

/// Lists, takes back, or shows and asks.
pub(super) fn run(args: &TrustArgs, home: &Path, out: &mut dyn Write) -> Result<(), String> {
    let ledger = Ledger::new(home);
    let folder = args.folder.as_deref().unwrap_or(Path::new("."));
    if args.list {
        return list(&ledger, home, out);
    }
    if args.revoke {
        let workspace = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        let was_known = ledger.forget(&workspace).map_err(|error| error.to_string())?;
        let said = if was_known { "no longer decided" } else { "nothing was decided" };
        return say(out, &format!("{said}: {}", shown(&workspace)));
    }
    let project = Project::read(folder, home).map_err(|error| error.to_string())?;
    let Some(project) = project.filter(|project| !project.config.is_empty()) else {
        return say(out, "this workspace has no configuration of its own that would do anything");
    };
    say(out, &format!("{} would have in effect:", shown(&project.workspace)))?;
    for line in project.description() {
        say(out, &format!("  {line}"))?;
    }
    say(out, &format!("fingerprint {}", project.fingerprint))?;
    if ledger.decision(&project).map_err(|error| error.to_string())? == Some(Decision::Trusted) {
        return say(out, "trusted already");
    }
    if !args.yes && !asked()? {
        return Err("not trusted".into());
    }
    create(home)?;
    ledger.decide(&project, Decision::Trusted).map_err(|error| error.to_string())?;
    say(out, "trusted, until a byte of it changes")
}

fn list(ledger: &Ledger, home: &Path, out: &mut dyn Write) -> Result<(), String> {
    let entries = ledger.list().map_err(|error| error.to_string())?;
    if entries.is_empty() {
        super::tell("nothing was decided about any workspace");
    }
    for entry in entries {
        let now = Project::read(&entry.workspace, home).ok().flatten();
        let is_current = now.is_some_and(|project| project.fingerprint == entry.fingerprint);
        let decision = match entry.decision {
            Decision::Trusted => "trusted",
            Decision::Refused => "refused",
        };
        let note = if is_current { "" } else { ", but its content changed since" };
        say(out, &format!("{decision}  {}  since {}{note}", shown(&entry.workspace), entry.since))?;
    }
    Ok(())
}

/// Asks on the terminal.
fn asked() -> Result<bool, String> {
    if !std::io::stdin().is_terminal() {
        return Err("not trusted: there is no terminal to ask on; say --yes to trust it".into());
    }
    let mut err = std::io::stderr().lock();
    write!(err, "Trust exactly this? [y/N] ").and_then(|()| err.flush()).ok();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// The home folder may not be there yet.
fn create(home: &Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt as _;
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    created.map_err(|error| format!("cannot make {}: {error}", home.display()))
}

fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

fn say(out: &mut dyn Write, line: &str) -> Result<(), String> {
    writeln!(out, "{line}").map_err(|error| error.to_string())
}
