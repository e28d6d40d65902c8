//! What both sides can do: what `initialize` offers, and what the client said it takes.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Value, json};
use turnd_protocol::ext::ClientExtension;
use turnd_protocol::{ProtocolVersion, acp, ext};

use crate::config::{SandboxConfig, SandboxMode};
use crate::sandbox::Facts;

/// What the client can do. Empty until `initialize`.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientFeatures(Arc<OnceLock<Features>>);

/// The client's side, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Features {
    pub(super) reads_files: bool,
    pub(super) writes_files: bool,
    pub(super) runs_terminals: bool,
    pub(super) notices: bool,
    pub(super) compaction: bool,
    pub(super) elicits_forms: bool,
    pub(super) shows_children: bool,
    pub(super) extension: ClientExtension,
}

/// `initialize` with everything optional read leniently: a client that sends nonsense for a capability
/// does not have it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeParams {
    /// A number; a string is an error.
    #[serde(rename = "protocolVersion")]
    pub(super) _protocol_version: u64,
    #[serde(default)]
    client_capabilities: serde_json::Value,
}

impl InitializeParams {
    fn features(&self) -> Features {
        let capabilities: acp::ClientCapabilities =
            serde_json::from_value(self.client_capabilities.clone()).unwrap_or_default();
        let extension = self.client_capabilities.pointer("/_meta/turnd").cloned().unwrap_or_default();
        Features {
            reads_files: capabilities.fs.read_text_file,
            writes_files: capabilities.fs.write_text_file,
            runs_terminals: capabilities.terminal,
            notices: capabilities.session.as_ref().is_some_and(|session| session.notices.is_some()),
            compaction: capabilities.session.is_some_and(|session| session.compaction.is_some()),
            elicits_forms: capabilities.elicitation.as_ref().is_some_and(acp::ElicitationCapabilities::supports_form),
            shows_children: capabilities.subagents.is_some(),
            extension: serde_json::from_value(extension).unwrap_or_default(),
        }
    }
}

impl ClientFeatures {
    /// Remembers what the client said. A second `initialize` changes nothing.
    pub(super) fn set(&self, params: &InitializeParams) {
        // An error means that they are set already.
        self.0.set(params.features()).ok();
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn get(&self) -> Features {
        self.0.get().copied().unwrap_or_default()
    }
}

/// The answer to `initialize`. Whatever version was asked, ours is 1.
pub(super) fn initialize_response(sandbox: &SandboxConfig) -> acp::InitializeResponse {
    let session = acp::SessionCapabilities::new()
        .list(acp::SessionListCapabilities::new())
        .delete(acp::SessionDeleteCapabilities::new())
        .resume(acp::SessionResumeCapabilities::new())
        .close(acp::SessionCloseCapabilities::new())
        .fork(acp::SessionForkCapabilities::new())
        .additional_directories(acp::SessionAdditionalDirectoriesCapabilities::new());
    let capabilities = acp::AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(acp::PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(acp::McpCapabilities::new().http(crate::mcp::IS_SUPPORTED).sse(crate::mcp::IS_SUPPORTED))
        .session_capabilities(session);
    let key = acp::AuthMethodAgent::new(KEY_METHOD, "API key from the environment or the configuration")
        .description("Set the provider's key, for example ANTHROPIC_API_KEY, or run `turnd login PROVIDER`");
    let meta = json!({ "steering": { "supported": true }, "turnd": { "version": ext::VERSION, "sandbox": sandbox_report(sandbox) } });
    acp::InitializeResponse::new(ProtocolVersion::V1)
        .agent_info(acp::Implementation::new("turnd", env!("CARGO_PKG_VERSION")).title("turnd".to_owned()))
        .agent_capabilities(capabilities)
        .auth_methods(vec![acp::AuthMethod::Agent(key)])
        .meta(meta.as_object().cloned())
}

/// What holds commands on this machine, by the configuration and by what the kernel says at once.
fn sandbox_report(settings: &SandboxConfig) -> Value {
    let facts = Facts::here();
    let contains = facts.can_contain() || (settings.allow_degraded && facts.can_restrict());
    json!({
        "mode": settings.mode,
        "network": settings.network,
        "contains": contains && settings.mode != SandboxMode::Off,
        "landlock": facts.landlock,
        "seccomp": facts.seccomp,
        "namespaces": facts.no_namespaces.is_none(),
        "missing": facts.missing(),
    })
}

/// The one method of `authenticate`.
pub(super) const KEY_METHOD: &str = "api-key";
