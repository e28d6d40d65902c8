//! `read_file`: a file's text by line range, or a picture.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::file::{blocking, open_regular, reading_editor};
use super::file_kind::FileKind;
use super::line_window::{LineWindow, Lines};
use super::path::{ResolvedPath, resolve};
use super::state::ContentHash;
use super::{
    Access, CallPlan, Location, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec,
    args,
};
use crate::likeness::likeness;
use crate::message::Part;

const DESCRIPTION: &str = "Read a text file or an image. Each line is shown as its number, a tab, its text. \
Shows 2000 lines at most; a note at the end says where to go on.";

/// Lines of one answer when the call names no limit.
const DEFAULT_LINES: u64 = 2000;

/// Characters of one answer; more crowds out the conversation, and the rest is one call away.
const MAX_CHARS: usize = 50_000;

/// The largest picture, in bytes: 5 MB in base64, the smallest limit among the providers.
const MAX_IMAGE_BYTES: u64 = 3_932_160;

/// The largest file that is read through for a range of lines, in bytes.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// Bytes looked at to tell text from binary.
const SNIFF_BYTES: usize = 8192;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    path: String,
    /// First line, from 1
    line: Option<u64>,
    /// Most lines
    limit: Option<u64>,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("read_file", DESCRIPTION));

/// Reads files.
#[derive(Debug)]
pub struct ReadFile;

impl Tool for ReadFile {
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
            let path = resolve(&arguments.path, &context.cwd)?;
            let plan = plan(&path, &arguments, context);
            let range = Range {
                first: arguments.line.unwrap_or(1).max(1),
                count: arguments.limit.unwrap_or(DEFAULT_LINES).max(1),
                max_chars: MAX_CHARS.min(context.limits.max_result_chars),
            };
            let context = context.clone();
            // Nothing of the file is looked at before the call is approved, not even whether it is there.
            Ok(Prepared::new(plan, move |run: RunContext| async move {
                tokio::select! {
                    biased;
                    () = run.cancel.cancelled() => ToolOutput { is_cut_off: true, ..ToolOutput::error("cancelled") },
                    result = read(&path, range, &context, run.cancel.clone()) => {
                        result.unwrap_or_else(|failure| ToolOutput::error(failure.text))
                    }
                }
            }))
        })
    }
}

fn plan(path: &ResolvedPath, arguments: &Arguments, context: &ToolContext) -> CallPlan {
    let first = arguments.line.unwrap_or(1).max(1);
    let range = match (arguments.line, arguments.limit) {
        (None, None) => String::new(),
        (_, Some(limit)) => format!(", lines {first}-{}", first.saturating_add(limit.max(1)) - 1),
        (Some(_), None) => format!(", from line {first}"),
    };
    CallPlan {
        title: format!("Read {}{}{range}", path.shown(&context.cwd), path.link_note(&context.cwd)),
        kind: ToolKind::Read,
        locations: vec![Location {
            path: path.real.clone(),
            line: arguments.line.and_then(|line| u32::try_from(line).ok()),
        }],
        access: vec![Access::Read(path.real.clone())],
        preview: Vec::new(),
    }
}

/// The wanted part of a file.
#[derive(Clone, Copy)]
struct Range {
    first: u64,
    count: u64,
    max_chars: usize,
}

impl Range {
    fn window(self) -> LineWindow {
        LineWindow::new(self.first, self.count, self.max_chars)
    }
}

