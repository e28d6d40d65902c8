//! Tool arguments: one Rust type gives the JSON Schema the model sees and the value the tool gets.
//!
//! [`parse`] walks the arguments along the schema first, because only that can name the path, what was
//! expected and what was found, for all problems at once. It forgives what cannot be misunderstood (a number
//! written as a string, `null` for an absent parameter) and nothing else.

use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::output::one_line;
use super::{ToolFailure, ToolSpec};
use crate::likeness::nearest;

/// The description of a tool whose arguments have the type `A`. It is made once and shared by all sessions:
/// a schema in memory is several times its text.
#[must_use]
pub fn spec<A: JsonSchema>(name: &str, description: &str) -> Arc<ToolSpec> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut parameters = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Value::Object(root) = &mut parameters {
        root.shift_remove("description");
        root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    simplify(&mut parameters);
    Arc::new(ToolSpec { name: name.into(), description: description.into(), parameters })
}

/// Drops what tells a model nothing: titles, number formats, the `null` of optional fields.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for key in ["title", "format", "default", "minimum", "additionalProperties"] {
                if !map.get(key).is_some_and(is_property_schema) {
                    map.shift_remove(key);
                }
            }
            unwrap_nullable(map);
            map.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// True for the value of a parameter that happens to be called like a schema keyword.
fn is_property_schema(value: &Value) -> bool {
    value.get("type").is_some()
}

