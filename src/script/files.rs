//! The files of a case: what it puts on the stage and what it finds there.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::matching::matches;
use super::run::{Run, Step};

impl Run<'_> {
    pub(super) fn write_files(&mut self, files: &BTreeMap<String, Value>) -> Step {
        for (name, content) in files {
            let path = self.stage.resolve(&self.vars.fill_plain(name))?;
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|error| format!("{name}: {error}"))?;
            }
            let written = match self.vars.fill(content) {
                Value::String(text) => std::fs::write(&path, text),
                Value::Null => std::fs::create_dir_all(&path),
                Value::Array(bytes) => {
                    let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok()).unwrap_or(b'?');
                    std::fs::write(&path, bytes.iter().map(byte).collect::<Vec<_>>())
                }
                Value::Object(map) => match map.get("link").and_then(Value::as_str) {
                    Some(target) => std::os::unix::fs::symlink(target, &path),
                    None => std::fs::write(&path, Value::Object(map).to_string()),
                },
                other => std::fs::write(&path, other.to_string()),
            };
            written.map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    /// Waits for what a program of the case has yet to write.
    pub(super) async fn expect_files(&mut self, files: &BTreeMap<String, Value>) -> Step {
        let deadline = self.deadline();
        loop {
            match self.check_files(files) {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(5)).await,
                result => return result,
            }
        }
    }

    fn check_files(&mut self, files: &BTreeMap<String, Value>) -> Step {
        for (name, pattern) in files {
            let path = self.stage.resolve(&self.vars.fill_plain(name))?;
            let content = std::fs::read(&path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            match (content, pattern) {
                (None, Value::Null) => {}
                (Some(_), Value::Null) => return Err(format!("{name} must not be there")),
                (None, _) => return Err(format!("{name} is not there")),
                (Some(text), pattern) => {
                    matches(pattern, &json!(text), &mut self.vars).map_err(|mismatch| format!("{name}: {mismatch}"))?;
                }
            }
        }
        Ok(())
    }
}
