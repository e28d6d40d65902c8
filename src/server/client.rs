//! The editor behind the connection, as sessions and tools see it.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use turnd_protocol::{acp, ext};

use crate::clock;
use crate::rpc::outbox::{Chunk, escaped_prefix};
use crate::rpc::pending::notification;
use crate::rpc::{ChunkKind, Outbox, Pending};
use crate::session::port::{ChildState, ClientPort, PermissionQuestion, Replayed, SessionEvent};
use crate::tool::clarify::{Inquiry, InquiryEnd};
use crate::tool::client_terminal::ClientTerminals;
use crate::tool::{Editor, ToolFailure};
use crate::turn::event::{CompactionState, Severity, TurnEvent};
use crate::turn::port::{Answer, CallState};

use super::capabilities::ClientFeatures;
use super::terminals::EditorTerminals;
use super::{child, inquiry, to_client};

/// Room for the text of a file in a line of 64 KiB; the rest is for its path and the envelope. Longer texts go to the
/// disk, from where editors read them again: a line too long would end older clients.
const WRITTEN_BYTES: usize = 56_000;

/// The one client of a connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) outbox: Outbox,
    pub(super) pending: Pending,
    pub(super) features: ClientFeatures,
}

impl Client {
    /// The client's view of one session.
    pub(super) fn session(&self, id: Arc<str>) -> Arc<dyn ClientPort> {
        Arc::new(SessionClient { client: self.clone(), id })
    }
}

#[derive(Debug)]
struct SessionClient {
    client: Client,
    id: Arc<str>,
}

impl ClientPort for SessionClient {
    fn tell(&self, event: SessionEvent) -> BoxFuture<'_, ()> {
        self.render(event).boxed()
    }

    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, Answer> {
        self.request_permission(question).boxed()
    }

    fn terminals(&self) -> Option<Arc<dyn ClientTerminals>> {
        self.client.features.get().runs_terminals.then(|| {
            let (pending, session) = (self.client.pending.clone(), Arc::clone(&self.id));
            Arc::new(EditorTerminals { pending, session }) as Arc<dyn ClientTerminals>
        })
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryEnd> {
        async move {
            let pending = &self.client.pending;
            if self.client.features.get().elicits_forms {
                inquiry::by_form(pending, &self.id, &inquiry).await
            } else {
                inquiry::by_buttons(pending, &self.id, &inquiry).await
            }
        }
        .boxed()
    }

    fn child(&self, id: &Arc<str>) -> Option<Arc<dyn ClientPort>> {
        self.client.features.get().shows_children.then(|| self.client.session(Arc::clone(id)))
    }

    fn editor(&self) -> Option<Arc<dyn Editor>> {
        let features = self.client.features.get();
        (features.reads_files || features.writes_files).then(|| {
            Arc::new(SessionClient { client: self.client.clone(), id: Arc::clone(&self.id) }) as Arc<dyn Editor>
        })
    }
}

impl SessionClient {
    async fn update(&self, update: acp::SessionUpdate) {
        let is_call = matches!(update, acp::SessionUpdate::ToolCall(_));
        let params = acp::SessionNotification::new(Arc::clone(&self.id), update);
        let line = if is_call { announcement(&params) } else { notification("session/update", &params) };
        self.client.outbox.update(line).await;
    }

    async fn chunk(&self, kind: ChunkKind, message_id: Arc<str>, text: String) {
        self.client.outbox.chunk(Chunk { session: Arc::clone(&self.id), kind, message_id, text }).await;
    }

    async fn extension(&self, method: &str, params: &impl Serialize) {
        if self.client.features.get().extension.steps {
            self.client.outbox.update(notification(method, params)).await;
        }
    }

