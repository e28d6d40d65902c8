//! From a file and flags to a configuration, with a name and a place for every mistake.

use std::path::{Path, PathBuf};

use super::{Config, Mode, defaults};
use crate::likeness::nearest;

/// What the command line may override.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigFlags {
    /// Configuration file (default: config.toml in TURND_HOME)
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Apply the overrides of [profiles.NAME]
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,
    /// Model to use, as PROVIDER/MODEL
    #[arg(long, value_name = "PROVIDER/MODEL", global = true)]
    pub model: Option<String>,
    /// Approval mode: ask, accept_edits, plan, auto, full_access
    #[arg(long, value_name = "MODE", global = true, value_parser = parse_mode)]
    pub mode: Option<Mode>,
    /// Play the model from a script file instead of calling a provider
    #[arg(long, value_name = "FILE", global = true)]
    pub script: Option<PathBuf>,
    /// Wall-clock seconds per turn
    #[arg(long, value_name = "SECONDS", global = true)]
    pub run_budget: Option<u64>,
    /// Model calls per turn
    #[arg(long, value_name = "N", global = true)]
    pub max_iterations: Option<u32>,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    Mode::from_id(text).ok_or_else(|| "expected ask, accept_edits, plan, auto or full_access".into())
}

impl Config {
    /// Reads the file and applies profile and flags. Never fails: see [`Config::problem`].
    #[must_use]
    pub fn load(home: &Path, flags: &ConfigFlags) -> Self {
        let path = flags.config.clone().unwrap_or_else(|| home.join("config.toml"));
        let mut warnings = Vec::new();
        let loaded = match std::fs::read_to_string(&path) {
            Ok(text) => parse(&text, flags.profile.as_deref(), &mut warnings)
                .map_err(|problem| format!("cannot use {}: {problem}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && flags.config.is_none() => {
                parse("", flags.profile.as_deref(), &mut warnings)
            }
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        };
        let (mut config, problem) = match loaded {
            Ok(config) => (config, None),
            Err(problem) => (Self::fallback(), Some(problem)),
        };
        config.problem = problem;
        config.warnings = warnings.into_iter().map(|warning| format!("{}: {warning}", path.display())).collect();
        config.home = home.to_path_buf();
        config.apply_flags(flags);
        config
    }

    fn fallback() -> Self {
        Self { max_iterations: defaults::max_iterations(), soul: defaults::soul(), ..Self::default() }
    }

    fn apply_flags(&mut self, flags: &ConfigFlags) {
        if let Some(model) = &flags.model {
            self.model = Some(model.clone());
        }
        if let Some(mode) = flags.mode {
            self.mode = mode;
        }
        if let Some(seconds) = flags.run_budget {
            self.run_budget_seconds = seconds;
        }
        if let Some(count) = flags.max_iterations {
            self.max_iterations = count;
        }
        if let Some(script) = &flags.script {
            self.script = Some(script.clone());
            if flags.model.is_none() {
                self.model = Some("scripted/script".into());
                self.fallback_providers.clear();
            }
        }
    }
}

/// Parses the text; `Err` is one line for a person with line and column.
fn parse(text: &str, profile: Option<&str>, warnings: &mut Vec<String>) -> Result<Config, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| locate(text, &error))?;
    let mut merged = table;
    if let Some(name) = profile {
        let overrides = merged
            .get("profiles")
            .and_then(|profiles| profiles.get(name))
            .and_then(toml::Value::as_table)
            .cloned()
            .ok_or_else(|| format!("there is no [profiles.{name}]"))?;
        merge(&mut merged, overrides);
        let text = toml::to_string(&merged).map_err(|error| error.to_string())?;
        return deserialize(&text, warnings);
    }
    deserialize(text, warnings)
}

fn deserialize(text: &str, warnings: &mut Vec<String>) -> Result<Config, String> {
    let deserializer = toml::Deserializer::parse(text).map_err(|error| locate(text, &error))?;
    serde_ignored::deserialize(deserializer, |path| warnings.push(unknown_key(&path.to_string())))
        .map_err(|error| locate(text, &error))
}

fn merge(base: &mut toml::Table, overrides: toml::Table) {
    for (key, value) in overrides {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(value)) => merge(inner, value),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

pub(super) fn locate(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    let Some(span) = error.span() else { return message };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("line {line}, column {column}: {message}")
}

/// A warning for a key nothing reads, with the nearest known name.
fn unknown_key(path: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    match nearest(key, known_keys(), 0.7) {
        Some(known) => format!("unknown key `{path}`, did you mean `{known}`?"),
        None => format!("unknown key `{path}` is ignored"),
    }
}

/// Every key name of the schema, so the suggestion list cannot drift from the types.
fn known_keys() -> Vec<String> {
    let mut names = Vec::new();
    collect_keys(schemars::schema_for!(Config).as_value(), &mut names);
    names
}

fn collect_keys(schema: &serde_json::Value, names: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(map) => {
            if let Some(properties) = map.get("properties").and_then(serde_json::Value::as_object) {
                names.extend(properties.keys().cloned());
            }
            map.values().for_each(|value| collect_keys(value, names));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|value| collect_keys(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> (Config, Vec<String>) {
        let mut warnings = Vec::new();
        let config = parse(text, None, &mut warnings).unwrap();
        (config, warnings)
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let (config, warnings) = check("");
        assert_eq!(config.max_iterations, 500);
        assert_eq!(config.mode, Mode::Ask);
        assert_eq!(config.tools.terminal_timeout_seconds, 120);
        assert!(warnings.is_empty());
    }

    #[test]
    fn an_unknown_key_is_a_warning_with_a_suggestion() {
        let (_, warnings) = check("max_iteration = 3\n[providers.x]\nbase_ulr = \"y\"");
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("`max_iterations`"), "{warnings:?}");
        assert!(warnings[1].contains("`base_url`"), "{warnings:?}");
    }

    #[test]
    fn a_wrong_type_names_line_and_column() {
        let error = parse("mode = \"ask\"\nmax_iterations = \"many\"", None, &mut Vec::new()).unwrap_err();
        assert!(error.starts_with("line 2, column 18"), "{error}");
    }

    #[test]
    fn a_profile_overrides_only_what_it_names() {
        let text = "max_iterations = 9\n[profiles.review]\nmode = \"plan\"";
        let config = parse(text, Some("review"), &mut Vec::new()).unwrap();
        assert_eq!((config.max_iterations, config.mode), (9, Mode::Plan));
        assert!(parse(text, Some("nope"), &mut Vec::new()).is_err());
    }
}
