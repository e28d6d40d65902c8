//! From a program that is not running to a thread that can take a turn.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use crate::message::{Message, NativeItems};
use crate::provider::catalog::process_env;
use crate::provider::redact::Redactor;
use crate::tool::process::{CompanionLine, find_program};
use crate::turn::TurnContext;

use super::connection::{Connection, Heard};
use super::error::RuntimeError;
use super::stance::Stance;
use super::{Live, NATIVE_MODE, Runtime, Thread, put};

/// How long one answer outside a turn may take. A cold start loads plugins and reads long threads.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Whether the thread knows what was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// It does, or there was nothing.
    Whole,
    /// It is new, and the conversation is not.
    Missing,
}

/// The thread that a history was made in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Past {
    /// Nobody has answered yet.
    None,
    /// This thread gave the newest answer.
    Thread(String),
    /// Somebody else gave it.
    Foreign,
}

impl Runtime {
    /// Starts the program if need be and gives a thread that goes on with the history.
    pub(super) async fn open(
        &mut self,
        context: &TurnContext,
        history: &[Message],
        stance: &Stance,
    ) -> Result<Memory, RuntimeError> {
        match &mut self.live {
            Some(live) => live.connection.catch_up(),
            None => self.live = Some(self.start(context).await?),
        }
        let Some(live) = &mut self.live else { return Ok(Memory::Whole) };
        let past = past(history, context);
        let current = live.thread.as_ref().map(|thread| thread.id.clone());
        match (past, current) {
            (Past::None, Some(_)) => Ok(Memory::Whole),
            (Past::Thread(id), Some(current)) if id == current => Ok(Memory::Whole),
            (Past::Thread(id), _) => self.resume(context, &id, stance).await,
            (Past::None, None) if history.len() <= 1 => live.begin(context, stance).await.map(|()| Memory::Whole),
            (Past::None, None) | (Past::Foreign, _) => live.begin(context, stance).await.map(|()| Memory::Missing),
        }
    }

    /// Takes a thread up again, or begins one that has to be told the story: a thread that cannot be opened is no
    /// reason to lose the session.
    async fn resume(&mut self, context: &TurnContext, id: &str, stance: &Stance) -> Result<Memory, RuntimeError> {
        let Some(mut live) = self.live.take() else { return Ok(Memory::Whole) };
        let memory = match live.resume(context, id, stance).await {
            Ok(()) => Memory::Whole,
            Err(error @ RuntimeError::Silent { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(thread = id, %error, "the runtime's thread is lost; a new one is told the story");
                if !matches!(error, RuntimeError::Refused { .. }) {
                    live = self.start(context).await?;
                }
                live.begin(context, stance).await?;
                Memory::Missing
            }
        };
        self.live = Some(live);
        Ok(memory)
    }

    fn command_line(&self) -> String {
        self.setup.command.command.join(" ")
    }

    fn line(&self, context: &TurnContext) -> Result<CompanionLine, RuntimeError> {
        let (cwd, command) = (context.tool_context.cwd.clone(), &self.setup.command);
        let missing = || RuntimeError::Missing { command: self.command_line() };
        let (program, args) = command.command.split_first().ok_or_else(missing)?;
        let passed: Vec<_> = command.env.iter().filter_map(|name| Some((name.clone(), process_env(name)?))).collect();
        for (_, value) in &passed {
            Redactor::process().learn(&SecretString::from(value.as_str()));
        }
        Ok(CompanionLine {
            program: find_program(program, &cwd, std::slice::from_ref(&cwd)).map_err(|_| missing())?,
            args: args.to_vec(),
            cwd,
            env: passed,
            secret_env: self.setup.secret_env.clone(),
        })
    }

    async fn start(&self, context: &TurnContext) -> Result<Live, RuntimeError> {
        let mut connection = Connection::start(&self.setup.processes, &self.line(context)?, self.command_line())?;
        let info = json!({ "name": "turnd", "title": "turnd", "version": env!("CARGO_PKG_VERSION") });
        let greeted = call(&mut connection, "initialize", json!({ "clientInfo": info })).await?;
        connection.notify("initialized");
        let agent = greeted.get("userAgent").and_then(Value::as_str).unwrap_or("unnamed");
        tracing::info!(agent, "the external runtime is up");
        Ok(Live { connection, thread: None })
    }
}

impl Live {
    async fn begin(&mut self, context: &TurnContext, stance: &Stance) -> Result<(), RuntimeError> {
        let params = thread_params(context, stance);
        self.thread = None;
        let opened = call(&mut self.connection, "thread/start", params).await?;
        self.enter(&opened, "thread/start")
    }

