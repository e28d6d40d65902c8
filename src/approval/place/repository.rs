//! What a repository's own configuration makes git run.
//!
//! A repository that was only looked at must not execute anything, yet `git status` runs whatever
//! `core.fsmonitor` names. So reading git commands count as reading only where the configuration of
//! every repository they would use names no program. The user's own configuration is trusted.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::Places;
use super::real::{absolute, git_dirs, read_line, real_path};

/// Bytes of a configuration that are read; a longer one counts as naming a program.
const MAX_CONFIG_BYTES: u64 = 256 * 1024;

/// Folders of submodules looked at.
const MAX_MODULES: usize = 512;

/// Settings whose value git runs while it reads, or that bring in others, as `section.key` or `section.*.key`.
const RUNNING: &str = "core.fsmonitor core.pager core.attributesfile core.alternaterefscommand core.hookspath diff.external \
    diff.*.textconv diff.*.command filter.*.clean filter.*.smudge filter.*.process pager.* include.path includeif.*.path \
    gpg.program gpg.*.program log.showsignature man.*.cmd man.*.path browser.*.cmd browser.*.path";

/// Settings whose value git runs while it fetches, which it does on its own for objects that a partial clone left out.
const FETCHING: &str = "core.sshcommand core.gitproxy core.askpass credential.helper credential.*.helper protocol.* \
    remote.*.uploadpack remote.*.vcs";

/// Settings of a partial clone.
const PARTIAL: &str = "extensions.partialclone remote.*.promisor";

/// What `git lfs install` sets.
const LARGE_FILES: [&str; 3] = ["git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process"];

impl Places {
    /// Why reading in one of these folders with git would do more than that: its repository names a program that git
    /// runs, or is not the folder's own.
    pub(in crate::approval) fn repository_hazard(&self, folders: &[PathBuf]) -> Option<String> {
        folders.iter().find_map(|folder| self.hazard_from(folder))
    }

    fn hazard_from(&self, folder: &Path) -> Option<String> {
        let (root, git_dirs) = folder.ancestors().find_map(|root| Some((root, git_dir_of(root)?)))?;
        if let Some(own) = git_dirs.first()
            && !own.starts_with(root)
            && !self.contains(own)
            && !belongs_to(own, root)
        {
            return Some(format!("the repository here belongs to another folder: {}", own.display()));
        }
        let Some(configurations) = configurations(&git_dirs) else {
            return Some("the repository has more submodules than can be looked at".into());
        };
        configurations.iter().find_map(|path| {
            let settings = match settings_of(path)? {
                Ok(settings) => settings,
                Err(()) => return Some(format!("the repository's {} cannot be read", path.display())),
            };
            let elsewhere = working_tree(path, &settings).filter(|tree| tree != root && !self.contains(tree));
            elsewhere.map(|tree| format!("the repository's files lie elsewhere: {}", tree.display())).or_else(|| {
                let setting = running_setting(settings)?;
                Some(format!("the repository's `{setting}` makes git run something"))
            })
        })
    }
}

/// True when a git directory names the folder whose `.git` leads to it, as those of worktrees and submodules do.
fn belongs_to(git_dir: &Path, root: &Path) -> bool {
    let is_worktree = read_line(&git_dir.join("gitdir"))
        .is_some_and(|pointer| real_path(&absolute(git_dir, Path::new(pointer.trim()))) == root.join(".git"));
    let config = git_dir.join("config");
    let is_module = || {
        let settings = settings_of(&config).and_then(Result::ok).unwrap_or_default();
        working_tree(&config, &settings).as_deref() == Some(root)
    };
    is_worktree || is_module()
}

/// Where a configuration says that the files are.
fn working_tree(config: &Path, settings: &[(String, String)]) -> Option<PathBuf> {
    let (_, value) = settings.iter().rev().find(|(name, _)| name == "core.worktree")?;
    Some(real_path(&absolute(config.parent()?, Path::new(value))))
}

/// The configuration files of a repository, its submodules' included; `None` when these are too many.
fn configurations(git_dirs: &[PathBuf]) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    for dir in git_dirs {
        found.extend([dir.join("config"), dir.join("config.worktree")]);
        found.extend(modules(dir.join("modules"))?.into_iter().map(|module| module.join("config")));
    }
    Some(found)
}

