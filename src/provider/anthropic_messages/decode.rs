//! The decoder: events in, what the client may see and one whole reply out.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::blocks::{Blocks, Piece};
use super::wire::{Delta, Event, Opening, StopDetails, Unread, UsageCounter, Whole};
use crate::message::{AssistantMessage, FinishReason, NativeItems};
use crate::provider::draft::{Shown, Written, fields_without_marks};
use crate::provider::json::JsonReader;
use crate::provider::think::Kind;
use crate::provider::{ApiMode, DecodeError, Decoder, ModelEvent, ModelReply, SseEvent};

/// Decodes one answer.
#[derive(Debug, Default)]
pub(super) struct MessagesDecoder {
    provider: String,
    model: String,
    reader: JsonReader,
    blocks: Blocks,
    shown: Shown,
    usage: UsageCounter,
    stop_reason: Option<String>,
    explanation: String,
    is_done: bool,
    progress: u64,
}

impl MessagesDecoder {
    pub(super) fn new(provider: &str, model: &str) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned(), ..Self::default() }
    }

    fn take(&mut self, event: &Event<'_>, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let index = event.index.number();
        let piece = event.delta.as_ref().and_then(Piece::of);
        let is_empty = match event.kind.as_str() {
            "message_start" => self.progress > 0,
            "message_delta" => event.delta.as_ref().is_none_or(|delta| delta.stop_reason.as_str().is_empty()),
            _ => piece.is_some_and(|piece| piece.as_str().is_empty()),
        };
        self.progress += u64::from(is_known(event.kind.as_str()) && !is_empty);
        match event.kind.as_str() {
            "message_start" => {
                let opening = event.message.and_then(|raw| serde_json::from_str::<Opening<'_>>(raw.get()).ok());
                self.usage.take(opening.and_then(|opening| opening.usage));
            }
            "content_block_start" => self.begin(index, event.content_block, out)?,
            "content_block_delta" => {
                if let Some(piece) = piece {
                    self.shown.count(piece.as_str().len())?;
                    self.blocks.add(index, piece, &mut self.shown, out);
                }
            }
            "content_block_stop" => self.blocks.close(index, &mut self.shown, out),
            "message_delta" => {
                self.usage.take(event.usage);
                if let Some(delta) = &event.delta {
                    self.stop(delta);
                }
            }
            "message_stop" => self.is_done = true,
            "error" => return Err(DecodeError::Reported { body: data.to_owned() }),
            _ if event.error.is_some() => return Err(DecodeError::Reported { body: data.to_owned() }),
            _ => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        index: Option<u64>,
        block: Option<&RawValue>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        let Some(block) = block else { return Ok(()) };
        self.shown.count(block.get().len())?;
        let fields: Map<String, Value> =
            serde_json::from_str(block.get()).map_err(|error| DecodeError::Malformed(error.to_string()))?;
        self.blocks.begin(index, fields_without_marks(fields), &mut self.shown, out);
        Ok(())
    }

    fn stop(&mut self, delta: &Delta<'_>) {
        if !delta.stop_reason.as_str().is_empty() {
            self.stop_reason = Some(delta.stop_reason.as_str().to_owned());
        }
        self.explain(delta.stop_details);
    }

    fn explain(&mut self, details: Option<&RawValue>) {
        let details = details.and_then(|raw| serde_json::from_str::<StopDetails<'_>>(raw.get()).ok());
        if let Some(details) = details {
            self.explanation = details.explanation.as_str().to_owned();
        }
    }

    fn take_whole(&mut self, whole: &Whole<'_>, text: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if whole.error.is_some() {
            return Err(DecodeError::Reported { body: text.to_owned() });
        }
        let Some(content) = &whole.content else { return Err(DecodeError::Invalid("the answer has no content")) };
        for block in content {
            self.begin(None, Some(block), out)?;
            self.blocks.close(None, &mut self.shown, out);
        }
        self.usage.take(whole.usage);
        self.explain(whole.stop_details);
        self.stop_reason = Some(whole.stop_reason.as_str().to_owned());
        self.is_done = true;
        Ok(())
    }
}

/// Whether an answer depends on events of this kind. Others may have any shape.
fn is_known(kind: &str) -> bool {
    matches!(
        kind,
        "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop"
            | "error"
    )
}

/// Whether an event that could not be read is one the answer can do without.
fn is_unknown(event: &SseEvent<'_>) -> bool {
    match JsonReader::default().parse::<Unread<'_>>(event.data) {
        Ok(unread) if !unread.kind.as_str().is_empty() => !is_known(unread.kind.as_str()),
        _ => !event.name.is_empty() && event.name != "message" && !is_known(event.name),
    }
}

impl Decoder for MessagesDecoder {
    fn push(&mut self, event: &SseEvent<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if event.name == "ping" || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let mut reader = std::mem::take(&mut self.reader);
        let result = match reader.parse::<Event<'_>>(event.data) {
            Ok(mut parsed) => {
                if parsed.kind.as_str().is_empty() {
                    parsed.kind.0 = event.name.into();
                }
                self.take(&parsed, event.data, out)
            }
            Err(_) if is_unknown(event) => Ok(()),
            Err(error) => Err(DecodeError::Malformed(error.to_string())),
        };
        self.reader = reader;
        result
    }

    fn whole(&mut self, body: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let text = String::from_utf8_lossy(body);
        let mut reader = JsonReader::default();
        let whole = reader.parse::<Whole<'_>>(&text).map_err(|error| DecodeError::Malformed(error.to_string()))?;
        self.take_whole(&whole, &text, out)
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn has_ended(&self) -> bool {
        self.is_done || self.stop_reason.is_some()
    }

    fn progress(&self) -> u64 {
        self.progress
    }

    fn finish(self: Box<Self>, out: &mut Vec<ModelEvent>) -> Result<ModelReply, DecodeError> {
        let Self { provider, model, blocks, mut shown, usage, stop_reason, explanation, is_done, .. } = *self;
        if stop_reason.is_none() && !is_done {
            return Err(DecodeError::Truncated);
        }
        let mut finish = finish_reason(stop_reason.as_deref().unwrap_or_default());
        let mut content = blocks.finish(finish == FinishReason::Length, &mut shown, out);
        match finish {
            FinishReason::Refused => {
                // What a refused answer began to ask must not happen.
                content.tool_calls.clear();
                content.items.clear();
            }
            FinishReason::Stop | FinishReason::ToolCalls => {
                let has_calls = !content.tool_calls.is_empty();
                finish = if has_calls { FinishReason::ToolCalls } else { FinishReason::Stop };
            }
            FinishReason::Length | FinishReason::Paused => {}
        }
        let mut written = shown.end(out);
        if finish == FinishReason::Refused && written.text.trim().is_empty() {
            written.take(Kind::Text, &explanation, out);
        }
        let Written { text, reasoning, .. } = written;
        // The stamp says who reasoned, so that it is never replayed to anybody else.
        let native = (!content.items.is_empty() || !reasoning.is_empty()).then(|| NativeItems {
            provider,
            model,
            api_mode: ApiMode::AnthropicMessages.as_str().into(),
            items: content.items,
            ..NativeItems::default()
        });
        let message = AssistantMessage { text, reasoning, tool_calls: content.tool_calls, finish, native };
        Ok(ModelReply { message, usage: usage.total() })
    }
}

/// Our word for a stop reason; an unknown one is a normal end.
fn finish_reason(stop_reason: &str) -> FinishReason {
    match stop_reason {
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Refused,
        "pause_turn" => FinishReason::Paused,
        _ => FinishReason::Stop,
    }
}
