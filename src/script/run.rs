//! Runs one case of a transcript, line by line.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::agent::{Agent, KILL, Launch};
use super::client::{Client, Reading, tail};
use super::format::{Case, Fault, FullPrompt, PromptStep, RawLine, Start, Verb, Way, reply_of};
use super::matching::Vars;
use super::model_server::{Availability, ModelServer};
use super::rules::Ending;
use super::stage::Stage;
use crate::provider::scripted::Script;

/// Where and why a case failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The line of the transcript; the case's own line for a closing rule.
    pub line: usize,
    /// What was expected and what came.
    pub message: String,
    /// The end of the agent's log.
    pub log: String,
}

/// How long one expectation may wait when the case does not say.
const EXPECT_WAIT_MS: u64 = 30_000;

/// True when a case can be run this way at all.
#[must_use]
pub fn is_possible(case: &Case, way: Way) -> bool {
    let needs_process =
        |verb: &Verb| matches!(verb, Verb::Signal(_) | Verb::ExpectLog(_) | Verb::Fault(Fault::CloseStdout));
    case.setup.only.is_none_or(|only| only == way)
        && (way == Way::Spawned
            || case.setup.env.is_empty() && !case.steps.iter().any(|step| needs_process(&step.verb)))
}

/// Runs a case once, in one API mode.
///
/// # Errors
/// The first expectation that failed, or the closing rules that were broken.
pub async fn run_case(case: &Case, agent: &Agent, api_mode: &str) -> Result<(), Failure> {
    let failed = |message: String| Failure { line: case.line, message, log: String::new() };
    let stage = Stage::create().map_err(|error| failed(format!("cannot make the case's folder: {error}")))?;
    let mut vars = Vars::default();
    vars.set("cwd", stage.workspace().display().to_string());
    vars.set("home", stage.home().display().to_string());
    vars.set("root", stage.root().display().to_string());
    let replies: Result<Vec<_>, _> = case.replies.iter().map(|reply| reply_of(&vars.fill(reply))).collect();
    let script = Script::new(replies.map_err(failed)?);
    let server = ModelServer::start(script, case.setup.prefix_changes.as_deref())
        .await
        .map_err(|error| failed(format!("cannot start the model server: {error}")))?;
    vars.set("url", server.url());
    let mut run = Run {
        case,
        agent,
        stage,
        server,
        vars,
        client: None,
        cursor: 0,
        turn_begin: 0,
        model_cursor: 0,
        prompts: 0,
        unanswered: VecDeque::new(),
        ending: Ending::Orderly,
        broken: Vec::new(),
        log: String::new(),
        line: case.line,
    };
    let outcome = run.all(api_mode).await;
    let log = run.client.as_ref().map(|client| client.process.log()).unwrap_or_else(|| run.log.clone());
    outcome.map_err(|message| Failure { line: run.line, message, log: tail(&log) })
}

pub(super) struct Run<'a> {
    pub(super) case: &'a Case,
    pub(super) agent: &'a Agent,
    pub(super) stage: Stage,
    pub(super) server: ModelServer,
    pub(super) vars: Vars,
    pub(super) client: Option<Client>,
    /// The first entry that no step has read.
    pub(super) cursor: usize,
    /// The entry at which the newest prompt or load was sent.
    pub(super) turn_begin: usize,
    pub(super) model_cursor: usize,
    pub(super) prompts: usize,
    pub(super) unanswered: VecDeque<Value>,
    pub(super) ending: Ending,
    /// Rules that ended connections have broken.
    pub(super) broken: Vec<String>,
    pub(super) log: String,
    pub(super) line: usize,
}

pub(super) type Step = Result<(), String>;

