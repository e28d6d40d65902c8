//! The tools of one session, frozen so that the provider's cache holds.

use std::sync::Arc;

use super::output::one_line;
use super::process::{Background, Processes};
use super::{Tool, ToolSpec};
use crate::config::ToolsConfig;
use crate::likeness::nearest;

/// The tools that need nothing but the machine, in the order the model sees them.
#[must_use]
pub fn built_in(processes: &Processes) -> Vec<Arc<dyn Tool>> {
    let background = Background::new(processes.clone());
    vec![
        Arc::new(super::terminal::Terminal::new(processes.clone(), background.clone())),
        Arc::new(super::background::ProcessTool::new(background)),
        Arc::new(super::read_file::ReadFile),
        Arc::new(super::write_file::WriteFile),
        Arc::new(super::patch::Patch),
        Arc::new(super::search_files::SearchFiles),
        Arc::new(super::web_fetch::WebFetch::default()),
        Arc::new(super::todo::TodoList),
    ]
}

/// The tools a session's model may call.
#[derive(Clone, Debug, Default)]
pub struct ToolRegistry {
    tools: Vec<Arc<dyn Tool>>,
    specs: Vec<Arc<ToolSpec>>,
}

/// What a name the model wrote stands for.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// A tool of exactly this name.
    Known(Arc<dyn Tool>),
    /// Not a tool's name, but clearly meant for this one.
    Repaired(Arc<dyn Tool>),
    /// No tool; the text for the model names what there is.
    Unknown(String),
}

impl ToolRegistry {
    /// The given tools in the given order, without the disabled ones. Of two with one name the first stays.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>, config: &ToolsConfig) -> Self {
        let mut kept: Vec<Arc<dyn Tool>> = Vec::with_capacity(tools.len());
        for tool in tools {
            let name = &tool.spec().name;
            let is_known = kept.iter().any(|other| other.spec().name == *name);
            if !is_known && !config.disabled.contains(name) {
                kept.push(tool);
            }
        }
        let specs = kept.iter().map(|tool| tool.spec().clone()).collect();
        Self { tools: kept, specs }
    }

    /// These tools and more behind them, without disabled ones and ones whose name is taken.
    #[must_use]
    pub fn with(&self, more: Vec<Arc<dyn Tool>>, config: &ToolsConfig) -> Self {
        Self::new([self.tools.clone(), more].concat(), config)
    }

    /// The tools themselves.
    #[must_use]
    pub fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    /// What the model is told, always in the same order.
    #[must_use]
    pub fn specs(&self) -> &[Arc<ToolSpec>] {
        &self.specs
    }

    /// The tool of exactly this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    /// The tool a model meant by a name that may be misspelled: other case, `-` or spaces, camel case, a
    /// `_tool` suffix, a prefix or quotes around it, or a likeness of at least 0.7 to a name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Lookup {
        if let Some(tool) = self.get(name) {
            return Lookup::Known(tool.clone());
        }
        let repaired = candidates(name).into_iter().find_map(|candidate| self.get(&candidate).cloned());
        let near = || nearest(&to_snake(strip_dirt(name)), self.names(), 0.7).and_then(|name| self.get(name).cloned());
        match repaired.or_else(near) {
            Some(tool) => Lookup::Repaired(tool),
            None => Lookup::Unknown(self.unknown(name)),
        }
    }

    /// What the model is told about a name that no tool has.
    #[must_use]
    pub fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.names().collect();
        format!("there is no tool {:?}; the tools are: {}", one_line(name, 80), names.join(", "))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.spec().name.as_str())
    }

    /// One line per tool for a person: its name and the first sentence of its description.
    #[must_use]
    pub fn catalogue(&self) -> String {
        let lines: Vec<String> = self
            .tools
            .iter()
            .map(|tool| {
                let spec = tool.spec();
                let sentence = spec.description.split_inclusive(". ").next().unwrap_or_default();
                format!("{}: {}", spec.name, sentence.trim_end())
            })
            .collect();
        lines.join("\n")
    }
}

