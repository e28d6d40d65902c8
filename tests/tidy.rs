//! The shape of the project as data: which module may use which, how large files may be, what a file
//! may not mention. Links nothing and runs in milliseconds.

#![expect(clippy::unwrap_used, reason = "a test binary; its helpers run in tests only")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Each module and the modules of this crate it may use, in reading order.
///
/// `config -> provider::ApiMode` and the like name one item: a module may use that and no more of it.
const LAYERS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("likeness", &[]),
    ("home_file", &[]),
    ("message", &[]),
    ("config", &["provider::ApiMode", "hook::HookPoint", "likeness"]),
    ("sandbox", &[]),
    ("vault", &["home_file"]),
    ("tool", &["message", "clock", "config", "sandbox", "likeness", "vault"]),
    ("provider", &["message", "clock", "config", "vault", "home_file", "tool::ToolSpec", "tool::Errand"]),
    ("hook", &["message", "tool", "config", "clock", "vault"]),
    ("approval", &["message", "tool", "config", "hook", "clock", "sandbox", "home_file"]),
    ("trust", &["config", "hook", "approval", "clock", "home_file"]),
    ("compression", &["message", "provider", "tool", "config", "clock"]),
    ("turn", &["message", "provider", "tool", "hook", "approval", "compression", "clock", "sandbox"]),
    (
        "mcp",
        &[
            "message",
            "tool",
            "config",
            "approval::display",
            "provider::tls",
            "provider::SseDecoder",
            "provider::SseError",
        ],
    ),
    ("runtime", &["message", "provider", "tool", "hook", "approval", "turn", "config", "rpc"]),
    ("store", &["message", "clock"]),
    ("memory", &["tool", "store", "approval::display", "clock", "home_file"]),
    ("prompt", &["message", "tool", "turn", "memory", "clock"]),
    ("delegate", &["message", "tool", "turn"]),
    (
        "session",
        &[
            "message",
            "provider",
            "tool",
            "hook",
            "approval",
            "trust",
            "compression",
            "turn",
            "mcp",
            "runtime",
            "prompt",
            "store",
            "memory",
            "delegate",
            "config",
            "clock",
            "sandbox",
            "likeness",
        ],
    ),
    ("rpc", &[]),
    (
        "server",
        &[
            "session", "rpc", "turn", "mcp", "message", "tool", "approval", "provider", "config", "clock", "store",
            "sandbox",
        ],
    ),
    ("script", &["provider", "message"]),
    ("app", &["server", "rpc", "session", "store", "provider", "tool", "approval", "config", "clock"]),
    (
        "cli",
        &[
            "app",
            "server",
            "rpc",
            "session",
            "store",
            "provider",
            "tool",
            "approval",
            "trust",
            "turn",
            "prompt",
            "message",
            "config",
            "clock",
            "script",
            "sandbox",
            "mcp",
            "home_file",
        ],
    ),
];

/// Crates that only some files may use, so that each has one place where it can be replaced.
const FENCES: &[(&str, &[&str])] = &[
    ("reqwest", &["src/provider/", "src/mcp/", "src/tool/web_fetch", "src/tool/html", "src/tool/property_tests"]),
    ("rmcp", &["src/mcp/"]),
    ("rusqlite", &["src/store/"]),
    ("jsonrpsee", &["src/rpc/", "src/server/"]),
    ("turnd_protocol", &["src/rpc/", "src/server/", "src/session/", "src/cli/"]),
    ("tree_sitter", &["src/approval/"]),
    ("landlock", &["src/sandbox/"]),
    ("seccompiler", &["src/sandbox/"]),
    ("similar", &["src/likeness.rs", "src/tool/diff.rs"]),
    ("clap", &["src/config/", "src/cli/", "src/main.rs", "src/script/mod.rs"]),
    (
        "tokio::process",
        &["src/tool/process", "src/runtime/connection", "src/hook/", "src/provider/credentials", "src/script/agent.rs"],
    ),
];

/// Lines of a file without its tests.
const MAX_LINES: usize = 500;

struct Source {
    path: PathBuf,
    /// From the project's root.
    name: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str, extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join(folder)];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| !is_generated(path)));
        } else if path.extension().is_some_and(|is| extensions.iter().any(|extension| is == *extension)) {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            found.push(Source { text: std::fs::read_to_string(&path).unwrap(), path, name });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn is_generated(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| ["target", "node_modules", ".git", "__pycache__"].iter().any(|skip| name == *skip))
}

/// The module a file of `src` belongs to.
fn module(name: &str) -> &str {
    let inside = name.strip_prefix("src/").unwrap_or(name);
    let first = inside.split('/').next().unwrap_or(inside);
    first.strip_suffix(".rs").unwrap_or(first)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Paths that begin with `crate::` in a line, with one level of braces opened.
fn uses(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        // `$crate::` and names that only end in `crate` are something else.
        let is_whole = line[..at]
            .chars()
            .next_back()
            .is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != '$');
        let path = &line[at + "crate::".len()..];
        if !is_whole {
            continue;
        }
        match path.strip_prefix('{') {
            Some(list) => {
                let list = &list[..list.find('}').unwrap_or(list.len())];
                found.extend(list.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()));
            }
            None => {
                let end = path.find(|character: char| !character.is_alphanumeric() && !"_:{".contains(character));
                found.push(path[..end.unwrap_or(path.len())].to_owned());
            }
        }
    }
    found
}

