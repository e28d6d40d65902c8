//! Which agent runs the turns: turnd's own loop, or another program that takes each turn over whole.

use serde::{Deserialize, Serialize};

use super::Config;

/// The provider whose turns go to the external runtime unless the configuration gives it an address.
pub const RUNTIME_PROVIDER: &str = "codex";

/// What is started when nothing else is configured.
const USUAL_COMMAND: [&str; 2] = ["codex", "app-server"];

/// Who runs a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// turnd's own loop, with its tools.
    Own,
    /// A program that speaks the protocol of `codex app-server`, with the program's tools.
    CodexAppServer,
}

/// The program that takes turns over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeCommand {
    /// Program and arguments, never empty.
    pub command: Vec<String>,
    /// Environment variables that it gets although they look like secrets.
    pub env: Vec<String>,
}

impl Config {
    /// The program that takes over the turns of a provider; `None` when turnd runs them itself.
    ///
    /// The provider's own settings beat those of the whole configuration. A command alone is enough.
    #[must_use]
    pub fn runtime_of(&self, provider: &str) -> Option<RuntimeCommand> {
        let own = self.providers.get(provider);
        let command = own.map(|own| &own.runtime_command).filter(|command| !command.is_empty());
        let is_usual = provider == RUNTIME_PROVIDER && own.is_none_or(|own| own.base_url.is_none());
        let of_provider = own
            .and_then(|own| own.runtime)
            .or(command.map(|_| RuntimeKind::CodexAppServer))
            .or(is_usual.then_some(RuntimeKind::CodexAppServer));
        let of_all = self.runtime.or((!self.runtime_command.is_empty()).then_some(RuntimeKind::CodexAppServer));
        if of_provider.or(of_all) != Some(RuntimeKind::CodexAppServer) {
            return None;
        }
        let of_all = || (!self.runtime_command.is_empty()).then(|| self.runtime_command.clone());
        let usual = || USUAL_COMMAND.map(str::to_owned).to_vec();
        let env = own.map(|own| own.runtime_env.clone()).unwrap_or_default();
        Some(RuntimeCommand {
            command: command.cloned().or_else(of_all).unwrap_or_else(usual),
            env: env.into_iter().chain(self.runtime_env.iter().cloned()).collect(),
        })
    }

    /// The model of a session when none is configured and a runtime has one of its own.
    #[must_use]
    pub fn runtime_model(&self) -> Option<String> {
        let has_runtime = self.runtime == Some(RuntimeKind::CodexAppServer) || !self.runtime_command.is_empty();
        has_runtime.then(|| format!("{RUNTIME_PROVIDER}/{}", super::RUNTIME_DEFAULT_MODEL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(config: &str, provider: &str) -> Option<String> {
        let config: Config = toml::from_str(config).unwrap();
        config.runtime_of(provider).map(|runtime| runtime.command.join(" "))
    }

    #[test]
    fn a_provider_a_profile_or_the_whole_configuration_can_name_the_runtime() {
        let check = |config: &str, provider: &str, expected: Option<&str>| {
            assert_eq!(command(config, provider).as_deref(), expected, "{config} {provider}");
        };
        check("", "openai", None);
        check("", "codex", Some("codex app-server"));
        check("[providers.codex]\nbase_url = \"http://h/v1\"", "codex", None);
        check("[providers.codex]\nruntime = \"own\"\nbase_url = \"http://h/v1\"", "codex", None);
        check("runtime = \"codex_app_server\"", "openai", Some("codex app-server"));
        check("runtime_command = [\"a\", \"b\"]", "openai", Some("a b"));
        check("runtime_command = [\"a\"]\n[providers.p]\nruntime = \"own\"", "p", None);
        check("runtime_command = [\"a\"]\n[providers.p]\nruntime_command = [\"c\"]", "p", Some("c"));
        check("[providers.p]\nruntime_command = [\"c\"]", "q", None);
    }

    #[test]
    fn variables_of_provider_and_configuration_pass_together() {
        let config: Config = toml::from_str("runtime_env = [\"A\"]\n[providers.codex]\nruntime_env = [\"B\"]").unwrap();
        assert_eq!(config.runtime_of("codex").unwrap().env, ["B", "A"]);
    }
}
