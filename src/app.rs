//! Wiring: from a configuration to a served connection, and the end of the process in good order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::PidfdFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::approval::RememberedRules;
use crate::config::Config;
use crate::provider::http::Http;
use crate::rpc::stdio;
use crate::server::{self, Ending};
use crate::session::objections::idle_entries;
use crate::session::{AtWork, Host};
use crate::store::Store;
use crate::tool::process::Processes;

/// How long the store gets to write its last checkpoint.
const STORE_CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Exit codes of the program.
pub mod exit_code {
    /// All went well.
    pub const OK: u8 = 0;
    /// The command failed.
    pub const FAILED: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// A fault of our own.
    pub const INTERNAL: u8 = 70;
    /// The configuration cannot be used.
    pub const CONFIG: u8 = 78;
    /// Ended by an interrupt.
    pub const INTERRUPTED: u8 = 130;
    /// Ended by a termination signal.
    pub const TERMINATED: u8 = 143;
}

/// What all sessions share, from a configuration. Opening the store has begun when this returns.
#[must_use]
pub fn host(config: Config) -> Arc<Host> {
    for warning in config.warnings.iter().chain(&idle_entries(&config)) {
        tracing::warn!("{warning}");
    }
    if let Some(problem) = &config.problem {
        tracing::error!("{problem}");
    }
    let store = Store::open(&config.home);
    let remembered = Arc::new(RememberedRules::new(&config.home));
    Arc::new(Host {
        config,
        store,
        http: Http::default(),
        remembered,
        processes: Processes::default(),
        at_work: AtWork::default(),
        shutdown: CancellationToken::new(),
    })
}

/// Serves the protocol on standard input and output until the client leaves or a signal comes.
///
/// # Errors
/// When standard input or output cannot be taken.
pub async fn serve_stdio(config: Config) -> io::Result<u8> {
    let (input, output) = stdio::take()?;
    let host = host(config);
    let signals = Signals::watch(host.shutdown.clone());
    let ending = serve(Arc::clone(&host), input, output).await?;
    tracing::info!(?ending, "the connection ended");
    Ok(match ending {
        Ending::Closed | Ending::BrokenPipe => exit_code::OK,
        Ending::Shutdown => signals.exit_code().unwrap_or(exit_code::OK),
    })
}

/// Serves one client over any pair of streams, and leaves nothing behind: no process, no open store.
///
/// # Errors
/// When the connection could not be begun.
pub async fn serve(
    host: Arc<Host>,
    reader: impl AsyncRead + Unpin + Send + 'static,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Ending> {
    let ending = server::serve(Arc::clone(&host), reader, writer).await;
    close(&host).await;
    ending
}

/// Ends what outlives sessions: processes that were to be killed, and the store.
pub async fn close(host: &Host) {
    host.processes.shut_down().await;
    if tokio::time::timeout(STORE_CLOSE_LIMIT, host.store.close()).await.is_err() {
        tracing::warn!("the store did not close in time");
    }
}

/// Watches for signals to end, and for the end of the process that started this one. The first signal ends the process
/// in good order, the second one at once.
#[derive(Debug)]
pub struct Signals {
    code: watch::Receiver<Option<u8>>,
    _task: JoinSet<()>,
}

impl Signals {
    /// Begins to watch; a signal fires `shutdown`.
    #[must_use]
    pub fn watch(shutdown: CancellationToken) -> Self {
        let (sender, code) = watch::channel(None);
        let mut task = JoinSet::new();
        let gone = shutdown.clone();
        task.spawn(async move {
            sender.send_replace(Some(next_signal().await));
            shutdown.cancel();
            force_end(next_signal().await);
        });
        task.spawn(async move {
            // Not watched: nothing is lost but this.
            if parent_ended().await.is_ok() {
                tracing::info!("the process that started this one has ended");
                gone.cancel();
            }
        });
        Self { code, _task: task }
    }

    /// The exit code of the signal that came, if one did.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        *self.code.borrow()
    }
}

#[expect(clippy::exit, reason = "the user asked twice; nothing that still runs is worth a third time")]
fn force_end(code: u8) {
    std::process::exit(code.into());
}

/// Waits for the end of the process that started this one. Its pipes may be held by others still, as a launcher's
/// are by the editor above it.
///
/// # Errors
/// When there is no such process to watch: it has ended already, or is the system's first.
#[expect(deprecated, reason = "sound here: the handle is owned, stays open, and nobody else has its number")]
async fn parent_ended() -> io::Result<()> {
    let parent = rustix::process::getppid().filter(|parent| !parent.is_init()).ok_or(io::ErrorKind::NotFound)?;
    let handle = rustix::process::pidfd_open(parent, PidfdFlags::NONBLOCK)?;
    if rustix::process::getppid() != Some(parent) {
        return Err(io::ErrorKind::NotFound.into());
    }
    // Such a handle becomes readable with the end of its process (`pidfd_open(2)`).
    let handle = AsyncFd::with_interest(handle, Interest::READABLE)?;
    handle.readable().await.map(drop)
}

async fn next_signal() -> u8 {
    let (Ok(mut term), Ok(mut int), Ok(mut hup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => exit_code::TERMINATED,
        _ = int.recv() => exit_code::INTERRUPTED,
        _ = hup.recv() => exit_code::OK,
    }
}
