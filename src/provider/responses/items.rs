//! The output items of one answer, put together from their events.
//!
//! An event names its item by id, by place, by both or by neither, and servers differ in which of an item's
//! events they send at all. What an item says at its end counts for more than what was streamed of it.

use serde_json::{Map, Value, json};

use crate::provider::ModelEvent;
use crate::provider::draft::{Pieces, Shown, text_field};

/// What an item is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Visible text.
    Message,
    /// Reasoning.
    Reasoning,
    /// A call of one of our tools.
    Call,
    /// A call with free text for arguments. We offer no such tools; the model is told so by the result.
    Custom,
    /// Anything else: left out.
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::Call,
            "custom_tool_call" => Self::Custom,
            _ => Self::Other,
        }
    }
}

/// Which item an event means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address<'a> {
    /// Its id; blank when the event has none.
    pub(super) id: &'a str,
    /// Its place in the output.
    pub(super) index: Option<u64>,
}

/// Where reasoning comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A summary of it.
    Summary,
    /// Itself.
    Text,
}

/// One item so far.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: String,
    index: Option<u64>,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) call_id: String,
    /// Text, reasoning or arguments as streamed.
    streamed: Pieces,
    source: Option<Source>,
    summary_index: Option<u64>,
    /// The item as it was at its end.
    pub(super) last: Option<Map<String, Value>>,
    is_announced: bool,
    pub(super) is_refusal: bool,
}

impl Item {
    fn new(kind: Kind, address: Address<'_>) -> Self {
        Self {
            id: address.id.to_owned(),
            index: address.index,
            kind,
            name: String::new(),
            call_id: String::new(),
            streamed: Pieces::default(),
            source: None,
            summary_index: None,
            last: None,
            is_announced: false,
            is_refusal: false,
        }
    }

    /// Takes what an item's own object says, at its begin or end.
    fn read(&mut self, fields: &Map<String, Value>, out: &mut Vec<ModelEvent>) {
        for (known, name) in [(&mut self.id, "id"), (&mut self.name, "name"), (&mut self.call_id, "call_id")] {
            let new = text_field(fields, name);
            if !new.trim().is_empty() {
                new.clone_into(known);
            }
        }
        let is_call = matches!(self.kind, Kind::Call | Kind::Custom);
        if is_call && !self.is_announced && !self.name.is_empty() {
            self.is_announced = true;
            out.push(ModelEvent::ToolCallStarted { name: self.name.clone() });
        }
    }

    /// The arguments: the item's own at its end, else what was streamed. A call that came whole and has none
    /// has none to give: `{}`.
    pub(super) fn arguments(&self, is_cut: bool) -> String {
        let field = if self.kind == Kind::Custom { "input" } else { "arguments" };
        let last = match self.last.as_ref().and_then(|fields| fields.get(field)) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let written = if last.trim().is_empty() { self.streamed.as_str() } else { &last };
        if self.kind == Kind::Custom {
            return json!({ "input": written }).to_string();
        }
        let is_whole = self.last.is_some() && !is_cut;
        if written.trim().is_empty() && is_whole { "{}".into() } else { written.to_owned() }
    }

    /// The visible text or reasoning at the item's end; blank when it says none.
    fn last_text(&self) -> String {
        let parts = |name: &str| {
            let parts = self.last.as_ref().and_then(|fields| fields.get(name)).and_then(Value::as_array);
            parts.into_iter().flatten().filter_map(part_text).collect::<Vec<_>>()
        };
        match self.kind {
            Kind::Message => parts("content").concat(),
            Kind::Reasoning => {
                let summary = parts("summary").join("\n\n");
                if summary.is_empty() { parts("content").concat() } else { summary }
            }
            Kind::Call | Kind::Custom | Kind::Other => String::new(),
        }
    }

    pub(super) fn text(&self) -> String {
        let last = self.last_text();
        if last.trim().is_empty() { self.streamed.as_str().to_owned() } else { last }
    }
}

fn part_text(part: &Value) -> Option<&str> {
    ["text", "refusal"].iter().find_map(|name| part.get(name)).and_then(Value::as_str).or_else(|| part.as_str())
}

