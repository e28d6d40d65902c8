//! From the configuration, the environment and the built-in tables to an [`Endpoint`].

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::quirks::{BadValue, override_quirks};
use super::{BuiltIn, context_window, is_slow_thinker, mode_at, output_limit, quirks_at, usual_model};
use crate::config::{Config, ProviderConfig};
use crate::provider::ApiMode;
use crate::provider::credentials::{CredentialError, KeyRing, stored_key};
use crate::provider::endpoint::{Adjustments, Endpoint, RetryPolicy, ServerQuirks, Timeouts};
use crate::provider::redact::Redactor;
use crate::provider::scripted::{Script, ScriptError};
use crate::provider::url::BaseUrl;

/// Tokens assumed for a model nobody knows.
const UNKNOWN_WINDOW: u64 = 128_000;
/// Silence that models which think before they speak are granted at least.
const SLOW_FIRST_EVENT: Duration = Duration::from_secs(600);
const SLOW_IDLE: Duration = Duration::from_secs(300);
/// Stands for "no limit" where a number of seconds is not positive.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Not of the form `PROVIDER/MODEL`.
    #[error("`{0}` is not a model: write PROVIDER/MODEL, for example anthropic/claude-sonnet-4-5")]
    NotAModel(String),
    /// Neither built in nor configured.
    #[error(
        "there is no provider `{name}`: add [providers.{name}] with a base_url to config.toml, or use one of {known}"
    )]
    UnknownProvider {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The provider has no usable address.
    #[error("provider `{provider}` has no usable base_url (`{base_url}`): it must begin with http:// or https://")]
    BadBaseUrl {
        /// The provider.
        provider: String,
        /// What is configured.
        base_url: String,
    },
    /// The provider needs a key and there is none.
    #[error("there is no key for {provider}: {remedy}")]
    NoCredential {
        /// The provider.
        provider: String,
        /// What to do.
        remedy: String,
    },
    /// A quirk has a value that does not exist.
    #[error("[providers.{provider}] quirks.{name} = `{value}` is not one of {expected}")]
    BadQuirk {
        /// The provider.
        provider: String,
        /// The quirk.
        name: &'static str,
        /// What is configured.
        value: String,
        /// What exists.
        expected: String,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The model script cannot be used.
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// What reads a variable of the environment.
type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Settles everything about `PROVIDER/MODEL`. Opens no connection and runs no command.
///
/// # Errors
/// [`ResolveError`], which says what to change.
pub fn resolve(config: &Config, env: Env<'_>, id: &str) -> Result<Endpoint, ResolveError> {
    let (provider, model) = id
        .split_once('/')
        .filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
        .ok_or_else(|| ResolveError::NotAModel(id.to_owned()))?;
    Source::find(config, env, provider)?.endpoint(model)
}

/// Whether there is such a provider, built in or configured.
///
/// # Errors
/// [`ResolveError::UnknownProvider`], which names those that there are.
pub fn check_provider(config: &Config, name: &str) -> Result<(), ResolveError> {
    if BuiltIn::named(name).is_some() || config.providers.contains_key(name) {
        return Ok(());
    }
    let built_in = super::BUILT_IN.iter().map(|built_in| built_in.name);
    let known: Vec<_> = built_in.chain(config.providers.keys().map(String::as_str)).collect();
    Err(ResolveError::UnknownProvider { name: name.to_owned(), known: known.join(", ") })
}

/// The configured model, else the usual model of the first built-in provider whose key is present.
#[must_use]
pub fn default_model(config: &Config, env: Env<'_>) -> Option<String> {
    if let Some(model) = &config.model {
        return Some(model.clone());
    }
    if let Some(model) = config.runtime_model() {
        return Some(model);
    }
    super::BUILT_IN.iter().find_map(|built_in| {
        let model = usual_model(built_in.name)?;
        let source = Source::find(config, env, built_in.name).ok()?;
        let has_key = source.keys().is_ok_and(|keys| !keys.is_empty()) || source.settings.api_key_command.is_some();
        has_key.then(|| format!("{}/{model}", built_in.name))
    })
}

/// What to tell a user who has configured nothing.
#[must_use]
pub fn no_model_text() -> String {
    let names: Vec<_> = super::BUILT_IN.iter().filter_map(|built_in| built_in.key_env.first().copied()).collect();
    format!(
        "no model is configured and no key was found: set `model` in config.toml, run `turnd login PROVIDER`, or set one \
         of {}",
        names.join(", ")
    )
}

/// The environment variables that may hold a key, for the environments of children to be cleaned of.
#[must_use]
pub fn secret_env_names(config: &Config) -> Vec<String> {
    let built_in = super::BUILT_IN.iter().flat_map(|built_in| built_in.key_env).map(|name| (*name).to_owned());
    let configured = config.providers.values().filter_map(|provider| provider.api_key_env.clone());
    let mut names: Vec<_> = built_in.chain(configured).chain(["ANTHROPIC_AUTH_TOKEN".to_owned()]).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Everything that says something about one provider.
struct Source<'a> {
    config: &'a Config,
    env: Env<'a>,
    name: &'a str,
    settings: ProviderConfig,
    built_in: Option<&'static BuiltIn>,
    /// `None` for the scripted provider and external runtimes only.
    base_url: Option<BaseUrl>,
}

impl<'a> Source<'a> {
    fn find(config: &'a Config, env: Env<'a>, name: &'a str) -> Result<Self, ResolveError> {
        check_provider(config, name)?;
        let built_in = BuiltIn::named(name);
        let settings = config.providers.get(name).cloned().unwrap_or_default();
        let mode = settings.api_mode.or(built_in.and_then(|built_in| built_in.mode));
        let needs_address = mode != Some(ApiMode::Scripted) && config.runtime_of(name).is_none();
        let from_env = || built_in.and_then(|built_in| first_set(env, built_in.base_url_env));
        let text = settings.base_url.clone().or_else(from_env);
        let text = text.or_else(|| built_in.map(|built_in| built_in.base_url.to_owned())).unwrap_or_default();
        let base_url = BaseUrl::parse(&text);
        if base_url.is_none() && needs_address {
            return Err(ResolveError::BadBaseUrl { provider: name.to_owned(), base_url: text });
        }
        Ok(Self { config, env, name, settings, built_in, base_url })
    }

    fn endpoint(self, model: &str) -> Result<Endpoint, ResolveError> {
        let mode = self.mode();
        let keys = self.keys()?;
        let command = self.settings.api_key_command.clone();
        let script = if mode == ApiMode::Scripted { Some(Arc::new(self.script()?)) } else { None };
        let has_runtime = self.config.runtime_of(self.name).is_some();
        if keys.is_empty() && command.is_none() && script.is_none() && !has_runtime && self.needs_key() {
            return Err(ResolveError::NoCredential { provider: self.name.to_owned(), remedy: self.remedy() });
        }
        let settings = &self.settings;
        let headers = settings.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Redactor::process().learn_settings(headers, settings.base_url.as_deref().unwrap_or_default());
        let known_window = settings.context_window.or_else(|| context_window(model));
        let known_limit = (mode == ApiMode::AnthropicMessages).then(|| output_limit(model));
        Ok(Endpoint {
            provider: self.name.to_owned(),
            model: model.to_owned(),
            mode,
            base_url: self.base_url.as_ref().map(BaseUrl::text).unwrap_or_default(),
            keys: KeyRing::shared(&self.config.home, self.name, keys, command),
            headers: settings.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            quirks: self.quirks(mode, model)?,
            timeouts: timeouts(settings, model),
            retry: retry(settings),
            context_window: known_window.unwrap_or(UNKNOWN_WINDOW),
            is_window_assumed: known_window.is_none() && mode != ApiMode::Scripted,
            max_output_tokens: settings.max_output_tokens.or(known_limit),
            reasoning_effort: self.config.reasoning_effort.clone().filter(|effort| !effort.is_empty()),
            script,
            adjustments: Adjustments::default(),
        })
    }

    /// Explicit setting, then provider, then address, then chat completions.
    fn mode(&self) -> ApiMode {
        let by_provider = self.built_in.and_then(|built_in| built_in.mode);
        let by_address = || self.base_url.as_ref().and_then(mode_at);
        self.settings.api_mode.or(by_provider).or_else(by_address).unwrap_or_default()
    }

    /// The configuration's keys, then the environment's, then the key file's; the first place that has one counts.
    fn keys(&self) -> Result<Vec<SecretString>, CredentialError> {
        let settings = &self.settings;
        let configured: Vec<_> =
            settings.api_key.iter().chain(&settings.api_keys).filter(|key| !key.is_empty()).collect();
        if !configured.is_empty() {
            return Ok(configured.into_iter().map(|key| SecretString::from(key.trim())).collect());
        }
        // A provider of another name gets the environment's key only at exactly the address the key is for.
        let owner = || self.built_in.or_else(|| self.base_url.as_ref().and_then(BuiltIn::at));
        let key = match &settings.api_key_env {
            Some(name) => first_set(self.env, &[name.as_str()]),
            None if settings.api_key_command.is_some() => None,
            None => owner().and_then(|owner| first_set(self.env, owner.key_env)),
        };
        if let Some(key) = key {
            return Ok(vec![SecretString::from(key)]);
        }
        if settings.api_key_command.is_some() {
            return Ok(Vec::new());
        }
        Ok(stored_key(&self.config.home, self.name)?.into_iter().collect())
    }

    /// Servers of one's own often take no key, so only the known public ones insist on one.
    fn needs_key(&self) -> bool {
        self.base_url.as_ref().is_some_and(|base_url| BuiltIn::at(base_url).is_some())
    }

    fn remedy(&self) -> String {
        let variable = self.settings.api_key_env.as_deref();
        let variable = variable.or_else(|| self.built_in.and_then(|built_in| built_in.key_env.first().copied()));
        match variable {
            Some(name) => format!("set {name}, or run `turnd login {}`", self.name),
            None => format!("run `turnd login {}`, or set api_key_env in [providers.{}]", self.name, self.name),
        }
    }

    fn script(&self) -> Result<Script, ScriptError> {
        self.config.script.as_deref().map_or_else(|| Ok(Script::default()), Script::open)
    }

    fn quirks(&self, mode: ApiMode, model: &str) -> Result<ServerQuirks, ResolveError> {
        let known = self.base_url.as_ref().map(|base_url| quirks_at(base_url, mode, model)).unwrap_or_default();
        override_quirks(known, &self.settings.quirks).map_err(|BadValue { name, value, expected }| {
            ResolveError::BadQuirk { provider: self.name.to_owned(), name, value, expected }
        })
    }
}

fn timeouts(settings: &ProviderConfig, model: &str) -> Timeouts {
    let mut known = Timeouts::default();
    if is_slow_thinker(model) {
        known = Timeouts { first_event: SLOW_FIRST_EVENT, idle: SLOW_IDLE, ..known };
    }
    let limit = |configured: Option<f64>, default| configured.map_or(default, |seconds| duration(seconds, NO_LIMIT));
    Timeouts {
        connect: limit(settings.connect_timeout_seconds, known.connect),
        first_event: limit(settings.first_event_timeout_seconds, known.first_event),
        idle: limit(settings.stream_idle_timeout_seconds, known.idle),
    }
}

fn retry(settings: &ProviderConfig) -> RetryPolicy {
    let known = RetryPolicy::default();
    let wait =
        |configured: Option<f64>, default| configured.map_or(default, |seconds| duration(seconds, Duration::ZERO));
    RetryPolicy {
        max_retries: settings.max_retries.unwrap_or(known.max_retries),
        base: wait(settings.retry_base_seconds, known.base),
        max: wait(settings.retry_max_seconds, known.max),
    }
}

/// Seconds as a duration; `otherwise` for what is not positive or too large.
fn duration(seconds: f64, otherwise: Duration) -> Duration {
    if seconds > 0.0 { Duration::try_from_secs_f64(seconds).unwrap_or(NO_LIMIT).min(NO_LIMIT) } else { otherwise }
}

fn first_set(env: Env<'_>, names: &[&str]) -> Option<String> {
    names.iter().filter_map(|name| env(name)).map(|value| value.trim().to_owned()).find(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::endpoint::{CacheTtl, EmptyContent, ReasoningReplay};

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    fn with_env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn resolved(text: &str, env: &[(&str, &str)], id: &str) -> Result<Endpoint, ResolveError> {
        resolve(&config(text), &with_env(env), id)
    }

    #[tokio::test]
    async fn a_built_in_provider_needs_only_its_key() {
        let endpoint = resolved("", &[("ANTHROPIC_API_KEY", "test-key-a")], "anthropic/claude-sonnet-4-5").unwrap();
        assert_eq!(
            (endpoint.mode, endpoint.base_url.as_str()),
            (ApiMode::AnthropicMessages, "https://api.anthropic.com")
        );
        assert_eq!((endpoint.context_window, endpoint.max_output_tokens), (200_000, Some(64_000)));
        assert!(endpoint.keys.lease(0).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn blanks_around_a_key_are_dropped() {
        let endpoint = resolved("", &[("OPENAI_API_KEY", " test-key-o\n")], "openai/gpt-5").unwrap();
        let lease = endpoint.keys.lease(0).await.unwrap().unwrap();
        assert_eq!(secrecy::ExposeSecret::expose_secret(&lease.secret), "test-key-o");
    }

    #[test]
    fn a_missing_key_says_what_to_do() {
        let error = resolved("", &[], "openai/gpt-5").unwrap_err();
        assert!(matches!(error, ResolveError::NoCredential { .. }));
        assert_eq!(error.to_string(), "there is no key for openai: set OPENAI_API_KEY, or run `turnd login openai`");
    }

    #[tokio::test]
    async fn a_stored_key_is_used_where_the_named_variable_is_empty() {
        let home = tempfile::tempdir().unwrap();
        crate::provider::credentials::store_key(home.path(), "openai", &SecretString::from("test-key-s")).unwrap();
        let mut config = config("[providers.openai]\napi_key_env = \"MINE\"");
        config.home = home.path().to_path_buf();
        for (value, expect) in [("", "test-key-s"), ("test-key-e", "test-key-e")] {
            let env = [("MINE", value), ("OPENAI_API_KEY", "test-key-o")];
            let endpoint = resolve(&config, &with_env(&env), "openai/gpt-5").unwrap();
            let lease = endpoint.keys.lease(0).await.unwrap().unwrap();
            assert_eq!(secrecy::ExposeSecret::expose_secret(&lease.secret), expect);
        }
    }

    #[test]
    fn servers_of_ones_own_need_no_key() {
        for (text, id) in [
            ("[providers.local]\nbase_url = \"http://127.0.0.1:8080/v1/\"", "local/qwen"),
            ("", "ollama/llama3"),
            ("[providers.gate]\nbase_url = \"https://gate.example/v1\"", "gate/m"),
        ] {
            let endpoint = resolved(text, &[], id).unwrap();
            assert!(endpoint.keys.is_empty(), "{id}");
            assert_eq!(endpoint.mode, ApiMode::ChatCompletions, "{id}");
            assert!(!endpoint.base_url.ends_with('/'), "{id}");
        }
    }

    #[test]
    fn a_key_of_the_environment_goes_only_to_the_address_it_is_for() {
        let env = [("OPENAI_API_KEY", "test-key-o")];
        let has_key = |base_url: &str| {
            let text = format!("[providers.mine]\nbase_url = \"{base_url}\"");
            resolved(&text, &env, "mine/m").is_ok_and(|endpoint| !endpoint.keys.is_empty())
        };
        assert!(has_key("https://api.openai.com/v1"));
        assert!(!has_key("http://127.0.0.1/api.openai.com/v1"));
        assert!(!has_key("https://api.openai.com.evil.test/v1"));
        assert!(!has_key("http://api.openai.com/v1"));
    }

    #[test]
    fn the_mode_is_explicit_then_the_providers_then_the_addresss() {
        let check = |text: &str, env: &[(&str, &str)], id: &str, expect| {
            assert_eq!(resolved(text, env, id).unwrap().mode, expect, "{text} {id}");
        };
        let key = [("OPENAI_API_KEY", "test-key-o")];
        check("", &key, "openai/gpt-5", ApiMode::CodexResponses);
        check("[providers.openai]\napi_mode = \"chat_completions\"", &key, "openai/gpt-5", ApiMode::ChatCompletions);
        let moved = [("OPENAI_API_KEY", "test-key-o"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")];
        check("", &moved, "openai/gpt-5", ApiMode::ChatCompletions);
        check("[providers.p]\nbase_url = \"https://h/anthropic\"", &[], "p/m", ApiMode::AnthropicMessages);
        check(
            "[providers.p]\nbase_url = \"http://h/v1\"\napi_mode = \"responses\"",
            &[],
            "p/m",
            ApiMode::CodexResponses,
        );
    }

    #[test]
    fn the_default_model_is_that_of_the_first_key() {
        let model = |text: &str, env: &[(&str, &str)]| default_model(&config(text), &with_env(env));
        assert_eq!(model("", &[]), None);
        assert_eq!(model("model = \"a/b\"", &[("OPENAI_API_KEY", "k")]).as_deref(), Some("a/b"));
        let both = [("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")];
        assert_eq!(model("", &both).as_deref(), Some("anthropic/claude-sonnet-4-5"));
        assert_eq!(model("", &[("GOOGLE_API_KEY", "k")]).as_deref(), Some("gemini/gemini-2.5-pro"));
        assert_eq!(model("[providers.xai]\napi_key = \"k\"", &[]).as_deref(), Some("xai/grok-4"));
    }

    #[test]
    fn settings_override_what_is_known() {
        let text = "[providers.p]\nbase_url = \"http://h/v1\"\ncontext_window = 4096\nmax_output_tokens = 100\n\
                    max_retries = 1\nretry_base_seconds = 0.0\nstream_idle_timeout_seconds = 0.5\n\
                    quirks = { prompt_cache_ttl = \"1h\", empty_content = \"empty\", stream_usage = false, replay_reasoning_content = false }";
        let endpoint = resolved(text, &[], "p/gpt-4o").unwrap();
        assert_eq!((endpoint.context_window, endpoint.max_output_tokens), (4_096, Some(100)));
        assert_eq!((endpoint.retry.max_retries, endpoint.retry.base), (1, Duration::ZERO));
        assert_eq!(endpoint.timeouts.idle, Duration::from_millis(500));
        assert_eq!(endpoint.quirks.empty_content, EmptyContent::Empty);
        assert_eq!(endpoint.quirks.cache_ttl, CacheTtl::OneHour);
        assert_eq!(endpoint.quirks.reasoning_replay, ReasoningReplay::Never);
        assert!(!endpoint.quirks.stream_usage);
    }

    #[test]
    fn mistakes_are_named() {
        let text = |config: &str, id: &str| resolved(config, &[], id).unwrap_err().to_string();
        assert!(text("", "gpt-5").contains("PROVIDER/MODEL"));
        assert!(text("", "nope/m").contains("no provider `nope`"));
        assert!(text("[providers.p]\nbase_url = \"h/v1\"", "p/m").contains("base_url"));
        let quirk = "[providers.p]\nbase_url = \"http://h/v1\"\nquirks = { system_role = \"boss\" }";
        assert!(text(quirk, "p/m").contains("system, developer"));
    }

    #[test]
    fn odd_seconds_are_no_danger() {
        for (seconds, expect) in [(f64::NAN, NO_LIMIT), (-1.0, NO_LIMIT), (0.0, NO_LIMIT), (1e300, NO_LIMIT)] {
            assert_eq!(duration(seconds, NO_LIMIT), expect);
        }
        assert_eq!(duration(0.25, NO_LIMIT), Duration::from_millis(250));
    }

    #[test]
    fn names_of_all_keys_are_known_to_the_child_environment() {
        let names = secret_env_names(&config("[providers.p]\napi_key_env = \"MY_KEY\""));
        for name in ["MY_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }
}
