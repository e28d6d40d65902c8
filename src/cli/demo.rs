//! `turnd demo`: the main job end to end. It spawns `turnd` itself and plays the editor.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use crate::app::exit_code;
use crate::config::ConfigFlags;
use crate::tool::diff;

/// Arguments of `turnd demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Print each JSON-RPC line
    #[arg(long)]
    pub(super) trace: bool,
    #[command(flatten)]
    pub(super) config: ConfigFlags,
}

const MODEL: &str = include_str!("demo.jsonl");
const PROGRAM: &str = "# Greets somebody by name.\necho \"Hello, $1 $1!\"\n";
const CHECK: &str = "# Fails unless the greeting is right.\n[ \"$(sh greet.sh Ada)\" = \"Hello, Ada!\" ] && echo ok\n";
const PROMPT: &str = "check.sh fails. Find out why and repair greet.sh.";

/// Plays the demo in a temporary folder, which is removed afterwards.
pub(super) async fn run(wants_trace: bool, flags: ConfigFlags) -> Result<u8, String> {
    let folder = Folder::create()?;
    let script = ConfigFlags { script: Some(folder.script()), ..ConfigFlags::default() };
    let arguments = flags.or(script).arguments().map_err(|error| error.to_string())?;
    let played = tokio::task::spawn_blocking(move || play(&folder, &arguments, wants_trace)).await;
    played.map_err(|error| error.to_string())?.map_err(|error| format!("the demo failed: {error}"))
}

fn play(folder: &Folder, arguments: &[OsString], wants_trace: bool) -> Result<u8, String> {
    let mut editor = Editor::start(folder, arguments, wants_trace)?;
    say(&format!(
        "A program with a fault is in {}. The editor asks turnd to repair it:\n\n> {PROMPT}",
        folder.path.display()
    ));
    editor.request("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))?;
    let opened = editor.request("session/new", &json!({ "cwd": folder.workspace(), "mcpServers": [] }))?;
    let prompt = json!({ "sessionId": at(&opened, "/sessionId"), "prompt": [{ "type": "text", "text": PROMPT }] });
    let end = editor.request("session/prompt", &prompt)?;
    editor.finish()?;
    let is_repaired =
        std::fs::read_to_string(folder.workspace().join("greet.sh")).is_ok_and(|text| !text.contains("$1 $1"));
    say(&format!(
        "\nThe turn ended with `{}`; the program is {}.",
        at(&end, "/stopReason"),
        if is_repaired { "repaired" } else { "as it was" }
    ));
    Ok(if at(&end, "/stopReason") == "end_turn" { exit_code::OK } else { exit_code::FAILED })
}

/// The text at a JSON pointer; empty where there is none.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty where there is none.
fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").ok();
}

/// The demo's own folder: a home for turnd and a workspace. Removed on drop.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("turnd-demo-{}", uuid::Uuid::now_v7()));
        let folder = Self { path };
        let fill = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder.workspace())?;
            std::fs::create_dir(folder.home())?;
            std::fs::write(folder.script(), MODEL)?;
            std::fs::write(folder.workspace().join("greet.sh"), PROGRAM)?;
            std::fs::write(folder.workspace().join("check.sh"), CHECK)
        };
        fill().map_err(|error| format!("cannot prepare {}: {error}", folder.path.display()))?;
        Ok(folder)
    }

    fn workspace(&self) -> PathBuf {
        self.path.join("workspace")
    }

    fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    fn script(&self) -> PathBuf {
        self.path.join("model.jsonl")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}

/// The editor's side of the connection.
struct Editor {
    agent: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
    wants_trace: bool,
    shown: Shown,
    /// The newest diff on the screen: what was asked about is not shown again once it is done.
    shown_diff: Option<Value>,
}

/// What was printed last, so that kinds of output do not run into each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Line,
    Thought,
    Answer,
}

impl Editor {
    #[expect(clippy::disallowed_methods, reason = "the demo starts this very program, as an editor would")]
    fn start(folder: &Folder, arguments: &[OsString], wants_trace: bool) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find turnd itself: {error}"))?;
        let mut agent = Command::new(program)
            .args(arguments)
            .env("TURND_HOME", folder.home())
            .current_dir(folder.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start turnd: {error}"))?;
        let (input, output) = (agent.stdin.take(), agent.stdout.take());
        let output = BufReader::new(output.ok_or("turnd has no output")?);
        Ok(Self { agent, input, output, last_id: 0, wants_trace, shown: Shown::Line, shown_diff: None })
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        if self.wants_trace {
            say(&format!("→ {message}"));
        }
        let input = self.input.as_mut().ok_or("turnd's input is closed")?;
        writeln!(input, "{message}").and_then(|()| input.flush()).map_err(|error| error.to_string())
    }

