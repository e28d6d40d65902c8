//! The work behind `search_files`: walks a folder in sorted order and stops at its limits.
//!
//! One thread and sorted names, so that the same call gives the same bytes. Links are not followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::WalkBuilder;
use tokio_util::sync::CancellationToken;

use super::output::first_chars;
use super::path::shown;
use super::search_files::NameFilter;
use super::{SessionState, ToolFailure};

/// Matching lines that are shown.
const MAX_LINES: usize = 200;

/// Matching lines that are counted before the search ends.
const MAX_COUNTED: usize = 5_000;

/// File names that are shown.
const MAX_NAMES: usize = 500;

/// File names that are counted before the listing ends.
const MAX_NAMES_COUNTED: usize = 100_000;

/// Characters of one line that are shown, around the match.
const MAX_LINE_CHARS: usize = 300;

/// The longest list of ignored files that is read.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// Larger files are left out of a content search, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What to look for and where.
#[derive(Debug)]
pub struct Search {
    /// File or folder, resolved.
    pub root: PathBuf,
    /// Paths are shown relative to this folder.
    pub cwd: PathBuf,
    /// What a line must match; `None` lists names.
    pub matcher: Option<RegexMatcher>,
    /// Which files.
    pub glob: Option<NameFilter>,
    /// The most characters of the answer.
    pub max_chars: usize,
    /// Knows which files must not be looked into.
    pub state: Arc<SessionState>,
}

/// Carries a search out. Ends soon after `stop` fires.
///
/// # Errors
/// The root does not exist or cannot be searched.
pub fn search(search: &Search, stop: &CancellationToken) -> Result<String, ToolFailure> {
    let metadata = search
        .root
        .symlink_metadata()
        .map_err(|error| ToolFailure::new(format!("cannot search {}: {error}", shown(&search.root, &search.cwd))))?;
    if !metadata.is_dir() && !metadata.is_file() {
        let root = shown(&search.root, &search.cwd);
        return Err(ToolFailure::new(format!("{root} is neither a file nor a folder")));
    }
    let files = files(search, stop);
    Ok(match &search.matcher {
        Some(matcher) => lines(search, matcher, files, stop),
        None => names(search, files),
    })
}

/// The wanted files under the root in sorted order.
fn files<'a>(search: &'a Search, stop: &'a CancellationToken) -> impl Iterator<Item = PathBuf> + 'a {
    let can_ignore = !search.root.ancestors().any(has_unreadable_list);
    WalkBuilder::new(&search.root)
        .standard_filters(can_ignore)
        .hidden(true)
        .require_git(false)
        .filter_entry(|entry| {
            !entry.file_type().is_some_and(|kind| kind.is_dir()) || !has_unreadable_list(entry.path())
        })
        .sort_by_file_name(std::cmp::Ord::cmp)
        .build()
        .take_while(|_| !stop.is_cancelled())
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|file_type| file_type.is_file()))
        .map(ignore::DirEntry::into_path)
        .filter(|path| {
            let relative = path.strip_prefix(&search.root).ok().filter(|rest| !rest.as_os_str().is_empty());
            let relative = relative.or_else(|| path.file_name().map(Path::new)).unwrap_or(path);
            search.glob.as_ref().is_none_or(|glob| glob.wants(relative))
        })
}

/// True for a folder in which a list of ignored files is something else than a file of ordinary size. The walk reads
/// these lists whole as soon as it enters the folder, and a pipe never ends.
fn has_unreadable_list(folder: &Path) -> bool {
    [".gitignore", ".ignore", ".git/info/exclude"].iter().any(|name| {
        let metadata = std::fs::metadata(folder.join(name));
        metadata.is_ok_and(|found| !found.is_dir() && (!found.is_file() || found.len() > MAX_LIST_BYTES))
    })
}

fn names(search: &Search, files: impl Iterator<Item = PathBuf>) -> String {
    let mut text = String::new();
    let (mut count, mut listed) = (0, 0);
    for path in files.take(MAX_NAMES_COUNTED) {
        count += 1;
        let name = shown(&path, &search.cwd);
        if listed < MAX_NAMES && text.len() + name.len() < search.max_chars {
            text.push_str(&name);
            text.push('\n');
            listed += 1;
        }
    }
    match count {
        0 => "no files match".into(),
        _ if listed < count => {
            let more = if count == MAX_NAMES_COUNTED { "or more " } else { "" };
            format!("{text}[{listed} of {count} {more}files; narrow glob or path]")
        }
        _ => format!("{text}[{count} files]"),
    }
}