fn unwrap_nullable(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = map.get_mut("enum") {
        choices.retain(|choice| !choice.is_null());
    }
    let Some(Value::Array(variants)) = map.get_mut("anyOf") else { return };
    variants.retain(|variant| variant.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = variants.as_slice() {
        let only = only.clone();
        map.shift_remove("anyOf");
        map.extend(only);
    }
}

/// The arguments as the tool's type.
///
/// # Errors
/// Every problem with its path, what was expected and what was found, and the tool's parameters.
pub fn parse<A: DeserializeOwned>(spec: &ToolSpec, arguments: &Map<String, Value>) -> Result<A, ToolFailure> {
    let mut value = Value::Object(arguments.clone());
    let mut problems = Vec::new();
    check(&spec.parameters, &mut value, "", &mut problems);
    if problems.is_empty() {
        match serde_json::from_value(value) {
            Ok(parsed) => return Ok(parsed),
            Err(error) => problems.push(error.to_string()),
        }
    }
    problems.truncate(MAX_PROBLEMS);
    let name = &spec.name;
    Err(ToolFailure::new(format!(
        "{name} was not run: {}. Parameters of {name}: {}",
        problems.join("; "),
        signature(&spec.parameters)
    )))
}

/// Problems named in one error; a model mends the first few and the rest with them.
const MAX_PROBLEMS: usize = 5;

/// `path: string, line?: integer`.
fn signature(schema: &Value) -> String {
    let required = required(schema);
    let parameters: Vec<String> = properties(schema)
        .map(|(name, property)| {
            let mark = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("{name}{mark}: {}", expectation(property))
        })
        .collect();
    if parameters.is_empty() { "none".into() } else { parameters.join(", ") }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn required(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn expectation(schema: &Value) -> String {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let choices: Vec<_> = choices.iter().filter_map(Value::as_str).collect();
        return format!("one of {}", choices.join(" | "));
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => match schema.get("items") {
            Some(items) if items.get("properties").is_some() => format!("array of {{{}}}", signature(items)),
            Some(items) => format!("array of {}", expectation(items)),
            None => "array".into(),
        },
        Some(name) => name.into(),
        None => "any value".into(),
    }
}

fn check(schema: &Value, value: &mut Value, path: &str, problems: &mut Vec<String>) {
    let Some(expected) = schema.get("type").and_then(Value::as_str) else { return };
    forgive(expected, value);
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        _ => true,
    };
    if !fits {
        problems.push(format!("{} must be {}, found {}", named(path), with_article(expected), found(value)));
        return;
    }
    if let Some(Value::Array(choices)) = schema.get("enum")
        && !choices.contains(value)
    {
        problems.push(format!("{} must be {}, found {}", named(path), expectation(schema), found(value)));
    }
    match value {
        Value::Object(map) => check_object(schema, map, path, problems),
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter_mut().enumerate() {
                check(schema, item, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

fn check_object(schema: &Value, map: &mut Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    let required = required(schema);
    map.retain(|name, value| !value.is_null() || required.contains(&name.as_str()));
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in &required {
        if !map.contains_key(*name) {
            problems.push(format!("`{}` is missing", join(name)));
        }
    }
    let known: Vec<&str> = properties(schema).map(|(name, _)| name.as_str()).collect();
    for (name, value) in map.iter_mut() {
        match properties(schema).find(|(known, _)| *known == name) {
            Some((_, property)) => check(property, value, &join(name), problems),
            None => problems.push(unknown(&join(name), nearest(name, known.iter().copied(), 0.6))),
        }
    }
}

fn unknown(path: &str, nearest: Option<&str>) -> String {
    let path = one_line(path, 80);
    match nearest {
        Some(nearest) => format!("unknown parameter `{path}`, did you mean `{nearest}`?"),
        None => format!("unknown parameter `{path}`"),
    }
}

/// Turns values that can only mean one thing into the expected type.
fn forgive(expected: &str, value: &mut Value) {
    let forgiven = match (expected, &*value) {
        ("integer" | "number", Value::String(text)) => {
            serde_json::from_str::<Value>(text.trim()).ok().filter(Value::is_number)
        }
        ("boolean", Value::String(text)) => match text.trim() {
            "true" | "True" => Some(true.into()),
            "false" | "False" => Some(false.into()),
            _ => None,
        },
        ("string", Value::Number(number)) => Some(number.to_string().into()),
        ("array" | "object", Value::String(text)) => {
            let parsed = serde_json::from_str::<Value>(text).ok();
            parsed.filter(|parsed| if expected == "array" { parsed.is_array() } else { parsed.is_object() })
        }
        _ => None,
    };
    if let Some(forgiven) = forgiven {
        *value = forgiven;
    }
    if expected == "integer"
        && let Some(float) = value.as_f64()
        && !value.is_u64()
        && !value.is_i64()
        && float.fract() == 0.0
        && let Ok(whole) = serde_json::from_str::<Value>(&format!("{float:.0}"))
    {
        *value = whole;
    }
}

fn named(path: &str) -> String {
    if path.is_empty() { "the arguments".into() } else { format!("`{path}`") }
}

fn with_article(type_name: &str) -> String {
    let article = if type_name.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {type_name}")
}

fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string {:?}", one_line(text, 60)),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Sample {
        /// Where
        path: String,
        line: Option<u32>,
        #[serde(default)]
        replace_all: bool,
        steps: Option<Vec<Step>>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Step {
        title: String,
        status: Option<Status>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Status {
        Open,
        InProgress,
    }

    fn run(arguments: Value) -> Result<Sample, String> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        parse(&spec::<Sample>("sample", "A sample."), &arguments).map_err(|failure| failure.text)
    }

    #[test]
    fn the_schema_is_small_and_says_only_what_a_model_needs() {
        assert_eq!(
            spec::<Sample>("sample", "A sample.").parameters,
            json!({
                "type": "object",
                "properties": {
                    "path": {"description": "Where", "type": "string"},
                    "line": {"type": "integer"},
                    "replace_all": {"type": "boolean"},
                    "steps": {"type": "array", "items": {
                        "type": "object",
                        "properties": {
                            "title": {"type": "string"},
                            "status": {"type": "string", "enum": ["open", "in_progress"]}
                        },
                        "required": ["title"]
                    }}
                },
                "required": ["path"]
            })
        );
    }

    #[test]
    fn what_can_only_mean_one_thing_is_accepted() {
        let expected = Sample {
            path: "7".into(),
            line: Some(12),
            replace_all: true,
            steps: Some(vec![Step { title: "a".into(), status: Some(Status::InProgress) }]),
        };
        let steps = r#"[{"title":"a","status":"in_progress"}]"#;
        for line in [json!(12), json!("12"), json!(12.0)] {
            let arguments = json!({"path": 7, "line": line, "replace_all": "true", "steps": steps});
            assert_eq!(run(arguments).unwrap(), expected);
        }
        let bare = run(json!({"path": "x", "line": null, "steps": null})).unwrap();
        assert_eq!(bare, Sample { path: "x".into(), line: None, replace_all: false, steps: None });
    }

    #[test]
    fn a_wrong_argument_is_named_with_path_expectation_and_finding() {
        let check = |arguments: Value, parts: &[&str]| {
            let error = run(arguments).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{part} not in {error}");
            }
        };
        check(json!({}), &["`path` is missing", "Parameters of sample: path: string, line?: integer"]);
        check(json!({"path": "x", "line": "ten"}), &["`line` must be an integer, found the string \"ten\""]);
        check(json!({"path": "x", "line": 1.5}), &["`line` must be an integer, found the number 1.5"]);
        check(json!({"path": "x", "line": -1}), &["invalid value"]);
        check(json!({"path": ["x"]}), &["`path` must be a string, found an array"]);
        check(json!({"path": null}), &["`path` must be a string, found null"]);
        check(json!({"pth": "x"}), &["unknown parameter `pth`, did you mean `path`?", "`path` is missing"]);
        check(
            json!({"path": "x", "steps": [{"title": "a"}, {"title": "b", "status": "done"}]}),
            &["`steps[1].status` must be one of open | in_progress, found the string \"done\""],
        );
    }
}
