//! Results that are too long for the model, kept whole in files that it can read.
//!
//! The files lie in the home folder, one folder per session, for the user alone. They are bounded each, all
//! together and in age; whoever makes a new one clears away what is too old or too much.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::output::clean_for_model;

/// Bytes of one file; what comes behind them is dropped, and said so.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Bytes of all files together.
const MAX_TOTAL_BYTES: u64 = 256 << 20;

/// How long a file is kept.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Files looked at when clearing away.
const MAX_SEEN: usize = 10_000;

/// Bytes of a line that are gathered before it is cleaned; escape sequences do not cross lines.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Where the long results of one session go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    root: PathBuf,
    folder: PathBuf,
}

impl Spill {
    /// The place of a session. Nothing is made yet.
    #[must_use]
    pub fn new(turnd_home: &Path, session_id: &str) -> Self {
        let root = turnd_home.join("spill");
        let name: String = session_id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        Self { folder: root.join(if name.is_empty() { "unnamed" } else { &name }), root }
    }

    /// The session's folder, which may not be there yet.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes everything that was kept for the session.
    pub fn remove(&self) {
        // What cannot be removed now goes with its age.
        fs::remove_dir_all(&self.folder).ok();
    }

    /// Keeps a text whole. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, text: &str) -> std::io::Result<Kept> {
        let mut file = self.create()?;
        file.push(text.as_bytes());
        file.finish()
    }

    /// Begins a file for output that is still coming. Blocks.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(&self) -> std::io::Result<SpillFile> {
        clear_away(&self.root);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join(format!("{}.txt", uuid::Uuid::now_v7().simple()));
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        Ok(SpillFile { file, path, room: MAX_FILE_BYTES, line: Vec::new(), total: 0, problem: None })
    }
}

/// A result that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where.
    pub path: PathBuf,
    /// True when its end did not fit.
    pub is_cut: bool,
}

impl Kept {
    /// What the model is told.
    #[must_use]
    pub fn note(&self) -> String {
        let what = if self.is_cut { "its beginning is" } else { "the whole is" };
        format!("{what} in {}, use read_file", self.path.display())
    }
}

/// A file that output is written to as it comes.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    path: PathBuf,
    room: u64,
    line: Vec<u8>,
    total: u64,
    problem: Option<std::io::Error>,
}

impl SpillFile {
    /// The next piece. Writes to the page cache, at most 16 MiB in all, so it does not hold a
    /// task up for long; a failure is told at the end.
    pub fn push(&mut self, piece: &[u8]) {
        self.total = self.total.saturating_add(piece.len() as u64);
        if self.room == 0 {
            return;
        }
        self.line.extend_from_slice(piece);
        let end = match self.line.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if self.line.len() > MAX_LINE_BYTES => self.line.len(),
            None => return,
        };
        let rest = self.line.split_off(end);
        let lines = std::mem::replace(&mut self.line, rest);
        self.write(&lines);
    }

    fn write(&mut self, lines: &[u8]) {
        let text = clean_for_model(lines);
        let fits = usize::try_from(self.room).unwrap_or(usize::MAX).min(text.len());
        let kept = text.get(..text.floor_char_boundary(fits)).unwrap_or_default();
        // What leaves nothing behind when it is cleaned, as NULs do, takes time all the same.
        let taken = kept.len().max(lines.len()) as u64;
        self.room = if kept.len() < text.len() { 0 } else { self.room.saturating_sub(taken) };
        if let Err(problem) = self.file.write_all(kept.as_bytes()) {
            self.room = 0;
            self.problem.get_or_insert(problem);
        }
    }

    /// Ends the file. One that could not be written is removed.
    ///
    /// # Errors
    /// Why it could not be written.
    pub fn finish(mut self) -> std::io::Result<Kept> {
        let rest = std::mem::take(&mut self.line);
        if self.room > 0 {
            self.write(&rest);
        }
        match self.problem {
            None => Ok(Kept { path: self.path, is_cut: self.room == 0 }),
            Some(problem) => {
                fs::remove_file(&self.path).ok();
                Err(problem)
            }
        }
    }
}

/// Removes what is too old, and the oldest of what is too much.
fn clear_away(root: &Path) {
    let mut files = Vec::new();
    for folder in fs::read_dir(root).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten().take(MAX_SEEN) {
            if let Ok(metadata) = file.metadata()
                && let Ok(modified) = metadata.modified()
            {
                files.push((modified, metadata.len(), file.path()));
            }
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (modified, bytes, path) in files {
        let is_old = modified.elapsed().is_ok_and(|age| age > MAX_AGE);
        if !is_old && total <= MAX_TOTAL_BYTES {
            break;
        }
        if fs::remove_file(&path).is_ok() {
            total = total.saturating_sub(bytes);
        }
        // The folder goes with its last file.
        path.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_long_result_is_kept_whole_plain_and_private() {
        let home = tempfile::tempdir().unwrap();
        let spill = Spill::new(home.path(), "../s/1");
        assert_eq!(spill.folder(), home.path().join("spill/s1"));
        let mut file = spill.create().unwrap();
        for piece in [b"\x1b[3".as_slice(), b"1mred\x1b[0m\nhalf", b" line \xff\nend"] {
            file.push(piece);
        }
        let kept = file.finish().unwrap();
        assert_eq!(fs::read_to_string(&kept.path).unwrap(), "red\nhalf line \u{fffd}\nend");
        assert!(!kept.is_cut);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&kept.path), mode(spill.folder())), (0o600, 0o700));
        spill.remove();
        assert!(!kept.path.exists());
    }

    #[test]
    fn no_output_fills_the_disk() {
        let home = tempfile::tempdir().unwrap();
        let mut file = Spill::new(home.path(), "s").create().unwrap();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            file.push(&piece);
        }
        let kept = file.finish().unwrap();
        assert!(kept.is_cut && kept.note().contains("its beginning"));
        assert_eq!(fs::metadata(&kept.path).unwrap().len(), MAX_FILE_BYTES);
    }

    #[test]
    fn output_of_nothing_but_zeros_ends_too() {
        let home = tempfile::tempdir().unwrap();
        let mut file = Spill::new(home.path(), "s").create().unwrap();
        let piece = vec![0; 1 << 20];
        for _ in 0..17 {
            file.push(&piece);
        }
        assert_eq!(file.room, 0);
        assert!(file.finish().unwrap().is_cut);
    }

    #[test]
    fn what_is_too_old_or_too_much_is_cleared_away() {
        let home = tempfile::tempdir().unwrap();
        let (old, spill) = (Spill::new(home.path(), "old"), Spill::new(home.path(), "new"));
        let past = |kept: &Kept, days: u64| {
            let file = OpenOptions::new().write(true).open(&kept.path).unwrap();
            let now = fs::metadata(&kept.path).unwrap().modified().unwrap();
            file.set_modified(now - Duration::from_secs(days * 24 * 3600)).unwrap();
            file
        };
        let stale = old.keep("old").unwrap();
        past(&stale, 8);
        let large = old.keep("large").unwrap();
        past(&large, 2).set_len(MAX_TOTAL_BYTES + 1).unwrap();
        past(&large, 2);
        let fresh = spill.keep("fresh").unwrap();
        assert!(!stale.path.exists() && !large.path.exists() && fresh.path.exists());
    }
}