/// All items of one answer, in output order.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<Item>,
}

impl Items {
    /// An item began.
    pub(super) fn begin(&mut self, address: Address<'_>, fields: &Map<String, Value>, out: &mut Vec<ModelEvent>) {
        let kind = Kind::of(text_field(fields, "type"));
        let known = self.items.iter().rposition(|item| !address.id.is_empty() && item.id == address.id);
        let at = known.unwrap_or_else(|| self.push(Item::new(kind, address)));
        if let Some(item) = self.items.get_mut(at) {
            item.read(fields, out);
        }
    }

    /// More of an item's text or arguments.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        address: Address<'_>,
        piece: &str,
        shown: &mut Shown,
        out: &mut Vec<ModelEvent>,
    ) {
        let at = self.find(kind, address).unwrap_or_else(|| self.push(Item::new(kind, address)));
        let Some(item) = self.items.get_mut(at) else { return };
        if item.streamed.as_str().is_empty() {
            begin_paragraph(kind, shown);
        }
        let piece = item.streamed.push(piece);
        show(kind, piece, shown, out);
    }

    /// More of an item's reasoning. What another source says of the same item is the same again.
    pub(super) fn reason(
        &mut self,
        address: Address<'_>,
        (source, summary_index): (Source, Option<u64>),
        piece: &str,
        shown: &mut Shown,
        out: &mut Vec<ModelEvent>,
    ) {
        let at = self.find(Kind::Reasoning, address).unwrap_or_else(|| self.push(Item::new(Kind::Reasoning, address)));
        let Some(item) = self.items.get_mut(at) else { return };
        if *item.source.get_or_insert(source) != source {
            return;
        }
        if std::mem::replace(&mut item.summary_index, summary_index) != summary_index {
            shown.break_reasoning();
        }
        self.add(Kind::Reasoning, address, piece, shown, out);
    }

    /// A message's text is a refusal.
    pub(super) fn refuse(&mut self, address: Address<'_>) {
        let found = self.find(Kind::Message, address).and_then(|at| self.items.get_mut(at));
        if let Some(item) = found {
            item.is_refusal = true;
        }
    }

    /// The whole text or arguments of an item, of which nothing may have been streamed.
    pub(super) fn complete(
        &mut self,
        kind: Kind,
        address: Address<'_>,
        text: &str,
        shown: &mut Shown,
        out: &mut Vec<ModelEvent>,
    ) {
        let known = self.find(kind, address).and_then(|at| self.items.get(at));
        let has_more = known.is_none_or(|item| item.streamed.is_blank());
        if has_more && !text.trim().is_empty() {
            self.add(kind, address, text, shown, out);
        }
    }

    /// An item ended.
    pub(super) fn end(
        &mut self,
        address: Address<'_>,
        fields: Map<String, Value>,
        shown: &mut Shown,
        out: &mut Vec<ModelEvent>,
    ) {
        let kind = Kind::of(text_field(&fields, "type"));
        // Some servers give an item another id at its end.
        let is_renamed = |item: &Item| item.kind == kind && item.last.is_none() && item.index == address.index;
        let found = self.find(kind, address).or_else(|| self.items.iter().position(is_renamed));
        let at = found.unwrap_or_else(|| self.push(Item::new(kind, address)));
        self.settle(at, fields, shown, out);
    }

    /// The whole output as the last event has it. Items that it does not have stay where they are: some
    /// servers leave out reasoning there.
    pub(super) fn end_all(&mut self, output: Vec<Map<String, Value>>, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        let mut streamed: Vec<Option<Item>> = std::mem::take(&mut self.items).into_iter().map(Some).collect();
        let mut matched: Vec<Option<(usize, Item)>> = Vec::with_capacity(output.len());
        for (place, fields) in output.iter().enumerate() {
            let at = matching(&streamed, place, fields);
            matched.push(at.and_then(|at| Some((at, streamed.get_mut(at)?.take()?))));
        }
        for (place, (fields, found)) in output.into_iter().zip(matched).enumerate() {
            let before = found.as_ref().map_or(0, |(at, _)| *at);
            self.items.extend(streamed.iter_mut().take(before).filter_map(Option::take));
            let address = Address { id: text_field(&fields, "id"), index: u64::try_from(place).ok() };
            let item =
                found.map_or_else(|| Item::new(Kind::of(text_field(&fields, "type")), address), |(_, item)| item);
            let at = self.push(item);
            self.settle(at, fields, shown, out);
        }
        self.items.extend(streamed.into_iter().flatten());
    }

    fn settle(&mut self, at: usize, fields: Map<String, Value>, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
        let Some(item) = self.items.get_mut(at) else { return };
        item.read(&fields, out);
        item.is_refusal |= fields
            .get("content")
            .and_then(Value::as_array)
            .is_some_and(|parts| parts.iter().any(|part| part.get("type").and_then(Value::as_str) == Some("refusal")));
        item.last = Some(fields);
        let last = item.last_text();
        if last.trim().is_empty() {
            return;
        }
        if item.streamed.as_str().is_empty() {
            begin_paragraph(item.kind, shown);
        }
        if let Some(rest) = last.strip_prefix(item.streamed.as_str()) {
            show(item.kind, rest, shown, out);
            item.streamed.replace(last);
        }
    }

    fn push(&mut self, item: Item) -> usize {
        self.items.push(item);
        self.items.len() - 1
    }

    /// The item an event means: by id, by place, or the newest of its kind that has not ended.
    fn find(&self, kind: Kind, address: Address<'_>) -> Option<usize> {
        let Address { id, index } = address;
        let newest = |test: &dyn Fn(&Item) -> bool| self.items.iter().rposition(|item| item.kind == kind && test(item));
        let by_id = (!id.is_empty()).then(|| newest(&|item| item.id == id)).flatten();
        let by_place = || index.and_then(|_| newest(&|item| item.index == index));
        let is_open = |item: &Item| item.last.is_none() && (id.is_empty() || item.id.is_empty());
        by_id.or_else(by_place).or_else(|| newest(&|item| is_open(item) && (index.is_none() || item.index.is_none())))
    }

    /// The items, in output order, with the text at the end of each stream.
    pub(super) fn finish(mut self, shown: &mut Shown, out: &mut Vec<ModelEvent>) -> Vec<Item> {
        for item in &mut self.items {
            let rest = item.streamed.end();
            show(item.kind, rest, shown, out);
        }
        self.items
    }
}

