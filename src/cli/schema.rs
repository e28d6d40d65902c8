//! `turnd schema`: the JSON Schema of the protocol extension and of the configuration.

use serde_json::{Value, json};
use turnd_protocol::ext;

use crate::config::Config;

/// Everything about the wire and the file that is ours, as one JSON document.
pub(super) fn schema() -> Value {
    json!({
        "version": ext::VERSION,
        "methods": {
            (ext::SESSION_STEERING): method(&schemars::schema_for!(ext::SteeringParams), &schemars::schema_for!(ext::SteeringResult)),
            (ext::REDIRECT): method(&schemars::schema_for!(ext::RedirectParams), &schemars::schema_for!(ext::SteeringResult)),
            (ext::STATUS): method(&schemars::schema_for!(ext::StatusParams), &schemars::schema_for!(ext::StatusResult)),
        },
        "notifications": {
            (ext::STEP): schemars::schema_for!(ext::StepParams),
            (ext::TURN): schemars::schema_for!(ext::TurnParams),
        },
        "promptResponse._meta.turnd": schemars::schema_for!(ext::TurnOutcome),
        "clientCapabilities._meta.turnd": schemars::schema_for!(ext::ClientExtension),
        "config": schemars::schema_for!(Config),
    })
}

fn method(params: &schemars::Schema, result: &schemars::Schema) -> Value {
    json!({ "params": params, "result": result })
}
