//! The closing rules: what must hold on the wire whatever a transcript expects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::client::{Entry, Side};
use super::model_server::API_KEY;

/// Whether a connection was ended by the transcript itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything was answered and then stdin was closed.
    Orderly,
    /// The transcript cut it: signal, closed pipe, end of stdin in a turn. Answers may be missing.
    Cut,
}

/// The longest line older clients can read.
const MAX_LINE: usize = 64 * 1024;

/// Everything that broke a rule on one connection, one line each.
#[must_use]
pub fn violations(entries: &[Entry], ending: Ending) -> Vec<String> {
    let mut rules = Rules::default();
    for entry in entries {
        match entry.from {
            Side::Client => rules.client(entry),
            Side::Agent => rules.agent(entry),
        }
    }
    if ending == Ending::Orderly {
        rules.unanswered();
    }
    rules.found
}

#[derive(Default)]
struct Rules {
    found: Vec<String>,
    /// Requests of the client by the bytes of their id: method, session, answers still due.
    requests: BTreeMap<String, Sent>,
    /// Lines that no id could be read from.
    unreadable: usize,
    sessions: BTreeMap<String, Session>,
    capabilities: Value,
    /// Open requests of the agent by the bytes of their id: method, session, tool call.
    asked: BTreeMap<String, (String, String, String)>,
    used_ids: BTreeSet<String>,
}

#[derive(Default)]
struct Sent {
    method: String,
    session: String,
    due: usize,
}

#[derive(Default)]
struct Session {
    prompts: usize,
    loads: usize,
    has_free_turns: bool,
    /// Before its first prompt a session may only say something about itself.
    is_fresh: bool,
    calls: BTreeMap<String, Call>,
}

#[derive(Default)]
struct Call {
    status: Status,
    is_asked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Pending,
    InProgress,
    Completed,
    Failed,
}

impl Status {
    fn of(update: &Value) -> Option<Self> {
        match update.get("status").and_then(Value::as_str)? {
            "in_progress" => Some(Self::InProgress),
            "completed" => Some(Self::Completed),
            "failed" => Some(Self::Failed),
            _ => Some(Self::Pending),
        }
    }

    fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => next != Self::Completed,
            Self::InProgress => next != Self::Pending,
            Self::Completed | Self::Failed => false,
        }
    }
}

/// Updates that belong to a turn; the others may come at any time.
const TURN_UPDATES: [&str; 5] = ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];

impl Rules {
    fn flag(&mut self, problem: impl Into<String>) {
        self.found.push(problem.into());
    }

    /// A question was answered or taken back.
    fn question_ended(&mut self, id: &str) {
        let question = self.asked.remove(id);
        let call = question.and_then(|(_, session, call)| self.sessions.get_mut(&session)?.calls.get_mut(&call));
        if let Some(call) = call {
            call.is_asked = false;
        }
    }

    fn client(&mut self, entry: &Entry) {
        if entry.is_response() {
            if let Some(id) = &entry.raw_id {
                self.question_ended(id);
            }
            return;
        }
        let session = entry.session().unwrap_or_default().to_owned();
        match (&entry.raw_id, entry.method()) {
            (Some(id), _) if may_be_echoed(entry) => {
                let sent = self.requests.entry(id.clone()).or_default();
                sent.method = entry.method().unwrap_or_default().to_owned();
                sent.session.clone_from(&session);
                sent.due += 1;
            }
            (None, Some(_)) => {}
            _ => self.unreadable += 1,
        }
        match entry.method() {
            Some("initialize") => {
                self.capabilities = entry.message.pointer("/params/clientCapabilities").cloned().unwrap_or_default();
            }
            Some("session/prompt") => {
                let session = self.sessions.entry(session).or_default();
                session.prompts += 1;
                session.is_fresh = false;
            }
            Some("session/load") => {
                let session = self.sessions.entry(session).or_default();
                session.loads += 1;
                session.calls.clear();
            }
            Some("session/resume") => {
                self.sessions.entry(session).or_default();
            }
            Some("_session/steering") => self.sessions.entry(session).or_default().has_free_turns = true,
            _ => {}
        }
    }

