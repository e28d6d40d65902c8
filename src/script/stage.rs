//! The stage of one case: a folder of its own with a home, a workspace and a configuration.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::model_server::API_KEY;

/// A folder that is removed at the end.
#[derive(Debug)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    /// Makes `home` (TURND_HOME), `user` (HOME) and `work` (the workspace) in a new folder.
    ///
    /// # Errors
    /// The temporary folder cannot be written.
    pub fn create() -> io::Result<Self> {
        let name = format!("turnd-script-{}", uuid::Uuid::now_v7().simple());
        let root = std::env::temp_dir().canonicalize()?.join(name);
        for folder in ["home", "user", "work"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        Ok(Self { root })
    }

    /// The whole folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The agent's home.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The environment of the agent, beside `PATH`.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |path: PathBuf| path.display().to_string();
        vec![
            ("TURND_HOME".into(), path(self.home())),
            ("HOME".into(), path(self.root.join("user"))),
            ("NO_PROXY".into(), "127.0.0.1".into()),
            ("no_proxy".into(), "127.0.0.1".into()),
        ]
    }

    /// A path of a transcript: absolute ones must stay inside the stage, others are in the workspace.
    ///
    /// # Errors
    /// The path leaves the stage.
    pub fn resolve(&self, path: &str) -> Result<PathBuf, String> {
        let joined = self.workspace().join(path);
        let leaves = joined.components().any(|part| matches!(part, std::path::Component::ParentDir));
        if leaves || !joined.starts_with(&self.root) {
            return Err(format!("{path} is outside of the case's folder"));
        }
        Ok(joined)
    }

    /// Writes the configuration: one provider, the scripted model server, and what the case lays over it.
    ///
    /// # Errors
    /// The file cannot be written, or the overrides are not TOML.
    pub fn write_config(&self, url: &str, api_mode: &str, overrides: &Map<String, Value>) -> io::Result<()> {
        let suffix = if api_mode == "anthropic_messages" { "" } else { "/v1" };
        let mut config = json!({
            "model": "mock/scripted",
            "providers": {"mock": {
                "api_mode": api_mode, "base_url": format!("{url}{suffix}"), "api_key": API_KEY,
                "retry_base_seconds": 0.02, "retry_max_seconds": 5.0, "context_window": 200_000,
            }},
        });
        lay_over(&mut config, &Value::Object(overrides.clone()));
        let text = toml::to_string(&config).map_err(io::Error::other)?;
        std::fs::write(self.home().join("config.toml"), text)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A folder that stays behind is untidy, not wrong.
        std::fs::remove_dir_all(&self.root).ok();
    }
}

/// Lays one JSON object over another; `null` removes a key.
fn lay_over(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    base.remove(key);
                } else {
                    lay_over(base.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// Processes whose working folder is inside `folder`: what a case left running.
#[must_use]
pub fn processes_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let is_inside = std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        if is_inside {
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // A zombie has no command line; its parent has not read its end yet, but it runs nothing.
            if !line.trim().is_empty() {
                found.push(format!("{} {line}", entry.file_name().to_string_lossy()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_add_replace_and_remove() {
        let mut base = json!({"a": {"b": 1, "c": 2}});
        lay_over(&mut base, &json!({"a": {"b": 3, "c": null, "d": [1]}, "e": true}));
        assert_eq!(base, json!({"a": {"b": 3, "d": [1]}, "e": true}));
    }

    #[test]
    fn paths_stay_inside_and_the_folder_goes_away() {
        let stage = Stage::create().unwrap();
        let root = stage.root().to_path_buf();
        assert_eq!(stage.resolve("a/b").unwrap(), root.join("work/a/b"));
        assert!(stage.resolve(root.join("home/x").to_str().unwrap()).is_ok());
        assert!(stage.resolve("../home/x").is_err() && stage.resolve("/etc/passwd").is_err());
        drop(stage);
        assert!(!root.exists());
    }
}
