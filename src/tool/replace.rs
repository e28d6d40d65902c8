//! Puts a new text in the place of a file, or makes a new file: all of it or nothing of it.
//!
//! The text is written to a file beside the old one, flushed, given the old owner and permissions and renamed
//! over it. Extended attributes and access lists are not carried over. Where the folder allows no new file or
//! the file is a mount point, the old file is overwritten in place.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::file::{self, blocking};
use super::state::ContentHash;
use super::{ToolContext, ToolFailure};

/// Writes `content` to the file, through the editor where it does that, provided that the file still is what
/// it was when the call was prepared (`before`; `None`: there was none). Returns remarks for the model.
///
/// # Errors
/// The file changed, or what the editor or the system said. The old file is whole then.
pub async fn store_text(
    path: &Path,
    content: String,
    before: Option<ContentHash>,
    context: &ToolContext,
) -> Result<Vec<String>, ToolFailure> {
    let now = file::load_text(path, context).await?.map(|file| file.hash);
    if now != before {
        return Err(changed(path));
    }
    let hash = ContentHash::of(content.as_bytes());
    let owned = path.to_path_buf();
    let notes = match file::writing_editor(path, &content, context) {
        Some(editor) => {
            blocking(move || make_parent(&owned)).await?;
            editor.write_text(path.to_path_buf(), content).await?;
            Vec::new()
        }
        None => {
            // The editor's text may differ from the disk's; then only the editor's was compared.
            let on_disk = if file::reading_editor(path, context).is_some() { Expected::Any } else { before.into() };
            let is_editors = file::writing_editor(path, "", context).is_some();
            let mut notes = blocking(move || replace(&owned, content.as_bytes(), on_disk)).await?;
            if is_editors {
                notes.push("written to the disk, because it is too long for a message to the editor".into());
            }
            notes
        }
    };
    context.state.saw_file(path, hash);
    Ok(notes)
}

fn changed(path: &Path) -> ToolFailure {
    ToolFailure::new(format!(
        "{} changed after this call was prepared, so nothing was written; read it again",
        path.display()
    ))
}

#[derive(Clone, Copy)]
enum Expected {
    Any,
    Missing,
    Version(ContentHash),
}

impl From<Option<ContentHash>> for Expected {
    fn from(before: Option<ContentHash>) -> Self {
        before.map_or(Self::Missing, Self::Version)
    }
}

fn make_parent(path: &Path) -> Result<(), ToolFailure> {
    let Some(parent) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(parent)
        .map_err(|error| ToolFailure::new(format!("cannot make the folder {}: {error}", parent.display())))
}

fn replace(path: &Path, content: &[u8], expected: Expected) -> Result<Vec<String>, ToolFailure> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ToolFailure::new(format!("{} is a folder, not a file", path.display())));
    };
    make_parent(path)?;
    let folder = file::open_without_links(parent, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|errno| ToolFailure::new(file::open_problem(parent, errno)))?;
    let target = Target { path, folder, name: Path::new(name) };
    let old = target.stat()?;
    if let Some(old) = &old {
        file::refuse_special(path, FileType::from_raw_mode(old.st_mode))?;
        target.refuse_read_only()?;
    }
    let mut notes = Vec::new();
    let in_place = match target.write_beside(content, old.as_ref()) {
        Ok(temporary) => {
            target.verify(old.as_ref(), expected)?;
            temporary.settle(old.is_some())?
        }
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if old.is_some() => true,
        Err(errno) => return Err(target.problem("write", errno)),
    };
    if in_place {
        target.verify(old.as_ref(), expected)?;
        target.overwrite(content)?;
        notes.push("written in place, because the file cannot be replaced".into());
    } else if let Some(old) = old
        && old.st_nlink > 1
    {
        notes.push(format!("the file's {} other hard links keep the old text", old.st_nlink - 1));
    }
    Ok(notes)
}

/// A name in a folder that is held open, so that no later change of the path leads elsewhere.
struct Target<'a> {
    path: &'a Path,
    folder: File,
    name: &'a Path,
}

