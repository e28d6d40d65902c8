//! Where a path leads and what kind of place that is.
//!
//! Paths are compared by component, never by prefix of their text, after every link has been
//! followed as far as the file system knows it. A name that the file system might fold to a
//! protected one (case, ignorable characters, short names) counts as that one.

mod below;
mod expand;
mod names;
mod planted;
mod real;
mod repository;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;

pub(super) use expand::expand;
pub(super) use names::Standing;
pub use names::{secrets_of_home, secrets_of_system};
use real::{absolute, normal, real_path};

use super::rule::path_glob;

/// The folders a session is about and the places that need care.
#[derive(Clone, Debug)]
pub struct Places {
    /// Working folder, real.
    cwd: PathBuf,
    /// Working folder and additional roots, real.
    roots: Vec<PathBuf>,
    /// The daemon's own folder, real.
    turnd_home: PathBuf,
    /// The user's home folder, as spelled in the environment and real.
    user_home: Option<(PathBuf, PathBuf)>,
    deny_read: Vec<GlobMatcher>,
    /// A folder of the daemon's own that may be read without a question: long results of this session.
    results: Option<PathBuf>,
    /// Where the workspace's repository really is, when `.git` is a pointer elsewhere.
    git_dirs: Vec<PathBuf>,
}

/// Whether a path lies in the session's folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// In the working folder or an additional root.
    Inside,
    /// Elsewhere.
    Outside,
    /// Spelled inside, but a link leads elsewhere.
    LinkedOut,
}

/// A path as written and as it really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Absolute, `.` and `..` taken out, links not followed.
    pub(super) spelled: PathBuf,
    /// Links followed as far as they exist.
    pub(super) real: PathBuf,
}

/// The places as one judgement sees them: each path is followed once.
#[derive(Debug)]
pub(super) struct View<'a> {
    places: &'a Places,
    followed: RefCell<HashMap<PathBuf, PathBuf>>,
}

impl<'a> View<'a> {
    pub(super) fn new(places: &'a Places) -> Self {
        Self { places, followed: RefCell::default() }
    }

    /// The spot a path names, seen from a folder. A leading `~/` is the user's home.
    pub(super) fn spot(&self, base: &Path, path: &Path) -> Spot {
        let joined = self.places.joined(base, path);
        let mut followed = self.followed.borrow_mut();
        let real = followed.entry(joined.clone()).or_insert_with(|| real_path(&joined)).clone();
        Spot { spelled: normal(&joined), real }
    }
}

impl std::ops::Deref for View<'_> {
    type Target = Places;

    fn deref(&self) -> &Places {
        self.places
    }
}

impl Places {
    /// The places of a session. Reads links and `.git` pointers, nothing else.
    #[must_use]
    pub fn new(
        cwd: &Path,
        additional_roots: &[PathBuf],
        turnd_home: &Path,
        user_home: Option<&Path>,
        deny_read: &[String],
    ) -> Self {
        let cwd = real_path(&absolute(Path::new("/"), cwd));
        let roots: Vec<PathBuf> = std::iter::once(cwd.clone())
            .chain(additional_roots.iter().map(|root| real_path(&absolute(&cwd, root))))
            .collect();
        let user_home = user_home.map(|home| (normal(home), real_path(home)));
        let deny_read = deny_read
            .iter()
            .flat_map(|pattern| path_glob(pattern, &cwd, user_home.as_ref().map(|home| home.0.as_path())))
            .collect();
        let git_dirs = roots.iter().flat_map(|root| real::git_dirs(root)).collect();
        Self {
            turnd_home: real_path(&absolute(&cwd, turnd_home)),
            cwd,
            roots,
            user_home,
            deny_read,
            git_dirs,
            results: None,
        }
    }

    /// The same places with a folder in the daemon's own that holds results of this session.
    #[must_use]
    pub fn with_results(mut self, folder: &Path) -> Self {
        self.results = Some(real_path(folder));
        self
    }

    /// True for a result of this session that was kept in a file.
    pub(super) fn is_result(&self, spot: &Spot) -> bool {
        self.results.as_ref().is_some_and(|folder| spot.real.starts_with(folder))
    }

    /// True when a search must not look into this file, whatever the rules say.
    pub(super) fn hides_from_search(&self, spot: &Spot) -> bool {
        self.denies_read(spot) || self.is_secret(spot)
    }

    pub(super) fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The user's home folder as spelled.
    pub(super) fn user_home(&self) -> Option<&Path> {
        self.user_home.as_ref().map(|home| home.0.as_path())
    }