/// What a file turned out to hold.
enum Content {
    Missing,
    /// Text that the editor is to be asked for.
    Unread,
    Text(Lines, ContentHash, bool),
    Image(&'static str, Vec<u8>),
}

async fn read(
    path: &ResolvedPath,
    range: Range,
    context: &ToolContext,
    cancel: CancellationToken,
) -> Result<ToolOutput, ToolFailure> {
    let shown = path.shown(&context.cwd);
    let editor = reading_editor(&path.real, context);
    let (real, asks_editor) = (path.real.clone(), editor.is_some());
    let mut content = blocking(move || look(&real, range, asks_editor, &cancel)).await?;
    match (editor, &content) {
        (Some(editor), Content::Unread) => content = lines_of(&editor.read_text(path.real.clone()).await?, range),
        // A file that was never saved is known to the editor only.
        (Some(editor), Content::Missing) => {
            if let Ok(text) = editor.read_text(path.real.clone()).await {
                content = lines_of(&text, range);
            }
        }
        _ => {}
    }
    match content {
        Content::Text(lines, hash, has_bom) => {
            context.state.saw_file(&path.real, hash);
            Ok(describe(&shown, &lines, has_bom))
        }
        Content::Image(mime_type, bytes) => Ok(picture(&shown, mime_type, &bytes)),
        Content::Missing | Content::Unread => {
            let real = path.real.clone();
            Err(blocking(move || Ok(missing(&shown, &real))).await?)
        }
    }
}

fn lines_of(raw: &str, range: Range) -> Content {
    let text = raw.strip_prefix('\u{feff}');
    let mut window = range.window();
    window.push(text.unwrap_or(raw).as_bytes());
    Content::Text(window.finish(), ContentHash::of(raw.as_bytes()), text.is_some())
}

/// Looks at the file on disk, and reads it unless the editor has the better text.
fn look(path: &Path, range: Range, asks_editor: bool, cancel: &CancellationToken) -> Result<Content, ToolFailure> {
    let failure = |error: &dyn std::fmt::Display| ToolFailure::new(format!("cannot read {}: {error}", path.display()));
    let Some(mut file) = open_regular(path)? else { return Ok(Content::Missing) };
    let size = file.metadata().map_err(|error| failure(&error))?.len();
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    file.by_ref().take(SNIFF_BYTES as u64).read_to_end(&mut head).map_err(|error| failure(&error))?;
    match FileKind::of(&head) {
        FileKind::Image(mime_type) if size <= MAX_IMAGE_BYTES => {
            let mut bytes = head;
            file.take(MAX_IMAGE_BYTES).read_to_end(&mut bytes).map_err(|error| failure(&error))?;
            Ok(Content::Image(mime_type, bytes))
        }
        FileKind::Image(mime_type) => {
            Err(failure(&format!("the {mime_type} has {size} bytes, the limit is {MAX_IMAGE_BYTES}; scale it down")))
        }
        FileKind::Binary(what) => Err(failure(&format!("it is not text but {what} of {size} bytes"))),
        FileKind::Text if size > MAX_FILE_BYTES => {
            Err(failure(&format!("it has {size} bytes; use a command such as sed -n or tail for a part of it")))
        }
        FileKind::Text if asks_editor => Ok(Content::Unread),
        FileKind::Text => stream(file, range, cancel).map_err(|error| failure(&error)),
    }
}

/// Reads the file once from the start: for the wanted lines, the line count and the hash of the whole.
fn stream(mut file: File, range: Range, cancel: &CancellationToken) -> std::io::Result<Content> {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    file.rewind()?;
    let (mut window, mut hasher) = (range.window(), Sha256::new());
    let mut buffer = vec![0; 64 << 10];
    let (mut has_bom, mut is_start) = (false, true);
    // A file that grows while it is read must not keep us here for ever.
    let mut file = file.take(MAX_FILE_BYTES);
    loop {
        let count = file.read(&mut buffer)?;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else { break };
        if cancel.is_cancelled() {
            return Err(std::io::Error::other("cancelled"));
        }
        hasher.update(piece);
        has_bom |= is_start && piece.starts_with(BOM);
        let text = if is_start { piece.strip_prefix(BOM).unwrap_or(piece) } else { piece };
        window.push(text);
        is_start = false;
    }
    Ok(Content::Text(window.finish(), ContentHash::from_hasher(hasher), has_bom))
}

fn describe(shown: &str, lines: &Lines, has_bom: bool) -> ToolOutput {
    if lines.total == 0 {
        return ToolOutput::text(format!("{shown} is an empty file"));
    }
    if lines.shown == 0 {
        return ToolOutput::error(format!(
            "{shown} has only {} lines; line {} is behind its end",
            lines.total, lines.first
        ));
    }
    let mut notes = Vec::new();
    let last = lines.first + lines.shown - 1;
    if last < lines.total {
        notes.push(format!("lines {}-{last} of {}; go on with line {}", lines.first, lines.total, last + 1));
    } else if lines.first > 1 {
        notes.push(format!("lines {}-{last} of {}", lines.first, lines.total));
    }
    if lines.crlf_lines > 0 && lines.crlf_lines + u64::from(lines.ends_open) >= lines.total {
        notes.push("lines end with CRLF".into());
    } else if lines.crlf_lines > 0 {
        notes.push(format!("{} lines end with CRLF, the others with LF", lines.crlf_lines));
    }
    if has_bom {
        notes.push("begins with a byte order mark".into());
    }
    if lines.ends_open && last == lines.total {
        notes.push("no line end at the end of the file".into());
    }
    if lines.has_invalid {
        notes.push("bytes that are not UTF-8 are shown as \u{fffd}".into());
    }
    let text = &lines.text;
    ToolOutput::text(if notes.is_empty() { text.clone() } else { format!("{text}\n[{}]", notes.join("; ")) })
}

fn picture(shown: &str, mime_type: &str, bytes: &[u8]) -> ToolOutput {
    let image = Part::Image { mime_type: mime_type.into(), data: STANDARD.encode(bytes) };
    ToolOutput {
        content: vec![Part::text(format!("{shown} ({mime_type}, {} bytes)", bytes.len())), image],
        ..ToolOutput::default()
    }
}

/// Says what is missing, and which names nearby could have been meant.
fn missing(shown: &str, path: &Path) -> ToolFailure {
    let mut text = format!("{shown} does not exist");
    let existing = path.ancestors().skip(1).find(|folder| folder.is_dir());
    let (Some(folder), Some(name)) = (existing, path.file_name()) else { return ToolFailure::new(text) };
    if Some(folder) != path.parent() {
        text.push_str(&format!("; the deepest existing folder is {}", folder.display()));
        return ToolFailure::new(text);
    }
    let name = name.to_string_lossy();
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut near: Vec<(f32, String)> = names
        .take(MAX_NAMES_COMPARED)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .map(|other| (likeness(&name, &other), other))
        .filter(|(ratio, _)| *ratio >= 0.6)
        .collect();
    near.sort_by(|left, right| right.0.total_cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
    near.truncate(3);
    if !near.is_empty() {
        let near: Vec<String> = near.into_iter().map(|(_, name)| name).collect();
        text.push_str(&format!("; in the same folder: {}", near.join(", ")));
    }
    ToolFailure::new(text)
}

/// Names of a folder that are compared with a misspelled one.
const MAX_NAMES_COMPARED: usize = 2000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::tool::testing::{FakeEditor, Workspace, text};

    async fn read(workspace: &Workspace, arguments: Value) -> String {
        workspace.succeed(&ReadFile, arguments).await
    }

    #[tokio::test]
    async fn lines_are_numbered_and_a_part_says_where_to_go_on() {
        let workspace = Workspace::new();
        workspace.write("a.txt", "one\ntwo\nthree\n");
        assert_eq!(read(&workspace, json!({"path": "a.txt"})).await, "1\tone\n2\ttwo\n3\tthree");
        let part = read(&workspace, json!({"path": "a.txt", "line": 2, "limit": 1})).await;
        assert_eq!(part, "2\ttwo\n[lines 2-2 of 3; go on with line 3]");
        let rest = read(&workspace, json!({"path": "a.txt", "line": "3", "limit": 0})).await;
        assert_eq!(rest, "3\tthree\n[lines 3-3 of 3]");
        let behind = workspace.fail(&ReadFile, json!({"path": "a.txt", "line": 9})).await;
        assert_eq!(behind, "a.txt has only 3 lines; line 9 is behind its end");
        workspace.write("long.txt", "x\n".repeat(5000));
        let long = read(&workspace, json!({"path": "long.txt"})).await;
        assert!(long.ends_with("[lines 1-2000 of 5000; go on with line 2001]"), "{long}");
        workspace.write("wide.txt", format!("{}\n", "y".repeat(1000)).repeat(100));
        let wide = read(&workspace, json!({"path": "wide.txt"})).await;
        assert!(wide.ends_with("[lines 1-49 of 100; go on with line 50]"), "{}", &wide[wide.len() - 100..]);
    }

    #[tokio::test]
    async fn what_is_peculiar_about_a_text_is_noted() {
        let workspace = Workspace::new();
        let check = async |content: &[u8], expected: &str| {
            workspace.write("f", content);
            assert_eq!(read(&workspace, json!({"path": "f"})).await, expected);
        };
        check(b"", "f is an empty file").await;
        check(b"a\r\nb\r\n", "1\ta\n2\tb\n[lines end with CRLF]").await;
        check(b"a\r\nb\n", "1\ta\n2\tb\n[1 lines end with CRLF, the others with LF]").await;
        check(b"\xef\xbb\xbfa\n", "1\ta\n[begins with a byte order mark]").await;
        check(b"a", "1\ta\n[no line end at the end of the file]").await;
        check(b"gr\xfc\xdfe\n", "1\tgr\u{fffd}\u{fffd}e\n[bytes that are not UTF-8 are shown as \u{fffd}]").await;
        check("grüße 👋\n".as_bytes(), "1\tgrüße 👋").await;
    }

    #[tokio::test]
    async fn what_is_no_text_is_refused_with_a_reason() {
        let workspace = Workspace::new();
        workspace.write("bin", b"\x7fELF\0\0");
        workspace.write("main.rs", "");
        std::fs::create_dir(workspace.path("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            workspace.path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        symlink("/dev/zero", workspace.path("zero")).unwrap();
        symlink("/proc/self/environ", workspace.path("environ")).unwrap();
        let check = async |path: &str, part: &str| {
            let text = workspace.fail(&ReadFile, json!({"path": path})).await;
            assert!(text.contains(part), "{text}");
        };
        check("bin", "it is not text but an ELF binary of 6 bytes").await;
        check("folder", "is a folder, not a file; to list it use search_files").await;
        check("pipe", "is a named pipe").await;
        check("zero", "/dev/zero is a device").await;
        check("environ", "belongs to a process").await;
        check("main.r", "does not exist; in the same folder: main.rs").await;
        check("no/such/file", "does not exist; the deepest existing folder is").await;
        check("bin/x", "does not exist").await;
    }

    #[tokio::test]
    async fn a_picture_is_given_as_a_picture() {
        let workspace = Workspace::new();
        workspace.write("a.png", b"\x89PNG\r\n\x1a\nrest");
        let output = workspace.call(&ReadFile, json!({"path": "a.png"})).await;
        assert_eq!(text(&output), "a.png (image/png, 12 bytes)");
        let Part::Image { mime_type, data } = &output.content[1] else { panic!("{output:?}") };
        assert_eq!((mime_type.as_str(), data.as_str()), ("image/png", "iVBORw0KGgpyZXN0"));
    }

    #[tokio::test]
    async fn a_link_is_judged_and_shown_by_its_target() {
        let workspace = Workspace::new();
        let secret = workspace.root.join("secret");
        std::fs::write(&secret, "s").unwrap();
        symlink(&secret, workspace.path("link")).unwrap();
        let prepared = workspace.prepare(&ReadFile, json!({"path": "link"})).await.unwrap();
        assert_eq!(prepared.plan.access, [Access::Read(secret.clone())]);
        assert_eq!(prepared.plan.title, format!("Read {0} (link to {0})", secret.display()));
        // A link planted after the approval leads nowhere.
        let prepared = workspace.prepare(&ReadFile, json!({"path": "later"})).await.unwrap();
        assert_eq!(prepared.plan.access, [Access::Read(workspace.path("later"))]);
        symlink(&secret, workspace.path("later")).unwrap();
        let output = prepared.run(crate::tool::testing::run_context()).await;
        assert!(output.is_error && text(&output).contains("link that appeared"), "{output:?}");
        // The same by a folder on the way.
        let prepared = workspace.prepare(&ReadFile, json!({"path": "folder/secret"})).await.unwrap();
        symlink(&workspace.root, workspace.path("folder")).unwrap();
        let output = prepared.run(crate::tool::testing::run_context()).await;
        assert!(output.is_error && text(&output).contains("became a link"), "{output:?}");
    }

    #[tokio::test]
    async fn unsaved_text_of_the_editor_is_what_is_read() {
        let mut workspace = Workspace::new();
        let path = workspace.write("a.txt", "disk\n");
        workspace.context.editor = Some(FakeEditor::holding(&path, "unsaved\nsecond\n"));
        assert_eq!(read(&workspace, json!({"path": "a.txt"})).await, "1\tunsaved\n2\tsecond");
        assert_eq!(read(&workspace, json!({"path": "a.txt", "line": 2})).await, "2\tsecond\n[lines 2-2 of 2]");
        let version = workspace.context.state.seen_version(&path);
        assert_eq!(version, Some(ContentHash::of(b"unsaved\nsecond\n")));
        // What the editor cannot give is an error; what lies outside its folders is ours to read.
        workspace.write("b.txt", "disk");
        let text = workspace.fail(&ReadFile, json!({"path": "b.txt"})).await;
        assert_eq!(text, "the editor does not know this file");
        std::fs::write(workspace.root.join("outside"), "o\n").unwrap();
        assert_eq!(read(&workspace, json!({"path": "../outside"})).await, "1\to");
        // A file that was never saved.
        workspace.context.editor = Some(FakeEditor::holding(&workspace.path("new"), "fresh\n"));
        assert_eq!(read(&workspace, json!({"path": "new"})).await, "1\tfresh");
    }

    #[tokio::test]
    async fn the_version_the_model_saw_is_remembered_by_its_bytes() {
        let workspace = Workspace::new();
        let content = format!("\u{feff}{}", "line\r\n".repeat(100_000));
        let path = workspace.write("a", &content);
        read(&workspace, json!({"path": "a", "limit": 1})).await;
        assert_eq!(workspace.context.state.seen_version(&path), Some(ContentHash::of(content.as_bytes())));
        let same = load(&workspace, &path).await;
        assert_eq!(Some(same), workspace.context.state.seen_version(&path));
    }

    async fn load(workspace: &Workspace, path: &Path) -> ContentHash {
        crate::tool::file::load_text(path, &workspace.context).await.unwrap().unwrap().hash
    }
}
