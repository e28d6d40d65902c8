//! A program that speaks the protocol of `codex app-server`, for tests of turnd's side of it.
//!
//! The prompt's text is a JSON array of steps that say what the program does in that turn; see
//! `tests/runtime/README.md`. It is started from this test binary, so that the tests need no other program.

use std::io::{BufRead, Write};

use serde_json::{Map, Value, json};

/// The arguments that make this test binary the program, after its own path.
const ARGUMENTS: [&str; 5] =
    ["support::fake_runtime::fake_app_server", "--exact", "--ignored", "--nocapture", "--test-threads=1"];

/// The command to configure.
pub(crate) fn command() -> Vec<String> {
    let own = std::env::current_exe().unwrap().display().to_string();
    std::iter::once(own).chain(ARGUMENTS.map(str::to_owned)).collect()
}

#[test]
#[ignore = "no test: the program that the tests of the external runtime start"]
fn fake_app_server() {
    Server::default().serve();
}

/// Why a turn inside the program stops before its last step.
enum Stop {
    Interrupted,
    /// The input ended.
    Gone,
}

#[derive(Default)]
struct Server {
    thread: String,
    turn: u64,
    item: u64,
    request: u64,
    thread_params: Value,
    turn_params: Value,
    /// Texts of all prompts of this thread.
    heard: Vec<String>,
}

impl Server {
    fn serve(&mut self) {
        // The test harness has begun a line.
        line("");
        while let Some(message) = hear() {
            let (id, params) = (message["id"].clone(), message["params"].clone());
            match message["method"].as_str() {
                Some("initialize") => answer(&id, json!({"userAgent": "fake/1.0"})),
                Some("thread/start") => {
                    self.thread = format!("thread-{}", std::process::id());
                    self.open(&id, params);
                }
                Some("thread/resume") => {
                    self.thread = params["threadId"].as_str().unwrap().to_owned();
                    self.open(&id, params);
                }
                Some("turn/start") if !self.run(&id, params) => return,
                Some("turn/start") => {}
                Some("turn/interrupt" | "turn/steer") => refuse(&id, "no turn is running"),
                _ => {}
            }
        }
    }

    /// The name of the model says what goes wrong.
    fn open(&mut self, id: &Value, params: Value) {
        let (model, is_resume) = (params["model"].as_str().unwrap_or("own"), params["threadId"].is_string());
        match model {
            "breaking" if is_resume => std::process::exit(5),
            "forgetful" if is_resume => refuse(id, "no rollout found"),
            "refusing" => refuse(id, "this model is not for you"),
            "newer" => answer(id, json!({"conversation": {"id": "c"}})),
            "silent" => {}
            _ => answer(id, json!({"thread": {"id": self.thread}, "model": model})),
        }
        self.thread_params = params;
    }

    /// Plays the steps of one prompt; false when the input ended.
    fn run(&mut self, id: &Value, params: Value) -> bool {
        self.turn += 1;
        let texts: Vec<_> = params["input"].as_array().unwrap().iter().map(|part| part["text"].clone()).collect();
        self.heard.extend(texts.iter().filter_map(Value::as_str).map(str::to_owned));
        let steps: Vec<Value> =
            texts.last().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        self.turn_params = params;
        let turn = json!({"id": self.turn_id(), "status": "inProgress"});
        if steps.first().is_some_and(|step| step["refuse"].is_string()) {
            refuse(id, steps[0]["refuse"].as_str().unwrap());
            return true;
        }
        answer(id, json!({"turn": turn}));
        self.tell("turn/started", json!({"turn": turn}));
        let (mut status, mut error) = ("completed", Value::Null);
        for step in &steps {
            match self.play(step) {
                Ok(()) => {}
                Err(Stop::Interrupted) => {
                    status = "interrupted";
                    break;
                }
                Err(Stop::Gone) => return false,
            }
            if let Some(bare) = step["end"]["status"].as_str() {
                status = bare;
            }
            if step["fail"].is_object() {
                (status, error) = ("failed", step["fail"].clone());
            }
        }
        self.tell("turn/completed", json!({"turn": {"id": self.turn_id(), "status": status, "error": error}}));
        for step in &steps {
            if let Some(late) = step["late"].as_str() {
                line(late);
            }
            if step["late_ask"].is_object() {
                self.pose(&step["late_ask"]);
            }
            if step["leave"].is_object() {
                return false;
            }
        }
        true
    }

    fn turn_id(&self) -> String {
        format!("turn-{}-{}", std::process::id(), self.turn)
    }

