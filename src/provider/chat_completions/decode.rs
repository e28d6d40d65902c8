//! The decoder: chunks in, events and one reply out.

use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::Calls;
use super::wire::{Choice, Chunk, Content, Delta};
use crate::message::{AssistantMessage, FinishReason, NativeItems, ReasoningField, Usage};
use crate::provider::draft::Written;
use crate::provider::json::{HalfJoiner, JsonReader, without_halves};
use crate::provider::think::ThinkSplitter;
use crate::provider::usage::usage;
use crate::provider::{ApiMode, DecodeError, Decoder, ModelEvent, ModelReply, SseEvent};

/// Decodes one answer.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    reader: JsonReader,
    answer: Answer,
}

/// What has been read so far.
#[derive(Debug)]
struct Answer {
    provider: String,
    model: String,
    splitter: ThinkSplitter,
    text_joiner: HalfJoiner,
    thought_joiner: HalfJoiner,
    written: Written,
    /// The field that reasoning comes in; what other fields say is the same again.
    source: Option<Source>,
    details: Vec<Value>,
    calls: Calls,
    usage: Usage,
    finish: Option<FinishReason>,
    had_choice: bool,
    had_delta: bool,
    is_done: bool,
    progress: u64,
}

/// Where reasoning comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    ReasoningContent,
    Reasoning,
    Details,
}

impl ChatDecoder {
    pub(super) fn new(provider: &str, model: &str) -> Self {
        let answer = Answer {
            provider: provider.to_owned(),
            model: model.to_owned(),
            splitter: ThinkSplitter::default(),
            text_joiner: HalfJoiner::default(),
            thought_joiner: HalfJoiner::default(),
            written: Written::default(),
            source: None,
            details: Vec::new(),
            calls: Calls::default(),
            usage: Usage::default(),
            finish: None,
            had_choice: false,
            had_delta: false,
            is_done: false,
            progress: 0,
        };
        Self { reader: JsonReader::default(), answer }
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, event: &SseEvent<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.answer.is_done = true;
            return Ok(());
        }
        if event.name == "error" && !self.has_ended() {
            return Err(DecodeError::Reported { body: data.to_owned() });
        }
        if matches!(event.name, "message_start" | "response.created") {
            return Err(DecodeError::Invalid("it has another format than chat completions, see api_mode"));
        }
        let chunk = self.reader.parse(data).map_err(|error| malformed(&error, data))?;
        self.answer.take(&chunk, data, out)
    }

    fn whole(&mut self, body: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let text = String::from_utf8_lossy(body);
        let chunk = self.reader.parse(&text).map_err(|error| malformed(&error, &text))?;
        self.answer.take(&chunk, &text, out)?;
        self.answer.is_done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.answer.is_done
    }

    fn has_ended(&self) -> bool {
        self.answer.is_done || self.answer.finish.is_some()
    }

    fn progress(&self) -> u64 {
        self.answer.progress
    }

    fn finish(self: Box<Self>, out: &mut Vec<ModelEvent>) -> Result<ModelReply, DecodeError> {
        self.answer.finish(out)
    }
}

fn malformed(error: &serde_json::Error, data: &str) -> DecodeError {
    let start: String = data.chars().take(80).collect();
    DecodeError::Malformed(format!("{error} in `{start}`"))
}