    fn joined(&self, base: &Path, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.user_home()) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => base.join(path),
        }
    }

    pub(super) fn site(&self, spot: &Spot) -> Site {
        if self.contains(&spot.real) {
            return Site::Inside;
        }
        if self.contains(&spot.spelled) { Site::LinkedOut } else { Site::Outside }
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// Why no tool may ever write here, if so.
    pub(super) fn protection(&self, spot: &Spot) -> Option<&'static str> {
        [&spot.spelled, &spot.real].into_iter().find_map(|path| self.path_protection(path))
    }

    fn path_protection(&self, path: &Path) -> Option<&'static str> {
        if path.starts_with(&self.turnd_home) || names::is_turnd(path) {
            return Some("turnd's own configuration and state");
        }
        let in_git =
            self.git_dirs.iter().any(|dir| path == dir || path.strip_prefix(dir).is_ok_and(names::is_git_control));
        (in_git || names::is_protected_git(path) || real::is_bare_repository_control(path))
            .then_some("the repository's configuration and hooks")
    }

    /// True when something protected lies below this folder, so that removing or moving it is a write there.
    pub(super) fn holds_protected(&self, spot: &Spot) -> bool {
        let real = &spot.real;
        self.turnd_home.starts_with(real)
            || self.git_dirs.iter().any(|dir| dir.starts_with(real))
            || (self.roots.iter().any(|root| root.starts_with(real)))
    }

    /// How files at this spot stand: whether touching them needs a question of its own.
    pub(super) fn standing(&self, spot: &Spot) -> Standing {
        if self.is_secret(spot) {
            return Standing::Secret;
        }
        let steering = [&spot.spelled, &spot.real].into_iter().find_map(|path| names::steering(self.below_root(path)));
        steering.map_or(Standing::Plain, Standing::Steering)
    }

    /// The part of a path below the session's folder, so that the folder's own name does not count.
    fn below_root<'a>(&self, path: &'a Path) -> &'a Path {
        self.roots
            .iter()
            .filter_map(|root| path.strip_prefix(root).ok())
            .min_by_key(|rest| rest.as_os_str().len())
            .unwrap_or(path)
    }

    pub(super) fn is_secret(&self, spot: &Spot) -> bool {
        [&spot.spelled, &spot.real].into_iter().any(|path| {
            path.starts_with(&self.turnd_home)
                || names::has_secret_name(self.below_root(path))
                || names::is_secret_of_system(path)
                || names::is_secret_of_home(path, self.user_home.as_ref().map(|home| home.0.as_path()))
                || names::is_secret_of_home(path, self.user_home.as_ref().map(|home| home.1.as_path()))
        })
    }

    pub(super) fn has_deny_read(&self) -> bool {
        !self.deny_read.is_empty()
    }

    /// True when the configuration forbids reading here.
    pub(super) fn denies_read(&self, spot: &Spot) -> bool {
        self.deny_read.iter().any(|glob| glob.is_match(&spot.spelled) || glob.is_match(&spot.real))
    }

    /// How many names the file at the real path has. More than one may mean that it is also elsewhere.
    pub(super) fn link_count(spot: &Spot) -> u64 {
        real::link_count(&spot.real)
    }

    /// The protected or secret file that is the same file under another name, if there is one.
    pub(super) fn twin(&self, spot: &Spot) -> Option<PathBuf> {
        let candidates = names::twins(&self.roots, &self.turnd_home, self.user_home());
        real::same_file(&spot.real, candidates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(root: &Path) -> Places {
        Places::new(&root.join("w"), &[], &root.join("home/.turnd"), Some(&root.join("home")), &["*.key".into()])
    }

    fn spot(places: &Places, path: &str) -> Spot {
        View::new(places).spot(places.cwd(), Path::new(path))
    }

    fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["w/src", "w-evil", "out", "home/.ssh", "w/.git"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("out/secret"), "canary").unwrap();
        std::os::unix::fs::symlink(dir.path().join("out"), dir.path().join("w/link")).unwrap();
        std::os::unix::fs::symlink("missing/.turnd", dir.path().join("w/dangling")).unwrap();
        dir
    }

    #[test]
    fn inside_is_decided_by_component_and_after_links() {
        let dir = fixture();
        let places = places(dir.path());
        let check = |path: &str, site: Site| assert_eq!(places.site(&spot(&places, path)), site, "{path}");
        check("src/new.rs", Site::Inside);
        check("src/../src/x", Site::Inside);
        check("../w-evil/secret", Site::Outside);
        check("../w/src", Site::Inside);
        check("link/secret", Site::LinkedOut);
        check("link/../x", Site::LinkedOut);
        check("/etc/passwd", Site::Outside);
        check("~/x", Site::Outside);
    }

    #[test]
    fn every_spelling_of_a_protected_place_is_protected() {
        let dir = fixture();
        let places = places(dir.path());
        for path in [
            ".turnd",
            ".turnd/config.toml",
            ".TURND/x",
            "src/.turnd/x",
            "src/../.turnd/x",
            "./.turnd//x",
            "dangling",
            ".turnd\u{200b}/x",
            ".turnd./x",
            ".git/config",
            ".GIT/Config",
            ".git/hooks/pre-commit",
            "git~1/config",
            ".git",
            "src/.git",
            ".git/modules/sub/config",
            ".git\u{200c}/hooks",
            "~/.turnd/rules.toml",
            ".git/commondir",
        ] {
            assert!(places.protection(&spot(&places, path)).is_some(), "{path}");
        }
        for path in ["src/turnd", ".gitignore", "git/config", "config", "src/.turnd.rs", ".git/description"] {
            assert!(places.protection(&spot(&places, path)).is_none(), "{path}");
        }
    }

    #[test]
    fn a_bare_repository_in_the_workspace_is_protected_too() {
        let dir = fixture();
        let bare = dir.path().join("w/bare");
        std::fs::create_dir_all(bare.join("objects")).unwrap();
        std::fs::write(bare.join("HEAD"), "ref: refs/heads/main").unwrap();
        let places = places(dir.path());
        assert!(places.protection(&spot(&places, "bare/config")).is_some());
        assert!(places.protection(&spot(&places, "bare/hooks/post-checkout")).is_some());
        assert!(places.protection(&spot(&places, "src/config")).is_none());
    }

    #[test]
    fn a_worktree_pointer_protects_the_repository_it_points_to() {
        let dir = fixture();
        std::fs::remove_dir(dir.path().join("w/.git")).unwrap();
        let real = dir.path().join("main/.store/worktrees/w");
        std::fs::create_dir_all(&real).unwrap();
        std::fs::write(real.join("commondir"), "../..\n").unwrap();
        std::fs::write(dir.path().join("w/.git"), format!("gitdir: {}\n", real.display())).unwrap();
        let places = places(dir.path());
        assert!(places.protection(&spot(&places, "../main/.store/config")).is_some());
        assert!(places.protection(&spot(&places, "../main/.store/hooks/x")).is_some());
        assert!(places.protection(&spot(&places, "../main/.store/objects/x")).is_none());
    }

    #[test]
    fn secrets_and_steering_files_are_known_by_name() {
        let dir = fixture();
        let places = places(dir.path());
        for path in [".env", "src/.env.local", ".ENV", "~/.ssh/id_ed25519", "~/.aws/credentials", "~/.netrc", "id_rsa"]
            .into_iter()
            .chain(["~/.codex/auth.json", "~/.config/BraveSoftware/x", "/etc/shadow", "/etc/ssh/ssh_host_rsa_key"])
        {
            assert_eq!(places.standing(&spot(&places, path)), Standing::Secret, "{path}");
            assert!(places.hides_from_search(&spot(&places, path)), "{path}");
        }
        for path in ["AGENTS.md", "sub/agents.md", ".vscode/settings.json", ".github/workflows/ci.yml", ".bashrc"] {
            assert!(matches!(places.standing(&spot(&places, path)), Standing::Steering(_)), "{path}");
        }
        for path in ["src/main.rs", ".env.example", "README.md", ".gitignore", "env"] {
            assert_eq!(places.standing(&spot(&places, path)), Standing::Plain, "{path}");
        }
        assert!(places.hides_from_search(&spot(&places, "src/tls.key")));
    }

    #[test]
    fn a_second_name_of_a_protected_file_is_recognised() {
        let dir = fixture();
        std::fs::write(dir.path().join("w/.git/config"), "[core]").unwrap();
        std::fs::hard_link(dir.path().join("w/.git/config"), dir.path().join("w/notes.txt")).unwrap();
        let places = places(dir.path());
        let notes = spot(&places, "notes.txt");
        assert_eq!(Places::link_count(&notes), 2);
        assert!(places.twin(&notes).is_some_and(|twin| twin.ends_with(".git/config")));
    }
}
