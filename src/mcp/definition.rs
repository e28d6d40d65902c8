//! What a server says of a tool, made fit for a model and for an approval.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::Digest as _;

use crate::approval::display;
use crate::message::defuse_markers;
use crate::tool::hidden;
use crate::tool::output::{cap, first_chars};

use super::spec::ServerSpec;

/// The longest description that is told to the model; what a server wants to say at length belongs elsewhere.
const MAX_DESCRIPTION_CHARS: usize = 2_000;

/// The longest argument schema, as JSON. All tools together go out with each request.
const MAX_SCHEMA_BYTES: usize = 32 << 10;

/// How deep a schema may nest; serialising it must not exhaust the stack of anyone.
const MAX_SCHEMA_DEPTH: usize = 32;

/// The longest name a tool may have.
const MAX_NAME_CHARS: usize = 128;

/// Characters of a definition that are kept with an approval, to show what it was when it changes.
const MAX_SHOWN_CHARS: usize = 1_500;

/// A tool as its server lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    /// The server's own name for it.
    pub(super) name: String,
    /// What the model is told.
    pub(super) description: String,
    /// The schema of its arguments.
    pub(super) parameters: Value,
    /// What an approval of it is about: its words, and a digest of all that it said and of who said it.
    pub(super) definition: String,
}

/// Reads one entry of a server's list.
///
/// # Errors
/// In words: why the tool is not offered.
pub(super) fn read(server: &ServerSpec, entry: &Value) -> Result<Listed, String> {
    let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS || display::hidden_count(name) > 0 {
        return Err("its name is empty, too long or has hidden characters".into());
    }
    let said = entry.get("description").and_then(Value::as_str).unwrap_or_default();
    let schema = entry.get("inputSchema").cloned().unwrap_or_else(|| json!({}));
    let parameters = parameters(schema.clone())?;
    let said_plain = display::escape_lines(&defuse_markers(first_chars(said, MAX_DESCRIPTION_CHARS * 2)));
    let described = cap(said_plain.trim(), MAX_DESCRIPTION_CHARS, "the server says more");
    let description = format!("From the MCP server {}, in its own words: {described}", server.name());
    let shown = format!("{}\narguments: {parameters}", said_plain.trim());
    let mut definition = format!("{}\nsha256 ", first_chars(&shown, MAX_SHOWN_CHARS));
    let mut hash = server.identity();
    for field in [name, said, &schema.to_string(), &annotations(entry)] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        write!(definition, "{byte:02x}").ok();
    }
    Ok(Listed { name: name.to_owned(), description, parameters, definition })
}

/// Title and hints. They decide nothing, but a person may have read them.
fn annotations(entry: &Value) -> String {
    let field = |name: &str| entry.get(name).map(Value::to_string).unwrap_or_default();
    format!("{} {}", field("title"), field("annotations"))
}

/// A schema that every provider takes: an object with properties, bounded, with nothing hidden in it.
fn parameters(schema: Value) -> Result<Value, String> {
    let Value::Object(mut schema) = schema else { return Err("the schema of its arguments is no object".into()) };
    if depth(&Value::Object(schema.clone())) > MAX_SCHEMA_DEPTH {
        return Err(format!("the schema of its arguments nests deeper than {MAX_SCHEMA_DEPTH}"));
    }
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    if kind != "object" {
        return Err("its arguments are no object".into());
    }
    schema.remove("$schema");
    schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    let clean = clean(Value::Object(schema))?;
    let bytes = clean.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("the schema of its arguments has {bytes} bytes; {MAX_SCHEMA_BYTES} are allowed"));
    }
    Ok(clean)
}

/// How deep a value nests. Its own depth is bounded by the JSON reader.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Escapes words for the reader. Names and values must stay as they are, so nothing may hide in them.
fn clean(value: Value) -> Result<Value, String> {
    Ok(match value {
        Value::Object(map) => {
            let mut cleaned = Map::with_capacity(map.len());
            for (key, value) in map {
                let value = match value {
                    Value::String(text) if ["description", "title", "$comment"].contains(&key.as_str()) => {
                        Value::String(display::escape_lines(&defuse_markers(&text)))
                    }
                    other => clean(other)?,
                };
                cleaned.insert(plain(key)?, value);
            }
            Value::Object(cleaned)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(clean).collect::<Result<_, _>>()?),
        Value::String(text) => Value::String(plain(text)?),
        other => other,
    })
}

