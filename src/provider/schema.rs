//! Tool schemas as a server can take them.

use std::borrow::Cow;

use serde_json::Value;

use super::endpoint::Adjustments;

/// The schema, without the keywords that grammar compilers of small servers refuse where recovery found that
/// the server does. Properties that have these names stay.
pub(super) fn without_patterns<'a>(schema: &'a Value, adjustments: &Adjustments) -> Cow<'a, Value> {
    let mut schema = Cow::Borrowed(schema);
    if adjustments.strip_schema_patterns {
        strip(schema.to_mut());
    }
    schema
}

fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| !(value.is_string() && matches!(name.as_str(), "pattern" | "format")));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