impl Run<'_> {
    async fn all(&mut self, api_mode: &str) -> Step {
        let setup = &self.case.setup;
        let overrides = self.vars.fill(&Value::Object(setup.config.clone()));
        let overrides = overrides.as_object().cloned().unwrap_or_default();
        self.stage.write_config(&self.server.url(), api_mode, &overrides).map_err(|error| error.to_string())?;
        if let Some(text) = &setup.config_text {
            let path = self.stage.home().join("config.toml");
            std::fs::write(path, self.vars.fill_plain(text)).map_err(|error| error.to_string())?;
        }
        for step in &self.case.steps {
            self.line = step.line;
            self.step(&step.verb).await?;
        }
        self.line = self.case.line;
        self.finish().await
    }

    pub(super) fn deadline(&self) -> Instant {
        let wait = if self.case.setup.timeout_ms == 0 { EXPECT_WAIT_MS } else { self.case.setup.timeout_ms };
        Instant::now() + Duration::from_millis(wait)
    }

    async fn step(&mut self, verb: &Verb) -> Step {
        match verb {
            Verb::Files(files) => self.write_files(files),
            Verb::ExpectFile(files) => self.expect_files(files).await,
            Verb::Prompt(prompt) => self.prompt(prompt).await,
            Verb::Send(message) => self.send(std::slice::from_ref(message)).await,
            Verb::SendBurst(messages) => self.send(messages).await,
            Verb::SendRaw(line) => self.send_raw(line).await,
            Verb::Expect(pattern) => self.expect(pattern).await.map(|_| ()),
            Verb::ExpectUnordered(patterns) => self.expect_unordered(patterns).await,
            Verb::ExpectNoneMs(quiet) => self.expect_none(quiet.ms, quiet.matching.as_ref()).await,
            Verb::ExpectNever(pattern) => self.expect_never(pattern),
            Verb::ExpectText(pattern) => self.expect_text(pattern, "agent_message_chunk").await,
            Verb::ExpectThought(pattern) => self.expect_text(pattern, "agent_thought_chunk").await,
            Verb::ExpectSaid(pattern) => self.expect_said(pattern),
            Verb::ExpectStop(stop) => self.expect_stop(stop).await,
            Verb::Answer(answer) => self.answer(answer).await,
            Verb::ExpectModelRequest(pattern) => self.expect_model_request(pattern).await,
            Verb::ExpectModelRequests(count) => self.expect_model_requests(*count),
            Verb::ExpectModelClosed(millis) => self.expect_model_closed(*millis).await,
            Verb::Release(replies) => {
                self.server.release(*replies);
                Ok(())
            }
            Verb::Fault(fault) => self.fault(*fault).await,
            Verb::CloseStdin(_) => self.close_stdin().await,
            Verb::ExpectExit(exit) => self.expect_exit(exit).await,
            Verb::Signal(name) => self.signal(name).await,
            Verb::Restart(start) => self.restart(*start).await,
            Verb::ExpectLog(pattern) => self.expect_log(pattern).await,
            Verb::Repeat(repeat) => {
                for turn in 1..=repeat.times {
                    self.vars.set("i", turn);
                    for verb in &repeat.steps {
                        Box::pin(self.step(verb)).await?;
                    }
                }
                Ok(())
            }
        }
    }

    /// The connection, made and greeted when the first step needs it.
    pub(super) async fn client(&mut self) -> Result<&mut Client, String> {
        if self.client.is_none() {
            Box::pin(self.start(self.case.setup.start)).await?;
        }
        self.client.as_mut().ok_or_else(|| "there is no agent".into())
    }

    pub(super) async fn start(&mut self, start: Start) -> Step {
        let filled = |text: &String| self.vars.fill_plain(text);
        let mut environment = self.stage.environment();
        environment.extend(self.case.setup.env.iter().map(|(name, value)| (name.clone(), filled(value))));
        let launch = Launch {
            home: self.stage.home(),
            cwd: self.stage.workspace(),
            args: self.case.setup.args.iter().map(filled).collect(),
            environment,
        };
        let client = Client::connect(self.agent, launch).map_err(|error| format!("cannot start the agent: {error}"))?;
        self.client = Some(client);
        (self.cursor, self.turn_begin, self.ending) = (0, 0, Ending::Orderly);
        if start == Start::Spawn {
            return Ok(());
        }
        let capabilities = if self.case.setup.client.is_null() { json!({}) } else { self.case.setup.client.clone() };
        let hello = json!({"id": "init", "method": "initialize", "params": {
            "protocolVersion": 1, "clientCapabilities": capabilities,
            "clientInfo": {"name": "turnd-script", "version": "1"},
        }});
        self.send(&[hello]).await?;
        self.expect(&json!({"id": "init", "result": {"protocolVersion": 1}})).await?;
        if start == Start::Session {
            let new = json!({"id": "new", "method": "session/new", "params": {"cwd": "$cwd", "mcpServers": []}});
            self.send(&[new]).await?;
            let answer = self.expect(&json!({"id": "new", "result": {"sessionId": "$any"}})).await?;
            self.vars.set("sid", answer.pointer("/result/sessionId").cloned().unwrap_or_default());
        }
        Ok(())
    }

    pub(super) async fn send(&mut self, messages: &[Value]) -> Step {
        // The first step on the wire starts the agent, and only that sets `$sid`.
        self.client().await?;
        let filled: Vec<_> = messages.iter().map(|message| self.vars.fill(message)).collect();
        for message in &filled {
            match message.get("method").and_then(Value::as_str) {
                Some("session/prompt") => self.unanswered.extend(message.get("id").cloned()),
                Some("session/load") => {}
                _ => continue,
            }
            self.turn_begin = self.client().await?.entries().len();
        }
        self.client().await?.send_all(&filled).await.map_err(|error| format!("cannot send: {error}"))
    }

    async fn send_raw(&mut self, line: &RawLine) -> Step {
        self.client().await?;
        let bytes = match line {
            RawLine::Text(text) => (self.vars.fill_plain(text) + "\n").into_bytes(),
            RawLine::Latin1 { latin1 } => {
                latin1.chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?')).collect()
            }
        };
        self.client().await?.send_bytes(&bytes).await.map_err(|error| format!("cannot send: {error}"))
    }

    async fn prompt(&mut self, prompt: &PromptStep) -> Step {
        self.client().await?;
        let full = match prompt {
            PromptStep::Text(text) => FullPrompt { text: json!(text), blocks: Value::Null, session: None, id: None },
            PromptStep::Full(full) => (**full).clone(),
        };
        self.prompts += 1;
        let id = full.id.unwrap_or_else(|| json!(format!("p{}", self.prompts)));
        let blocks = if full.blocks.is_null() { json!([{"type": "text", "text": full.text}]) } else { full.blocks };
        let session = full.session.unwrap_or_else(|| "$sid".into());
        let params = json!({"sessionId": session, "prompt": blocks});
        self.send(&[json!({"id": id, "method": "session/prompt", "params": params})]).await
    }

    async fn fault(&mut self, fault: Fault) -> Step {
        match fault {
            Fault::ModelDown => self.server.set_down(Availability::Down),
            Fault::ModelUp => self.server.set_down(Availability::Up),
            Fault::StopReading => self.client().await?.set_reading(Reading::Paused),
            Fault::ResumeReading => self.client().await?.set_reading(Reading::On),
            Fault::CloseStdout => {
                self.ending = Ending::Cut;
                self.client().await?.set_reading(Reading::Closed);
            }
            Fault::CorruptStore => {
                let path = self.stage.home().join("sessions.db");
                std::fs::write(path, [0x5a; 8192]).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    async fn close_stdin(&mut self) -> Step {
        self.ending = Ending::Cut;
        self.client().await?.close_stdin();
        Ok(())
    }

    async fn signal(&mut self, name: &str) -> Step {
        let number = match name {
            "HUP" => 1,
            "INT" => 2,
            "KILL" => KILL,
            "TERM" => 15,
            other => return Err(format!("unknown signal {other}")),
        };
        self.client().await?;
        self.ending = Ending::Cut;
        self.client().await?.process.signal(number).map_err(|error| error.to_string())
    }
}
