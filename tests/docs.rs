//! What the documentation says is what the program does: the configuration table, the example file, the snippets.
//!
//! `BLESS=1 cargo test --test docs -- --test-threads 1` rewrites the generated parts of README.md.

#![expect(clippy::unwrap_used, reason = "a test panics to fail")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use turnd::config::{Config, ConfigFlags, Mode};

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
        } else if entry["properties"].is_object() && !std::ptr::eq(entry, root) {
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

/// Holds what stands between two marks of README.md to what is true, or rewrites it under `BLESS=1`.
fn generated(section: &str, truth: &str) {
    let (begin, end) = (format!("<!-- {section}: generated -->\n"), format!("<!-- {section}: end -->"));
    let readme = read("README.md");
    let (before, rest) = readme.split_once(&begin).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(project("README.md"), format!("{before}{begin}{truth}{end}{after}")).unwrap();
    } else {
        assert_eq!(found, truth, "run BLESS=1 cargo test --test docs -- --test-threads 1");
    }
}

#[test]
fn the_configuration_table_of_the_readme_is_the_schema() {
    generated("configuration", &table());
}

#[test]
fn the_modes_of_the_readme_are_the_modes() {
    let mut table = String::from("| mode | what happens |\n| --- | --- |\n");
    for mode in Mode::ALL {
        table.push_str(&format!("| `{}` | {} |\n", mode.as_str(), mode.describe().1));
    }
    generated("modes", &table);
}

#[test]
fn the_slash_commands_of_the_readme_are_what_clients_are_told() {
    let mut table = String::from("| command | does |\n| --- | --- |\n");
    for command in announced_commands() {
        let hint = command["input"]["hint"].as_str().map(|hint| format!(" {}", hint.replace('|', "\\|")));
        let (name, does) = (command["name"].as_str().unwrap(), command["description"].as_str().unwrap());
        table.push_str(&format!("| `/{name}`{} | {does} |\n", hint.unwrap_or_default()));
    }
    generated("slash commands", &table);
}

/// What a client is told right after `session/new`.
fn announced_commands() -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let mut daemon = turnd(&["--script", "tests/e2e/model.jsonl"], home.path());
    let mut child = daemon.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (id, method, params) in [
        (1, "initialize", json!({"protocolVersion": 1})),
        (2, "session/new", json!({"cwd": home.path(), "mcpServers": []})),
    ] {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let update = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .find_map(|message| message.pointer("/params/update/availableCommands")?.as_array().cloned());
    drop(stdin);
    child.wait().unwrap();
    update.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "these tests are about the built program")]
fn turnd(arguments: &[&str], home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnd"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env("TURND_HOME", home);
    command
}

#[test]
fn every_command_of_the_readme_exists() {
    let home = tempfile::tempdir().unwrap();
    let readme = read("README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `turnd ")?.split('|').next());
    let mut seen = 0;
    for row in rows {
        let words = row.split('`').next().unwrap().split_whitespace();
        let subcommands: Vec<_> = words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase())).collect();
        let output = turnd(&[&subcommands[..], &["--help"]].concat(), home.path()).output().unwrap();
        assert!(output.status.success(), "turnd {subcommands:?} --help: {output:?}");
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} commands found in README.md");
}

#[test]
fn the_exit_codes_of_the_readme_are_the_programs() {
    let script = "tests/e2e/model.jsonl";
    for (config, arguments, code) in [
        ("", &["run", "--script", script, "hello"][..], 0),
        ("", &["run", "--resume", "no-such-session", "hello"], 1),
        ("", &["--no-such-option"], 2),
        ("max_iterations = \"many\"", &["run", "hello"], 78),
    ] {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        let output = turnd(arguments, home.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(read("README.md").contains(&format!("| {code} |")), "README.md does not tell exit code {code}");
    }
}

#[test]
fn every_data_block_of_the_readme_parses() {
    let readme = read("README.md");
    let blocks = |language: &str| {
        let fence = format!("```{language}\n");
        readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(!blocks("json").is_empty() && !blocks("toml").is_empty());
    for block in blocks("json") {
        serde_json::from_str::<Value>(&block).unwrap();
    }
    for block in blocks("toml") {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), &block).unwrap();
        let config = Config::load(home.path(), &ConfigFlags::default());
        assert_eq!((config.problem, config.warnings), (None, Vec::new()), "{block}");
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
    let is_of =
        |line: &str, name: &str| line.split(['=', ' ']).next() == Some(name) || line.starts_with(&format!("[{name}."));
    let has = |name: &str| example.lines().any(|line| is_of(line, name));
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

/// Names of every test function and every transcript's case.
fn names_of_tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![project("src"), project("tests"), project("protocol")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if extension == Some("jsonl") && path.starts_with(project("tests/transcripts")) {
                let cases = turnd::script::format::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
                names.extend(cases.into_iter().map(|case| case.name));
            } else if extension == Some("rs") {
                let text = std::fs::read_to_string(path).unwrap();
                let functions =
                    text.lines().filter_map(|line| line.trim().trim_start_matches("async ").strip_prefix("fn "));
                names.extend(functions.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
            }
        }
    }
    names
}

#[test]
fn every_feature_of_the_turn_names_tests_that_are_there() {
    let (table, known) = (read("tests/FEATURES.md"), names_of_tests());
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")).collect();
    let mut numbers = BTreeSet::new();
    for row in rows.into_iter().filter(|row| !row.starts_with("| ---")) {
        let columns: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [number, _, shown] = columns[..] else { panic!("three columns: {row}") };
        numbers.insert(number.trim().parse::<u32>().unwrap());
        let named: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for name in named {
            assert!(known.contains(name), "there is no test `{name}`: {row}");
        }
    }
    let expected = (1..=77).chain([124]).chain(130..=134).chain(142..=144).chain([155]).collect();
    assert_eq!(numbers, expected);
}
