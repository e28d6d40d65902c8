//! From our types to the wire: every `session/update`, and every size limit on the way.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use turnd_protocol::acp;
use turnd_protocol::ext::{self, TurnOutcome, TurnUsage};

use crate::approval::display::escape;
use crate::config::Mode;
use crate::message::{FinishReason, Part};
use crate::rpc::outbox::escaped_prefix;
use crate::session::port::{CommandInfo, PermissionQuestion, ReplayedCall, SessionOptions};
use crate::tool::clarify::Inquiry;
use crate::tool::hidden;
use crate::tool::{CallPlan, Display, PlanEntry, PlanPriority, PlanStatus, ToolKind};
use crate::turn::event::{CompactionState, Severity};
use crate::turn::port::CallState;
use crate::turn::{ExitReason, TurnReport, TurnStatus};

/// Room for all content of one tool call in a line, and for its raw input and output. Together with
/// titles and locations a line stays under 64 KiB.
const CONTENT_BYTES: usize = 24_000;
const RAW_BYTES: usize = 8_000;
/// A question shows more of the input, because it is what the user says yes to.
const ASKED_RAW_BYTES: usize = 24_000;
const SHORT_BYTES: usize = 2_000;

/// The longest tool name shown; a model can make one up of any length.
const NAME_BYTES: usize = 200;

/// The text, cut to a size that counts JSON escapes, with a note when it was cut.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    let end = escaped_prefix(text, limit);
    match text.get(..end) {
        Some(kept) if end < text.len() => format!("{kept}\n[… {} more bytes not shown]", text.len() - end),
        _ => text.to_owned(),
    }
}

/// A short text that a person decides by: cut, and with nothing in it that cannot be seen.
fn shown(text: &str, limit: usize) -> String {
    escape(&shortened(text, limit))
}

