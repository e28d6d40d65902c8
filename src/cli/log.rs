//! Logs go to standard error or to a file, never to standard output.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Where logs go and how much of them.
#[derive(Debug, Args)]
pub(super) struct LogFlags {
    /// Write logs to this file instead of stderr
    #[arg(long, value_name = "FILE", global = true)]
    log: Option<PathBuf>,
    /// How much to log
    #[arg(long, value_name = "LEVEL", global = true, value_enum, default_value = "warn")]
    log_level: Level,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::OFF,
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

/// Starts logging. Only our own events pass: libraries log whole messages, secrets included, at trace.
///
/// # Errors
/// When the file cannot be opened.
pub(super) fn start(flags: &LogFlags) -> Result<(), String> {
    let filter = Targets::new().with_target("turnd", flags.log_level);
    let registry = tracing_subscriber::registry().with(filter);
    match &flags.log {
        None => registry.with(layer().with_writer(std::io::stderr).with_ansi(false)).init(),
        Some(path) => {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let file = file.map_err(|error| format!("cannot log to {}: {error}", path.display()))?;
            registry.with(layer().with_writer(Mutex::new(file)).with_ansi(false)).init();
        }
    }
    Ok(())
}
