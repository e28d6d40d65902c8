//! What a server says about its models: names for `turnd doctor`, context windows of local servers.
//!
//! Nothing waits for this: a session starts with what is known, and takes the server's word over when it comes. A
//! server that somebody else may count requests at is never asked without need.

use std::time::Duration;

use serde_json::Value;

use crate::provider::catalog::BuiltIn;
use crate::provider::chain::FallbackChain;
use crate::provider::http::Http;
use crate::provider::{Endpoint, ErrorKind, ProviderError};

/// How long a server may take to list its models.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Listings are long on aggregators, but not longer than this.
pub(super) const MAX_LISTING: usize = 8 << 20;
/// Smaller windows are a misunderstanding: no request of an agent fits.
const MIN_WINDOW: u64 = 1024;

/// One model of a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub id: String,
    /// Tokens it can read and write together, when the server says so.
    pub context_window: Option<u64>,
}

impl Endpoint {
    /// The server's models.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// The classified failure; many servers have no list.
    pub async fn list_models(&self, http: &Http) -> Result<Vec<ModelInfo>, ProviderError> {
        let body = self.get(http, "models", TIMEOUT).await?;
        let value = serde_json::from_slice(&body)
            .map_err(|_| self.failed(ErrorKind::InvalidResponse, None, "the list of models is not JSON"))?;
        Ok(parse(&value))
    }
}

/// Asks the server of the current model for its context window where nobody has said it, and takes over what it
/// says. Meant to run beside a model call: only the user's own server of a built-in provider is asked, once.
///
/// Cancel-safe: a dropped call asks again next time. Failures mean only that nothing is learned.
pub async fn learn_window(chain: &FallbackChain, http: &Http) {
    let endpoint = chain.current();
    let is_own_server = BuiltIn::named(&endpoint.provider).is_some_and(|built_in| built_in.is_local);
    if !endpoint.is_window_assumed || !is_own_server {
        return;
    }
    let window = match endpoint.list_models(http).await {
        Ok(models) => window_of(&models, &endpoint.model),
        Err(error) => {
            tracing::debug!(%error, "the server lists no models");
            None
        }
    };
    chain.learn_window(&endpoint, window);
}

/// The window of this model. A server with a single model answers every name with it.
fn window_of(models: &[ModelInfo], name: &str) -> Option<u64> {
    let same = |model: &&ModelInfo| model.id == name || model.id.split(':').next() == Some(name);
    let named = models.iter().find(same);
    let model = named.or(if let [only] = models { Some(only) } else { None })?;
    model.context_window
}

/// Reads a listing: OpenAI's `data`, or `models` of other servers.
fn parse(value: &Value) -> Vec<ModelInfo> {
    let list = value.get("data").or_else(|| value.get("models")).unwrap_or(value);
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(model).collect()
}

fn model(entry: &Value) -> Option<ModelInfo> {
    let id = ["id", "name", "model"].iter().find_map(|name| entry.get(name).and_then(Value::as_str))?;
    let window = [
        "/loaded_context_length",
        "/meta/n_ctx",
        "/top_provider/context_length",
        "/context_length",
        "/context_window",
        "/max_context_length",
        "/max_model_len",
        "/inputTokenLimit",
        "/meta/n_ctx_train",
    ]
    .iter()
    .find_map(|path| entry.pointer(path).and_then(Value::as_u64));
    Some(ModelInfo { id: id.to_owned(), context_window: window.filter(|window| *window >= MIN_WINDOW) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listings_of_different_servers_are_read() {
        let check = |listing: Value, name: &str, expect: Option<u64>| {
            assert_eq!(window_of(&parse(&listing), name), expect, "{listing}");
        };
        check(json!({"data": [{"id": "a", "context_length": 8192}, {"id": "b"}]}), "a", Some(8192));
        check(json!({"data": [{"id": "a", "context_length": 8192}, {"id": "b"}]}), "b", None);
        check(json!({"data": [{"id": "a", "max_model_len": 4096}]}), "whatever", Some(4096));
        check(json!({"data": [{"id": "a", "meta": {"n_ctx": 2048, "n_ctx_train": 32768}}]}), "a", Some(2048));
        check(
            json!({"data": [{"id": "a", "loaded_context_length": 4096, "max_context_length": 131_072}]}),
            "a",
            Some(4096),
        );
        check(json!({"models": [{"name": "llama3:8b", "context_window": 8192}, {"name": "x"}]}), "llama3", Some(8192));
        check(json!({"data": [{"id": "a", "context_length": 7}]}), "a", None);
        check(json!("nothing"), "a", None);
    }
}