    async fn render(&self, event: SessionEvent) {
        match event {
            SessionEvent::Turn { turn_id, event } => self.render_turn(&turn_id, event).await,
            SessionEvent::BetweenTurns(event) => self.render_between_turns(event).await,
            SessionEvent::TurnStarted { turn_id } => self.turn_state(&turn_id, "started", None).await,
            SessionEvent::TurnEnded(report) => {
                self.turn_state(&report.turn_id, "ended", Some(to_client::outcome(&report))).await;
            }
            SessionEvent::Child(state) => self.child_state(&state).await,
            SessionEvent::Remark { message_id, text } => self.chunk(ChunkKind::Agent, message_id, text).await,
            SessionEvent::Commands(commands) => {
                self.update(acp::SessionUpdate::AvailableCommandsUpdate(to_client::commands(&commands))).await;
            }
            SessionEvent::Mode(mode) => {
                self.update(acp::SessionUpdate::CurrentModeUpdate(acp::CurrentModeUpdate::new(mode.as_str()))).await;
            }
            SessionEvent::Options(options) => {
                let options = to_client::options(&options);
                self.update(acp::SessionUpdate::ConfigOptionUpdate(acp::ConfigOptionUpdate::new(options))).await;
            }
            SessionEvent::Title(title) => {
                let info = acp::SessionInfoUpdate::new().title(title).updated_at(clock::iso8601(clock::now_ms()));
                self.update(acp::SessionUpdate::SessionInfoUpdate(info)).await;
            }
            SessionEvent::Replay(replayed) => self.render_replay(replayed).await,
        }
    }

    /// Between turns only what says nothing in the agent's name may be sent.
    async fn render_between_turns(&self, event: TurnEvent) {
        match event {
            TurnEvent::Compaction { id, state } if self.client.features.get().compaction => {
                self.update(acp::SessionUpdate::CompactionUpdate(to_client::compaction(&id, state))).await;
            }
            TurnEvent::Usage { context_tokens, context_window, cost_usd, .. } => {
                self.usage(context_tokens, context_window, cost_usd).await;
            }
            _ => {}
        }
    }

    async fn usage(&self, tokens: u64, window: u64, cost_usd: Option<f64>) {
        let cost = cost_usd.filter(|cost| *cost > 0.0).map(|cost| acp::Cost::new(cost, "USD"));
        self.update(acp::SessionUpdate::UsageUpdate(acp::UsageUpdate::new(tokens, window).cost(cost))).await;
    }

    async fn child_state(&self, state: &ChildState) {
        self.update(acp::SessionUpdate::SubagentUpdate(child::update(state))).await;
    }

    async fn turn_state(&self, turn_id: &str, state: &str, outcome: Option<ext::TurnOutcome>) {
        let (session_id, turn_id) = (self.id.to_string(), turn_id.to_owned());
        self.extension(ext::TURN, &ext::TurnParams { session_id, turn_id, state: state.into(), outcome }).await;
    }

    async fn render_turn(&self, turn_id: &str, event: TurnEvent) {
        match event {
            TurnEvent::Text { message_id, text } => self.chunk(ChunkKind::Agent, message_id, text).await,
            TurnEvent::Reasoning { message_id, text } => self.chunk(ChunkKind::Thought, message_id, text).await,
            TurnEvent::ToolCallPending { id, name, arguments, plan } => {
                self.update(acp::SessionUpdate::ToolCall(to_client::tool_call(&id, &name, arguments, &plan))).await;
            }
            TurnEvent::ToolCallStarted { id } => {
                self.tool_call_update(to_client::tool_call_status(&id, CallState::InProgress)).await;
            }
            TurnEvent::ToolCallProgress { id, shown } => {
                self.tool_call_update(to_client::tool_call_progress(&id, &shown)).await;
            }
            TurnEvent::ToolCallEnded { id, is_failed, display, raw } => {
                let state = if is_failed { CallState::Failed } else { CallState::Completed };
                self.tool_call_update(to_client::tool_call_end(&id, state, &display, raw)).await;
            }
            TurnEvent::Plan(entries) => self.update(acp::SessionUpdate::Plan(to_client::plan(&entries))).await,
            TurnEvent::Usage { context_tokens, context_window, cost_usd, .. } => {
                self.usage(context_tokens, context_window, cost_usd).await;
            }
            TurnEvent::Notice { severity, text } => self.notice(turn_id, severity, text).await,
            TurnEvent::Compaction { id, state } => self.compaction(turn_id, &id, state).await,
            TurnEvent::Step { step, tools } => {
                self.extension(ext::STEP, &to_client::step(&self.id, turn_id, step, &tools)).await;
            }
        }
    }

