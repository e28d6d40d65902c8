//! What is known about providers and models before anybody is asked.
//!
//! Facts are from the providers' public documentation as of November 2025; every one of them can be overridden
//! in the configuration. Absent on purpose: lists of models. Any name is passed on as it stands.

mod quirks;
mod resolve;

pub use resolve::{ResolveError, check_provider, default_model, no_model_text, resolve, secret_env_names};

pub use crate::provider::credentials::process_env;

use crate::config::RUNTIME_PROVIDER;
use crate::provider::ApiMode;
use crate::provider::endpoint::{
    CacheStyle, EffortStyle, MaxTokensField, ReasoningReplay, ServerQuirks, SystemRole, ToolCallIds,
};
use crate::provider::url::BaseUrl;

/// A provider that needs no configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name, the part before the slash of a model id.
    pub name: &'static str,
    /// The wire format, where the base URL alone does not say it.
    pub mode: Option<ApiMode>,
    /// Where it is.
    pub base_url: &'static str,
    /// The environment variables that may hold its key, in this order.
    pub key_env: &'static [&'static str],
    /// The environment variables that may hold another base URL.
    pub base_url_env: &'static [&'static str],
    /// True for servers on the user's own machine, which take any key or none.
    pub is_local: bool,
}

const fn remote(
    name: &'static str,
    base_url: &'static str,
    key_env: &'static [&'static str],
    base_url_env: &'static [&'static str],
) -> BuiltIn {
    BuiltIn { name, mode: None, base_url, key_env, base_url_env, is_local: false }
}

const fn local(name: &'static str, base_url: &'static str, base_url_env: &'static [&'static str]) -> BuiltIn {
    BuiltIn { name, mode: Some(ApiMode::ChatCompletions), base_url, key_env: &[], base_url_env, is_local: true }
}

/// All built-in providers. The order is that of the default choice: the first whose key is present.
pub const BUILT_IN: [BuiltIn; 13] = [
    BuiltIn {
        mode: Some(ApiMode::AnthropicMessages),
        ..remote("anthropic", "https://api.anthropic.com", &["ANTHROPIC_API_KEY"], &["ANTHROPIC_BASE_URL"])
    },
    remote("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"], &["OPENAI_BASE_URL"]),
    remote("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], &["OPENROUTER_BASE_URL"]),
    remote(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        &["GEMINI_BASE_URL"],
    ),
    remote("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"], &["DEEPSEEK_BASE_URL"]),
    remote("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"], &["GROQ_BASE_URL"]),
    remote("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"], &["MISTRAL_BASE_URL"]),
    remote("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], &["XAI_BASE_URL"]),
    local("ollama", "http://127.0.0.1:11434/v1", &["OLLAMA_BASE_URL"]),
    local("lmstudio", "http://127.0.0.1:1234/v1", &["LMSTUDIO_BASE_URL"]),
    local("llamacpp", "http://127.0.0.1:8080/v1", &["LLAMACPP_BASE_URL"]),
    local(RUNTIME_PROVIDER, "", &[]),
    BuiltIn { mode: Some(ApiMode::Scripted), ..local("scripted", "", &[]) },
];

impl BuiltIn {
    /// The built-in provider of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILT_IN.iter().find(|built_in| built_in.name == name)
    }

    /// The built-in provider whose servers answer at this address: same scheme, same host, same port.
    #[must_use]
    pub fn at(base_url: &BaseUrl) -> Option<&'static Self> {
        BUILT_IN
            .iter()
            .filter(|built_in| !built_in.is_local)
            .find(|built_in| BaseUrl::parse(built_in.base_url).is_some_and(|own| own.origin() == base_url.origin()))
    }
}

/// The model used when only a provider is known. `None`: the user has to name one.
#[must_use]
pub fn usual_model(provider: &str) -> Option<&'static str> {
    Some(match provider {
        "anthropic" => "claude-sonnet-4-5",
        "openai" => "gpt-5",
        "openrouter" => "anthropic/claude-sonnet-4.5",
        "gemini" => "gemini-2.5-pro",
        "deepseek" => "deepseek-chat",
        "groq" => "openai/gpt-oss-120b",
        "mistral" => "mistral-medium-latest",
        "xai" => "grok-4",
        _ => return None,
    })
}

/// The wire format that servers at this address speak, when the address says it.
#[must_use]
pub fn mode_at(base_url: &BaseUrl) -> Option<ApiMode> {
    match base_url.host() {
        "api.anthropic.com" => Some(ApiMode::AnthropicMessages),
        "api.openai.com" => Some(ApiMode::CodexResponses),
        _ if base_url.last_segment() == "anthropic" => Some(ApiMode::AnthropicMessages),
        _ => None,
    }
}