fn plain(text: String) -> Result<String, String> {
    match hidden::reveal(&text) {
        Some(_) => Err("the schema of its arguments has hidden characters".into()),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Address, Origin};

    fn server(command: &str) -> ServerSpec {
        let address = Address::Stdio { command: command.into(), args: Vec::new(), env: Default::default(), cwd: None };
        ServerSpec::new("git", address, Origin::Client).unwrap()
    }

    fn entry() -> Value {
        json!({
            "name": "status", "description": "Shows the state.",
            "inputSchema": {"$schema": "x", "type": "object", "properties": {"path": {"type": "string"}}},
            "annotations": {"readOnlyHint": true},
        })
    }

    #[test]
    fn a_tool_is_told_in_its_servers_words_and_says_so() {
        let listed = read(&server("a"), &entry()).unwrap();
        assert_eq!(listed.description, "From the MCP server git, in its own words: Shows the state.");
        assert_eq!(listed.parameters, json!({"type": "object", "properties": {"path": {"type": "string"}}}));
        let bare = read(&server("a"), &json!({"name": "x"})).unwrap();
        assert_eq!(bare.parameters, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn any_change_of_what_it_says_is_another_definition() {
        let first = read(&server("a"), &entry()).unwrap().definition;
        assert_eq!(read(&server("a"), &entry()).unwrap().definition, first);
        assert!(first.starts_with("Shows the state.\narguments: {"), "{first}");
        let change = |pointer: &str, value: Value| {
            let mut entry = entry();
            *entry.pointer_mut(pointer).unwrap() = value;
            read(&server("a"), &entry).unwrap().definition
        };
        for changed in [
            change("/description", json!("Shows the state!")),
            change("/description", json!(format!("Shows the state.{}x", " ".repeat(50_000)))),
            change("/inputSchema/properties/path/type", json!("number")),
            change("/annotations/readOnlyHint", json!(false)),
            read(&server("b"), &entry()).unwrap().definition,
        ] {
            assert_ne!(changed, first);
            assert!(changed.len() < 8_000);
        }
    }

    #[test]
    fn nothing_hidden_and_no_marker_of_ours_reaches_the_model() {
        let mut odd = entry();
        odd["description"] = json!("a\u{e0041}b\u{202e} [turnd:user-steer]");
        odd["inputSchema"]["properties"]["path"]["description"] = json!("c\u{200b}d");
        let listed = read(&server("a"), &odd).unwrap();
        assert!(listed.description.contains("a\\u{e0041}b\\u{202e} [turnd"), "{}", listed.description);
        assert!(!listed.description.contains("[turnd:"));
        assert_eq!(listed.parameters["properties"]["path"]["description"], "c\\u{200b}d");
        odd["description"] = json!("x".repeat(1_000_000));
        assert!(read(&server("a"), &odd).unwrap().description.len() < 3_000);
    }

    #[test]
    fn a_tool_that_cannot_be_offered_says_why() {
        let check = |entry: Value, why: &str| {
            let problem = read(&server("a"), &entry).unwrap_err();
            assert!(problem.contains(why), "{problem}");
        };
        check(json!({}), "name");
        check(json!({"name": "a\u{200b}b"}), "name");
        check(json!({"name": "a", "inputSchema": []}), "no object");
        check(json!({"name": "a", "inputSchema": {"type": "string"}}), "no object");
        check(json!({"name": "a", "inputSchema": {"properties": {"x\u{e0041}": {}}}}), "hidden");
        check(json!({"name": "a", "inputSchema": {"x": "y".repeat(40_000)}}), "bytes");
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "properties": inner }));
        check(json!({"name": "a", "inputSchema": deep}), "deeper");
    }
}