/// The git directories of submodules, whose names may have slashes.
fn modules(folder: PathBuf) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![folder];
    let mut left = MAX_MODULES;
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            left = left.checked_sub(1)?;
            let path = entry.path();
            if path.join("HEAD").is_file() {
                pending.push(path.join("modules"));
                found.push(path);
            } else {
                pending.push(path);
            }
        }
    }
    Some(found)
}

/// The git directories of a folder, when it is a working tree or a repository without one.
fn git_dir_of(folder: &Path) -> Option<Vec<PathBuf>> {
    let own = folder.join(".git");
    if own.is_dir() {
        return Some(vec![real_path(&own)]);
    }
    if own.is_file() {
        return Some(git_dirs(folder));
    }
    let is_bare = folder.join("HEAD").is_file() && folder.join("objects").is_dir();
    is_bare.then(|| vec![folder.to_path_buf()])
}

/// What a configuration sets; `None` when there is none, an error when it cannot be read whole.
fn settings_of(path: &Path) -> Option<Result<Vec<(String, String)>, ()>> {
    // Opening a pipe would wait for its writer, and so would git.
    if !fs::metadata(path).ok()?.is_file() {
        return Some(Err(()));
    }
    let file = fs::File::open(path).ok()?;
    let mut text = String::new();
    let is_read = file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text).is_ok();
    Some(if is_read && text.len() as u64 <= MAX_CONFIG_BYTES { Ok(settings(&text)) } else { Err(()) })
}

/// The first setting that would make git run something, if there is one.
fn running_setting(settings: Vec<(String, String)>) -> Option<String> {
    let is_partial = settings.iter().any(|(name, _)| is_listed(name, PARTIAL));
    let runs = |name: &str| is_listed(name, RUNNING) || (is_partial && is_listed(name, FETCHING));
    settings.into_iter().find(|(name, value)| runs(name) && !is_harmless(value)).map(|(name, _)| name)
}

/// All settings of a configuration, names in lower case.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    // A line ends in a backslash where its value goes on.
    for line in text.replace("\\\n", "").lines() {
        let mut line = line.trim();
        while let Some((head, after)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = head.to_ascii_lowercase().replace(" \"", ".").replace('"', "");
            line = after.trim();
        }
        let (key, value) = line.split_once('=').map_or((line, "true"), |(key, value)| (key, value));
        found.push((
            format!("{section}.{}", key.trim().to_ascii_lowercase()),
            value.trim().trim_matches('"').to_owned(),
        ));
    }
    found
}

fn is_listed(name: &str, patterns: &str) -> bool {
    patterns.split_ascii_whitespace().any(|pattern| is_named(name, pattern))
}

/// True when a setting is the one of a pattern; `*` stands for anything between.
fn is_named(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, tail)) => name.len() > head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail),
        None => name == pattern,
    }
}

