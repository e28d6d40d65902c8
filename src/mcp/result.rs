//! What a tool of a server answered, as a result for the model: bounded, with everything in it passed on or named.
//! The turn puts it between the marks of what strangers wrote, as every result of a foreign tool.

use serde_json::Value;

use crate::message::Part;
use crate::tool::ToolOutput;
use crate::tool::output::{cap, clean_for_model, one_line};

/// Pictures of one result that reach the model.
const MAX_IMAGES: usize = 4;

/// The longest picture in base64; providers refuse ones above 5 MB.
const MAX_IMAGE_BYTES: usize = 5 << 20;

/// Pictures that providers take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Bytes of structured content that are handed on to the client.
const MAX_RAW_BYTES: usize = 64 << 10;

/// The result of a call as its server sent it.
pub(super) fn output(result: &Value, max_chars: usize) -> ToolOutput {
    let mut reading = Reading::default();
    match result.get("content") {
        Some(Value::Array(blocks)) => blocks.iter().for_each(|block| reading.block(block)),
        Some(Value::Null) | None => {}
        Some(one) => reading.block(one),
    }
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    if let (true, Some(structured)) = (reading.texts.is_empty(), structured) {
        reading.texts.push(serde_json::to_string_pretty(structured).unwrap_or_default());
    }
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let text = reading.texts.join("\n\n");
    let mut content = vec![Part::text(bounded(&text, max_chars))];
    if text.trim().is_empty() {
        content =
            if reading.images.is_empty() { vec![Part::text("(the server answered nothing)")] } else { Vec::new() };
    }
    content.extend(reading.images);
    let raw = structured.filter(|value| value.to_string().len() <= MAX_RAW_BYTES).cloned();
    ToolOutput { content, raw, is_error, ..ToolOutput::default() }
}

/// A failure that a server told of.
pub(super) fn failure(text: &str, max_chars: usize) -> ToolOutput {
    ToolOutput::error(bounded(text, max_chars))
}

#[derive(Default)]
struct Reading {
    texts: Vec<String>,
    images: Vec<Part>,
}

impl Reading {
    fn block(&mut self, block: &Value) {
        if let Some(text) = block.as_str() {
            return self.text(text);
        }
        let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        match field("type") {
            "text" => self.text(field("text")),
            "image" => self.image(field("mimeType"), field("data")),
            "audio" => self.text(&format!("[{} sound, which cannot be passed on]", one_line(field("mimeType"), 60))),
            "resource_link" => {
                self.text(&format!("[link: {} {}]", one_line(field("name"), 200), one_line(field("uri"), 500)));
            }
            "resource" => self.resource(block.get("resource").unwrap_or(&Value::Null)),
            "" if !field("text").is_empty() => self.text(field("text")),
            other => self.text(&format!("[content of the unknown kind {:?}]", one_line(other, 40))),
        }
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.texts.push(text.to_owned());
        }
    }

    fn image(&mut self, mime_type: &str, data: &str) {
        let is_base64 = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        let problem = match () {
            () if !IMAGES.contains(&mime_type) => "of a kind that cannot be passed on",
            () if data.is_empty() || !is_base64 => "that is not valid base64",
            () if data.len() > MAX_IMAGE_BYTES => "that is too large",
            () if self.images.len() >= MAX_IMAGES => "left out: there are too many",
            () => {
                self.images.push(Part::Image { mime_type: mime_type.to_owned(), data: data.to_owned() });
                return;
            }
        };
        self.text(&format!("[a picture ({}) {problem}]", one_line(mime_type, 60)));
    }

    fn resource(&mut self, resource: &Value) {
        let field = |name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default();
        if let Some(text) = resource.get("text").and_then(Value::as_str) {
            self.text(&format!("[resource {}]\n{text}", one_line(field("uri"), 500)));
        } else if field("mimeType").starts_with("image/") {
            self.image(field("mimeType"), field("blob"));
        } else {
            self.text(&format!("[resource {}, which is not text]", one_line(field("uri"), 500)));
        }
    }
}

fn bounded(text: &str, max_chars: usize) -> String {
    cap(&clean_for_model(text.as_bytes()), max_chars, "ask the tool for less at a time").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(result: &Value) -> String {
        crate::message::plain_text(&output(result, 1_000).content)
    }

    #[test]
    fn every_kind_of_content_is_passed_on_or_named() {
        let result = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "image", "mimeType": "image/tiff", "data": "aGk="},
            {"type": "image", "mimeType": "image/png", "data": "no base64"},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGk="},
            {"type": "resource_link", "name": "r", "uri": "file:///r"},
            {"type": "resource", "resource": {"uri": "file:///t", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "hologram"},
            7,
        ], "isError": true});
        let output = output(&result, 1_000);
        assert!(output.is_error);
        let text = crate::message::plain_text(&output.content);
        for part in
            ["one", "image/tiff", "not valid base64", "audio/wav", "file:///r", "inside", "file:///b", "hologram"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(output.content.iter().filter(|part| matches!(part, Part::Image { .. })).count(), 1);
    }

    #[test]
    fn structured_content_stands_in_for_missing_text() {
        assert!(text(&json!({"structuredContent": {"n": 7}})).contains("\"n\": 7"));
        let both = json!({"content": [{"type": "text", "text": "seven"}], "structuredContent": {"n": 7}});
        assert!(!text(&both).contains("\"n\""));
        assert_eq!(output(&both, 1_000).raw, Some(json!({"n": 7})));
        assert_eq!(text(&json!({})), "(the server answered nothing)");
    }

    #[test]
    fn text_that_is_not_in_blocks_is_passed_on_all_the_same() {
        assert_eq!(text(&json!({"content": "plain"})), "plain");
        assert_eq!(text(&json!({"content": {"type": "text", "text": "one block"}})), "one block");
        assert_eq!(text(&json!({"content": ["a", {"text": "b"}]})), "a\n\nb");
    }

    #[test]
    fn a_huge_result_is_cut_with_a_note() {
        let text = text(&json!({"content": [{"type": "text", "text": "x".repeat(1_000_000)}]}));
        assert!(text.len() < 1_200 && text.contains("999000 characters left out"), "{}", text.len());
    }
}
