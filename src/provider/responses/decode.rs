//! The decoder: events in, what the client may see and one whole reply out.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::content::content;
use super::items::{Address, Items, Kind, Source};
use super::wire::{Event, Response};
use crate::message::{AssistantMessage, FinishReason, NativeItems, Usage};
use crate::provider::draft::{Shown, Written, fields_without_marks, settle_ids};
use crate::provider::json::JsonReader;
use crate::provider::usage::usage;
use crate::provider::{ApiMode, DecodeError, Decoder, ModelEvent, ModelReply, SseEvent};

/// Decodes one answer.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    provider: String,
    model: String,
    reader: JsonReader,
    items: Items,
    shown: Shown,
    usage: Usage,
    finish: Option<FinishReason>,
    progress: u64,
}

impl ResponsesDecoder {
    pub(super) fn new(provider: &str, model: &str) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned(), ..Self::default() }
    }

    fn take(&mut self, event: &Event<'_>, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let address = Address { id: event.item_id.as_str(), index: event.output_index.number() };
        let (kind, delta) = (event.kind.as_str(), event.delta.as_str());
        self.shown.count(delta.len())?;
        let is_state = matches!(kind, "response.created" | "response.queued" | "response.in_progress");
        let is_empty = kind.ends_with(".delta") && delta.is_empty();
        self.progress += u64::from(kind.starts_with("response.") && !is_empty && (!is_state || self.progress == 0));
        let Self { items, shown, .. } = self;
        match kind {
            "response.output_text.delta" => items.add(Kind::Message, address, delta, shown, out),
            "response.refusal.delta" => {
                items.add(Kind::Message, address, delta, shown, out);
                items.refuse(address);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_summary.delta" => {
                items.reason(address, (Source::Summary, event.summary_index.number()), delta, shown, out);
            }
            "response.reasoning_text.delta" | "response.reasoning.delta" => {
                items.reason(address, (Source::Text, None), delta, shown, out);
            }
            "response.function_call_arguments.delta" => items.add(Kind::Call, address, delta, shown, out),
            "response.custom_tool_call_input.delta" => items.add(Kind::Custom, address, delta, shown, out),
            "response.output_text.done" => items.complete(Kind::Message, address, event.text.as_str(), shown, out),
            "response.function_call_arguments.done" => {
                items.complete(Kind::Call, address, event.arguments.as_str(), shown, out);
            }
            "response.output_item.added" | "response.output_item.done" => self.take_item(event, out)?,
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => self.take_end(event, out)?,
            "error" => return Err(reported(event, data)),
            _ if event.error.is_some() => return Err(reported(event, data)),
            _ => {}
        }
        Ok(())
    }

    fn take_item(&mut self, event: &Event<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let Some(raw) = event.item else { return Ok(()) };
        let fields = self.read_item(raw)?;
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let address = Address { id: &id, index: event.output_index.number() };
        if event.kind.as_str() == "response.output_item.done" {
            self.items.end(address, fields, &mut self.shown, out);
        } else {
            self.items.begin(address, &fields, out);
        }
        Ok(())
    }

    fn read_item(&mut self, raw: &RawValue) -> Result<Map<String, Value>, DecodeError> {
        self.shown.count(raw.get().len())?;
        let fields = serde_json::from_str(raw.get()).map_err(|error| DecodeError::Malformed(error.to_string()))?;
        Ok(fields_without_marks(fields))
    }

    fn take_end(&mut self, event: &Event<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let response = match event.response {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| DecodeError::Malformed(error.to_string()))?,
            None => Response::default(),
        };
        let named = event.kind.as_str().trim_start_matches("response.");
        self.take_response(&response, named, out)
    }

    /// Takes the whole answer. `named` is its status where it names none itself.
    fn take_response(
        &mut self,
        response: &Response<'_>,
        named: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        let status = if response.status.as_str().is_empty() { named } else { response.status.as_str() };
        let reason = response.incomplete_details.as_ref().map_or("", |details| details.reason.as_str());
        let finish = match status {
            "failed" | "cancelled" => {
                let said = response.error.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
                let error = said
                    .unwrap_or_else(|| json!({"code": "server_error", "message": format!("the response {status}")}));
                return Err(DecodeError::Reported {
                    body: json!({"type": "response.failed", "error": error}).to_string(),
                });
            }
            "queued" | "in_progress" => return Err(DecodeError::Truncated),
            "incomplete" if reason == "content_filter" => FinishReason::Refused,
            "incomplete" => FinishReason::Length,
            _ => FinishReason::Stop,
        };
        let output = response.output.iter().flatten().map(|raw| self.read_item(raw)).collect::<Result<Vec<_>, _>>()?;
        self.items.end_all(output, &mut self.shown, out);
        self.usage = response.usage.and_then(usage).unwrap_or(self.usage);
        self.finish = Some(finish);
        Ok(())
    }
}