impl Target<'_> {
    fn problem(&self, what: &str, errno: Errno) -> ToolFailure {
        ToolFailure::new(format!("cannot {what} {}: {}", self.path.display(), std::io::Error::from(errno)))
    }

    fn stat(&self) -> Result<Option<Stat>, ToolFailure> {
        match rustix::fs::statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.problem("write", errno)),
        }
    }

    /// A rename needs no permission on the file itself; its owner may have meant read-only all the same.
    fn refuse_read_only(&self) -> Result<(), ToolFailure> {
        match rustix::fs::accessat(&self.folder, self.name, Access::WRITE_OK, AtFlags::EACCESS) {
            Err(errno @ (Errno::ACCESS | Errno::ROFS | Errno::PERM)) => Err(self.problem("write", errno)),
            _ => Ok(()),
        }
    }

    fn verify(&self, old: Option<&Stat>, expected: Expected) -> Result<(), ToolFailure> {
        let is_same = match (expected, old) {
            (Expected::Any, _) | (Expected::Missing, None) => true,
            (Expected::Missing, Some(_)) | (Expected::Version(_), None) => false,
            (Expected::Version(version), Some(_)) => self.hash()? == version,
        };
        if is_same { Ok(()) } else { Err(changed(self.path)) }
    }

    fn hash(&self) -> Result<ContentHash, ToolFailure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, self.name, flags, Mode::empty())
            .map_err(|errno| self.problem("read", errno))?;
        let mut bytes = Vec::new();
        File::from(file)
            .take(file::MAX_EDIT_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| ToolFailure::new(format!("cannot read {}: {error}", self.path.display())))?;
        Ok(ContentHash::of(&bytes))
    }

    /// The new text in a file of its own, flushed, with the old one's owner and permissions.
    fn write_beside(&self, content: &[u8], old: Option<&Stat>) -> Result<Temporary<'_>, Errno> {
        let mode = if old.is_some() { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = format!(".turnd-{}.tmp", uuid::Uuid::now_v7().simple());
        let file = rustix::fs::openat(&self.folder, name.as_str(), flags, mode)?;
        let temporary = Temporary { target: self, name, is_settled: false };
        let mut file = File::from(file);
        file.write_all(content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if let Some(old) = old {
            copy_owner(&file, old)?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777))?;
        }
        rustix::fs::fsync(&file)?;
        Ok(temporary)
    }

    fn overwrite(&self, content: &[u8]) -> Result<(), ToolFailure> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, self.name, flags, Mode::empty())
            .map_err(|errno| self.problem("write", errno))?;
        let mut file = File::from(file);
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(|error| ToolFailure::new(format!("writing {} broke off: {error}", self.path.display())))
    }
}

fn copy_owner(file: impl AsFd, old: &Stat) -> Result<(), Errno> {
    let new = rustix::fs::fstat(&file)?;
    let owner = (new.st_uid != old.st_uid).then(|| Uid::from_raw(old.st_uid));
    let group = (new.st_gid != old.st_gid).then(|| Gid::from_raw(old.st_gid));
    if owner.is_some() || group.is_some() {
        rustix::fs::fchown(&file, owner, group)?;
    }
    Ok(())
}

/// The file beside the target; removed again unless it was renamed.
struct Temporary<'a> {
    target: &'a Target<'a>,
    name: String,
    is_settled: bool,
}

impl Temporary<'_> {
    /// Renames it over the target. True: that is not possible here and the target must be overwritten.
    fn settle(mut self, replaces: bool) -> Result<bool, ToolFailure> {
        let Target { folder, name, .. } = self.target;
        let renamed = if replaces {
            rustix::fs::renameat(folder, self.name.as_str(), folder, *name)
        } else {
            self.rename_to_new()
        };
        match renamed {
            Ok(()) => self.is_settled = true,
            Err(Errno::BUSY | Errno::XDEV | Errno::PERM | Errno::ACCESS) if replaces => return Ok(true),
            Err(Errno::EXIST) => return Err(changed(self.target.path)),
            Err(errno) => return Err(self.target.problem("write", errno)),
        }
        // Some file systems cannot flush a folder; the file itself is flushed.
        rustix::fs::fsync(folder).ok();
        Ok(false)
    }

    fn rename_to_new(&self) -> Result<(), Errno> {
        let Target { folder, name, .. } = self.target;
        match rustix::fs::renameat_with(folder, self.name.as_str(), folder, *name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(folder, self.name.as_str(), folder, *name),
            result => result,
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            rustix::fs::unlinkat(&self.target.folder, self.name.as_str(), AtFlags::empty()).ok();
        }
    }
}
