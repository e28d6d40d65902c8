//! A terminal as a session's client: the answer on standard output, everything else on standard error.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::json;

use crate::approval::display::escape;
use crate::session::port::{ClientPort, PermissionQuestion, SessionEvent};
use crate::tool::clarify::{Inquiry, InquiryEnd};
use crate::tool::{Display, Editor, diff};
use crate::turn::event::{CompactionState, TurnEvent};
use crate::turn::port::Answer;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// For a person.
    Plain,
    /// One JSON object per event, all on standard output.
    Json,
}

/// Shows one session on the terminal.
#[derive(Debug)]
pub(super) struct TerminalClient {
    style: Style,
    state: Mutex<State>,
}

/// What was shown last, so that text and progress do not run into each other.
#[derive(Debug, Default)]
struct State {
    is_thinking: bool,
    is_mid_line: bool,
}

impl TerminalClient {
    pub(super) fn new(style: Style) -> Self {
        Self { style, state: Mutex::default() }
    }

    fn show(&self, event: &SessionEvent) {
        match self.style {
            Style::Json => show_json(event),
            Style::Plain => self.show_plain(event),
        }
    }

    fn show_plain(&self, event: &SessionEvent) {
        match event {
            SessionEvent::Remark { text, .. } => {
                self.say(text);
                self.progress("");
            }
            SessionEvent::Turn { event: TurnEvent::Text { text, .. }, .. } => self.say(text),
            SessionEvent::Turn { event, .. } => match event {
                TurnEvent::Reasoning { text, .. } => self.think(text),
                TurnEvent::ToolCallPending { plan, name, .. } => {
                    self.progress(&format!("• {}", escape(if plan.title.is_empty() { name } else { &plan.title })));
                }
                TurnEvent::ToolCallEnded { is_failed: true, display, .. } => {
                    self.progress(&format!("  failed: {}", first_line(display)));
                }
                TurnEvent::Notice { text, .. } => self.progress(&format!("! {text}")),
                TurnEvent::Compaction { state: CompactionState::Started { tokens }, .. } => {
                    self.progress(&format!("! making the conversation shorter (about {tokens} tokens)"));
                }
                TurnEvent::Compaction { state: CompactionState::Completed { tokens_after, .. }, .. } => {
                    self.progress(&format!("! shorter now: about {tokens_after} tokens"));
                }
                _ => {}
            },
            SessionEvent::TurnEnded(_) => self.progress(""),
            _ => {}
        }
    }

    fn say(&self, text: &str) {
        self.break_thought();
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
        self.lock().is_mid_line = !text.ends_with('\n');
    }

    fn think(&self, text: &str) {
        let mut state = self.lock();
        let lead = if std::mem::replace(&mut state.is_thinking, true) { "" } else { "… " };
        write!(std::io::stderr(), "{lead}{text}").ok();
    }

    fn break_thought(&self) {
        if std::mem::take(&mut self.lock().is_thinking) {
            writeln!(std::io::stderr()).ok();
        }
    }

