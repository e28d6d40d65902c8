//! Paths as a model writes them, turned into the paths that are judged, shown and opened.
//!
//! Every symbolic link is followed as far as the path exists, so that what is judged is where the bytes
//! really are. The result holds no link; whoever opens it later refuses links (see [`super::file`]), so a
//! link planted in between cannot lead elsewhere. Names are bytes: no Unicode form is changed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::{ToolContext, ToolFailure};

/// A path as the model wrote it and where it really leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// What the model wrote.
    pub spelled: String,
    /// Absolute, without `.`, `..` or links as far as it exists.
    pub real: PathBuf,
}

impl ResolvedPath {
    /// The path for people and models: relative inside the working folder, absolute elsewhere.
    #[must_use]
    pub fn shown(&self, cwd: &Path) -> String {
        shown(&self.real, cwd)
    }

    /// A remark when a link leads somewhere else than the spelling says; empty otherwise.
    #[must_use]
    pub fn link_note(&self, cwd: &Path) -> String {
        let plain = lexical(&spelled_path(&self.spelled).unwrap_or_default(), cwd);
        if plain == self.real { String::new() } else { format!(" (link to {})", self.real.display()) }
    }
}

/// Links followed before a path is called a loop, as Linux does it.
const MAX_LINKS: usize = 40;

/// Bytes of the longest path (`PATH_MAX` of Linux).
const MAX_PATH_BYTES: usize = 4096;

/// Finds out where a path leads. Relative ones start at `cwd`, `~` is the user's home, `file://` is understood.
///
/// # Errors
/// A path that is empty, holds NUL, is too long, loops, or names another machine.
pub fn resolve(spelled: &str, cwd: &Path) -> Result<ResolvedPath, ToolFailure> {
    let path = spelled_path(spelled)?;
    let real = follow(&cwd.join(path)).map_err(|problem| ToolFailure::new(format!("{spelled}: {problem}")))?;
    Ok(ResolvedPath { spelled: spelled.into(), real })
}

/// True when the path lies in a folder of the session. Whole components are compared, never text.
#[must_use]
pub fn is_inside(path: &Path, context: &ToolContext) -> bool {
    path.starts_with(&context.cwd) || context.additional_roots.iter().any(|root| path.starts_with(root))
}

/// A path relative to the working folder when it lies inside, absolute elsewhere.
#[must_use]
pub fn shown(path: &Path, cwd: &Path) -> String {
    match path.strip_prefix(cwd) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".into(),
        Ok(inside) => inside.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

fn spelled_path(spelled: &str) -> Result<PathBuf, ToolFailure> {
    let failure = |problem: &str| ToolFailure::new(format!("path {spelled:?} {problem}"));
    let path = if let Some(rest) = spelled.strip_prefix("file:") {
        from_file_uri(rest).map_err(|problem| failure(&problem))?
    } else if spelled == "~" || spelled.starts_with("~/") {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let home = home.ok_or_else(|| failure("needs a home folder, and there is none"))?;
        home.join(spelled.trim_start_matches('~').trim_start_matches('/'))
    } else {
        PathBuf::from(spelled)
    };
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(ToolFailure::new("the path is empty"));
    }
    if bytes.contains(&0) {
        return Err(failure("holds a NUL character"));
    }
    if bytes.len() > MAX_PATH_BYTES {
        return Err(ToolFailure::new(format!("the path is longer than {MAX_PATH_BYTES} bytes")));
    }
    Ok(path)
}

fn from_file_uri(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err("names another machine; only local files can be used".into());
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = (rest.next().and_then(hex_digit), rest.next().and_then(hex_digit));
        let (Some(high), Some(low)) = digits else { return Err("has a broken % escape".into()) };
        bytes.push(high << 4 | low);
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// `.` and `..` removed by spelling alone.
fn lexical(path: &Path, cwd: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in cwd.join(path).components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir | Component::Prefix(_) => {}
            Component::RootDir | Component::Normal(_) => result.push(component),
        }
    }
    result
}

/// Walks the path as the kernel would: a link's target takes its place, `..` leaves the real folder.
/// What does not exist is taken as spelled, so that a new file has a path, also behind a dangling link.
fn follow(path: &Path) -> Result<PathBuf, String> {
    let mut rest: VecDeque<OsString> = steps(path).collect();
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = rest.pop_front() {
        if step == OsStr::new("..") {
            real.pop();
            continue;
        }
        real.push(&step);
        let is_link = real.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        if !is_link {
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err("the links go round in a circle".into());
        }
        let target = real.read_link().map_err(|error| format!("cannot follow the link: {error}"))?;
        real.pop();
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        for step in steps(&target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(step);
        }
        if rest.len() > MAX_PATH_BYTES {
            return Err("the path is too long".into());
        }
    }
    Ok(real)
}

fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::ParentDir => Some(OsString::from("..")),
        Component::Normal(name) => Some(name.to_os_string()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_judged_by_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (inside, outside) = (root.join("w"), root.join("w-evil"));
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::create_dir_all(outside.join("deep")).unwrap();
        std::fs::write(outside.join("secret"), "s").unwrap();
        symlink(outside.join("secret"), inside.join("link")).unwrap();
        symlink("../w-evil/deep", inside.join("folder")).unwrap();
        symlink(outside.join("new"), inside.join("dangling")).unwrap();
        symlink("sub", inside.join("here")).unwrap();
        let check = |spelled: &str, expected: PathBuf| {
            assert_eq!(resolve(spelled, &inside).unwrap().real, expected, "{spelled}");
        };
        check("a/b", inside.join("a/b"));
        check("./sub/../x", inside.join("x"));
        check("../w-evil/secret", outside.join("secret"));
        check("link", outside.join("secret"));
        check("folder/../secret", outside.join("secret"));
        check("folder/new", outside.join("deep/new"));
        check("dangling", outside.join("new"));
        check("here/x", inside.join("sub/x"));
        check("nowhere/../x", inside.join("x"));
        check("/../../etc", PathBuf::from("/etc"));
        check(&format!("file://{}/a%20b", inside.display()), inside.join("a b"));
        check(&format!("file://localhost{}/%2e%2e/x", inside.display()), root.join("x"));
        check("~/x", std::env::home_dir().unwrap().join("x"));
        check("~x", inside.join("~x"));
        check("u\u{308}", inside.join("u\u{308}"));
        check("ü", inside.join("ü"));
    }

    #[test]
    fn a_path_that_cannot_be_meant_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        let check = |spelled: &str, part: &str| {
            let failure = resolve(spelled, folder.path()).unwrap_err();
            assert!(failure.text.contains(part), "{failure}");
        };
        check("", "empty");
        check("a\0b", "NUL");
        check("file:///a%00b", "NUL");
        check("file:///a%zz", "broken");
        check("file://server/share", "another machine");
        check("a", "circle");
        check(&"x/".repeat(3000), "longer");
    }

    #[test]
    fn the_display_is_short_inside_and_names_the_target_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        symlink("/etc/hostname", cwd.join("link")).unwrap();
        assert_eq!(resolve("a/./b", &cwd).unwrap().shown(&cwd), "a/b");
        assert_eq!(resolve("a/./b", &cwd).unwrap().link_note(&cwd), "");
        assert_eq!(resolve(".", &cwd).unwrap().shown(&cwd), ".");
        let link = resolve("link", &cwd).unwrap();
        assert_eq!(
            (link.shown(&cwd), link.link_note(&cwd)),
            ("/etc/hostname".into(), " (link to /etc/hostname)".into())
        );
    }
}