/// An error as the provider reported it, under the key `error` in every case.
fn reported(event: &Event<'_>, data: &str) -> DecodeError {
    let is_wrapped = event.error.is_some();
    DecodeError::Reported { body: if is_wrapped { data.to_owned() } else { format!("{{\"error\":{data}}}") } }
}

/// Whether the answer depends on an event of this name; one without a name may be any.
fn matters(name: &str) -> bool {
    name.is_empty() || name == "message" || name == "error" || name.starts_with("response.")
}

impl Decoder for ResponsesDecoder {
    fn push(&mut self, event: &SseEvent<'_>, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if event.data.trim() == "[DONE]" {
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
            Err(_) if !matters(event.name) => Ok(()),
            Err(error) => Err(DecodeError::Malformed(error.to_string())),
        };
        self.reader = reader;
        result
    }

    fn whole(&mut self, body: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let text = String::from_utf8_lossy(body);
        let mut reader = JsonReader::default();
        let response =
            reader.parse::<Response<'_>>(&text).map_err(|error| DecodeError::Malformed(error.to_string()))?;
        if response.output.is_none() {
            return match response.error {
                Some(_) => Err(DecodeError::Reported { body: text.into_owned() }),
                None => Err(DecodeError::Invalid("the answer has no output")),
            };
        }
        self.take_response(&response, "completed", out)
    }

    fn is_done(&self) -> bool {
        self.finish.is_some()
    }

    fn progress(&self) -> u64 {
        self.progress
    }

    fn finish(self: Box<Self>, out: &mut Vec<ModelEvent>) -> Result<ModelReply, DecodeError> {
        let Self { provider, model, items, mut shown, usage, finish, .. } = *self;
        let Some(mut finish) = finish else { return Err(DecodeError::Truncated) };
        let items = items.finish(&mut shown, out);
        let mut content = content(items, finish == FinishReason::Length);
        let Written { mut text, reasoning, .. } = shown.end(out);
        let said = read_again(&content.texts);
        if !said.text.is_empty() {
            text = said.text;
        }
        match finish {
            FinishReason::Refused => {
                // What a refused answer began to ask must not happen.
                content.tool_calls.clear();
                content.items.clear();
            }
            FinishReason::Stop if !content.tool_calls.is_empty() => finish = FinishReason::ToolCalls,
            FinishReason::Stop if content.is_refused => finish = FinishReason::Refused,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Length | FinishReason::Paused => {}
        }
        settle_ids(&mut content.tool_calls);
        // The stamp says who reasoned, so that it is never replayed to anybody else.
        let native = (!content.items.is_empty() || !reasoning.is_empty()).then(|| NativeItems {
            provider,
            model,
            api_mode: ApiMode::CodexResponses.as_str().into(),
            items: content.items,
            ..NativeItems::default()
        });
        let message = AssistantMessage { text, reasoning, tool_calls: content.tool_calls, finish, native };
        Ok(ModelReply { message, usage })
    }
}

/// The texts of the items at their end, which count for more than what was streamed of them.
fn read_again(texts: &[String]) -> Written {
    let mut shown = Shown::default();
    for text in texts {
        shown.break_text();
        shown.text(text, &mut Vec::new());
    }
    shown.end(&mut Vec::new())
}