/// How the server at this address differs from the norm.
#[must_use]
pub fn quirks_at(base_url: &BaseUrl, mode: ApiMode, model: &str) -> ServerQuirks {
    // A server nobody knows gets back what it sent, and nothing it did not ask for.
    let unknown = ServerQuirks {
        reasoning_replay: ReasoningReplay::WhenPresent,
        tool_call_extra: true,
        prompt_cache: mode == ApiMode::AnthropicMessages || mode == ApiMode::CodexResponses,
        reasoning_effort: mode == ApiMode::AnthropicMessages || mode == ApiMode::CodexResponses,
        ..ServerQuirks::default()
    };
    let strict = ServerQuirks { reasoning_replay: ReasoningReplay::Never, tool_call_extra: false, ..unknown };
    let host = base_url.host();
    match host {
        "api.openai.com" => ServerQuirks {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            parallel_tool_calls: true,
            reasoning_effort: is_openai_reasoner(model),
            prompt_cache: true,
            system_role: if is_openai_reasoner(model) { SystemRole::Developer } else { SystemRole::System },
            ..strict
        },
        _ if base_url.is_under("openai.azure.com") => ServerQuirks {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            reasoning_effort: is_openai_reasoner(model),
            ..strict
        },
        "openrouter.ai" => ServerQuirks {
            reasoning_effort: true,
            effort_style: EffortStyle::Object,
            prompt_cache: model.contains("claude"),
            cache_style: CacheStyle::Markers,
            ..unknown
        },
        "api.mistral.ai" => ServerQuirks { tool_call_ids: ToolCallIds::NineAlphanumeric, ..strict },
        "api.groq.com" => ServerQuirks { max_tokens_field: MaxTokensField::MaxCompletionTokens, ..strict },
        "api.x.ai" => strict,
        _ if base_url.is_under("googleapis.com") => ServerQuirks {
            reasoning_replay: ReasoningReplay::Never,
            reasoning_effort: unknown.reasoning_effort || model.contains("gemini"),
            sign_tool_calls: demands_signatures(model),
            ..unknown
        },
        "api.deepseek.com" | "api.moonshot.ai" | "api.moonshot.cn" | "api.xiaomimimo.com"
            if mode == ApiMode::ChatCompletions =>
        {
            let thinks = model.contains("reasoner") || model.contains("think") || !host.contains("deepseek");
            let reasoning_replay = if thinks { ReasoningReplay::Padded } else { ReasoningReplay::WhenPresent };
            ServerQuirks { reasoning_replay, ..unknown }
        }
        _ => unknown,
    }
}

/// Models of OpenAI that reason: they take an effort and a developer message.
fn is_openai_reasoner(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["gpt-5", "o1", "o3", "o4", "codex"].iter().any(|start| name.starts_with(start)) && !name.contains("chat")
}

/// Models of Google that refuse calls without a thought signature: Gemini 3 and what came after it.
fn demands_signatures(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.starts_with("gemini-") && !name.starts_with("gemini-1") && !name.starts_with("gemini-2")
}

/// True for models that think in silence before their first word, so that silence means less.
#[must_use]
pub fn is_slow_thinker(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let marks = ["reasoner", "-r1", "qwq", "think", "grok-4", "magistral", "deep-research"];
    // Claude says nothing but pings while it writes one long argument of a call.
    let claude = ["claude-opus", "claude-sonnet", "claude-haiku", "claude-3-7"];
    let marks = marks.iter().chain(&claude);
    is_openai_reasoner(model) || marks.into_iter().any(|mark| name.contains(mark))
}

/// Context windows by the start of a model's name, in tokens; the first match counts.
const WINDOWS: [(&str, u64); 40] = [
    ("claude-", 200_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192),
    ("gpt-3.5-turbo", 16_385),
    ("gpt-oss", 131_072),
    ("codex-mini", 200_000),
    ("o1-mini", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini-", 1_048_576),
    ("gemma-3", 131_072),
    ("gemma-2", 8_192),
    ("deepseek-", 131_072),
    ("grok-4-fast", 2_000_000),
    ("grok-4", 256_000),
    ("grok-code-fast", 256_000),
    ("grok-3", 131_072),
    ("codestral", 256_000),
    ("devstral", 131_072),
    ("magistral", 131_072),
    ("mistral-", 131_072),
    ("ministral", 131_072),
    ("mixtral-8x22b", 65_536),
    ("mixtral", 32_768),
    ("llama-4", 1_048_576),
    ("llama-3", 131_072),
    ("llama3", 131_072),
    ("qwen3-coder", 262_144),
    ("qwen3", 131_072),
    ("qwen2.5", 32_768),
    ("kimi-k2", 262_144),
    ("moonshot-", 131_072),
    ("glm-4.6", 200_000),
    ("glm-4", 131_072),
];

/// Tokens a model of this name can read and write together, as far as the name says it.
#[must_use]
pub fn context_window(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    WINDOWS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, tokens)| *tokens)
}