    fn progress(&self, line: &str) {
        self.break_thought();
        if std::mem::take(&mut self.lock().is_mid_line) {
            writeln!(std::io::stdout()).ok();
        }
        if !line.is_empty() {
            writeln!(std::io::stderr(), "{line}").ok();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn first_line(display: &[Display]) -> String {
    let text = display.iter().find_map(|display| match display {
        Display::Text(text) => text.lines().next(),
        _ => None,
    });
    escape(text.unwrap_or("no reason given"))
}

/// The events a program may want, under stable names.
fn show_json(event: &SessionEvent) {
    let value = match event {
        SessionEvent::TurnStarted { turn_id } => json!({ "event": "turn_started", "turnId": &**turn_id }),
        SessionEvent::TurnEnded(report) => json!({
            "event": "turn_ended",
            "turnId": report.turn_id,
            "status": report.status().as_str(),
            "exitReason": report.exit.as_str(),
            "steps": report.steps,
            "usage": report.usage,
        }),
        SessionEvent::Title(title) => json!({ "event": "title", "title": title }),
        SessionEvent::Remark { text, .. } => json!({ "event": "text", "text": text }),
        SessionEvent::Turn { event, .. } => match event {
            TurnEvent::Text { text, .. } => json!({ "event": "text", "text": text }),
            TurnEvent::Reasoning { text, .. } => json!({ "event": "reasoning", "text": text }),
            TurnEvent::ToolCallPending { id, name, arguments, .. } => {
                json!({ "event": "tool_call", "id": id, "name": name, "arguments": arguments })
            }
            TurnEvent::ToolCallEnded { id, is_failed, .. } => {
                json!({ "event": "tool_result", "id": id, "failed": is_failed })
            }
            TurnEvent::Notice { text, .. } => json!({ "event": "notice", "text": text }),
            TurnEvent::Compaction { state: CompactionState::Completed { tokens_before, tokens_after, .. }, .. } => {
                json!({ "event": "compaction", "tokensBefore": tokens_before, "tokensAfter": tokens_after })
            }
            TurnEvent::Step { step, tools } => json!({
                "event": "step",
                "step": step,
                "tools": tools.iter().map(|tool| json!({
                    "toolCallId": tool.id, "name": tool.name, "arguments": tool.arguments, "result": tool.result,
                })).collect::<Vec<_>>(),
            }),
            _ => return,
        },
        _ => return,
    };
    writeln!(std::io::stdout(), "{value}").ok();
}

impl ClientPort for TerminalClient {
    fn tell(&self, event: SessionEvent) -> BoxFuture<'_, ()> {
        self.show(&event);
        std::future::ready(()).boxed()
    }

    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, Answer> {
        if !self.can_ask() {
            self.progress("  refused: there is no terminal to ask on (allow it with --mode or a rule)");
            return std::future::ready(Answer::NotAsked).boxed();
        }
        self.break_thought();
        let asked = tokio::task::spawn_blocking(move || ask_on_terminal(&question));
        async move { asked.await.unwrap_or(Answer::RejectOnce) }.boxed()
    }

    fn can_ask(&self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryEnd> {
        if !self.can_ask() {
            return std::future::ready(InquiryEnd::Unavailable(NOBODY_THERE)).boxed();
        }
        self.break_thought();
        let asked = tokio::task::spawn_blocking(move || inquire_on_terminal(&inquiry));
        async move { asked.await.unwrap_or(InquiryEnd::Dismissed) }.boxed()
    }

    fn editor(&self) -> Option<Arc<dyn Editor>> {
        None
    }
}

const NOBODY_THERE: &str =
    "there is no terminal, so nobody can answer. Decide it yourself where that is safe, and say what you assumed.";

/// An option's number chooses it, an empty line declines, anything else is the answer.
fn inquire_on_terminal(inquiry: &Inquiry) -> InquiryEnd {
    let mut err = std::io::stderr().lock();
    writeln!(err, "\n{}", escape_lines(&inquiry.question)).ok();
    for (number, option) in (1..).zip(&inquiry.options) {
        writeln!(err, "  {number}) {}", escape(option)).ok();
    }
    write!(err, "Your answer (empty: none): ").and_then(|()| err.flush()).ok();
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => return InquiryEnd::Dismissed,
        Ok(_) => {}
    }
    let answer = line.trim();
    let chosen = answer.parse().ok().and_then(|number: usize| inquiry.options.get(number.checked_sub(1)?));
    match chosen {
        Some(option) => InquiryEnd::Answered(option.clone()),
        None if answer.is_empty() => InquiryEnd::Declined,
        None => InquiryEnd::Answered(answer.to_owned()),
    }
}

fn ask_on_terminal(question: &PermissionQuestion) -> Answer {
    let mut err = std::io::stderr().lock();
    writeln!(err, "\n{}", escape(&question.plan.title)).ok();
    for reason in &question.reasons {
        writeln!(err, "  {}", escape(reason)).ok();
    }
    for display in &question.plan.preview {
        match display {
            Display::Diff { path, old, new } => {
                let diff = diff::unified(&path.to_string_lossy(), old.as_deref().unwrap_or_default(), new);
                writeln!(err, "{}", escape_lines(&diff)).ok();
            }
            Display::Text(text) => {
                writeln!(err, "{}", escape_lines(text)).ok();
            }
            Display::Terminal(_) => {}
        }
    }
    for (number, choice) in (1..).zip(&question.choices) {
        writeln!(err, "  {number}) {}", choice.name).ok();
    }
    loop {
        write!(err, "Your choice: ").and_then(|()| err.flush()).ok();
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return Answer::Cancelled,
            Ok(_) => {}
        }
        let chosen = line.trim().parse().ok().and_then(|number: usize| question.choices.get(number.checked_sub(1)?));
        if let Some(choice) = chosen {
            return choice.answer;
        }
    }
}

fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}
