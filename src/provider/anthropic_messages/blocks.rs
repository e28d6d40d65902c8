//! The content blocks of one answer, put together from their events.

use serde_json::{Map, Value};

use super::wire::Delta;
use crate::message::ToolCall;
use crate::provider::ModelEvent;
use crate::provider::draft::{Pieces, Shown, settle_ids, text_field};

/// What a block is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Redacted,
    ToolUse,
    /// A tool the provider ran itself, or its result: kept, never run.
    Server,
    /// Nothing we know: left out.
    Unknown,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::Redacted,
            "tool_use" => Self::ToolUse,
            "server_tool_use" | "mcp_tool_use" => Self::Server,
            result if result.ends_with("_tool_result") => Self::Server,
            _ => Self::Unknown,
        }
    }
}

/// One block so far.
#[derive(Debug)]
struct Block {
    index: Option<u64>,
    kind: Kind,
    /// As it came in `content_block_start`.
    fields: Map<String, Value>,
    /// Text or thinking.
    text: Pieces,
    signature: String,
    input: Pieces,
    is_closed: bool,
}

impl Block {
    fn new(index: Option<u64>, kind: Kind, fields: Map<String, Value>) -> Self {
        let (text, input) = (Pieces::default(), Pieces::default());
        Self { index, kind, fields, text, signature: String::new(), input, is_closed: false }
    }

    fn add(&mut self, piece: Piece<'_>, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        match piece {
            Piece::Text(text) | Piece::Thinking(text) => self.show(text, shown, out),
            Piece::Signature(text) => self.signature.push_str(text),
            Piece::Input(text) => drop(self.input.push(text)),
        }
    }

    fn show(&mut self, piece: &str, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        let piece = self.text.push(piece);
        match self.kind {
            Kind::Text => shown.text(piece, out),
            Kind::Thinking => shown.reasoning(piece, out),
            Kind::Redacted | Kind::ToolUse | Kind::Server | Kind::Unknown => {}
        }
    }

    fn close(&mut self, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        let rest = self.text.end();
        match self.kind {
            Kind::Text => shown.text(rest, out),
            Kind::Thinking => shown.reasoning(rest, out),
            Kind::Redacted | Kind::ToolUse | Kind::Server | Kind::Unknown => {}
        }
        self.input.end();
        self.is_closed = true;
    }

    /// The arguments as written. A block that ended without any has none to give: `{}`. One that was cut
    /// before its end keeps what it has, which is no JSON.
    fn arguments(&self, is_cut: bool) -> String {
        let written = self.input.as_str();
        if !written.trim().is_empty() {
            return written.to_owned();
        }
        match self.fields.get("input") {
            Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
            Some(Value::Object(input)) if !input.is_empty() => Value::Object(input.clone()).to_string(),
            Some(input @ (Value::Array(_) | Value::Bool(_) | Value::Number(_))) => input.to_string(),
            Some(Value::Null | Value::String(_) | Value::Object(_)) | None if is_cut => String::new(),
            Some(Value::Null | Value::String(_) | Value::Object(_)) | None => "{}".into(),
        }
    }

    /// The block as it goes back to the provider; `None` for what it would refuse or has no use for.
    fn into_item(mut self, is_cut: bool) -> Option<Value> {
        match self.kind {
            Kind::Text if self.text.is_blank() => return None,
            Kind::Text => {
                self.fields.retain(|name, value| name != "citations" || !value.is_null());
                self.fields.insert("text".into(), self.text.as_str().into());
            }
            // Without its signature thinking cannot be verified and is refused.
            Kind::Thinking if self.signature.trim().is_empty() => return None,
            Kind::Thinking => {
                self.fields.insert("thinking".into(), self.text.as_str().into());
                self.fields.insert("signature".into(), self.signature.into());
            }
            Kind::ToolUse | Kind::Server if !self.input.is_blank() || self.kind == Kind::ToolUse => {
                let input = serde_json::from_str(&self.arguments(is_cut)).ok().filter(Value::is_object);
                self.fields.insert("input".into(), input.unwrap_or_else(|| Value::Object(Map::new())));
            }
            Kind::Redacted | Kind::ToolUse | Kind::Server => {}
            Kind::Unknown => return None,
        }
        Some(Value::Object(self.fields))
    }
}