    fn agent(&mut self, entry: &Entry) {
        if entry.line.len() >= MAX_LINE {
            self.flag(format!("a line of {} bytes", entry.line.len()));
        }
        if entry.message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            self.flag(format!("stdout has a line that is no JSON-RPC message: {}", text_of(entry)));
        }
        if text_of(entry).contains(API_KEY) {
            self.flag("a line holds the API key");
        }
        if entry.is_response() {
            self.response(entry);
        } else if entry.is_request() {
            self.request(entry);
        } else if let Some(update) = entry.update() {
            self.update(entry.session().unwrap_or_default(), update);
        } else if entry.method() == Some("$/cancel_request") {
            let id = entry.message.pointer("/params/requestId").map(Value::to_string).unwrap_or_default();
            self.question_ended(&id);
        }
    }

    fn response(&mut self, entry: &Entry) {
        let message = &entry.message;
        if message.get("result").is_some() && message.get("error").is_some() {
            self.flag(format!("both result and error: {}", text_of(entry)));
        }
        if let Some(error) = message.get("error") {
            let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
            if !error.get("code").is_some_and(Value::is_i64) || text.trim().is_empty() || text.contains('\n') {
                self.flag(format!("an error without code or one-line message: {error}"));
            }
        }
        let id = entry.raw_id.clone().unwrap_or_else(|| "null".into());
        if id == "null" && !self.requests.contains_key(&id) {
            if self.unreadable == 0 {
                self.flag(format!("an answer to nothing: {}", text_of(entry)));
            }
            self.unreadable = self.unreadable.saturating_sub(1);
            return;
        }
        match self.requests.get_mut(&id) {
            Some(sent) if sent.due > 0 => {
                sent.due -= 1;
                let (method, session) = (sent.method.clone(), sent.session.clone());
                self.answered(&method, &session, message);
            }
            Some(_) => self.flag(format!("a second answer to {id}")),
            None => self.flag(format!("an answer to the unknown id {id}")),
        }
    }

    fn answered(&mut self, method: &str, session: &str, message: &Value) {
        let result = message.get("result");
        match method {
            "session/new" | "session/fork" => {
                if let Some(id) = result.and_then(|result| result.get("sessionId")).and_then(Value::as_str) {
                    self.sessions.entry(id.to_owned()).or_default().is_fresh = true;
                }
            }
            "session/prompt" => self.prompt_answered(session, result),
            "session/load" => {
                let session = self.sessions.entry(session.to_owned()).or_default();
                session.loads = session.loads.saturating_sub(1);
                let open = session.calls.iter().find(|(_, call)| !call.status.has_ended());
                // What a running turn works on is shown as it is.
                if let Some(id) = open.map(|(id, _)| id.clone()).filter(|_| session.prompts == 0) {
                    self.flag(format!("the replay left the tool call {id} open"));
                }
            }
            _ => {}
        }
    }

    fn prompt_answered(&mut self, id: &str, result: Option<&Value>) {
        const STOPS: [&str; 5] = ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"];
        let stop = result.map(|result| result.get("stopReason").and_then(Value::as_str).unwrap_or_default());
        if let Some(stop) = stop.filter(|stop| !STOPS.contains(stop)) {
            self.flag(format!("the stop reason {stop:?}"));
        }
        let session = self.sessions.entry(id.to_owned()).or_default();
        session.prompts = session.prompts.saturating_sub(1);
        let open: Vec<_> =
            session.calls.iter().filter(|(_, call)| !call.status.has_ended()).map(|(id, _)| id.clone()).collect();
        // A queued prompt that is cancelled is answered while another one's calls run.
        if !open.is_empty() && session.prompts == 0 {
            self.flag(format!("a prompt was answered with open tool calls {open:?}"));
        }
        self.asked.retain(|_, (_, session, _)| session != id);
    }

    fn request(&mut self, entry: &Entry) {
        let (method, id) = (entry.method().unwrap_or_default(), entry.raw_id.clone().unwrap_or_default());
        if !self.used_ids.insert(id.clone()) {
            self.flag(format!("the agent used the request id {id} twice"));
        }
        let is_offered =
            |path: &str| self.capabilities.pointer(path).is_some_and(|value| !value.is_null() && value != false);
        let needed = match method {
            "fs/read_text_file" => "/fs/readTextFile",
            "fs/write_text_file" => "/fs/writeTextFile",
            "elicitation/create" => "/elicitation",
            other if other.starts_with("terminal/") => "/terminal",
            _ => "",
        };
        if !needed.is_empty() && !is_offered(needed) {
            self.flag(format!("{method} was called on a client that does not offer it"));
        }
        if method == "session/request_permission" {
            self.permission(entry, id);
        }
    }

    fn permission(&mut self, entry: &Entry, id: String) {
        let session = entry.session().unwrap_or_default().to_owned();
        let call = entry.message.pointer("/params/toolCall/toolCallId").and_then(Value::as_str).unwrap_or_default();
        if self.asked.values().any(|(_, other, _)| *other == session) {
            self.flag(format!("two open permission questions in {session}"));
        }
        match self.sessions.entry(session.clone()).or_default().calls.get_mut(call) {
            Some(known) if known.status == Status::Pending => known.is_asked = true,
            Some(known) => {
                let status = known.status;
                self.flag(format!("permission for {call} was asked when it was {status:?}"));
            }
            None => self.flag(format!("permission for the unannounced tool call {call} was asked")),
        }
        self.asked.insert(id, ("session/request_permission".into(), session, call.to_owned()));
    }

    fn update(&mut self, id: &str, update: &Value) {
        let kind = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default();
        let Some(session) = self.sessions.get_mut(id) else {
            self.flag(format!("{kind} for the session {id}, which nobody was told of"));
            return;
        };
        if session.loads > 0 {
            return self.replayed(id, kind, update);
        }
        if kind == "subagent_update" {
            return self.child_told(update);
        }
        let is_notice = session.is_fresh && kind == "agent_thought_chunk";
        if TURN_UPDATES.contains(&kind) && session.prompts == 0 && !session.has_free_turns && !is_notice {
            self.flag(format!("{kind} in {id} although no prompt is running: {update}"));
        } else if kind == "tool_call" {
            self.announced(id, update);
        } else if kind == "tool_call_update" {
            self.changed(id, update);
        }
    }

    /// A child agent's session may be written about once its parent's session has named it.
    fn child_told(&mut self, update: &Value) {
        if !self.capabilities.get("subagents").is_some_and(Value::is_object) {
            self.flag("subagent_update was sent to a client that does not offer it");
        }
        let child = update.get("sessionId").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.sessions.entry(child).or_default().has_free_turns = true;
    }

    fn replayed(&mut self, id: &str, kind: &str, update: &Value) {
        let call = update.get("toolCallId").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let (Some(session), true) = (self.sessions.get_mut(id), kind.starts_with("tool_call")) {
            let known = session.calls.entry(call).or_default();
            known.status = Status::of(update).unwrap_or(known.status);
        }
    }

    fn announced(&mut self, id: &str, update: &Value) {
        let call = update.get("toolCallId").and_then(Value::as_str).unwrap_or_default().to_owned();
        let status = Status::of(update).unwrap_or_default();
        if status != Status::Pending {
            self.flag(format!("the tool call {call} begins as {status:?}"));
        }
        let session = self.sessions.entry(id.to_owned()).or_default();
        if session.calls.insert(call.clone(), Call { status, is_asked: false }).is_some() {
            self.flag(format!("the tool call {call} was announced twice"));
        }
    }

    fn changed(&mut self, id: &str, update: &Value) {
        let call = update.get("toolCallId").and_then(Value::as_str).unwrap_or_default();
        let Some(known) = self.sessions.entry(id.to_owned()).or_default().calls.get_mut(call) else {
            self.flag(format!("an update of the unannounced tool call {call}"));
            return;
        };
        let (was, next) = (known.status, Status::of(update).unwrap_or(known.status));
        let is_early = next == Status::InProgress && known.is_asked;
        known.status = next;
        if !was.may_become(next) {
            self.flag(format!("the tool call {call} went from {was:?} to {next:?}"));
        }
        if is_early {
            self.flag(format!("the tool call {call} began before the answer to its question"));
        }
    }

    fn unanswered(&mut self) {
        let open: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, sent)| sent.due > 0 && !sent.method.is_empty())
            .map(|(id, sent)| format!("{} ({id})", sent.method))
            .collect();
        if !open.is_empty() {
            self.flag(format!("without an answer: {}", open.join(", ")));
        }
    }
}