    async fn resume(&mut self, context: &TurnContext, id: &str, stance: &Stance) -> Result<(), RuntimeError> {
        let mut params = thread_params(context, stance);
        put(&mut params, "threadId", id);
        put(&mut params, "excludeTurns", true);
        self.thread = None;
        let opened = call(&mut self.connection, "thread/resume", params).await?;
        self.enter(&opened, "thread/resume")
    }

    fn enter(&mut self, opened: &Value, method: &str) -> Result<(), RuntimeError> {
        let id = opened.pointer("/thread/id").and_then(Value::as_str);
        let id = id.ok_or_else(|| self.connection.protocol(format!("{method} gave no thread.id")))?.to_owned();
        let model = opened.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.thread = Some(Thread { id, model });
        Ok(())
    }
}

fn thread_params(context: &TurnContext, stance: &Stance) -> Value {
    let mut params = json!({
        "cwd": context.tool_context.cwd.to_string_lossy(),
        "approvalPolicy": stance.policy,
        "sandbox": stance.sandbox_mode,
    });
    if let Some(model) = model_name(context) {
        put(&mut params, "model", model);
    }
    params
}

/// The model to ask for; `None` leaves it to the runtime.
pub(super) fn model_name(context: &TurnContext) -> Option<String> {
    let model = context.chain.current().model.clone();
    (model != crate::config::RUNTIME_DEFAULT_MODEL).then_some(model)
}

/// Asks outside a turn and waits for the answer.
async fn call(connection: &mut Connection, method: &'static str, params: Value) -> Result<Value, RuntimeError> {
    let id = connection.request(method, params);
    match tokio::time::timeout(ANSWER_LIMIT, answer_to(connection, id)).await {
        Ok(answer) => {
            answer?.map_err(|message| RuntimeError::Refused { command: connection.command(), method, message })
        }
        Err(_) => Err(connection.silent(method)),
    }
}

async fn answer_to(connection: &mut Connection, id: u64) -> Result<Result<Value, String>, RuntimeError> {
    loop {
        match connection.hear().await? {
            Heard::Answer { id: answered, result } if answered == id => return Ok(result),
            Heard::Request { id, method, .. } => connection.decline(&id, &method),
            Heard::Answer { .. } | Heard::Notification { .. } => {}
        }
    }
}

/// Who gave the newest answer before the newest prompt.
fn past(history: &[Message], context: &TurnContext) -> Past {
    past_of(history, &context.chain.current().provider, &context.session_id)
}

fn past_of(history: &[Message], provider: &str, session: &str) -> Past {
    let newest = history.iter().rev().find_map(|message| match message {
        Message::Assistant(assistant) => Some(assistant),
        _ => None,
    });
    let Some(answer) = newest else { return Past::None };
    let thread = answer.native.as_ref().filter(|native| native.api_mode == NATIVE_MODE && native.provider == provider);
    let Some(mark) = thread.and_then(|native| native.items.first()) else { return Past::Foreign };
    // A fork has the answers of the session it comes from; the thread goes on there.
    let is_own = mark.get("sessionId").is_none_or(|owner| owner == session);
    match mark.get("threadId").and_then(Value::as_str) {
        Some(id) if is_own => Past::Thread(id.to_owned()),
        _ => Past::Foreign,
    }
}

/// What marks a stored answer as this thread's.
pub(super) fn mark(context: &TurnContext, thread: &Thread) -> NativeItems {
    mark_of(&context.chain.current().provider, &context.session_id, thread)
}

fn mark_of(provider: &str, session: &str, thread: &Thread) -> NativeItems {
    NativeItems {
        provider: provider.to_owned(),
        model: thread.model.clone(),
        api_mode: NATIVE_MODE.to_owned(),
        items: vec![json!({ "threadId": thread.id, "sessionId": session })],
        ..NativeItems::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AssistantMessage;

    #[test]
    fn the_newest_answer_names_the_thread() {
        let thread = Thread { id: "t1".into(), model: "m".into() };
        let own =
            Message::Assistant(AssistantMessage { native: Some(mark_of("codex", "s", &thread)), ..Default::default() });
        let foreign = Message::Assistant(AssistantMessage::default());
        let user = Message::user("hi");
        let check = |history: &[&Message], expected| {
            let history: Vec<_> = history.iter().map(|message| (*message).clone()).collect();
            assert_eq!(past_of(&history, "codex", "s"), expected);
        };
        check(&[&user], Past::None);
        check(&[&user, &own, &user], Past::Thread("t1".into()));
        check(&[&user, &own, &user, &foreign, &user], Past::Foreign);
        check(&[&user, &foreign, &user, &own, &user, &user], Past::Thread("t1".into()));
        let history = [user, own];
        assert_eq!(past_of(&history, "other", "s"), Past::Foreign);
        assert_eq!(past_of(&history, "codex", "fork"), Past::Foreign);
    }
}
