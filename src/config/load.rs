//! From a file and flags to a configuration, with a name and a place for every mistake.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, Mode, defaults};
use crate::likeness::nearest;

/// What the command line may override.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ConfigFlags {
    /// Configuration file (default: config.toml in TURND_HOME)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Apply the overrides of [profiles.NAME]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Model to use, as PROVIDER/MODEL
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub model: Option<String>,
    /// Approval mode: ask, accept_edits, plan, auto, full_access
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub mode: Option<Mode>,
    /// Play the model from a script file instead of calling a provider
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Wall-clock seconds per turn
    #[arg(long, value_name = "SECONDS")]
    pub run_budget: Option<u64>,
    /// Model calls per turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
}

impl ConfigFlags {
    /// These, and those of `others` that are not among them.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            config: self.config.or(others.config),
            profile: self.profile.or(others.profile),
            model: self.model.or(others.model),
            mode: self.mode.or(others.mode),
            script: self.script.or(others.script),
            run_budget: self.run_budget.or(others.run_budget),
            max_iterations: self.max_iterations.or(others.max_iterations),
        }
    }

    /// As arguments for another turnd, in whatever folder it runs.
    ///
    /// # Errors
    /// When a relative path cannot be made absolute.
    pub fn arguments(&self) -> std::io::Result<Vec<OsString>> {
        let path = |path: &PathBuf| std::path::absolute(path).map(PathBuf::into_os_string);
        let given = [
            ("--config", self.config.as_ref().map(path).transpose()?),
            ("--profile", self.profile.as_ref().map(OsString::from)),
            ("--model", self.model.as_ref().map(OsString::from)),
            ("--mode", self.mode.map(|mode| mode.as_str().into())),
            ("--script", self.script.as_ref().map(path).transpose()?),
            ("--run-budget", self.run_budget.map(|seconds| seconds.to_string().into())),
            ("--max-iterations", self.max_iterations.map(|count| count.to_string().into())),
        ];
        Ok(given.into_iter().filter_map(|(name, value)| Some([name.into(), value?])).flatten().collect())
    }
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

    /// The name of the identity file unless the configuration has another.
    #[must_use]
    pub fn default_soul() -> String {
        defaults::soul()
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

/// Parses the text; `Err` is one line for a person with line and column. All profiles are looked at, so that a mistake
/// in one is found before it is needed.
fn parse(text: &str, profile: Option<&str>, warnings: &mut Vec<String>) -> Result<Config, String> {
    let document = DeTable::parse(text).map_err(|error| locate(text, &error))?;
    let mut read = |table: &Spanned<DeTable<'_>>, prefix: &str| -> Result<Config, String> {
        serde_ignored::deserialize(toml::Deserializer::from(table.clone()), |path| {
            warnings.push(unknown_key(&format!("{prefix}{path}")));
        })
        .map_err(|error| locate(text, &error))
    };
    let whole = read(&document, "");
    let mut chosen = None;
    let mut mistakes = Vec::new();
    for (name, table) in profiles(&document) {
        let result = read(&table, &format!("profiles.{name}."));
        if profile == Some(name) {
            chosen = Some(table);
        } else if let Err(mistake) = result {
            mistakes.push(format!("profiles.{name}: {mistake}"));
        }
    }
    warnings.extend(mistakes);
    let Some(name) = profile else { return whole };
    let overrides = chosen.ok_or_else(|| format!("there is no [profiles.{name}]"))?;
    let mut merged = document.clone();
    merge(merged.get_mut(), overrides.into_inner());
    serde::Deserialize::deserialize(toml::Deserializer::from(merged)).map_err(|error| locate(text, &error))
}

/// The tables below `profiles`, with their names.
fn profiles<'d, 't>(
    document: &'d Spanned<DeTable<'t>>,
) -> impl Iterator<Item = (&'d str, Spanned<DeTable<'t>>)> + use<'d, 't> {
    let all = document.get_ref().get("profiles").and_then(|profiles| profiles.get_ref().as_table());
    all.into_iter().flatten().filter_map(|(name, profile)| {
        let table = profile.get_ref().as_table()?.clone();
        Some((name.get_ref().as_ref(), Spanned::new(profile.span(), table)))
    })
}

fn merge<'t>(base: &mut DeTable<'t>, overrides: DeTable<'t>) {
    for (key, value) in overrides {
        let (span, value) = (value.span(), value.into_inner());
        match (base.get_mut(&key).map(Spanned::get_mut), value) {
            (Some(DeValue::Table(inner)), DeValue::Table(value)) => merge(inner, value),
            (_, value) => {
                base.insert(key, Spanned::new(span, value));
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
    fn a_mistake_in_a_profile_is_named_with_its_place_in_the_file() {
        let text = "max_iterations = 9\n[profiles.a]\nmodle = \"x/y\"\n\n[profiles.b]\nmax_iterations = \"x\"\n";
        let (_, warnings) = check(text);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert_eq!(warnings[0], "unknown key `profiles.a.modle`, did you mean `model`?");
        assert!(warnings[1].starts_with("profiles.b: line 6, column 18"), "{warnings:?}");
        let problem = parse(text, Some("b"), &mut Vec::new()).unwrap_err();
        assert!(problem.starts_with("line 6, column 18"), "{problem}");
    }

    #[test]
    fn a_hook_that_cannot_be_understood_is_an_error_with_its_place() {
        for (entry, place, what) in [
            ("on = \"pre_tool\"\ncommand = [\"x\"]", "line 2, column 6", "pre_tool_call"),
            ("on = \"pre_tool_call\"\ncommand = []", "line 3, column 11", "must name a program"),
            ("on = \"pre_tool_call\"\ncommand = [\"\"]", "line 3, column 11", "must name a program"),
            ("on = \"pre_tool_call\"\ncommand = [\"x\"]\ntimeout_seconds = -1", "line 4, column 19", "above 0"),
            ("on = \"pre_tool_call\"\ncommand = [\"x\"]\ntimeout_seconds = nan", "line 4, column 19", "above 0"),
        ] {
            let problem = parse(&format!("[[hooks]]\n{entry}"), None, &mut Vec::new()).unwrap_err();
            assert!(problem.starts_with(place) && problem.contains(what), "{problem}");
        }
    }

    #[test]
    fn nothing_is_no_count() {
        for text in [
            "max_iterations = 0",
            "tools.max_result_chars = 0",
            "tools.terminal_timeout_seconds = 0",
            "delegation.max_iterations = 0",
            "delegation.max_concurrent = 0",
        ] {
            let problem = parse(text, None, &mut Vec::new()).unwrap_err();
            assert!(problem.starts_with("line 1, column ") && problem.ends_with("at least 1"), "{problem}");
        }
    }

    #[test]
    fn a_profile_overrides_only_what_it_names() {
        let text = "max_iterations = 9\n[profiles.review]\nmode = \"plan\"";
        let config = parse(text, Some("review"), &mut Vec::new()).unwrap();
        assert_eq!((config.max_iterations, config.mode), (9, Mode::Plan));
        assert!(parse(text, Some("nope"), &mut Vec::new()).is_err());
    }
}