impl Answer {
    fn take(&mut self, chunk: &Option<Chunk<'_>>, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let Some(chunk) = chunk else { return Ok(()) };
        if reports_error(chunk) {
            // What fails after the end of the answer takes nothing from it.
            let has_ended = self.finish.is_some();
            return if has_ended { Ok(()) } else { Err(DecodeError::Reported { body: data.to_owned() }) };
        }
        for choice in chunk.choices.iter().flatten() {
            let is_first = !std::mem::replace(&mut self.had_choice, true);
            let calls = self.calls.len();
            self.take_choice(choice, out)?;
            self.progress += u64::from(is_first || choice.brings_something() || self.calls.len() > calls);
        }
        let nested = chunk.x_groq.and_then(|raw| serde_json::from_str::<NestedUsage<'_>>(raw.get()).ok());
        for raw in [nested.and_then(|nested| nested.usage), chunk.usage].into_iter().flatten() {
            self.usage = usage(raw).unwrap_or(self.usage);
        }
        Ok(())
    }

    fn take_choice(&mut self, choice: &Choice<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        // Some servers end a stream with the whole message, which was told in pieces before.
        self.had_delta |= choice.delta.is_some();
        if let Some(delta) = choice.delta.as_ref().or(choice.message.as_ref().filter(|_| !self.had_delta)) {
            self.take_delta(delta, out)?;
        }
        if let Some(counted) = choice.usage.and_then(usage) {
            self.usage = counted;
        }
        let reason = choice.finish_reason.0.trim();
        if !reason.is_empty() {
            // A server that gives up in mid-answer says so here; what came before is not an answer.
            if matches!(reason, "error" | "insufficient_system_resource") {
                let body = format!(r#"{{"error":{{"code":503,"message":"the server gave up: {reason}"}}}}"#);
                return Err(DecodeError::Reported { body });
            }
            // OpenAI ends a refusal with `stop`.
            let is_refused = self.finish == Some(FinishReason::Refused) && finish_reason(reason) == FinishReason::Stop;
            self.finish = Some(if is_refused { FinishReason::Refused } else { finish_reason(reason) });
        }
        Ok(())
    }

    fn take_delta(&mut self, delta: &Delta<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        self.take_reasoning(delta, out);
        self.take_content(&delta.content, out);
        if !delta.refusal.is_empty() {
            self.take_content(&delta.refusal, out);
            self.finish = Some(FinishReason::Refused);
        }
        let mut began = Vec::new();
        if let Some(deltas) = delta.tool_calls.as_ref().filter(|deltas| !deltas.is_empty()) {
            began = self.calls.take(deltas).ok_or(DecodeError::Invalid("it asks for more tool calls than allowed"))?;
        }
        if let Some(function) = &delta.function_call {
            began.extend(self.calls.take_legacy(function));
        }
        out.extend(began.into_iter().map(|name| ModelEvent::ToolCallStarted { name }));
        Ok(())
    }

    fn take_reasoning(&mut self, delta: &Delta<'_>, out: &mut Vec<ModelEvent>) {
        let details = delta.reasoning_details.map(|raw| self.keep_details(raw)).unwrap_or_default();
        let fields = [
            (Source::ReasoningContent, delta.reasoning_content.text.as_ref()),
            (Source::Reasoning, delta.reasoning.text.as_ref()),
            (Source::Details, details.as_str()),
        ];
        let Some((source, text)) = fields.into_iter().find(|(_, text)| !text.is_empty()) else { return };
        if *self.source.get_or_insert(source) == source {
            self.written.think(&self.thought_joiner.join(text), out);
        }
    }

    /// Keeps the provider's own reasoning items, fragments of one item joined; returns their new text.
    fn keep_details(&mut self, raw: &RawValue) -> String {
        let Ok(Value::Array(items)) = serde_json::from_str(raw.get()) else { return String::new() };
        let mut text = String::new();
        for item in items {
            let piece = item.get("text").or_else(|| item.get("summary")).and_then(Value::as_str);
            text.push_str(piece.unwrap_or_default());
            merge_detail(&mut self.details, item);
        }
        text
    }

    fn take_content(&mut self, content: &Content<'_>, out: &mut Vec<ModelEvent>) {
        if !content.thought.is_empty() {
            self.written.think(&self.thought_joiner.join(&content.thought), out);
        }
        if content.text.is_empty() {
            return;
        }
        let Self { splitter, text_joiner, written, .. } = self;
        let text = text_joiner.join(&content.text);
        splitter.push(&text, &mut |kind, piece| written.take(kind, piece, out));
    }

    fn finish(mut self, out: &mut Vec<ModelEvent>) -> Result<ModelReply, DecodeError> {
        let Some(finish) = self.finish.or(self.is_done.then_some(FinishReason::Stop)) else {
            return Err(DecodeError::Truncated);
        };
        if !self.had_choice {
            return Err(DecodeError::Invalid("it has no choices"));
        }
        self.flush(out);
        let finish = match finish {
            FinishReason::Stop if !self.calls.is_empty() => FinishReason::ToolCalls,
            FinishReason::ToolCalls if self.calls.is_empty() => FinishReason::Stop,
            other => other,
        };
        let Written { text, reasoning, .. } = self.written;
        // The stamp says who reasoned, so that it is never replayed to anybody else.
        let tool_calls = self.calls.finish();
        let has_own =
            !reasoning.is_empty() || !self.details.is_empty() || tool_calls.iter().any(|call| call.extra.is_some());
        let native = has_own.then(|| NativeItems {
            provider: self.provider,
            model: self.model,
            api_mode: ApiMode::ChatCompletions.as_str().to_owned(),
            items: self.details,
            reasoning_field: match self.source {
                Some(Source::Reasoning) => ReasoningField::Reasoning,
                Some(Source::ReasoningContent | Source::Details) | None => ReasoningField::ReasoningContent,
            },
        });
        let message = AssistantMessage { text, reasoning, tool_calls, finish, native };
        Ok(ModelReply { message, usage: self.usage })
    }

    /// Hands on what was held back while more could come.
    fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        let Self { splitter, written, text_joiner, thought_joiner, .. } = self;
        splitter.push(text_joiner.finish(), &mut |kind, piece| written.take(kind, piece, out));
        splitter.finish(&mut |kind, piece| written.take(kind, piece, out));
        written.think(thought_joiner.finish(), out);
        written.end(out);
    }
}

#[derive(serde::Deserialize)]
struct NestedUsage<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// True when the chunk is a report of a failure in one of the shapes servers use.
fn reports_error(chunk: &Chunk<'_>) -> bool {
    let says_something = |raw: &RawValue| !matches!(raw.get(), "\"\"" | "{}" | "false" | "[]");
    let has_choices = chunk.choices.as_ref().is_some_and(|choices| !choices.is_empty());
    chunk.error.is_some_and(says_something)
        || chunk.object.0 == "error"
        || (!has_choices && (chunk.message.is_some_and(says_something) || chunk.detail.is_some_and(says_something)))
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason.to_ascii_lowercase().as_str() {
        "tool_calls" | "tool_call" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "model_length" | "max_output_tokens" => FinishReason::Length,
        "content_filter" | "safety" | "refusal" | "recitation" | "prohibited_content" | "blocklist" | "sensitive" => {
            FinishReason::Refused
        }
        _ => FinishReason::Stop,
    }
}

/// Joins a fragment to the item it goes on with: same `index` and `type`. Texts grow, the rest is replaced.
fn merge_detail(details: &mut Vec<Value>, item: Value) {
    let Value::Object(fragment) = item else { return };
    let key = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    let earlier = details.last_mut().and_then(Value::as_object_mut).filter(|earlier| {
        key(fragment.get("index")).is_some()
            && key(earlier.get("index")) == key(fragment.get("index"))
            && earlier.get("type") == fragment.get("type")
    });
    let Some(earlier) = earlier else {
        details.push(Value::Object(fragment.into_iter().map(|(name, value)| (name, scrub(value))).collect()));
        return;
    };
    for (name, value) in fragment {
        match (earlier.get_mut(&name), scrub(value)) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(piece))
                if matches!(name.as_str(), "text" | "summary" | "data" | "signature") =>
            {
                text.push_str(&piece);
            }
            (_, value) => {
                earlier.insert(name, value);
            }
        }
    }
}

fn scrub(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_halves(&text).into_owned()),
        other => other,
    }
}
