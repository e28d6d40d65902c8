//! Logs go to standard error or to a file, never to standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::provider::redact::Redactor;

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
    let sink = match &flags.log {
        None => Sink::Stderr,
        Some(path) => {
            if let Some(folder) = path.parent() {
                // Where that fails, opening the file says why.
                std::fs::create_dir_all(folder).ok();
            }
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            Sink::File(Arc::new(file.map_err(|error| format!("cannot log to {}: {error}", path.display()))?))
        }
    };
    let writer = move || sink.clone();
    tracing_subscriber::registry().with(filter).with(layer().with_writer(writer).with_ansi(false)).init();
    // What a panic says may quote anything that was being worked on.
    std::panic::set_hook(Box::new(|panic| {
        writeln!(Sink::Stderr, "{panic}").ok();
    }));
    Ok(())
}

/// Where lines go, cleaned of secrets. The layer writes each event in one piece, so none is cut in two.
#[derive(Clone, Debug)]
enum Sink {
    Stderr,
    File(Arc<File>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let clean = Redactor::process().clean(&text).into_owned();
        match self {
            Self::Stderr => io::stderr().write_all(clean.as_bytes())?,
            Self::File(file) => file.as_ref().write_all(clean.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// In one piece, unlike the default, which writes what stands between the arguments on its own.
    fn write_fmt(&mut self, arguments: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.write_all(arguments.to_string().as_bytes())
    }
}