fn lines(
    search: &Search,
    matcher: &RegexMatcher,
    files: impl Iterator<Item = PathBuf>,
    stop: &CancellationToken,
) -> String {
    let mut searcher = SearcherBuilder::new().line_number(true).binary_detection(BinaryDetection::quit(0)).build();
    let mut found = Found { search, matcher, stop, path: String::new(), text: String::new(), shown: 0, count: 0 };
    let (mut n_files, mut too_large, mut hidden) = (0_usize, 0_usize, 0_usize);
    for path in files {
        // A file that was asked for by its own name went through the approval by that name.
        if path != search.root && search.state.is_hidden(&path) {
            hidden += 1;
            continue;
        }
        if path.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
            too_large += 1;
            continue;
        }
        found.path = shown(&path, &search.cwd);
        let before = found.count;
        // A file that cannot be read is like one that is not there: many are, in any tree.
        searcher.search_path(matcher, &path, &mut found).ok();
        n_files += usize::from(found.count > before);
        if found.count >= MAX_COUNTED {
            break;
        }
    }
    let mut skipped = String::new();
    if too_large > 0 {
        skipped.push_str(&format!("; {too_large} files over 64 MiB left out"));
    }
    if hidden > 0 {
        skipped.push_str(&format!("; {hidden} files that hold secrets or are denied left out"));
    }
    let Found { text, shown, count, .. } = found;
    match count {
        0 => format!("no matches{skipped}"),
        _ if count >= MAX_COUNTED => {
            format!("{text}[{shown} lines of {count} or more; narrow the pattern, glob or path{skipped}]")
        }
        _ if shown < count => {
            format!("{text}[{shown} of {count} lines in {n_files} files; narrow the pattern, glob or path{skipped}]")
        }
        _ => format!("{text}[{count} lines in {n_files} files{skipped}]"),
    }
}

/// Collects matching lines as `path:line:text`.
struct Found<'a> {
    search: &'a Search,
    matcher: &'a RegexMatcher,
    stop: &'a CancellationToken,
    path: String,
    text: String,
    shown: usize,
    count: usize,
}

impl Sink for Found<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _searcher: &Searcher, matched: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.count += 1;
        if self.shown < MAX_LINES {
            let line = excerpt(matched.bytes(), self.matcher);
            let entry = format!("{}:{}:{line}\n", self.path, matched.line_number().unwrap_or(0));
            if self.text.len() + entry.len() <= self.search.max_chars {
                self.text.push_str(&entry);
                self.shown += 1;
            }
        }
        Ok(self.count < MAX_COUNTED && !self.stop.is_cancelled())
    }
}