/// A JSON value, or a note about it when it is too large for a line.
fn limited(value: Value, limit: usize) -> Value {
    let size = value.to_string().len();
    if size <= limit {
        return value;
    }
    match value {
        Value::Object(map) => {
            let share = limit / (map.len().clamp(1, 40));
            map.into_iter()
                .take(40)
                .map(|(key, value)| (shortened(&key, 200), limited_member(value, share)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        other => limited_member(other, limit),
    }
}

fn limited_member(value: Value, limit: usize) -> Value {
    match value {
        Value::String(text) => Value::String(shortened(&text, limit)),
        other if other.to_string().len() <= limit => other,
        other => Value::String(shortened(&other.to_string(), limit)),
    }
}

fn kind(kind: ToolKind) -> acp::ToolKind {
    match kind {
        ToolKind::Read => acp::ToolKind::Read,
        ToolKind::Edit => acp::ToolKind::Edit,
        ToolKind::Search => acp::ToolKind::Search,
        ToolKind::Execute => acp::ToolKind::Execute,
        ToolKind::Think => acp::ToolKind::Think,
        ToolKind::Fetch => acp::ToolKind::Fetch,
        ToolKind::Other => acp::ToolKind::Other,
    }
}

pub(super) fn status(state: CallState) -> acp::ToolCallStatus {
    match state {
        CallState::Pending => acp::ToolCallStatus::Pending,
        CallState::InProgress => acp::ToolCallStatus::InProgress,
        CallState::Completed => acp::ToolCallStatus::Completed,
        CallState::Failed => acp::ToolCallStatus::Failed,
    }
}

fn locations(plan: &CallPlan) -> Vec<acp::ToolCallLocation> {
    let locations = plan.locations.iter().take(20);
    locations.map(|at| acp::ToolCallLocation::new(&at.path).line(at.line)).collect()
}

fn content(displays: &[Display]) -> Vec<acp::ToolCallContent> {
    let share = CONTENT_BYTES / displays.len().clamp(1, 20);
    displays.iter().take(20).map(|display| one_content(display, share)).collect()
}

fn one_content(display: &Display, limit: usize) -> acp::ToolCallContent {
    match display {
        Display::Text(text) => text_content(&shortened(text, limit)),
        Display::Diff { path, old, new } => diff(path, old.as_deref(), new, limit),
        Display::Terminal(id) => acp::ToolCallContent::Terminal(acp::Terminal::new(id.clone())),
    }
}

fn text_content(text: &str) -> acp::ToolCallContent {
    acp::ToolCallContent::Content(acp::Content::new(text))
}

fn diff(path: &Path, old: Option<&str>, new: &str, limit: usize) -> acp::ToolCallContent {
    let half = limit / 2;
    let old = old.map(|old| shortened(old, half));
    acp::ToolCallContent::Diff(acp::Diff::new(path, shortened(new, half)).old_text(old))
}

/// The first word about a tool call.
pub(super) fn tool_call(id: &str, name: &str, arguments: Value, plan: &CallPlan) -> acp::ToolCall {
    acp::ToolCall::new(id.to_owned(), shown(&plan.title, SHORT_BYTES))
        .name(shown(name, NAME_BYTES))
        .kind(kind(plan.kind))
        .status(acp::ToolCallStatus::Pending)
        .locations(locations(plan))
        .content(content(&plan.preview))
        .raw_input(limited(arguments, RAW_BYTES))
}

/// A stored tool call in one piece.
pub(super) fn replayed_call(call: ReplayedCall) -> acp::ToolCall {
    tool_call(&call.id, &call.name, call.arguments, &call.plan)
        .status(status(call.state))
        .content(content(&call.display))
        .raw_output(call.raw.map(|raw| limited(raw, RAW_BYTES)))
}

/// A change of status alone.
pub(super) fn tool_call_status(id: &str, state: CallState) -> acp::ToolCallUpdate {
    acp::ToolCallUpdate::new(id.to_owned(), acp::ToolCallUpdateFields::new().status(status(state)))
}

/// Output so far.
pub(super) fn tool_call_progress(id: &str, shown: &Display) -> acp::ToolCallUpdate {
    let content = vec![one_content(shown, CONTENT_BYTES)];
    acp::ToolCallUpdate::new(id.to_owned(), acp::ToolCallUpdateFields::new().content(content))
}

/// The end of a tool call.
pub(super) fn tool_call_end(
    id: &str,
    state: CallState,
    displays: &[Display],
    raw: Option<Value>,
) -> acp::ToolCallUpdate {
    let fields = acp::ToolCallUpdateFields::new()
        .status(status(state))
        .content(content(displays))
        .raw_output(raw.map(|raw| limited(raw, RAW_BYTES)));
    acp::ToolCallUpdate::new(id.to_owned(), fields)
}

/// The tool call of a permission question: what it would do, whole.
pub(super) fn asked_call(question: &PermissionQuestion) -> acp::ToolCallUpdate {
    let plan = &question.plan;
    let mut content = content(&plan.preview);
    content.extend(hidden_note(&plan.preview));
    if !question.reasons.is_empty() {
        content.push(text_content(&shortened(&question.reasons.join("\n"), SHORT_BYTES)));
    }
    let fields = acp::ToolCallUpdateFields::new()
        .title(shown(&plan.title, SHORT_BYTES))
        .name(shown(&question.tool, NAME_BYTES))
        .kind(kind(plan.kind))
        .status(acp::ToolCallStatus::Pending)
        .locations(locations(plan))
        .content(content)
        .raw_input(limited(question.arguments.clone(), ASKED_RAW_BYTES));
    acp::ToolCallUpdate::new(question.tool_call_id.clone(), fields)
}

/// Says that an edit would put something into a file which its diff does not show.
fn hidden_note(preview: &[Display]) -> Option<acp::ToolCallContent> {
    let count: usize = preview
        .iter()
        .filter_map(|display| match display {
            Display::Diff { new, .. } => hidden::reveal(new).map(|(_, count)| count),
            _ => None,
        })
        .sum();
    (count > 0).then(|| text_content(&format!("The new text holds {count} invisible characters.")))
}

/// The tool call of a question that the model asks.
pub(super) fn inquiring_call(inquiry: &Inquiry) -> acp::ToolCallUpdate {
    let question = crate::approval::display::escape_lines(&inquiry.question);
    let fields = acp::ToolCallUpdateFields::new()
        .title(shortened(question.lines().next().unwrap_or_default(), SHORT_BYTES))
        .kind(acp::ToolKind::Think)
        .status(acp::ToolCallStatus::Pending)
        .content(vec![text_content(&shortened(&question, CONTENT_BYTES))]);
    acp::ToolCallUpdate::new(inquiry.call_id.clone(), fields)
}

pub(super) fn plan(entries: &[PlanEntry]) -> acp::Plan {
    let entries = entries.iter().take(100).map(|entry| {
        let priority = match entry.priority {
            PlanPriority::High => acp::PlanEntryPriority::High,
            PlanPriority::Medium => acp::PlanEntryPriority::Medium,
            PlanPriority::Low => acp::PlanEntryPriority::Low,
        };
        let status = match entry.status {
            PlanStatus::Pending => acp::PlanEntryStatus::Pending,
            PlanStatus::InProgress => acp::PlanEntryStatus::InProgress,
            PlanStatus::Completed => acp::PlanEntryStatus::Completed,
        };
        acp::PlanEntry::new(shortened(&entry.content, 500), priority, status)
    });
    acp::Plan::new(entries.collect())
}

pub(super) fn commands(commands: &[CommandInfo]) -> acp::AvailableCommandsUpdate {
    let commands = commands.iter().map(|command| {
        let input =
            command.hint.map(|hint| acp::AvailableCommandInput::Unstructured(acp::UnstructuredCommandInput::new(hint)));
        acp::AvailableCommand::new(command.name, command.description).input(input)
    });
    acp::AvailableCommandsUpdate::new(commands.collect())
}

pub(super) fn modes(current: Mode) -> acp::SessionModeState {
    let modes = Mode::ALL.into_iter().map(|mode| {
        let (name, description) = mode.describe();
        acp::SessionMode::new(mode.as_str(), name).description(description.to_owned())
    });
    acp::SessionModeState::new(current.as_str(), modes.collect())
}

/// The ids of the two options.
pub(super) const MODE_OPTION: &str = "mode";
pub(super) const MODEL_OPTION: &str = "model";

pub(super) fn options(options: &SessionOptions) -> Vec<acp::SessionConfigOption> {
    let modes: Vec<_> = Mode::ALL
        .into_iter()
        .map(|mode| {
            let (name, description) = mode.describe();
            acp::SessionConfigSelectOption::new(mode.as_str(), name).description(description.to_owned())
        })
        .collect();
    let models: Vec<_> =
        options.models.iter().map(|model| acp::SessionConfigSelectOption::new(model.clone(), model.clone())).collect();
    vec![
        acp::SessionConfigOption::select(MODE_OPTION, "Mode", options.mode.as_str(), modes)
            .category(acp::SessionConfigOptionCategory::Mode),
        acp::SessionConfigOption::select(MODEL_OPTION, "Model", options.model.clone(), models)
            .category(acp::SessionConfigOptionCategory::Model),
    ]
}

/// A part of a stored user message; pictures that do not fit a line become a note.
pub(super) fn block(part: Part) -> acp::ContentBlock {
    match part {
        Part::Text { text } => text.into(),
        Part::Image { mime_type, data } if data.len() <= CONTENT_BYTES => {
            acp::ContentBlock::Image(acp::ImageContent::new(data, mime_type))
        }
        Part::Image { mime_type, .. } => format!("[{mime_type} picture]").into(),
        Part::Link { name, uri } => acp::ContentBlock::ResourceLink(acp::ResourceLink::new(
            shortened(&name, SHORT_BYTES),
            shortened(&uri, SHORT_BYTES),
        )),
        Part::Resource { uri, text } => {
            let contents =
                acp::TextResourceContents::new(shortened(&text, CONTENT_BYTES), shortened(&uri, SHORT_BYTES));
            acp::ContentBlock::Resource(acp::EmbeddedResource::new(
                acp::EmbeddedResourceResource::TextResourceContents(contents),
            ))
        }
    }
}

/// The stop reason of a turn that did not fail.
pub(super) fn stop_reason(report: &TurnReport) -> acp::StopReason {
    match (report.status(), report.exit) {
        (TurnStatus::Interrupted, _) => acp::StopReason::Cancelled,
        (TurnStatus::BudgetExhausted, _) => acp::StopReason::MaxTurnRequests,
        (_, ExitReason::Refused) => acp::StopReason::Refusal,
        _ if report.finish == FinishReason::Length => acp::StopReason::MaxTokens,
        _ => acp::StopReason::EndTurn,
    }
}

pub(super) fn outcome(report: &TurnReport) -> TurnOutcome {
    TurnOutcome {
        turn_id: report.turn_id.clone(),
        status: report.status().as_str().into(),
        exit_reason: report.exit.as_str().into(),
        steps: report.steps,
        api_calls: report.api_calls,
        usage: TurnUsage {
            input_tokens: report.usage.input_tokens,
            output_tokens: report.usage.output_tokens,
            cached_tokens: report.usage.cached_tokens,
            reasoning_tokens: report.usage.reasoning_tokens,
        },
        pending_steer: pending_steer(report),
    }
}

/// What the model has not read of the user's words, for the user to send again.
pub(super) fn pending_steer(report: &TurnReport) -> Option<String> {
    report.pending_steer.as_deref().map(|words| shortened(words, ASKED_RAW_BYTES))
}

/// The answer to a prompt whose turn did not fail.
pub(super) fn prompt_response(report: &TurnReport) -> acp::PromptResponse {
    let usage = &report.usage;
    let wire = acp::Usage::new(usage.total(), usage.input_tokens, usage.output_tokens)
        .thought_tokens(usage.reasoning_tokens)
        .cached_read_tokens(usage.cached_tokens)
        .cached_write_tokens(usage.cache_write_tokens);
    let meta = json!({ "turnd": outcome(report) });
    acp::PromptResponse::new(stop_reason(report)).usage(wire).meta(meta.as_object().cloned())
}

/// A compaction with its summary.
pub(super) fn compaction(id: &Arc<str>, state: CompactionState) -> acp::CompactionUpdate {
    let id = Arc::clone(id);
    match state {
        CompactionState::Started { .. } => acp::CompactionUpdate::new(id, acp::CompactionStatus::InProgress),
        CompactionState::Cancelled => acp::CompactionUpdate::new(id, acp::CompactionStatus::Cancelled),
        CompactionState::Failed(problem) => {
            acp::CompactionUpdate::new(id, acp::CompactionStatus::Failed).error(shortened(&problem, SHORT_BYTES))
        }
        CompactionState::Completed { summary, .. } => {
            let update = acp::CompactionUpdate::new(id, acp::CompactionStatus::Completed);
            match summary {
                Some(summary) => update.summary(vec![shortened(&summary, CONTENT_BYTES).into()]),
                None => update,
            }
        }
    }
}

/// A compaction in words, for clients that know no more.
pub(super) fn compaction_text(state: &CompactionState) -> (Severity, String) {
    match state {
        CompactionState::Started { tokens } => {
            (Severity::Info, format!("Making the conversation shorter (about {tokens} tokens)..."))
        }
        CompactionState::Completed { tokens_before, tokens_after, .. } => (
            Severity::Info,
            format!("The conversation is shorter now: about {tokens_after} tokens instead of {tokens_before}."),
        ),
        CompactionState::Failed(problem) => {
            (Severity::Warning, format!("The conversation could not be made shorter: {problem}."))
        }
        CompactionState::Cancelled => (Severity::Info, "The conversation was not made shorter: stopped.".into()),
    }
}

/// One step for `_turnd/step`, cut to fit a line.
pub(super) fn step(
    session_id: &str,
    turn_id: &str,
    step: u32,
    tools: &[crate::turn::event::StepTool],
) -> ext::StepParams {
    let share = (CONTENT_BYTES / tools.len().max(1)).min(SHORT_BYTES * 4);
    let tools = tools.iter().map(|tool| ext::StepTool {
        tool_call_id: tool.id.clone(),
        name: tool.name.clone(),
        arguments: shortened(&tool.arguments, share),
        result: shortened(&tool.result, share),
    });
    ext::StepParams { session_id: session_id.into(), turn_id: turn_id.into(), step, tools: tools.collect() }
}
