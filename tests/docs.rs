//! What the documentation says is what the program does: the configuration table, the example file, the snippets.
//!
//! `BLESS=1 cargo test --test docs` rewrites the generated part of README.md.

#![expect(clippy::unwrap_used, reason = "a test panics to fail")]

use std::path::{Path, PathBuf};

use serde_json::Value;
use turnd::config::{Config, ConfigFlags};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project(path)).unwrap()
}

/// One key of the configuration.
struct Key {
    path: String,
    kind: String,
    default: String,
    meaning: String,
}

/// Every key of the configuration's schema, in the order of its types.
fn keys() -> Vec<Key> {
    let schema = schemars::schema_for!(Config).to_value();
    let mut keys = Vec::new();
    collect(&schema, &schema, "", &mut keys);
    keys
}

fn collect(root: &Value, object: &Value, prefix: &str, keys: &mut Vec<Key>) {
    for (name, property) in object["properties"].as_object().into_iter().flatten() {
        let shape = resolve(root, property);
        let path = format!("{prefix}{name}");
        let (entry, items) = (resolve(root, &shape["additionalProperties"]), resolve(root, &shape["items"]));
        if shape["properties"].is_object() {
            collect(root, shape, &format!("{path}."), keys);
        } else if entry["properties"].is_object() {
            collect(root, entry, &format!("{path}.NAME."), keys);
        } else if items["properties"].is_object() {
            collect(root, items, &format!("{path}[]."), keys);
        } else {
            let meaning = property["description"].as_str().unwrap_or_default().replace('\n', " ");
            keys.push(Key { path, kind: kind(shape), default: shown(&property["default"]), meaning });
        }
    }
}

/// The schema behind a reference or an `Option`.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return root.pointer(reference.trim_start_matches('#')).unwrap();
    }
    let some = schema["anyOf"].as_array().into_iter().flatten().find(|option| option["type"] != "null");
    some.map_or(schema, |some| resolve(root, some))
}

fn kind(shape: &Value) -> String {
    let choices: Vec<_> = shape["oneOf"].as_array().into_iter().flatten().filter_map(|c| c["const"].as_str()).collect();
    if !choices.is_empty() {
        return choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ");
    }
    let of = |value: &Value| value.as_str().filter(|kind| *kind != "null").map(str::to_owned);
    let named = of(&shape["type"]).or_else(|| shape["type"].as_array()?.iter().find_map(of));
    match named.as_deref() {
        Some("array") => "list".into(),
        Some("object") => "table".into(),
        Some(kind) => kind.into(),
        None => "any".into(),
    }
}

/// A default worth showing; nothing, an empty list and an empty table are not.
fn shown(default: &Value) -> String {
    match default {
        Value::Null => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        Value::Object(map) if map.is_empty() => String::new(),
        value => format!("`{value}`"),
    }
}

/// README's configuration table, as it must stand between its two marks.
fn table() -> String {
    let mut table = String::from("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
    for Key { path, kind, default, meaning } in keys() {
        table.push_str(&format!("| `{path}` | {kind} | {default} | {meaning} |\n"));
    }
    table
}

#[test]
fn the_configuration_table_of_the_readme_is_the_schema() {
    let readme = read("README.md");
    let (begin, end) = ("<!-- configuration: generated -->\n", "<!-- configuration: end -->");
    let (before, rest) = readme.split_once(begin).expect("README.md has no generated configuration table");
    let (found, after) = rest.split_once(end).expect("README.md's configuration table has no end mark");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(project("README.md"), format!("{before}{begin}{}{end}{after}", table())).unwrap();
    } else {
        assert_eq!(found, table(), "run BLESS=1 cargo test --test docs");
    }
}

/// The example file with every commented key in force.
fn uncommented() -> String {
    let text = read("examples/config.toml");
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_configuration_loads_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for text in [read("examples/config.toml"), uncommented()] {
        std::fs::write(folder.path().join("config.toml"), text).unwrap();
        let config = Config::load(folder.path(), &ConfigFlags::default());
        assert_eq!((config.problem, config.warnings), (None, Vec::new()));
    }
}

#[test]
fn the_example_configuration_has_every_key() {
    let example = uncommented();
    let has = |name: &str| example.lines().any(|line| line.split(['=', ' ']).next() == Some(name));
    let missing: Vec<_> = keys().into_iter().map(|key| key.path).filter(|path| !has(last_name(path))).collect();
    assert_eq!(missing, Vec::<String>::new());
}

fn last_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

#[test]
fn every_editor_snippet_parses() {
    let mut seen = 0;
    for entry in std::fs::read_dir(project("clients/editors")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let problem = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => serde_json::from_str::<Value>(&text).err().map(|error| error.to_string()),
            Some("lua") => unbalanced(&text, "--"),
            Some("el") => unbalanced(&text, ";"),
            _ => continue,
        };
        assert_eq!(problem, None, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 7, "only {seen} snippets found");
}

/// The first bracket that does not match, outside strings and line comments.
fn unbalanced(text: &str, comment: &str) -> Option<String> {
    let mut open = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut in_string = false;
        for (at, character) in line.char_indices() {
            if !in_string && line[at..].starts_with(comment) {
                break;
            }
            match character {
                '"' => in_string = !in_string,
                '(' | '[' | '{' if !in_string => open.push(character),
                ')' | ']' | '}' if !in_string => {
                    let opened = open.pop();
                    let fits = matches!((opened, character), (Some('('), ')') | (Some('['), ']') | (Some('{'), '}'));
                    if !fits {
                        return Some(format!("line {}: {character} closes {opened:?}", number + 1));
                    }
                }
                _ => {}
            }
        }
        if in_string {
            return Some(format!("line {}: a string is not closed", number + 1));
        }
    }
    (!open.is_empty()).then(|| format!("{open:?} is not closed"))
}

#[test]
fn the_balance_check_sees_what_it_is_for() {
    for (text, comment, fits) in [
        ("f({ a = \"(\" }) -- )", "--", true),
        ("f({ a = 1 )", "--", false),
        ("(a (b)", ";", false),
        ("(a \"b)", ";", false),
        ("(a) ; (", ";", true),
    ] {
        assert_eq!(unbalanced(text, comment).is_none(), fits, "{text}");
    }
}

#[test]
fn the_registry_entry_has_this_version() {
    let entry: Value = serde_json::from_str(&read("clients/registry/agent.json")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&entry["id"], &entry["version"]), (&"turnd".into(), &version.into()));
    for target in entry["distribution"]["binary"].as_object().unwrap().values() {
        assert!(target["archive"].as_str().unwrap().contains(&format!("/v{version}/")), "{target}");
    }
    assert!(read("clients/registry/icon.svg").contains("width=\"16\" height=\"16\""));
}
