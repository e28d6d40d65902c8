//! The end of an agent's process, and everything that must hold at the end of a case.

use std::time::Duration;

use tokio::time::Instant;

use super::agent::Exit;
use super::client::Side;
use super::expect::may_pass_over;
use super::format::{ExitStep, Start};
use super::matching::brief;
use super::model_server::API_KEY;
use super::rules::{self, Ending};
use super::run::{Run, Step};
use super::stage;

/// How long an agent may take to end after its stdin.
const EXIT_WAIT: Duration = Duration::from_secs(20);

impl Run<'_> {
    pub(super) async fn expect_exit(&mut self, exit: &ExitStep) -> Step {
        let (code, within) = match exit {
            ExitStep::Code(code) => (*code, EXIT_WAIT),
            ExitStep::Full { code, within_ms } => (*code, Duration::from_millis(*within_ms)),
        };
        let got = self.ended(within).await?;
        let is_expected = got == Exit::Code(code) || got == Exit::Signal(code - 128);
        if is_expected { Ok(()) } else { Err(format!("expected exit code {code}, got {got}")) }
    }

    /// Waits for the agent's end and files the connection away.
    pub(super) async fn ended(&mut self, within: Duration) -> Result<Exit, String> {
        let mut client = self.client.take().ok_or("the agent does not run")?;
        let exit = tokio::time::timeout(within, client.process.wait()).await;
        let deadline = Instant::now() + EXIT_WAIT;
        if exit.is_ok() {
            client.drain(deadline).await;
        }
        self.log.push_str(&client.process.log());
        let unread =
            client.entries().iter().skip(self.cursor).find(|entry| entry.from == Side::Agent && !may_pass_over(entry));
        if let (Some(entry), Ending::Orderly) = (unread, self.ending) {
            self.broken.push(format!("left unread: {}", brief(&entry.message)));
        }
        self.broken.extend(rules::violations(client.entries(), self.ending));
        match exit {
            Ok(Ok(exit)) => Ok(exit),
            Ok(Err(error)) => Err(format!("cannot wait for the agent: {error}")),
            Err(_) => Err(format!("the agent did not end within {} ms", within.as_millis())),
        }
    }

    pub(super) async fn restart(&mut self, start: Start) -> Step {
        if let Some(client) = self.client.as_mut() {
            client.close_stdin();
            self.ended(EXIT_WAIT).await?;
        }
        self.unanswered.clear();
        self.start(start).await
    }

    /// Ends the agent and checks everything that must hold at the end.
    pub(super) async fn finish(&mut self) -> Step {
        if let Some(client) = self.client.as_mut() {
            client.close_stdin();
            match self.ended(EXIT_WAIT).await? {
                Exit::Code(0) => {}
                exit => self.broken.push(format!("at the end of stdin it ended with {exit}")),
            }
        }
        for (index, seen) in self.server.seen().iter().enumerate() {
            self.broken.extend(seen.problems.iter().map(|problem| format!("model request {}: {problem}", index + 1)));
        }
        if self.server.unused_replies() > 0 {
            self.broken.push(format!("{} `model` lines were never asked for", self.server.unused_replies()));
        }
        for (what, text) in [("the API key", API_KEY), ("a panic", "panicked at")] {
            if self.log.contains(text) {
                self.broken.push(format!("the log holds {what}"));
            }
        }
        self.no_process_left().await;
        if self.broken.is_empty() { Ok(()) } else { Err(self.broken.join("\n    ")) }
    }

    pub(super) async fn no_process_left(&mut self) {
        let deadline = Instant::now() + EXIT_WAIT;
        loop {
            let left = stage::processes_in(self.stage.root());
            if left.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                self.broken.push(format!("processes left behind: {}", left.join(", ")));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