    async fn tool_call_update(&self, update: acp::ToolCallUpdate) {
        self.update(acp::SessionUpdate::ToolCallUpdate(update)).await;
    }

    /// A notice where the client takes them, else a thought: never a word of the answer.
    async fn notice(&self, turn_id: &str, severity: Severity, text: String) {
        if self.client.features.get().notices {
            let severity = match severity {
                Severity::Info => acp::NoticeSeverity::Info,
                Severity::Warning => acp::NoticeSeverity::Warning,
            };
            let notice = acp::Notice::new(severity, to_client::shortened(&text, 2_000));
            self.update(acp::SessionUpdate::Notice(notice)).await;
        } else {
            self.chunk(ChunkKind::Thought, format!("{turn_id}.notice").into(), format!("{text}\n")).await;
        }
    }

    /// An update of its own where the client takes them, else a notice at the start and one at the end.
    async fn compaction(&self, turn_id: &str, id: &Arc<str>, state: CompactionState) {
        if self.client.features.get().compaction {
            self.update(acp::SessionUpdate::CompactionUpdate(to_client::compaction(id, state))).await;
        } else {
            let (severity, text) = to_client::compaction_text(&state);
            self.notice(turn_id, severity, text).await;
        }
    }

    async fn render_replay(&self, replayed: Replayed) {
        match replayed {
            Replayed::User { message_id, parts } => {
                for part in parts {
                    let chunk = match part {
                        crate::message::Part::Text { text } => {
                            self.chunk(ChunkKind::User, Arc::clone(&message_id), text).await;
                            continue;
                        }
                        other => acp::ContentChunk::new(to_client::block(other)),
                    };
                    let chunk = chunk.message_id(acp::MessageId::new(Arc::clone(&message_id)));
                    self.update(acp::SessionUpdate::UserMessageChunk(chunk)).await;
                }
            }
            Replayed::Thought { message_id, text } => self.chunk(ChunkKind::Thought, message_id, text).await,
            Replayed::Agent { message_id, text } => self.chunk(ChunkKind::Agent, message_id, text).await,
            Replayed::ToolCall(call) => {
                let (id, state) = (call.id.clone(), call.state);
                let mut first = to_client::replayed_call(*call);
                let (content, raw_output) = (std::mem::take(&mut first.content), first.raw_output.take());
                first.status = acp::ToolCallStatus::Pending;
                self.update(acp::SessionUpdate::ToolCall(first)).await;
                if state == CallState::Pending {
                    return;
                }
                let fields = acp::ToolCallUpdateFields::new()
                    .status(to_client::status(state))
                    .content(content)
                    .raw_output(raw_output);
                self.tool_call_update(acp::ToolCallUpdate::new(id, fields)).await;
            }
            Replayed::Plan(entries) => self.update(acp::SessionUpdate::Plan(to_client::plan(&entries))).await,
        }
    }

    async fn request_permission(&self, question: PermissionQuestion) -> Answer {
        let options = question.choices.iter().map(|choice| {
            acp::PermissionOption::new(choice.answer.as_str(), choice.name.clone(), option_kind(choice.answer))
        });
        let call = to_client::asked_call(&question);
        let params = acp::RequestPermissionRequest::new(Arc::clone(&self.id), call, options.collect());
        let answer = match self.client.pending.call("session/request_permission", &params).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "a permission question failed, which is a no");
                return Answer::RejectOnce;
            }
        };
        read_answer(answer.get(), &question).unwrap_or_else(|| {
            tracing::warn!(session = %self.id, "a permission answer made no sense, which is a no");
            Answer::RejectOnce
        })
    }
}

fn option_kind(answer: Answer) -> acp::PermissionOptionKind {
    match answer {
        Answer::AllowOnce => acp::PermissionOptionKind::AllowOnce,
        Answer::AllowSession | Answer::AllowAlways => acp::PermissionOptionKind::AllowAlways,
        Answer::RejectAlways => acp::PermissionOptionKind::RejectAlways,
        Answer::RejectOnce | Answer::TimedOut | Answer::NotAsked | Answer::Cancelled => {
            acp::PermissionOptionKind::RejectOnce
        }
    }
}