fn is_harmless(value: &str) -> bool {
    matches!(value, "" | "true" | "false" | "cat" | "0" | "1" | "no" | "off" | "/dev/null")
        || LARGE_FILES.contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(root: &Path) -> Places {
        Places::new(root, &[], &root.join("home/.turnd"), None, &[])
    }

    fn hazard(root: &Path, folder: &str) -> Option<String> {
        let root = root.canonicalize().unwrap();
        let folder = root.join(folder).components().collect();
        places(&root).repository_hazard(&[folder])
    }

    fn check(config: &str, expected: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        fs::create_dir_all(dir.path().join("sub/deep")).unwrap();
        fs::write(dir.path().join(".git/config"), config).unwrap();
        let found = hazard(dir.path(), "sub/deep");
        let expected = expected.map(|setting| format!("the repository's `{setting}` makes git run something"));
        assert_eq!(found, expected, "{config}");
    }

    #[test]
    fn a_configuration_that_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        fs::create_dir_all(&git).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, git.join("config"), pipe, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(hazard(dir.path(), "").unwrap().contains("cannot be read"));
    }

    #[test]
    fn settings_that_run_something_are_found_however_they_are_written() {
        check("[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = x\n", None);
        check("[user]\nname = x\n[branch \"main\"]\nmerge = refs/heads/main\n", None);
        check("[core]\nfsmonitor = touch PWN\n", Some("core.fsmonitor"));
        check("[CORE]\n  FsMonitor=./evil.sh", Some("core.fsmonitor"));
        check("[core] fsmonitor = ./evil.sh", Some("core.fsmonitor"));
        check("[core]\nfsmonitor = \\\n./evil.sh", Some("core.fsmonitor"));
        check("[core]\nfsmonitor = false", None);
        check("[core]\npager = touch PWN", Some("core.pager"));
        check("[diff \"x\"]\ntextconv = ./evil.sh", Some("diff.x.textconv"));
        check("[diff]\nexternal = ./evil.sh", Some("diff.external"));
        check("[filter \"a.b\"]\nclean = ./evil.sh", Some("filter.a.b.clean"));
        check("[include]\npath = ../evil", Some("include.path"));
        check("[credential]\nhelper = store\n[core]\nsshCommand = ssh -i key", None);
        check("[remote \"o\"]\npromisor = true\n[core]\nsshCommand = ./evil.sh", Some("core.sshcommand"));
        check("[filter \"lfs\"]\nclean = git-lfs clean -- %f", None);
        check("[core]\nworktree = ../sub", None);
    }

    #[test]
    fn a_repository_without_a_working_tree_counts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub/objects")).unwrap();
        fs::write(dir.path().join("sub/HEAD"), "ref: refs/heads/main").unwrap();
        fs::write(dir.path().join("sub/config"), "[core]\nfsmonitor = touch PWN").unwrap();
        assert!(hazard(dir.path(), "sub").unwrap().contains("core.fsmonitor"));
        assert_eq!(hazard(dir.path(), ""), None);
    }

    #[test]
    fn a_worktree_is_judged_by_the_repository_it_belongs_to() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("main/.git");
        fs::create_dir_all(store.join("worktrees/w")).unwrap();
        fs::create_dir_all(dir.path().join("w")).unwrap();
        fs::write(store.join("config"), "[core]\nfsmonitor = ./evil.sh").unwrap();
        fs::write(store.join("worktrees/w/commondir"), "../..").unwrap();
        let pointer = format!("gitdir: {}", store.join("worktrees/w").display());
        fs::write(dir.path().join("w/.git"), pointer).unwrap();
        assert!(hazard(dir.path(), "w").unwrap().contains("core.fsmonitor"));
    }

    #[test]
    fn a_submodule_is_looked_at_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join(".git/modules/libs/deep/name");
        fs::create_dir_all(module.join("modules/inner")).unwrap();
        for place in [&module, &module.join("modules/inner")] {
            fs::write(place.join("HEAD"), "ref: refs/heads/main").unwrap();
            fs::write(place.join("config"), "[filter \"x\"]\nclean = ./evil.sh").unwrap();
            assert!(hazard(dir.path(), "").unwrap().contains("filter.x.clean"), "{}", place.display());
            fs::write(place.join("config"), "[core]\nbare = false").unwrap();
            assert_eq!(hazard(dir.path(), ""), None);
        }
    }

    #[test]
    fn files_and_history_of_another_folder_are_not_this_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (w, other) = (root.join("w"), root.join("other/.git"));
        fs::create_dir_all(w.join(".git")).unwrap();
        fs::create_dir_all(other.join("worktrees/w")).unwrap();
        let hazard = || places(&w).repository_hazard(std::slice::from_ref(&w));
        fs::write(w.join(".git/config"), "[core]\nworktree = ../../other").unwrap();
        assert!(hazard().unwrap().contains("files lie elsewhere"));
        fs::remove_dir_all(w.join(".git")).unwrap();
        fs::write(w.join(".git"), "gitdir: ../other/.git").unwrap();
        assert!(hazard().unwrap().contains("belongs to another folder"));
        fs::write(other.join("config"), "[core]\nworktree = ../../w").unwrap();
        assert_eq!(hazard(), None, "a submodule");
        fs::write(other.join("config"), "[core]\nbare = false").unwrap();
        fs::write(w.join(".git"), "gitdir: ../other/.git/worktrees/w").unwrap();
        assert!(hazard().is_some());
        fs::write(other.join("worktrees/w/gitdir"), w.join(".git").to_str().unwrap()).unwrap();
        assert_eq!(hazard(), None, "a worktree");
    }
}
