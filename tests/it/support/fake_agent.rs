//! An agent without a model, for tests of the harness itself. The prompt's text chooses what it does.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use turnd::script::Agent;

/// The agent as the harness starts it.
pub(crate) fn agent() -> Agent {
    Agent::Function(Arc::new(|_, stdin, stdout| Box::pin(serve(BufReader::new(stdin).lines(), stdout))))
}

async fn serve(mut lines: Lines<BufReader<DuplexStream>>, mut stdout: DuplexStream) -> i32 {
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        for answer in answers(&message) {
            let bytes = match &answer {
                Value::String(raw) => raw.clone(),
                other => other.to_string(),
            };
            if stdout.write_all(format!("{bytes}\n").as_bytes()).await.is_err() {
                return 0;
            }
        }
    }
    0
}

fn update(update: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}})
}

fn answers(message: &Value) -> Vec<Value> {
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    match message["method"].as_str() {
        Some("initialize") => vec![result(json!({"protocolVersion": 1}))],
        Some("session/new") => vec![result(json!({"sessionId": "s1"}))],
        Some("session/prompt") => {
            let text = message.pointer("/params/prompt/0/text").and_then(Value::as_str).unwrap_or_default();
            let end = result(json!({"stopReason": "end_turn"}));
            let say =
                update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}));
            let call =
                |kind: &str, status: &str| update(json!({"sessionUpdate": kind, "toolCallId": "c", "status": status}));
            match text {
                "noise" => vec![json!("not json"), say, end],
                "twice" => vec![say, end.clone(), end],
                "late" => vec![end, say],
                "silent" => vec![],
                "backwards" => vec![
                    call("tool_call", "pending"),
                    call("tool_call_update", "in_progress"),
                    call("tool_call_update", "completed"),
                    call("tool_call_update", "in_progress"),
                    call("tool_call_update", "completed"),
                    end,
                ],
                _ => vec![say, end],
            }
        }
        _ => vec![],
    }
}