/// Spellings to try, from the mildest repair to the boldest.
fn candidates(name: &str) -> Vec<String> {
    let bare = strip_dirt(name);
    let snake = to_snake(bare);
    let lower = bare.to_lowercase().replace(['-', ' ', '.'], "_");
    let mut candidates = vec![lower, snake];
    for index in 0..candidates.len() {
        let Some(candidate) = candidates.get(index).cloned() else { break };
        for suffix in ["_tool", "tool"] {
            candidates.extend(candidate.strip_suffix(suffix).map(str::to_owned));
        }
        for prefix in ["functions_", "tools_", "tool_", "default_api_"] {
            candidates.extend(candidate.strip_prefix(prefix).map(str::to_owned));
        }
    }
    candidates
}

/// The name without quotes, brackets, tags and what models append behind them.
fn strip_dirt(name: &str) -> &str {
    let is_dirt = |character: char| !character.is_alphanumeric() && character != '_';
    let name = name.trim_matches(is_dirt);
    let end = name.find(['<', '>', '"', '\'', '(', '{', '=', '\n']).unwrap_or(name.len());
    super::output::first_chars(name.get(..end).unwrap_or(name), 200).trim_matches(is_dirt)
}

fn to_snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for character in name.chars() {
        if character.is_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = character.is_lowercase() || character.is_numeric();
        match character {
            '-' | ' ' | '.' | ':' | '/' => snake.push('_'),
            other => snake.extend(other.to_lowercase()),
        }
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(disabled: &[&str]) -> ToolRegistry {
        let config =
            ToolsConfig { disabled: disabled.iter().map(|name| (*name).to_owned()).collect(), ..Default::default() };
        ToolRegistry::new(built_in(&Processes::default()), &config)
    }

    #[test]
    fn the_order_is_stable_and_disabled_tools_are_left_out() {
        let names: Vec<String> = registry(&["patch"]).specs().iter().map(|spec| spec.name.clone()).collect();
        assert_eq!(names, ["terminal", "process", "read_file", "write_file", "search_files", "web_fetch", "todo"]);
    }

    #[test]
    fn a_misspelled_name_finds_its_tool() {
        let registry = registry(&[]);
        let check = |name: &str, expected: &str| match registry.lookup(name) {
            Lookup::Repaired(tool) => assert_eq!(tool.spec().name, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        };
        check("Read_File", "read_file");
        check("read-file", "read_file");
        check("read file", "read_file");
        check("ReadFile", "read_file");
        check("readFile", "read_file");
        check("ReadFileTool", "read_file");
        check("patch_tool", "patch");
        check("\"terminal\"", "terminal");
        check("<terminal>", "terminal");
        check("terminal\" command=\"ls", "terminal");
        check("functions.terminal", "terminal");
        check("read_fil", "read_file");
        check("search_file", "search_files");
    }

    #[test]
    fn a_name_that_means_nothing_is_answered_with_the_names_there_are() {
        for name in ["", "launch_rocket", "\u{0}", &"x".repeat(100_000)] {
            let Lookup::Unknown(text) = registry(&[]).lookup(name) else { panic!("{name}") };
            assert!(text.contains("terminal, process, read_file, write_file"), "{text}");
            assert!(text.len() < 300);
        }
        assert!(matches!(registry(&[]).lookup("todo"), Lookup::Known(_)));
    }

    #[test]
    fn all_descriptions_together_leave_room_in_the_first_request() {
        let registry = registry(&[]);
        let specs = registry.specs();
        let bytes: usize =
            specs.iter().map(|spec| spec.name.len() + spec.description.len() + spec.parameters.to_string().len()).sum();
        assert!(bytes < 3_000, "{bytes}");
    }

    #[test]
    fn the_catalogue_has_a_line_per_tool() {
        let catalogue = registry(&[]).catalogue();
        assert_eq!(catalogue.lines().count(), 8);
        assert!(catalogue.contains("read_file: Read a text file or an image.\n"), "{catalogue}");
    }
}
