//! Files on disk and in the client's editor, as the file tools see them.
//!
//! A resolved path holds no symbolic link, and nothing here follows one: a link that appears between the
//! approval and the work is an error, never a detour. Only regular files are opened. Inside the session's
//! folders text goes through the editor where it offers that, so that unsaved changes are seen and kept.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::path::is_inside;
use super::state::ContentHash;
use super::{Editor, ToolContext, ToolFailure};

/// The largest file that is edited, in bytes. Edits hold old text, new text and diff in memory.
pub const MAX_EDIT_BYTES: u64 = 16 << 20;

/// A text file as it was when it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// The text without byte order mark.
    pub text: String,
    /// Whether it began with a byte order mark.
    pub has_bom: bool,
    /// The hash of the bytes, mark included.
    pub hash: ContentHash,
}

impl TextFile {
    fn new(raw: String) -> Self {
        let hash = ContentHash::of(raw.as_bytes());
        match raw.strip_prefix('\u{feff}') {
            Some(text) => Self { text: text.into(), has_bom: true, hash },
            None => Self { text: raw, has_bom: false, hash },
        }
    }

    /// How the lines end.
    #[must_use]
    pub fn line_ending(&self) -> LineEnding {
        LineEnding::of(&self.text)
    }

    /// The whole new content: this file's byte order mark before the text.
    #[must_use]
    pub fn with_mark(&self, text: &str) -> String {
        if self.has_bom && !text.starts_with('\u{feff}') { format!("\u{feff}{text}") } else { text.into() }
    }
}

/// How the lines of a text end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnding {
    /// All with `\n`, or there is no line end.
    Lf,
    /// All with `\r\n`.
    Crlf,
    /// Some so, some so.
    Mixed,
}

impl LineEnding {
    /// Looks at every line of the text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let all = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        match text.matches("\r\n").count() {
            0 => Self::Lf,
            crlf if crlf == all => Self::Crlf,
            _ => Self::Mixed,
        }
    }
}

/// Turns every `\r\n` into `\n`.
#[must_use]
pub fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Turns every line end into `\r\n`.
#[must_use]
pub fn to_crlf(text: &str) -> String {
    to_lf(text).replace('\n', "\r\n")
}

/// The editor, when it reads this file for us.
#[must_use]
pub fn reading_editor<'a>(path: &Path, context: &'a ToolContext) -> Option<&'a Arc<dyn Editor>> {
    context.editor.as_ref().filter(|editor| editor.can_read() && is_inside(path, context))
}

/// The editor, when it writes this text to this file for us.
#[must_use]
pub fn writing_editor<'a>(path: &Path, text: &str, context: &'a ToolContext) -> Option<&'a Arc<dyn Editor>> {
    context.editor.as_ref().filter(|editor| editor.can_write(text) && is_inside(path, context))
}

/// The text of a file, `None` when there is no such file.
///
/// # Errors
/// What is there but is no text that can be edited, and what the editor or the system said.
pub async fn load_text(path: &Path, context: &ToolContext) -> Result<Option<TextFile>, ToolFailure> {
    let owned = path.to_path_buf();
    let on_disk = blocking(move || load_local(&owned)).await?;
    match reading_editor(path, context) {
        Some(editor) if on_disk.is_some() => Ok(Some(TextFile::new(editor.read_text(path.to_path_buf()).await?))),
        _ => Ok(on_disk),
    }
}

fn load_local(path: &Path) -> Result<Option<TextFile>, ToolFailure> {
    let Some(file) = open_regular(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(MAX_EDIT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ToolFailure::new(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() as u64 > MAX_EDIT_BYTES {
        let limit = MAX_EDIT_BYTES >> 20;
        return Err(ToolFailure::new(format!("{} is larger than {limit} MiB; edit it with a command", path.display())));
    }
    if memchr::memchr(0, &bytes).is_some() {
        return Err(ToolFailure::new(format!("{} is a binary file and cannot be edited as text", path.display())));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(TextFile::new(text))),
        Err(_) => Err(ToolFailure::new(format!("{} is not UTF-8 text; editing it would damage it", path.display()))),
    }
}

/// Opens a regular file for reading, `None` when there is none at this path.
///
/// # Errors
/// Folders, devices, pipes, sockets, the files of processes, links, and what the system said.
pub fn open_regular(path: &Path) -> Result<Option<File>, ToolFailure> {
    refuse_process_files(path)?;
    match path.symlink_metadata() {
        Ok(metadata) => refuse_special(path, FileType::from_raw_mode(mode_of(&metadata)))?,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(ToolFailure::new(format!("cannot open {}: {error}", path.display()))),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open_without_links(path, flags) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(ToolFailure::new(open_problem(path, errno))),
    };
    let stat = rustix::fs::fstat(&file).map_err(|errno| ToolFailure::new(open_problem(path, errno)))?;
    refuse_special(path, FileType::from_raw_mode(stat.st_mode))?;
    Ok(Some(file))
}

fn mode_of(metadata: &std::fs::Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    metadata.mode()
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Opens a path no part of which may be a symbolic link. Where the kernel lacks `openat2` only the last
/// part is checked.
pub(super) fn open_without_links(path: &Path, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => {
            rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()).map(File::from)
        }
        result => result.map(File::from),
    }
}

pub(super) fn open_problem(path: &Path, errno: Errno) -> String {
    if errno == Errno::LOOP {
        return format!("{} became a link after it was checked; it was not touched", path.display());
    }
    format!("cannot open {}: {}", path.display(), std::io::Error::from(errno))
}

/// Says no to everything but regular files.
pub(super) fn refuse_special(path: &Path, file_type: FileType) -> Result<(), ToolFailure> {
    let what = match file_type {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a folder",
        FileType::Symlink => "a link that appeared after the path was checked",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "not a regular file",
    };
    let hint = if file_type == FileType::Directory {
        "; to list it use search_files with this path and glob \"*\""
    } else {
        ""
    };
    Err(ToolFailure::new(format!("{} is {what}, not a file{hint}", path.display())))
}

/// Files under `/proc/PID` show the memory and environment of processes, this daemon's keys among them.
fn refuse_process_files(path: &Path) -> Result<(), ToolFailure> {
    let inside = path.strip_prefix("/proc").ok().and_then(|rest| rest.components().next());
    let names_process = inside.is_some_and(|first| {
        first.as_os_str().as_encoded_bytes().iter().all(u8::is_ascii_digit) || first.as_os_str() == "kcore"
    });
    if names_process {
        return Err(ToolFailure::new(format!("{} belongs to a process and is never read", path.display())));
    }
    Ok(())
}

/// Runs file work off the async threads.
pub(super) async fn blocking<T, F>(work: F) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolFailure> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(ToolFailure::new("the file work was given up because the daemon is shutting down")),
    }
}
