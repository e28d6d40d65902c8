//! `rules.toml`: the approvals a user had remembered.
//!
//! The file is read again whenever it changed, so a rule removed in a shell stops counting at once.
//! Every change is made under a lock file on the newest content and put in place by a rename, so two
//! daemons lose nothing of each other's.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::RuleConfig;

/// Bytes of `rules.toml` that are read; a longer file counts as unreadable.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// One remembered rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Remembered {
    /// What it matches and does.
    #[serde(flatten)]
    pub rule: RuleConfig,
    /// The workspace it holds in.
    pub workspace: PathBuf,
    /// When it was remembered, ISO 8601.
    #[serde(default)]
    pub added: String,
}

/// Why remembered rules could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file or its lock could not be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The file is not what was written there.
    #[error("cannot read {}: {message}; mend it or remove it", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is no such rule to remove.
    #[error("there is no remembered rule {0}")]
    NoSuchRule(usize),
}

/// The store of remembered rules, one per daemon.
#[derive(Debug)]
pub struct RememberedRules {
    path: PathBuf,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    stamp: Option<Stamp>,
    rules: Arc<[Remembered]>,
    problem: Option<String>,
}

/// Tells one state of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

#[derive(Default, Deserialize, Serialize)]
struct FileContent {
    #[serde(default)]
    rules: Vec<Remembered>,
}

impl RememberedRules {
    /// The rules of the `rules.toml` in this folder. Nothing is read yet.
    #[must_use]
    pub fn new(turnd_home: &Path) -> Self {
        Self { path: turnd_home.join("rules.toml"), cache: Mutex::default() }
    }

    /// All rules as the file has them now. When it cannot be read, the last known ones and the problem.
    #[must_use]
    pub fn list(&self) -> (Arc<[Remembered]>, Option<String>) {
        let stamp = self.stamp();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.stamp != stamp || cache.problem.is_some() {
            match self.read() {
                Ok(rules) => *cache = Cache { stamp, rules: rules.into(), problem: None },
                Err(error) => cache.problem = Some(error.to_string()),
            }
        }
        (Arc::clone(&cache.rules), cache.problem.clone())
    }

    /// Adds rules for a workspace; ones that are there already stay as they are.
    ///
    /// # Errors
    /// When the file cannot be read or written; it is then unchanged.
    pub fn add(&self, rules: &[RuleConfig], workspace: &Path) -> Result<(), RulesError> {
        self.change(|all| {
            for rule in rules {
                if !all.iter().any(|known| known.rule == *rule && known.workspace == workspace) {
                    all.push(Remembered {
                        rule: rule.clone(),
                        workspace: workspace.to_path_buf(),
                        added: clock::iso8601(clock::now_ms()),
                    });
                }
            }
            Ok(())
        })
    }

    /// Removes the rule at a position of [`Self::list`], counted from 0, and returns it.
    ///
    /// # Errors
    /// When there is none, or when the file cannot be read or written; it is then unchanged.
    pub fn remove(&self, position: usize) -> Result<Remembered, RulesError> {
        self.change(|all| {
            if position >= all.len() {
                return Err(RulesError::NoSuchRule(position));
            }
            Ok(all.remove(position))
        })
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Vec<Remembered>) -> Result<T, RulesError>) -> Result<T, RulesError> {
        let lock_path = self.path.with_extension("lock");
        let lock = private(OpenOptions::new().create(true).truncate(false).write(true))
            .open(&lock_path)
            .map_err(|source| RulesError::Io { path: lock_path.clone(), source })?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| RulesError::Io { path: lock_path, source: error.into() })?;
        let mut rules = self.read()?;
        let result = edit(&mut rules)?;
        self.write(rules).map_err(|source| RulesError::Io { path: self.path.clone(), source })?;
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).stamp = None;
        Ok(result)
    }

    fn read(&self) -> Result<Vec<Remembered>, RulesError> {
        let size = match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            Ok(_) => return Err(self.content("it is not a file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(RulesError::Io { path: self.path.clone(), source }),
        };
        if size > MAX_FILE_BYTES {
            return Err(self.content("it is too long"));
        }
        let text =
            fs::read_to_string(&self.path).map_err(|source| RulesError::Io { path: self.path.clone(), source })?;
        let content: FileContent = toml::from_str(&text).map_err(|error| self.content(error.message()))?;
        Ok(content.rules)
    }

    fn content(&self, message: &str) -> RulesError {
        RulesError::Content { path: self.path.clone(), message: message.to_owned() }
    }

    fn write(&self, rules: Vec<Remembered>) -> std::io::Result<()> {
        let text = toml::to_string(&FileContent { rules }).map_err(std::io::Error::other)?;
        let temporary = self.path.with_extension(format!("toml.{}", uuid::Uuid::now_v7().simple()));
        let written = write_new(&temporary, &text).and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            fs::remove_file(&temporary).ok();
        }
        written?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some(Stamp { inode: metadata.ino(), size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = private(OpenOptions::new().create_new(true).write(true)).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Files here are for the user alone, whatever the umask.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::RuleEffect;

    fn rule(command: &str) -> RuleConfig {
        RuleConfig {
            effect: RuleEffect::Allow,
            tool: "terminal".into(),
            command: Some(command.into()),
            path: None,
            host: None,
        }
    }

    #[test]
    fn a_remembered_rule_is_read_back_by_another_daemon_and_can_be_removed() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (RememberedRules::new(home.path()), RememberedRules::new(home.path()));
        assert!(second.list().0.is_empty());
        first.add(&[rule("cargo test *"), rule("ls \"a b\"")], Path::new("/w")).unwrap();
        first.add(&[rule("cargo test *")], Path::new("/w")).unwrap();
        let (rules, problem) = second.list();
        assert_eq!((rules.len(), problem), (2, None));
        assert_eq!(rules[1].rule, rule("ls \"a b\""));
        assert_eq!(second.remove(0).unwrap().rule, rule("cargo test *"));
        assert_eq!(first.list().0.len(), 1);
        assert!(matches!(first.remove(5), Err(RulesError::NoSuchRule(5))));
    }

    #[test]
    fn the_file_is_private_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        RememberedRules::new(home.path()).add(&[rule("ls")], Path::new("/w")).unwrap();
        let mode = |name: &str| fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("rules.toml"), mode("rules.lock")), (0o600, 0o600));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    #[test]
    fn two_writers_lose_nothing_of_each_other() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let rules = RememberedRules::new(home.path());
                scope.spawn(move || {
                    for number in 0..10 {
                        rules.add(&[rule(&format!("do {writer} {number}"))], Path::new("/w")).unwrap();
                    }
                });
            }
        });
        assert_eq!(RememberedRules::new(home.path()).list().0.len(), 40);
    }

    #[test]
    fn a_broken_file_is_reported_and_never_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let rules = RememberedRules::new(home.path());
        rules.add(&[rule("ls")], Path::new("/w")).unwrap();
        assert_eq!(rules.list().0.len(), 1);
        fs::write(home.path().join("rules.toml"), "rules = 5").unwrap();
        let (kept, problem) = rules.list();
        assert_eq!(kept.len(), 1);
        assert!(problem.is_some_and(|text| text.contains("rules.toml")));
        assert!(rules.add(&[rule("cat")], Path::new("/w")).is_err());
        assert_eq!(fs::read_to_string(home.path().join("rules.toml")).unwrap(), "rules = 5");
    }
}
