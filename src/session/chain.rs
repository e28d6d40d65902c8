//! The models of a session, from the configuration.

use crate::config::Config;
use crate::provider::catalog;
use crate::provider::endpoint::Endpoint;
use crate::provider::recovery::FallbackChain;

use super::command::SessionError;

/// The endpoint that a new session would use first.
///
/// # Errors
/// Why there is none.
pub fn first_endpoint(config: &Config) -> Result<Endpoint, SessionError> {
    primary(config, config.model.as_deref())
}

fn primary(config: &Config, model: Option<&str>) -> Result<Endpoint, SessionError> {
    let env = catalog::process_env;
    let model = model.map(str::to_owned).or_else(|| catalog::default_model(config, &env));
    let model = model.ok_or_else(|| SessionError::AuthRequired(catalog::no_model_text()))?;
    catalog::resolve(config, &env, &model).map_err(|error| resolve_error(&error))
}

/// The way through the configured models, starting at `model` where one is given.
pub(super) fn chain(config: &Config, model: Option<&str>) -> Result<FallbackChain, SessionError> {
    let primary = primary(config, model)?;
    let (fallbacks, problems) = fallbacks(config);
    problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    Ok(FallbackChain::new(primary, fallbacks))
}

/// The fallbacks that can be used, and why the others cannot.
pub(super) fn fallbacks(config: &Config) -> (Vec<Endpoint>, Vec<String>) {
    let (mut usable, mut problems) = (Vec::new(), Vec::new());
    for fallback in &config.fallback_providers {
        let problem = match catalog::resolve(config, &catalog::process_env, fallback) {
            Ok(endpoint) if config.runtime_of(&endpoint.provider).is_some() => {
                "an external runtime takes whole turns over".to_owned()
            }
            Ok(endpoint) => {
                usable.push(endpoint);
                continue;
            }
            Err(error) => error.to_string(),
        };
        problems.push(format!("fallback_providers: `{fallback}` cannot be used: {problem}"));
    }
    (usable, problems)
}

fn resolve_error(error: &catalog::ResolveError) -> SessionError {
    match error {
        catalog::ResolveError::NoCredential { .. } => SessionError::AuthRequired(error.to_string()),
        _ => SessionError::Config(error.to_string()),
    }
}

pub(super) fn models(config: &Config, current: &str) -> Vec<String> {
    let mut models = vec![current.to_owned()];
    for model in config.model.iter().chain(&config.fallback_providers) {
        if !models.contains(model) {
            models.push(model.clone());
        }
    }
    models
}