    /// Sends a request and shows what comes until its answer.
    fn request(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let message = self.receive()?;
            match message.get("method").and_then(Value::as_str) {
                None if message.get("id").and_then(Value::as_u64) == Some(id) => {
                    return match message.get("result") {
                        Some(result) => Ok(result.clone()),
                        None => Err(format!("{method}: {}", at(&message, "/error/message"))),
                    };
                }
                Some("session/update") => self.show(message.pointer("/params/update").unwrap_or(&Value::Null)),
                Some("session/request_permission") => self.decide(&message)?,
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("turnd ended".into());
        }
        if self.wants_trace {
            say(&format!("← {}", line.trim_end()));
        }
        serde_json::from_str(&line).map_err(|error| format!("turnd wrote something that is not JSON: {error}"))
    }

    fn show(&mut self, update: &Value) {
        if self.wants_trace {
            return;
        }
        match at(update, "/sessionUpdate") {
            "agent_thought_chunk" => self.stream(Shown::Thought, at(update, "/content/text")),
            "agent_message_chunk" => self.stream(Shown::Answer, at(update, "/content/text")),
            "tool_call" => self.line(&format!("  [{}] {}", at(update, "/kind"), at(update, "/title"))),
            "tool_call_update" => self.show_result(update),
            _ => {}
        }
    }

    fn stream(&mut self, kind: Shown, text: &str) {
        let mut out = std::io::stdout().lock();
        if self.shown != kind {
            let lead = if kind == Shown::Thought { "\n\nthinking: " } else { "\n\nturnd: " };
            write!(out, "{lead}").ok();
            self.shown = kind;
        }
        write!(out, "{text}").and_then(|()| out.flush()).ok();
    }

    fn line(&mut self, text: &str) {
        if self.shown != Shown::Line {
            self.shown = Shown::Line;
            say("");
        }
        say(text);
    }

    fn show_result(&mut self, update: &Value) {
        let status @ ("completed" | "failed") = at(update, "/status") else { return };
        for content in items(update, "/content") {
            if at(content, "/type") == "diff" {
                self.show_diff(content);
            }
        }
        self.line(&format!("  → {status}"));
    }

    fn show_diff(&mut self, content: &Value) {
        if self.shown_diff.as_ref() == Some(content) {
            return;
        }
        self.shown_diff = Some(content.clone());
        let (old, new) = (at(content, "/oldText"), at(content, "/newText"));
        let name = Path::new(at(content, "/path")).file_name().unwrap_or_default().to_string_lossy();
        self.line(&format!("  {name}"));
        for line in diff::unified(&name, old, new).lines().skip(2) {
            self.line(&format!("    {line}"));
        }
    }

    /// Asks when there is somebody to ask, and allows once otherwise.
    fn decide(&mut self, message: &Value) -> Result<(), String> {
        let title = at(message, "/params/toolCall/title");
        for content in items(message, "/params/toolCall/content") {
            if at(content, "/type") == "diff" && !self.wants_trace {
                self.show_diff(content);
            }
        }
        self.line(&format!("\n  turnd asks: may it do this? {title}"));
        let options = items(message, "/params/options");
        let chosen = if std::io::stdin().is_terminal() { self.ask(options) } else { self.answer_itself(options) };
        let outcome = match chosen {
            Some(option) => json!({ "outcome": "selected", "optionId": option }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.send(&json!({ "jsonrpc": "2.0", "id": message.get("id"), "result": { "outcome": outcome } }))
    }

    fn answer_itself(&mut self, options: &[Value]) -> Option<Value> {
        self.line("  (no terminal to ask on: allowed once)");
        options
            .iter()
            .find(|option| at(option, "/kind") == "allow_once")
            .and_then(|option| option.get("optionId").cloned())
    }

    fn ask(&mut self, options: &[Value]) -> Option<Value> {
        for (number, option) in (1..).zip(options) {
            self.line(&format!("  {number}) {}", at(option, "/name")));
        }
        loop {
            let mut out = std::io::stdout().lock();
            write!(out, "  Your choice: ").and_then(|()| out.flush()).ok();
            drop(out);
            let mut line = String::new();
            if std::io::stdin().lock().read_line(&mut line).ok()? == 0 {
                return None;
            }
            let index = line.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            if let Some(option) = index.and_then(|index| options.get(index)) {
                return option.get("optionId").cloned();
            }
        }
    }

    /// Closes turnd's input, which ends it.
    fn finish(&mut self) -> Result<(), String> {
        drop(self.input.take());
        let status = self.agent.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("turnd ended with {status}")) }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // Already ended in the good case.
        self.agent.kill().ok();
        self.agent.wait().ok();
    }
}