/// What the client chose, if it is one of the things it was offered.
fn read_answer(text: &str, question: &PermissionQuestion) -> Option<Answer> {
    let response: acp::RequestPermissionResponse = serde_json::from_str(text).ok()?;
    match response.outcome {
        acp::RequestPermissionOutcome::Cancelled => Some(Answer::Cancelled),
        acp::RequestPermissionOutcome::Selected(selected) => {
            let chosen = &*selected.option_id.0;
            question.choices.iter().map(|choice| choice.answer).find(|answer| answer.as_str() == chosen)
        }
        _ => None,
    }
}

impl Editor for SessionClient {
    fn can_read(&self) -> bool {
        self.client.features.get().reads_files
    }

    fn can_write(&self, text: &str) -> bool {
        self.client.features.get().writes_files && escaped_prefix(text, WRITTEN_BYTES) == text.len()
    }

    fn read_text(&self, path: PathBuf) -> BoxFuture<'_, Result<String, ToolFailure>> {
        async move {
            let params = acp::ReadTextFileRequest::new(Arc::clone(&self.id), &path);
            let answer = self.client.pending.call("fs/read_text_file", &params).await;
            let answer = answer.map_err(|error| editor_failure("read", &path, &error.to_string()))?;
            let response: Result<acp::ReadTextFileResponse, _> = serde_json::from_str(answer.get());
            response.map(|response| response.content).map_err(|error| editor_failure("read", &path, &error.to_string()))
        }
        .boxed()
    }

    fn write_text(&self, path: PathBuf, text: String) -> BoxFuture<'_, Result<(), ToolFailure>> {
        async move {
            let params = acp::WriteTextFileRequest::new(Arc::clone(&self.id), &path, text);
            // Editors of the field answer with null, {} or a proper object: any result is a yes.
            let answer = self.client.pending.call("fs/write_text_file", &params).await;
            answer.map(drop).map_err(|error| editor_failure("write", &path, &error.to_string()))
        }
        .boxed()
    }
}

fn editor_failure(verb: &str, path: &std::path::Path, problem: &str) -> ToolFailure {
    ToolFailure::new(format!("The editor could not {verb} {}: {problem}", path.display()))
}

/// A tool call's first notification. The schema leaves a pending status and the kind `other` out, but clients show
/// a call by both, so they are always said.
fn announcement(params: &acp::SessionNotification) -> Vec<u8> {
    let mut params = serde_json::to_value(params).unwrap_or_default();
    if let Some(update) = params.get_mut("update").and_then(serde_json::Value::as_object_mut) {
        update.entry("status").or_insert_with(|| "pending".into());
        update.entry("kind").or_insert_with(|| "other".into());
    }
    notification("session/update", &params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::port::Choice;

    fn check(answer: &str, expected: Option<Answer>) {
        let choices = [Answer::AllowOnce, Answer::RejectOnce];
        let question = PermissionQuestion {
            tool_call_id: "c".into(),
            tool: "t".into(),
            plan: crate::tool::CallPlan::default(),
            arguments: serde_json::Value::Null,
            reasons: Vec::new(),
            choices: choices.map(|answer| Choice { answer, name: "n".into() }).into(),
        };
        assert_eq!(read_answer(answer, &question), expected, "{answer}");
    }

    #[test]
    fn only_what_was_offered_is_an_answer() {
        check(r#"{"outcome":{"outcome":"selected","optionId":"allow_once"}}"#, Some(Answer::AllowOnce));
        check(r#"{"outcome":{"outcome":"cancelled"}}"#, Some(Answer::Cancelled));
        for answer in [
            r#"{"outcome":{"outcome":"selected","optionId":"allow_always"}}"#,
            r#"{"outcome":{"outcome":"selected"}}"#,
            r#"{"outcome":"allow_once"}"#,
            r#"{"outcome":{"outcome":"later"}}"#,
            "{}",
            "null",
        ] {
            check(answer, None);
        }
    }
}