/// Tokens an answer may have where the format demands a number and the configuration names none.
#[must_use]
pub fn output_limit(model: &str) -> u64 {
    let name = model.rsplit('/').next().unwrap_or(model);
    let starts = |start: &str| name.starts_with(start);
    if starts("claude-3-haiku") || starts("claude-3-opus") || starts("claude-3-sonnet") {
        4_096
    } else if starts("claude-3-5") {
        8_192
    } else if starts("claude-opus-4-0") || starts("claude-opus-4-1") || starts("claude-opus-4-2") {
        32_000
    } else if starts("claude-") {
        64_000
    } else {
        8_192
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> BaseUrl {
        BaseUrl::parse(text).unwrap()
    }

    #[test]
    fn a_provider_is_recognised_by_its_exact_address_only() {
        let check = |base_url: &str, expect: Option<&str>| {
            assert_eq!(BuiltIn::at(&url(base_url)).map(|built_in| built_in.name), expect, "{base_url}");
        };
        check("https://api.openai.com/v1", Some("openai"));
        check("https://API.openai.com", Some("openai"));
        check("http://api.openai.com/v1", None);
        check("https://api.openai.com:8443/v1", None);
        check("https://api.openai.com.evil.test/v1", None);
        check("http://127.0.0.1/api.openai.com", None);
        check("https://user:api.openai.com@evil.test/v1", None);
    }

    #[test]
    fn the_address_decides_the_mode_by_host_and_last_segment() {
        let check = |base_url: &str, expect: Option<ApiMode>| {
            assert_eq!(mode_at(&url(base_url)), expect, "{base_url}");
        };
        check("https://api.anthropic.com", Some(ApiMode::AnthropicMessages));
        check("https://api.deepseek.com/anthropic", Some(ApiMode::AnthropicMessages));
        check("https://api.openai.com/v1", Some(ApiMode::CodexResponses));
        check("http://127.0.0.1:8080/v1", None);
        check("http://127.0.0.1/api.anthropic.com/v1", None);
        check("http://anthropic.evil.test/v1", None);
    }

    #[test]
    fn windows_are_found_with_and_without_a_vendor() {
        let check = |model: &str, expect: Option<u64>| assert_eq!(context_window(model), expect, "{model}");
        check("claude-sonnet-4-5", Some(200_000));
        check("anthropic/claude-sonnet-4.5", Some(200_000));
        check("gpt-4.1-mini", Some(1_047_576));
        check("gpt-4", Some(8_192));
        check("openai/gpt-oss-120b", Some(131_072));
        check("smollm2", None);
    }

    #[test]
    fn strict_servers_never_get_fields_they_refuse() {
        let quirks = |base_url: &str, model: &str| quirks_at(&url(base_url), ApiMode::ChatCompletions, model);
        for base_url in ["https://api.openai.com/v1", "https://api.mistral.ai/v1", "https://api.groq.com/openai/v1"] {
            assert_eq!(quirks(base_url, "m").reasoning_replay, ReasoningReplay::Never, "{base_url}");
            assert!(!quirks(base_url, "m").tool_call_extra, "{base_url}");
        }
        let unknown = quirks("http://127.0.0.1:1/v1", "m");
        assert_eq!(unknown.reasoning_replay, ReasoningReplay::WhenPresent);
        assert!(unknown.tool_call_extra && !unknown.reasoning_effort && !unknown.prompt_cache);
        assert_eq!(quirks("https://api.openai.com/v1", "gpt-5-mini").system_role, SystemRole::Developer);
        assert_eq!(quirks("https://api.openai.com/v1", "gpt-4o").system_role, SystemRole::System);
        for (base_url, model, expect) in [
            (BuiltIn::named("gemini").unwrap().base_url, "gemini-3-pro-preview", true),
            (BuiltIn::named("gemini").unwrap().base_url, "gemini-2.5-pro", false),
            ("https://europe-west4-aiplatform.googleapis.com/v1/x/openapi", "google/gemini-3-flash", true),
            ("http://127.0.0.1:1/v1", "gemini-3-pro", false),
        ] {
            assert_eq!(quirks(base_url, model).sign_tool_calls, expect, "{base_url} {model}");
        }
        assert_eq!(
            quirks("https://api.deepseek.com/v1", "deepseek-reasoner").reasoning_replay,
            ReasoningReplay::Padded
        );
    }
}
