//! The wall around a session's commands, from the configuration and from what the kernel has.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::approval::{SandboxState, secrets_of_home, secrets_of_system};
use crate::config::{Config, SandboxMode};
use crate::sandbox::{Facts, Limits, SandboxPolicy, View};
use crate::tool::process;

const BYTES_PER_MEGABYTE: u64 = 1 << 20;

/// Whether commands of a session are held, and by what.
pub(super) fn sandbox(config: &Config, cwd: &Path, additional_roots: &[PathBuf]) -> SandboxState {
    let unavailable = |why: String, reading| SandboxState::Unavailable { why: why.into(), reading };
    if config.sandbox.mode == SandboxMode::Off {
        return SandboxState::Off;
    }
    if !process::can_help() {
        return unavailable("this program cannot start itself again".to_owned(), None);
    }
    let facts = Facts::here();
    if !facts.can_restrict() {
        return unavailable(facts.missing().join("; "), None);
    }
    let policy = sandbox_policy(config, cwd, additional_roots);
    let reading = Some(Arc::new(policy.for_reading()));
    if let Some(why) = policy.objection() {
        return unavailable(why, reading);
    }
    match facts.can_contain() {
        true => SandboxState::On(Arc::new(policy)),
        false if config.sandbox.allow_degraded => {
            SandboxState::On(Arc::new(SandboxPolicy { view: View::Shared, ..policy }))
        }
        false => unavailable(facts.missing().join("; "), reading),
    }
}

/// What commands of a session may reach by the configuration.
#[must_use]
pub fn sandbox_policy(config: &Config, cwd: &Path, additional_roots: &[PathBuf]) -> SandboxPolicy {
    let settings = &config.sandbox;
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let path = |text: &String| match (text.strip_prefix("~/"), &home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(text),
    };
    let roots = std::iter::once(cwd.to_path_buf()).chain(additional_roots.iter().cloned());
    let named = settings.writable.iter().filter(|text| !text.is_empty()).map(path);
    let writable: Vec<PathBuf> = match settings.mode {
        SandboxMode::WorkspaceWrite => {
            roots.chain(named.map(|folder| folder.canonicalize().unwrap_or(folder))).collect()
        }
        SandboxMode::ReadOnly | SandboxMode::Off => Vec::new(),
    };
    let mut deny_read: Vec<PathBuf> = settings.deny_read.iter().filter(|text| !text.is_empty()).map(path).collect();
    deny_read.push(config.home.clone());
    deny_read.extend(home.as_deref().map(secrets_of_home).unwrap_or_default());
    deny_read.extend(secrets_of_system());
    let limits = Limits {
        processes: settings.max_processes,
        memory_bytes: settings.max_memory_mb.saturating_mul(BYTES_PER_MEGABYTE),
        file_bytes: settings.max_file_mb.saturating_mul(BYTES_PER_MEGABYTE),
    };
    SandboxPolicy { limits, ..SandboxPolicy::new(&writable, deny_read, settings.network) }
}