/// One piece of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    /// Visible text.
    Text(&'a str),
    /// Reasoning.
    Thinking(&'a str),
    /// Of the signature of a thinking block.
    Signature(&'a str),
    /// Of the JSON of a call's arguments.
    Input(&'a str),
}

impl<'a> Piece<'a> {
    /// What a delta says; `None` for kinds we have no use for.
    pub(super) fn of(delta: &'a Delta<'_>) -> Option<Self> {
        let all = [
            ("text_delta", Self::Text(delta.text.as_str())),
            ("thinking_delta", Self::Thinking(delta.thinking.as_str())),
            ("signature_delta", Self::Signature(delta.signature.as_str())),
            ("input_json_delta", Self::Input(delta.partial_json.as_str())),
        ];
        let kind = delta.kind.as_str();
        let says_something = |piece: &Self| !piece.as_str().is_empty();
        all.into_iter()
            .find(|(name, piece)| *name == kind || (kind.is_empty() && says_something(piece)))
            .map(|found| found.1)
    }

    pub(super) fn as_str(self) -> &'a str {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::Signature(text) | Self::Input(text) => text,
        }
    }

    fn fits(self, kind: Kind) -> bool {
        match self {
            Self::Text(_) => kind == Kind::Text,
            Self::Thinking(_) | Self::Signature(_) => kind == Kind::Thinking,
            Self::Input(_) => matches!(kind, Kind::ToolUse | Kind::Server),
        }
    }
}

/// All blocks of one answer, in the order they began.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
}

/// What the blocks came to.
#[derive(Debug)]
pub(super) struct Content {
    /// The calls in the order asked.
    pub(super) tool_calls: Vec<ToolCall>,
    /// The blocks as they go back; empty when text and calls say all there is.
    pub(super) items: Vec<Value>,
}

impl Blocks {
    /// Begins a block. What it already holds counts as its first piece.
    pub(super) fn begin(
        &mut self,
        index: Option<u64>,
        fields: Map<String, Value>,
        shown: &mut Shown,
        out: &mut Vec<ModelEvent>,
    ) {
        let kind = Kind::of(text_field(&fields, "type"));
        let follows_text = self.blocks.last().is_some_and(|last| last.kind == Kind::Text);
        match kind {
            // Text blocks in a row are one text that citations cut up.
            Kind::Text if !follows_text => shown.break_text(),
            Kind::Thinking => shown.break_reasoning(),
            Kind::ToolUse => out.push(ModelEvent::ToolCallStarted { name: text_field(&fields, "name").to_owned() }),
            Kind::Text | Kind::Redacted | Kind::Server | Kind::Unknown => {}
        }
        let mut block = Block::new(index, kind, fields);
        let first = [("text", Kind::Text), ("thinking", Kind::Thinking)].into_iter().find(|(_, of)| *of == kind);
        if let Some(text) =
            first.and_then(|(name, _)| block.fields.get(name)).and_then(Value::as_str).map(str::to_owned)
        {
            block.show(&text, shown, out);
        }
        text_field(&block.fields, "signature").clone_into(&mut block.signature);
        self.blocks.push(block);
    }

    /// Adds to the newest block with this index, or to the newest one. Text without a block begins one.
    pub(super) fn add(&mut self, index: Option<u64>, piece: Piece<'_>, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        let named = |block: &&mut Block| index.is_none() || block.index == index;
        if let Some(block) = self.blocks.iter_mut().rev().find(named).filter(|block| piece.fits(block.kind)) {
            return block.add(piece, shown, out);
        }
        let kind = match piece {
            Piece::Text(_) => "text",
            Piece::Thinking(_) => "thinking",
            Piece::Signature(_) | Piece::Input(_) => return,
        };
        self.begin(index, Map::from_iter([("type".into(), kind.into())]), shown, out);
        if let Some(block) = self.blocks.last_mut() {
            block.add(piece, shown, out);
        }
    }

    /// Ends the newest open block with this index.
    pub(super) fn close(&mut self, index: Option<u64>, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        let named = |block: &&mut Block| !block.is_closed && (index.is_none() || block.index == index);
        if let Some(block) = self.blocks.iter_mut().rev().find(named) {
            block.close(shown, out);
        }
    }

    /// The calls and the blocks as they go back. `is_cut` tells that the output limit ended the answer.
    pub(super) fn finish(mut self, is_cut: bool, shown: &mut Shown, out: &mut Vec<ModelEvent>) -> Content {
        let newest = self.blocks.len().saturating_sub(1);
        let mut tool_calls = Vec::new();
        let mut items = Vec::new();
        let mut says_more = false;
        for (position, mut block) in self.blocks.drain(..).enumerate() {
            let is_cut = !block.is_closed || (is_cut && position == newest);
            block.close(shown, out);
            if block.kind == Kind::ToolUse {
                tool_calls.push(ToolCall {
                    id: text_field(&block.fields, "id").to_owned(),
                    name: text_field(&block.fields, "name").to_owned(),
                    arguments: block.arguments(is_cut),
                    extra: None,
                });
            }
            let is_more = matches!(block.kind, Kind::Thinking | Kind::Redacted | Kind::Server);
            let item = block.into_item(is_cut);
            says_more |= is_more && item.is_some();
            items.extend(item);
        }
        settle_ids(&mut tool_calls);
        if !says_more {
            items.clear();
        }
        Content { tool_calls, items }
    }
}