fn begin_paragraph(kind: Kind, shown: &mut Shown) {
    match kind {
        Kind::Message => shown.break_text(),
        Kind::Reasoning => shown.break_reasoning(),
        Kind::Call | Kind::Custom | Kind::Other => {}
    }
}

fn show(kind: Kind, piece: &str, shown: &mut Shown, out: &mut Vec<ModelEvent>) {
    match kind {
        Kind::Message => shown.text(piece, out),
        Kind::Reasoning => shown.reasoning(piece, out),
        Kind::Call | Kind::Custom | Kind::Other => {}
    }
}

/// Which streamed item an item of the output is: by id, by call id, by place, or the first of its kind.
fn matching(streamed: &[Option<Item>], place: usize, fields: &Map<String, Value>) -> Option<usize> {
    let kind = Kind::of(text_field(fields, "type"));
    let (id, call_id) = (text_field(fields, "id"), text_field(fields, "call_id"));
    let first = |test: &dyn Fn(usize, &Item) -> bool| {
        let same =
            |(at, slot): (usize, &Option<Item>)| slot.as_ref().is_some_and(|item| item.kind == kind && test(at, item));
        streamed.iter().enumerate().position(same)
    };
    let by_id = (!id.is_empty()).then(|| first(&|_, item| item.id == id)).flatten();
    let by_call = || (!call_id.is_empty()).then(|| first(&|_, item| item.call_id == call_id)).flatten();
    by_id.or_else(by_call).or_else(|| first(&|at, _| at == place)).or_else(|| first(&|_, _| true))
}
