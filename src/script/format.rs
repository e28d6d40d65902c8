//! The transcript format: JSON Lines, one object per line, `#` begins a comment line.
//!
//! A `case` line begins a case; every other line has one key, its verb. All `model` lines of a case
//! are queued before it begins; the rest runs in order. `tests/transcripts/README.md` lists the verbs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::matching::Vars;
use crate::provider::scripted::ScriptedReply;

/// One case: a fresh agent, a fresh home folder, a fresh workspace.
#[derive(Debug)]
pub struct Case {
    /// What is promised, from the `case` line.
    pub name: String,
    /// The line of the file where it begins, from 1.
    pub line: usize,
    /// How the agent is set up.
    pub setup: Setup,
    /// The model's replies, names not yet filled in.
    pub replies: Vec<Value>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// How the agent of a case is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    #[serde(rename = "case")]
    name: String,
    /// Configuration laid over the harness's own.
    pub config: Map<String, Value>,
    /// The configuration file as text, in place of everything.
    pub config_text: Option<String>,
    /// How far the harness goes by itself before the first step on the wire.
    pub start: Start,
    /// `clientCapabilities` of the harness's own `initialize`.
    pub client: Value,
    /// API modes to run the case in. Empty: `chat_completions`.
    pub api: Vec<String>,
    /// More arguments of the agent.
    pub args: Vec<String>,
    /// More environment of the agent.
    pub env: BTreeMap<String, String>,
    /// Run it in one way only; unset: as a process and in process.
    pub only: Option<Way>,
    /// Why a later request to the model need not repeat the earlier one (compaction, a corrected message).
    pub prefix_changes: Option<String>,
    /// Milliseconds each expectation may wait. 0: 30,000.
    pub timeout_ms: u64,
}

/// How far the harness goes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Starts the agent, nothing else.
    Spawn,
    /// Sends `initialize`.
    Initialize,
    /// Sends `initialize` and `session/new`; `$sid` is the session.
    #[default]
    Session,
}

/// One way to run a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// As a process on real pipes.
    Spawned,
    /// In the harness's process, over a pipe in memory.
    InProcess,
}

/// One line of a case.
#[derive(Debug)]
pub struct Step {
    /// From 1.
    pub line: usize,
    /// What it does.
    pub verb: Verb,
}

/// What a line does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Writes files; paths are relative to the workspace or begin with `$home` or `$root`.
    Files(BTreeMap<String, Value>),
    /// Checks files; `null` means there is none.
    ExpectFile(BTreeMap<String, Value>),
    /// Sends `session/prompt` to `$sid`, with the ids `p1`, `p2`, ...
    Prompt(PromptStep),
    /// Sends a message; `jsonrpc` is added.
    Send(Value),
    /// Sends messages in one write.
    SendBurst(Vec<Value>),
    /// Sends a line as it stands.
    SendRaw(RawLine),
    /// Waits for a message. Updates may be passed over on the way, answers and requests may not.
    Expect(Value),
    /// Waits for several messages in any order.
    ExpectUnordered(Vec<Value>),
    /// Nothing that matches arrives for some time.
    ExpectNoneMs(Quiet),
    /// No message of the case so far matches.
    ExpectNever(Value),
    /// Waits until the chunks of `agent_message_chunk` that follow make up this text.
    ExpectText(Value),
    /// Waits until the chunks of `agent_thought_chunk` that follow make up this text.
    ExpectThought(Value),
    /// Checks all text read since the newest prompt or load: `{"text", "thought", "user"}`.
    ExpectSaid(Value),
    /// Waits for a prompt's answer with this stop reason (`"end_turn"` or `{"id", "stop"}`).
    ExpectStop(StopStep),
    /// Waits for a permission question and answers it.
    Answer(AnswerStep),
    /// Waits for the model's next request and checks it.
    ExpectModelRequest(Value),
    /// Exactly this many requests reached the model so far.
    ExpectModelRequests(usize),
    /// The agent closed the connection of its newest model request.
    ExpectModelClosed(u64),
    /// Lets this many replies with `hold_after` go on.
    Release(usize),
    /// Breaks something.
    Fault(Fault),
    /// Closes the agent's stdin.
    CloseStdin(Value),
    /// Waits for the end of the agent.
    ExpectExit(ExitStep),
    /// Sends a signal: `TERM`, `INT`, `HUP`, `KILL`.
    Signal(String),
    /// Ends the agent (by closing stdin if it still runs) and starts it again on the same folders.
    Restart(Start),
    /// Checks what the agent wrote to stderr so far.
    ExpectLog(Value),
    /// Repeats steps; `$i` counts from 1.
    Repeat(RepeatStep),
}

