//! `search_files`: lines by regular expression, or file names by glob.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file::blocking;
use super::output::one_line;
use super::path::{ResolvedPath, resolve};
use super::search::{self, Search};
use super::{
    Access, CallPlan, Location, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec,
    args,
};

const DESCRIPTION: &str = "Search file contents by regular expression (pattern), or list files by name (only glob). \
Hidden, binary and git-ignored files are left out.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Regular expression, matched per line
    pattern: Option<String>,
    /// File or folder; default: the working folder
    path: Option<String>,
    /// Only these files, such as *.rs or src/**/*.ts
    glob: Option<String>,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("search_files", DESCRIPTION));

/// Searches files.
#[derive(Debug)]
pub struct SearchFiles;

impl Tool for SearchFiles {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let arguments: Arguments = args::parse(&SPEC, arguments)?;
            let pattern = arguments.pattern.as_deref().filter(|pattern| !pattern.is_empty());
            let glob = arguments.glob.as_deref().filter(|glob| !glob.is_empty());
            let path = resolve(arguments.path.as_deref().unwrap_or("."), &context.cwd)?;
            let what = match (pattern, glob) {
                (None, None) => return Err(ToolFailure::new("give a pattern to search for, or a glob to list files")),
                (Some(pattern), None) => format!("Search {}", one_line(pattern, 60)),
                (Some(pattern), Some(glob)) => format!("Search {} in {}", one_line(pattern, 60), one_line(glob, 40)),
                (None, Some(glob)) => format!("List {}", one_line(glob, 60)),
            };
            let search = Search {
                root: path.real.clone(),
                cwd: context.cwd.clone(),
                matcher: pattern.map(matcher).transpose()?,
                glob: glob.map(name_filter).transpose()?,
                max_chars: MAX_CHARS.min(context.limits.max_result_chars),
                state: context.state.clone(),
            };
            let plan = plan(&path, &what, &context.cwd);
            Ok(Prepared::new(plan, move |run| carry_out(search, run)))
        })
    }
}

/// Characters of one answer; a search that finds more is better narrowed.
const MAX_CHARS: usize = 30_000;

fn plan(path: &ResolvedPath, what: &str, cwd: &PathBuf) -> CallPlan {
    let place = if path.real == *cwd { String::new() } else { format!(" under {}", path.shown(cwd)) };
    CallPlan {
        title: format!("{what}{place}{}", path.link_note(cwd)),
        kind: ToolKind::Search,
        locations: vec![Location { path: path.real.clone(), line: None }],
        access: vec![Access::Read(path.real.clone())],
        preview: Vec::new(),
    }
}

async fn carry_out(search: Search, run: RunContext) -> ToolOutput {
    // The guard stops the search thread also when this future is dropped.
    let stop = run.cancel.child_token();
    let _guard = stop.clone().drop_guard();
    tokio::select! {
        biased;
        () = run.cancel.cancelled() => ToolOutput { is_cut_off: true, ..ToolOutput::error("cancelled") },
        result = blocking(move || search::search(&search, &stop)) => match result {
            Ok(text) => ToolOutput::text(text),
            Err(failure) => ToolOutput::error(failure.text),
        }
    }
}

/// Bytes a compiled expression may take; a larger one is a mistake or an attack.
const MAX_REGEX_BYTES: usize = 10 << 20;

fn matcher(pattern: &str) -> Result<RegexMatcher, ToolFailure> {
    RegexMatcherBuilder::new().size_limit(MAX_REGEX_BYTES).line_terminator(Some(b'\n')).build(pattern).map_err(
        |error| {
            let problem = error.to_string();
            ToolFailure::new(format!(
                "the pattern is not a regular expression for one line: {}; escape ( ) [ ] {{ }} . * + ? | ^ $ \\ to \
                 find them as they are",
                problem.trim()
            ))
        },
    )
}

/// A glob for a file's name, or with a slash for its path under the searched folder. `!` turns it round.
#[derive(Clone, Debug)]
pub struct NameFilter {
    glob: GlobMatcher,
    matches_path: bool,
    is_negated: bool,
}

impl NameFilter {
    /// Whether a file at this path (relative to the searched folder) is wanted.
    #[must_use]
    pub fn wants(&self, relative: &std::path::Path) -> bool {
        let subject = if self.matches_path { Some(relative.as_os_str()) } else { relative.file_name() };
        subject.is_some_and(|subject| self.glob.is_match(subject)) != self.is_negated
    }
}

fn name_filter(glob: &str) -> Result<NameFilter, ToolFailure> {
    let (is_negated, text) = match glob.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, glob),
    };
    let text = text.strip_prefix("./").unwrap_or(text).trim_start_matches('/');
    let matches_path = text.contains('/');
    let glob = GlobBuilder::new(text)
        .literal_separator(true)
        .build()
        .map_err(|error| ToolFailure::new(format!("the glob cannot be understood: {error}")))?;
    Ok(NameFilter { glob: glob.compile_matcher(), matches_path, is_negated })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_glob_without_slash_is_for_names_and_one_with_a_slash_for_paths() {
        let check = |glob: &str, path: &str, expected: bool| {
            assert_eq!(name_filter(glob).unwrap().wants(Path::new(path)), expected, "{glob} {path}");
        };
        check("*.rs", "a.rs", true);
        check("*.rs", "src/deep/a.rs", true);
        check("*.rs", "a.rsx", false);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "src/deep/a.rs", false);
        check("src/**/*.rs", "src/deep/a.rs", true);
        check("src/**/*.rs", "src/a.rs", true);
        check("*.{ts,tsx}", "x/a.tsx", true);
        check("!*.lock", "Cargo.lock", false);
        check("!*.lock", "Cargo.toml", true);
        check("./a.rs", "a.rs", true);
    }

    #[test]
    fn a_broken_pattern_or_glob_says_so() {
        assert!(matcher("fn main(").unwrap_err().text.contains("unclosed group"));
        assert!(matcher(r"a\nb").is_err());
        assert!(matcher(&format!("({}){{1000}}", "x{1000}")).is_err());
        assert!(name_filter("a[").unwrap_err().text.contains("glob"));
    }
}