/// The line without its end; of a long one, what is around the match.
fn excerpt(line: &[u8], matcher: &RegexMatcher) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    if text.len() <= MAX_LINE_CHARS {
        return text.into();
    }
    let at = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let wanted_start = at.saturating_sub(MAX_LINE_CHARS / 3);
    let start = (wanted_start..text.len()).find(|start| text.is_char_boundary(*start)).unwrap_or(0);
    let rest = text.get(start..).unwrap_or(text);
    let kept = first_chars(rest, MAX_LINE_CHARS);
    let before = if start > 0 { "…" } else { "" };
    let after = if kept.len() < rest.len() { "…" } else { "" };
    format!("{before}{kept}{after}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use crate::tool::search_files::SearchFiles;
    use crate::tool::state::HiddenFiles;
    use crate::tool::testing::Workspace;

    fn workspace() -> Workspace {
        let workspace = Workspace::new();
        workspace.write("src/b.rs", "fn main() {}\nlet größe = 1;\n");
        workspace.write("src/a.rs", "// main\n");
        workspace.write("notes.md", "the main thing\r\n");
        workspace.write("bin", b"main\0main");
        workspace.write(".hidden", "main\n");
        workspace.write(".gitignore", "target/\n*.log\n");
        workspace.write("target/x.rs", "main\n");
        workspace.write("x.log", "main\n");
        std::fs::write(workspace.root.join("outside"), "main\n").unwrap();
        symlink(workspace.root.join("outside"), workspace.path("link")).unwrap();
        symlink(&workspace.root, workspace.path("up")).unwrap();
        workspace
    }

    async fn search(workspace: &Workspace, arguments: serde_json::Value) -> String {
        workspace.succeed(&SearchFiles, arguments).await
    }

    #[tokio::test]
    async fn lines_are_found_in_sorted_order_and_nothing_hidden_ignored_binary_or_linked_is() {
        let workspace = workspace();
        assert_eq!(
            search(&workspace, json!({"pattern": "main"})).await,
            "notes.md:1:the main thing\nsrc/a.rs:1:// main\nsrc/b.rs:1:fn main() {}\n[3 lines in 3 files]"
        );
        assert_eq!(
            search(&workspace, json!({"pattern": r"^fn \w+\(", "glob": "*.rs"})).await,
            "src/b.rs:1:fn main() {}\n[1 lines in 1 files]"
        );
        assert_eq!(
            search(&workspace, json!({"pattern": "größe", "path": "src"})).await,
            "src/b.rs:2:let größe = 1;\n[1 lines in 1 files]"
        );
        assert_eq!(
            search(&workspace, json!({"pattern": "main", "path": "x.log"})).await,
            "x.log:1:main\n[1 lines in 1 files]"
        );
        assert_eq!(search(&workspace, json!({"pattern": "nowhere to be found"})).await, "no matches");
    }

    #[tokio::test]
    async fn files_are_listed_by_name() {
        let workspace = workspace();
        assert_eq!(search(&workspace, json!({"glob": "*.rs"})).await, "src/a.rs\nsrc/b.rs\n[2 files]");
        assert_eq!(search(&workspace, json!({"glob": "*"})).await, "bin\nnotes.md\nsrc/a.rs\nsrc/b.rs\n[4 files]");
        assert_eq!(search(&workspace, json!({"glob": "*.py"})).await, "no files match");
    }

    #[tokio::test]
    async fn what_is_found_in_masses_is_counted_and_cut() {
        let workspace = Workspace::new();
        workspace.write("many", "hit\n".repeat(300));
        let text = search(&workspace, json!({"pattern": "hit"})).await;
        assert_eq!(text.lines().count(), 201);
        assert!(text.ends_with("[200 of 300 lines in 1 files; narrow the pattern, glob or path]"), "{text}");
        workspace.write("more", "hit\n".repeat(9000));
        let text = search(&workspace, json!({"pattern": "hit"})).await;
        assert!(text.ends_with("[200 lines of 5000 or more; narrow the pattern, glob or path]"), "{text}");
        workspace.write("wide", format!("{}hit{}\n", "ä".repeat(5000), "ö".repeat(5000)));
        let text = search(&workspace, json!({"pattern": "hit", "path": "wide"})).await;
        assert!(text.contains("äähitöö") && text.len() < 1000, "{text}");
    }

    #[tokio::test]
    async fn a_call_that_cannot_be_understood_says_why() {
        let workspace = workspace();
        let check = async |arguments: serde_json::Value, part: &str| {
            let text = workspace.fail(&SearchFiles, arguments).await;
            assert!(text.contains(part), "{text}");
        };
        check(json!({}), "give a pattern").await;
        check(json!({"pattern": "("}), "not a regular expression").await;
        check(json!({"pattern": "x", "path": "nowhere"}), "cannot search nowhere").await;
        check(json!({"pattern": "x", "path": "/dev/null"}), "neither a file nor a folder").await;
    }

    #[tokio::test]
    async fn a_list_of_ignored_files_that_never_ends_is_not_read() {
        let pipe = |path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        let workspace = Workspace::new();
        workspace.write("a.rs", "main\n");
        workspace.write("src/b.rs", "main\n");
        pipe(workspace.path("src/.gitignore"));
        let text = search(&workspace, json!({"pattern": "main"})).await;
        assert_eq!(text, "a.rs:1:main\n[1 lines in 1 files]", "the folder is left out");
        pipe(workspace.path(".ignore"));
        let text = search(&workspace, json!({"pattern": "main"})).await;
        assert_eq!(text, "a.rs:1:main\n[1 lines in 1 files]", "nothing is ignored");
    }

    #[tokio::test]
    async fn secrets_are_not_looked_into_unless_asked_for_by_name() {
        let workspace = Workspace::new();
        workspace.write("id.pem", "main\n");
        workspace.context.state.hide_from_search(HiddenFiles::new(|path| path.extension().is_some_and(|e| e == "pem")));
        let text = search(&workspace, json!({"pattern": "main"})).await;
        assert_eq!(text, "no matches; 1 files that hold secrets or are denied left out");
        let text = search(&workspace, json!({"pattern": "main", "path": "id.pem"})).await;
        assert_eq!(text, "id.pem:1:main\n[1 lines in 1 files]");
    }

    #[tokio::test]
    async fn a_cancelled_search_ends_as_cut_off() {
        let workspace = workspace();
        let prepared = workspace.prepare(&SearchFiles, json!({"pattern": "main"})).await.unwrap();
        let run = crate::tool::testing::run_context();
        run.cancel.cancel();
        assert!(prepared.run(run).await.is_cut_off);
    }
}