    fn play(&mut self, step: &Value) -> Result<(), Stop> {
        let (name, value) = step.as_object().and_then(|step| step.iter().next()).unwrap();
        match name.as_str() {
            "say" => self.say(value.as_str().unwrap()),
            "think" => self.think(value.as_str().unwrap()),
            "begin_saying" => {
                let id = self.next_item();
                self.tell("item/agentMessage/delta", json!({"itemId": id, "delta": value}));
            }
            "command" => return self.command(step),
            "change" => return self.change(step),
            "item" => self.whole_item(value),
            "begin" => self.tell("item/started", json!({"item": value})),
            "tell" => self.tell(value["method"].as_str().unwrap(), value["params"].clone()),
            "raw" => line(value.as_str().unwrap()),
            "usage" => self.usage(value),
            "ask" => {
                let answer = self.ask(value["method"].as_str().unwrap(), value["params"].clone())?;
                self.say(&answer.to_string());
            }
            "pose" => self.pose(value),
            "heed" => {
                let answer = Self::next_answer()?;
                self.say(&answer.to_string());
            }
            "ask_all" => {
                for one in value.as_array().unwrap() {
                    self.send_question(one["method"].as_str().unwrap(), one["params"].clone());
                }
                for _ in value.as_array().unwrap() {
                    let answer = Self::next_answer()?;
                    self.say(&answer.to_string());
                }
            }
            "flood" => return self.flood(),
            "mumble" => {
                for _ in 0..value.as_u64().unwrap() {
                    line("Warning: something");
                    self.tell("nobody/knows", json!({}));
                }
            }
            "wait" => return self.wait(value.as_str().unwrap()),
            "report" => {
                let told = match value.as_str() {
                    Some("thread") => self.thread_params.clone(),
                    Some("heard") => json!(self.heard),
                    Some("environment") => json!(environment()),
                    _ => self.turn_params.clone(),
                };
                self.say(&told.to_string());
            }
            "complain" => {
                let mut stderr = std::io::stderr().lock();
                writeln!(stderr, "{}", value.as_str().unwrap()).unwrap();
            }
            "die" => std::process::exit(i32::try_from(value.as_i64().unwrap()).unwrap()),
            "fail" | "end" | "late" | "late_ask" | "leave" => {}
            other => panic!("no such step: {other}"),
        }
        Ok(())
    }

    fn next_item(&mut self) -> String {
        self.item += 1;
        format!("item-{}", self.item)
    }

    fn tell(&self, method: &str, mut params: Value) {
        let place = params.as_object_mut().unwrap();
        place.entry("threadId").or_insert(json!(self.thread));
        if method.starts_with("item/") || method.starts_with("thread/tokenUsage") || method == "turn/plan/updated" {
            place.entry("turnId").or_insert(json!(self.turn_id()));
        }
        line(&json!({"method": method, "params": params, "emittedAtMs": 1}).to_string());
    }

    fn say(&mut self, text: &str) {
        let id = self.next_item();
        self.tell("item/started", json!({"item": {"type": "agentMessage", "id": id, "text": ""}}));
        let (front, back) = text.split_at(text.floor_char_boundary(text.len() / 2));
        for delta in [front, back] {
            self.tell("item/agentMessage/delta", json!({"itemId": id, "delta": delta}));
        }
        self.tell("item/completed", json!({"item": {"type": "agentMessage", "id": id, "text": text}}));
    }

    fn think(&mut self, text: &str) {
        let id = self.next_item();
        self.tell("item/started", json!({"item": {"type": "reasoning", "id": id, "summary": [], "content": []}}));
        self.tell("item/reasoning/summaryTextDelta", json!({"itemId": id, "delta": text, "summaryIndex": 0}));
        self.tell("item/completed", json!({"item": {"type": "reasoning", "id": id, "summary": [text], "content": []}}));
    }

    /// Begun and done, without a word in between.
    fn whole_item(&mut self, item: &Value) {
        let mut begun = item.clone();
        if item["status"].is_string() {
            begun["status"] = json!("inProgress");
        }
        self.tell("item/started", json!({"item": begun}));
        self.tell("item/completed", json!({"item": item}));
    }

    fn usage(&self, value: &Value) {
        let count = json!({
            "inputTokens": value[0], "cachedInputTokens": 0, "outputTokens": value[1], "reasoningOutputTokens": 0,
            "totalTokens": value[0].as_u64().unwrap() + value[1].as_u64().unwrap(),
        });
        let usage = json!({"last": count, "total": count, "modelContextWindow": 5000});
        self.tell("thread/tokenUsage/updated", json!({"tokenUsage": usage}));
    }