/// A prompt.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum PromptStep {
    /// One text.
    Text(String),
    /// Everything.
    Full(Box<FullPrompt>),
}

/// A prompt with all that can be said.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullPrompt {
    /// The text, if it is one text.
    #[serde(default)]
    pub text: Value,
    /// The content blocks, in place of the text.
    #[serde(default)]
    pub blocks: Value,
    /// The session; `$sid` when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// The request's id.
    #[serde(default)]
    pub id: Option<Value>,
}

/// A raw line: text, or text and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum RawLine {
    /// The text; a newline is added.
    Text(String),
    /// Bytes in Latin-1, so that any byte can be written; nothing is added.
    Latin1 {
        /// The text.
        latin1: String,
    },
}

/// Silence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// How long.
    pub ms: u64,
    /// What must not come; absent: anything.
    #[serde(default)]
    pub matching: Option<Value>,
}

/// A prompt's end.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum StopStep {
    /// Of the oldest prompt that is still unanswered.
    Reason(String),
    /// Of this one.
    Full {
        /// The prompt's id.
        id: Value,
        /// The stop reason.
        stop: String,
    },
}

/// An answer to a permission question.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum AnswerStep {
    /// The option's id, or `cancelled`.
    Option(String),
    /// With a pattern of the question.
    Full {
        /// The option's id, or `cancelled`.
        option: String,
        /// What the question must look like.
        question: Value,
    },
}

/// Something to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The model server refuses connections from now on.
    ModelDown,
    /// The model server accepts connections again.
    ModelUp,
    /// The client stops reading.
    StopReading,
    /// The client reads again.
    ResumeReading,
    /// The client closes its end of stdout.
    CloseStdout,
    /// The store file is overwritten with rubbish.
    CorruptStore,
}

/// The agent's end.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ExitStep {
    /// The exit code.
    Code(i32),
    /// The code and how soon.
    Full {
        /// The exit code.
        code: i32,
        /// Milliseconds it may take.
        within_ms: u64,
    },
}

/// Steps to repeat.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatStep {
    /// How often.
    pub times: usize,
    /// The steps.
    pub steps: Vec<Verb>,
}

/// Why a transcript cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct FormatError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// One reply of the model.
///
/// # Errors
/// The value is no reply.
pub fn reply_of(value: &Value) -> Result<ScriptedReply, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// Reads all cases of a transcript.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse(text: &str) -> Result<Vec<Case>, FormatError> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, content) in text.lines().enumerate() {
        let (line, content) = (index + 1, content.trim());
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |problem: String| FormatError { line, problem };
        let object: Map<String, Value> = serde_json::from_str(content).map_err(|error| wrong(error.to_string()))?;
        if object.contains_key("case") {
            let setup: Setup =
                serde_json::from_value(Value::Object(object)).map_err(|error| wrong(error.to_string()))?;
            let name = setup.name.clone();
            cases.push(Case { name, line, setup, replies: Vec::new(), steps: Vec::new() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| wrong("the first line must be a `case`".into()))?;
        if object.len() != 1 {
            return Err(wrong("a line has one key, its verb".into()));
        }
        if let Some(reply) = object.get("model") {
            reply_of(&Vars::default().fill(reply)).map_err(wrong)?;
            case.replies.push(reply.clone());
            continue;
        }
        let verb = serde_json::from_value(Value::Object(object)).map_err(|error| wrong(error.to_string()))?;
        case.steps.push(Step { line, verb });
    }
    if cases.is_empty() {
        return Err(FormatError { line: 1, problem: "there is no `case` line".into() });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_holds_cases_with_replies_and_steps() {
        let cases = parse(
            "# about\n{\"case\":\"one\",\"start\":\"spawn\"}\n{\"model\":{\"text\":\"hi\"}}\n{\"prompt\":\"x\"}\n{\"expect_stop\":\"end_turn\"}\n{\"case\":\"two\"}",
        )
        .unwrap();
        assert_eq!(cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((cases[0].setup.start, cases[1].setup.start), (Start::Spawn, Start::Session));
        assert_eq!((cases[0].replies.len(), cases[0].steps.len(), cases[0].steps[0].line), (1, 2, 4));
    }

    #[test]
    fn mistakes_name_their_line() {
        assert!(problem("{\"prompt\":\"x\"}").starts_with("line 1: the first line must be"));
        assert!(problem("{\"case\":\"a\"}\n{\"promt\":\"x\"}").starts_with("line 2: unknown variant `promt`"));
        assert!(problem("{\"case\":\"a\",\"confg\":{}}").contains("confg"));
        assert!(problem("{\"case\":\"a\"}\n{\"send\":1,\"expect\":2}").contains("one key"));
        assert!(problem("# nothing").contains("no `case`"));
    }
}
