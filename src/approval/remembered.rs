//! `rules.toml`: the approvals a user had remembered.
//!
//! The file is read again whenever it changed, so a rule removed in a shell stops counting at once.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::RuleConfig;
use crate::home_file::{HomeFile, HomeFileError};

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
    /// The file could not be used.
    #[error(transparent)]
    File(#[from] HomeFileError),
    /// There is no such rule to remove.
    #[error("there is no remembered rule {0}")]
    NoSuchRule(usize),
}

/// The store of remembered rules, one per daemon.
#[derive(Debug)]
pub struct RememberedRules {
    file: HomeFile,
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
        Self { file: HomeFile::new(turnd_home.join("rules.toml")), cache: Mutex::default() }
    }

    /// All rules as the file has them now. When it cannot be read, the last known ones and the problem.
    #[must_use]
    pub fn list(&self) -> (Arc<[Remembered]>, Option<String>) {
        let stamp = self.stamp();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.stamp != stamp || cache.problem.is_some() {
            match self.file.read::<FileContent>() {
                Ok(content) => *cache = Cache { stamp, rules: content.rules.into(), problem: None },
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
        let result = self.file.change(|content: &mut FileContent| edit(&mut content.rules))?;
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).stamp = None;
        Ok(result)
    }

    fn stamp(&self) -> Option<Stamp> {
        let metadata = fs::metadata(self.file.path()).ok()?;
        Some(Stamp { inode: metadata.ino(), size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
    }
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
            definition: None,
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