    fn command(&mut self, step: &Value) -> Result<(), Stop> {
        let id = step["id"].as_str().map_or_else(|| self.next_item(), str::to_owned);
        let command = format!("/bin/bash -lc '{}'", step["command"].as_str().unwrap());
        let item = |status: &str, more: Value| {
            let mut item = json!({
                "type": "commandExecution", "id": id, "command": command, "cwd": cwd(), "status": status,
                "commandActions": [],
            });
            item.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            json!({"item": item})
        };
        self.tell("item/started", item("inProgress", json!({})));
        if step["asks"] != json!(false) {
            let mut params = json!({"kind": "command", "itemId": id, "command": command, "cwd": cwd()});
            for name in ["reason", "availableDecisions"] {
                params[name] = step[name].clone();
            }
            let answer = self.ask("item/commandExecution/requestApproval", params)?;
            if !answer["decision"].as_str().unwrap().starts_with("accept") {
                self.tell("item/completed", item("declined", json!({})));
                return if answer["decision"] == "cancel" { Err(Stop::Interrupted) } else { Ok(()) };
            }
        }
        let output = step["output"].as_str().unwrap_or_default();
        if !output.is_empty() {
            self.tell("item/commandExecution/outputDelta", json!({"itemId": id, "delta": output}));
        }
        if let Some(what) = step["wait"].as_str() {
            self.wait(what)?;
        }
        let exit_code = step["exit"].as_i64().unwrap_or(0);
        let status = if exit_code == 0 { "completed" } else { "failed" };
        self.tell("item/completed", item(status, json!({"aggregatedOutput": output, "exitCode": exit_code})));
        Ok(())
    }

    fn change(&mut self, step: &Value) -> Result<(), Stop> {
        let id = self.next_item();
        let item = |status: &str| json!({"item": {"type": "fileChange", "id": id, "changes": step["change"], "status": status}});
        self.tell("item/started", item("inProgress"));
        let answer = self.ask("item/fileChange/requestApproval", json!({"itemId": id}))?;
        let is_accepted = answer["decision"].as_str().unwrap().starts_with("accept");
        self.tell("item/completed", item(if is_accepted { "completed" } else { "declined" }));
        Ok(())
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Stop> {
        self.send_question(method, params);
        Self::next_answer()
    }

    fn send_question(&mut self, method: &str, mut params: Value) {
        let id = self.request;
        self.request += 1;
        let place = params.as_object_mut().unwrap();
        place.entry("threadId").or_insert(json!(self.thread));
        place.entry("turnId").or_insert(json!(self.turn_id()));
        line(&json!({"id": id, "method": method, "params": params}).to_string());
    }

    /// A question whose answer is not waited for, `times` times.
    fn pose(&mut self, question: &Value) {
        for _ in 0..question["times"].as_u64().unwrap_or(1) {
            self.send_question(question["method"].as_str().unwrap(), question["params"].clone());
        }
    }

    /// Tells nothing of use and never stops.
    fn flood(&self) -> Result<(), Stop> {
        let lines = format!("{}\n", json!({"method": "nobody/knows", "params": {}})).repeat(1_000);
        let mut stdout = std::io::stdout().lock();
        while stdout.write_all(lines.as_bytes()).is_ok() {}
        Err(Stop::Gone)
    }

    /// Waits for the answer to any question. An interrupt in between ends the turn.
    fn next_answer() -> Result<Value, Stop> {
        loop {
            let message = hear().ok_or(Stop::Gone)?;
            match message["method"].as_str() {
                Some("turn/interrupt") => {
                    answer(&message["id"], json!({}));
                    return Err(Stop::Interrupted);
                }
                Some(_) => {}
                None => {
                    let text = message["error"]["message"].clone();
                    return Ok(if text.is_string() { json!({"error": text}) } else { message["result"].clone() });
                }
            }
        }
    }

    fn wait(&mut self, what: &str) -> Result<(), Stop> {
        while let Some(message) = hear() {
            let id = &message["id"];
            match (message["method"].as_str(), what) {
                (Some("turn/interrupt"), "for ever") => answer(id, json!({})),
                (Some("turn/interrupt"), "death") => return Err(Stop::Gone),
                (Some("turn/interrupt"), _) => {
                    answer(id, json!({}));
                    return Err(Stop::Interrupted);
                }
                (Some("turn/steer"), "deaf") => {
                    refuse(id, "no words now");
                    return Ok(());
                }
                (Some("turn/steer"), "steer") => {
                    answer(id, json!({"turnId": self.turn_id()}));
                    let text = message["params"]["input"][0]["text"].as_str().unwrap().to_owned();
                    self.say(&format!("heard: {text}"));
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(Stop::Gone)
    }
}

fn cwd() -> String {
    std::env::current_dir().unwrap().display().to_string()
}

fn environment() -> Map<String, Value> {
    std::env::vars().map(|(name, value)| (name, json!(value))).collect()
}

fn line(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // The daemon may be gone; then the next read ends this program.
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).ok();
}

fn answer(id: &Value, result: Value) {
    line(&json!({"id": id, "result": result}).to_string());
}

fn refuse(id: &Value, message: &str) {
    line(&json!({"id": id, "error": {"code": -32600, "message": message}}).to_string());
}

fn hear() -> Option<Value> {
    let mut text = String::new();
    match std::io::stdin().lock().read_line(&mut text) {
        Ok(count) if count > 0 => Some(serde_json::from_str(&text).unwrap_or_default()),
        _ => None,
    }
}