/// An id that is neither number nor text cannot be echoed, so the answer has the id null.
fn may_be_echoed(entry: &Entry) -> bool {
    entry.message.get("id").is_some_and(|id| id.is_number() || id.is_string() || id.is_null())
}

fn text_of(entry: &Entry) -> String {
    let text = String::from_utf8_lossy(&entry.line);
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `true` begins a client's line, `false` an agent's.
    fn check(lines: &[(bool, Value)], expected: &[&str]) {
        let entries: Vec<_> = lines
            .iter()
            .map(|(is_client, message)| {
                let mut message = message.clone();
                message["jsonrpc"] = json!("2.0");
                Entry::from_line(if *is_client { Side::Client } else { Side::Agent }, message.to_string().into_bytes())
            })
            .collect();
        let found = violations(&entries, Ending::Orderly);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (got, part) in found.iter().zip(expected) {
            assert!(got.contains(part), "{got} lacks {part}");
        }
    }

    fn update(update: Value) -> (bool, Value) {
        (false, json!({"method": "session/update", "params": {"sessionId": "s", "update": update}}))
    }

    fn call(status: &str) -> (bool, Value) {
        update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status}))
    }

    fn begin() -> Vec<(bool, Value)> {
        vec![
            (true, json!({"id": 1, "method": "session/new", "params": {}})),
            (false, json!({"id": 1, "result": {"sessionId": "s"}})),
            (true, json!({"id": 2, "method": "session/prompt", "params": {"sessionId": "s"}})),
        ]
    }

    fn announce() -> (bool, Value) {
        update(json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "pending"}))
    }

    fn end() -> (bool, Value) {
        (false, json!({"id": 2, "result": {"stopReason": "end_turn"}}))
    }

    fn with(more: &[(bool, Value)]) -> Vec<(bool, Value)> {
        [begin(), more.to_vec()].concat()
    }

    #[test]
    fn a_proper_turn_breaks_no_rule() {
        check(&with(&[announce(), call("in_progress"), call("completed"), end()]), &[]);
    }

    #[test]
    fn every_request_is_answered_once() {
        check(&with(&[]), &["without an answer: session/prompt (2)"]);
        check(&with(&[end(), end()]), &["a second answer to 2"]);
        check(&with(&[end(), (false, json!({"id": 2.5, "result": {}}))]), &["unknown id 2.5"]);
    }

    #[test]
    fn tool_calls_never_go_back() {
        check(&with(&[announce(), call("completed"), end()]), &["from Pending to Completed"]);
        check(
            &with(&[announce(), call("in_progress"), call("failed"), call("in_progress"), call("failed"), end()]),
            &["from Failed to InProgress"],
        );
        check(&with(&[announce(), call("in_progress"), end()]), &["open tool calls [\"c\"]"]);
        check(&with(&[call("failed"), end()]), &["unannounced tool call c"]);
    }

    #[test]
    fn nothing_begins_before_the_answer_and_nothing_follows_the_end() {
        let ask = (
            false,
            json!({"id": 9, "method": "session/request_permission", "params": {"sessionId": "s", "toolCall": {"toolCallId": "c"}}}),
        );
        let allow = (true, json!({"id": 9, "result": {}}));
        let good = [announce(), ask.clone(), allow.clone(), call("in_progress"), call("completed"), end()];
        check(&with(&good), &[]);
        check(&with(&[announce(), ask, call("in_progress"), allow, call("completed"), end()]), &["before the answer"]);
        let late = update(json!({"sessionUpdate": "agent_message_chunk"}));
        check(&with(&[end(), late]), &["although no prompt is running"]);
    }

    #[test]
    fn a_client_is_asked_only_what_it_offers() {
        let read = (false, json!({"id": 9, "method": "fs/read_text_file", "params": {"sessionId": "s"}}));
        check(&with(&[read, end()]), &["does not offer it"]);
    }
}