/// True when the path is covered by an entry: the module itself, or exactly the item named.
fn is_allowed(path: &str, entries: &[&str]) -> bool {
    let used = path.split("::").next().unwrap_or(path);
    entries.iter().any(|entry| match entry.split_once("::") {
        None => *entry == used,
        Some((module, item)) => module == used && path.trim_end_matches([':', '{']).ends_with(item),
    })
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let wrong: Vec<_> =
        sources("src", &["rs"]).iter().flat_map(|source| wrong_uses(&source.name, &source.text)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Uses of other modules that the table does not allow. Tests may reach up for a fixture.
fn wrong_uses(name: &str, text: &str) -> Vec<String> {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let module = module(name);
    if ["lib", "main"].contains(&module) {
        return Vec::new();
    }
    let Some(allowed) = layers.get(module) else {
        return vec![format!("{name}: the module {module} is not in the table of layers")];
    };
    let mut wrong = Vec::new();
    for (number, line) in code(text).filter(|(_, line)| !is_comment(line)) {
        for path in uses(line) {
            let used = path.split("::").next().unwrap_or_default();
            if used != module && layers.contains_key(used) && !is_allowed(&path, allowed) {
                wrong.push(format!("{name}:{number}: {module} must not use {path}"));
            }
        }
    }
    wrong
}

#[test]
fn a_planted_use_is_found() {
    let check = |name: &str, text: &str, expected: usize| {
        assert_eq!(wrong_uses(name, text).len(), expected, "{name}: {text}: {:?}", wrong_uses(name, text));
    };
    check("src/store/read.rs", "use crate::message::Message;", 0);
    check("src/store/read.rs", "use crate::turn::event::TurnEvent;", 1);
    check("src/store/read.rs", "use crate::{message::Message, turn::event};", 1);
    check("src/store/read.rs", "let x = crate::server::serve();", 1);
    check("src/store/read.rs", "// crate::server is not used", 0);
    check("src/store/read.rs", "#[cfg(test)]\nmod tests {\n    use crate::server::serve;", 0);
    check("src/config.rs", "use crate::provider::ApiMode;", 0);
    check("src/config.rs", "use crate::provider::http::Http;", 1);
    check("src/novelty.rs", "", 1);
}

/// The numbered lines of a file without its `#[cfg(test)] mod tests { .. }`, which comes last.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut previous = "";
    text.lines()
        .enumerate()
        .take_while(move |(_, line)| {
            let is_tests = previous.trim() == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{');
            previous = line;
            !is_tests
        })
        .map(|(index, line)| (index + 1, line))
}

#[test]
fn the_table_of_layers_has_no_cycle() {
    let whole =
        |entries: &[&'static str]| entries.iter().filter(|entry| !entry.contains("::")).copied().collect::<Vec<_>>();
    let mut left: BTreeMap<_, _> = LAYERS.iter().map(|(module, entries)| (*module, whole(entries))).collect();
    while !left.is_empty() {
        let free = left.iter().find(|(_, entries)| entries.iter().all(|entry| !left.contains_key(entry)));
        let free = free.map(|(module, _)| *module).unwrap_or_else(|| panic!("a cycle within {:?}", left.keys()));
        left.remove(free);
    }
}

#[test]
fn every_outside_crate_stays_behind_its_fence() {
    let mut wrong = Vec::new();
    for source in sources("src", &["rs"]) {
        for (number, line) in code(&source.text).filter(|(_, line)| !is_comment(line)) {
            for (name, places) in FENCES {
                let is_used = line.contains(&format!("{name}::")) || line.trim() == format!("use {name};");
                if is_used && !places.iter().any(|place| source.name.starts_with(place)) {
                    wrong.push(format!("{}:{number}: {name} belongs in {places:?}", source.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_too_long_to_read() {
    let long: Vec<_> = ["src", "protocol/src"]
        .iter()
        .flat_map(|folder| sources(folder, &["rs"]))
        .filter(|source| !source.path.components().any(|part| part.as_os_str() == "tests"))
        .filter(|source| source.path.file_stem().is_none_or(|stem| !stem.to_string_lossy().ends_with("tests")))
        .map(|source| (code(&source.text).count(), source.name))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines without tests: {long:?}");
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    // Put together here so that this file does not hold them itself.
    let places =
        [["/wo", "rk/"].concat(), ["/tmp/", "wt"].concat(), ["/ro", "ot/"].concat(), ["/home/", "runner"].concat()];
    let folders = ["src", "protocol", "tests", "benches", "clients", "examples"];
    let extensions = ["rs", "md", "toml", "py", "mjs", "jsonl", "sh", "sql"];
    let mut wrong = Vec::new();
    for source in folders.iter().flat_map(|folder| sources(folder, &extensions)) {
        for (index, line) in source.text.lines().enumerate() {
            if places.iter().any(|place| line.contains(place.as_str())) {
                wrong.push(format!("{}:{}: {}", source.name, index + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documentation_names_every_verb_of_a_transcript() {
    let format = std::fs::read_to_string(root().join("src/script/format.rs")).unwrap();
    let guide = std::fs::read_to_string(root().join("tests/transcripts/README.md")).unwrap();
    let verbs = format.split("pub enum Verb {").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
    let names = verbs.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.is_empty());
    let missing: Vec<_> = names
        .map(|line| snake_case(line.split('(').next().unwrap_or(line)))
        .filter(|verb| !guide.contains(&format!("`{verb}`")))
        .collect();
    assert!(missing.is_empty(), "tests/transcripts/README.md does not say what {missing:?} do");
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

#[test]
fn the_list_of_modules_is_the_folder_of_modules() {
    let library = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for source in sources("src", &["rs"]) {
        let module = module(&source.name);
        let is_listed =
            library.contains(&format!("pub mod {module};")) || library.contains(&format!("\nmod {module};"));
        assert!(["lib", "main"].contains(&module) || is_listed, "{} is not part of the library", source.name);
    }
}
