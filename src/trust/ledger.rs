//! `trust.toml`: what the user decided about which workspace.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::home_file::{HomeFile, HomeFileError};

use super::{Fingerprint, Project};

/// What the user said about exactly this content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It counts.
    Trusted,
    /// It does not, and nobody is asked about it again.
    Refused,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LedgerEntry {
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// What it is about.
    pub fingerprint: Fingerprint,
    /// What was said.
    pub decision: Decision,
    /// When, ISO 8601.
    pub since: String,
}

#[derive(Default, Deserialize, Serialize)]
struct Content {
    #[serde(default)]
    workspaces: Vec<LedgerEntry>,
}

/// All decisions, one per workspace.
#[derive(Clone, Debug)]
pub struct Ledger(HomeFile);

impl Ledger {
    /// The decisions in this home folder. Nothing is read yet.
    #[must_use]
    pub fn new(turnd_home: &Path) -> Self {
        Self(HomeFile::new(turnd_home.join("trust.toml")))
    }

    /// Every decision.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self) -> Result<Vec<LedgerEntry>, HomeFileError> {
        self.0.read::<Content>().map(|content| content.workspaces)
    }

    /// What was decided about exactly this content; `None`: nothing.
    ///
    /// # Errors
    /// When the file cannot be read, which must count as untrusted.
    pub fn decision(&self, project: &Project) -> Result<Option<Decision>, HomeFileError> {
        let found = self.list()?.into_iter().find(|entry| entry.workspace == project.workspace);
        Ok(found.filter(|entry| entry.fingerprint == project.fingerprint).map(|entry| entry.decision))
    }

    /// Keeps a decision in place of any earlier one about the workspace.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn decide(&self, project: &Project, decision: Decision) -> Result<(), HomeFileError> {
        self.0.change(|content: &mut Content| {
            content.workspaces.retain(|entry| entry.workspace != project.workspace);
            content.workspaces.push(LedgerEntry {
                workspace: project.workspace.clone(),
                fingerprint: project.fingerprint.clone(),
                decision,
                since: clock::iso8601(clock::now_ms()),
            });
            Ok(())
        })
    }

    /// Forgets the decision about a workspace. False when there was none.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn forget(&self, workspace: &Path) -> Result<bool, HomeFileError> {
        self.0.change(|content: &mut Content| {
            let before = content.workspaces.len();
            content.workspaces.retain(|entry| entry.workspace != workspace);
            Ok(content.workspaces.len() < before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_about_one_content_of_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (home, rules) = (dir.path().join("home"), "[[rules]]\neffect = \"allow\"\ntool = \"terminal\"\n");
        std::fs::create_dir(&home).unwrap();
        let project = |name: &str, config: &str| {
            let folder = dir.path().join(name).join(".turnd");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("config.toml"), config).unwrap();
            Project::read(&dir.path().join(name), &home).unwrap().unwrap()
        };
        let ledger = Ledger::new(&home);
        let first = project("a", rules);
        assert_eq!(ledger.decision(&first).unwrap(), None);
        ledger.decide(&first, Decision::Trusted).unwrap();
        assert_eq!(ledger.decision(&first).unwrap(), Some(Decision::Trusted));
        assert_eq!(ledger.decision(&project("b", rules)).unwrap(), None);
        assert_eq!(ledger.decision(&project("a", &format!("{rules} "))).unwrap(), None);
        assert_eq!(ledger.decision(&project("a", rules)).unwrap(), Some(Decision::Trusted));
        std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("link")).unwrap();
        let linked = Project::read(&dir.path().join("link"), &home).unwrap().unwrap();
        assert_eq!(linked.workspace, first.workspace);
        ledger.decide(&first, Decision::Refused).unwrap();
        assert_eq!(ledger.list().unwrap().len(), 1);
        assert_eq!(ledger.decision(&first).unwrap(), Some(Decision::Refused));
        assert!(ledger.forget(&first.workspace).unwrap());
        assert!(!ledger.forget(&first.workspace).unwrap());
        std::fs::write(home.join("trust.toml"), "workspaces = 5").unwrap();
        assert!(ledger.decision(&first).is_err());
    }
}
