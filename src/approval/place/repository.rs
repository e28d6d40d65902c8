//! What a repository's own configuration makes git run.
//!
//! A repository that was only looked at must not execute anything, yet `git status` runs whatever
//! `core.fsmonitor` names. So reading git commands count as reading only where the configuration of
//! every repository they would use names no program. The user's own configuration is trusted.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::real::git_dirs;

/// Bytes of a configuration that are read; a longer one counts as naming a program.
const MAX_CONFIG_BYTES: u64 = 256 * 1024;

/// Submodules looked at; more count as naming a program.
const MAX_MODULES: usize = 64;

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

/// The first setting that would make git run something from one of these folders, if there is one.
pub(in crate::approval) fn running_setting(folders: &[PathBuf]) -> Option<String> {
    folders.iter().find_map(|folder| configurations(folder).iter().find_map(|path| setting_of(path)))
}

/// The configuration files of the repository that git finds from a folder, its submodules' included.
fn configurations(folder: &Path) -> Vec<PathBuf> {
    let Some(git_dir) = folder.ancestors().find_map(git_dir_of) else { return Vec::new() };
    let mut found = Vec::new();
    for dir in git_dir {
        found.extend([dir.join("config"), dir.join("config.worktree")]);
        let modules = fs::read_dir(dir.join("modules")).into_iter().flatten().flatten();
        found.extend(modules.take(MAX_MODULES).map(|module| module.path().join("config")));
    }
    found
}

/// The git directories of a folder, when it is a working tree or a repository without one.
fn git_dir_of(folder: &Path) -> Option<Vec<PathBuf>> {
    let own = folder.join(".git");
    if own.is_dir() {
        return Some(vec![own]);
    }
    if own.is_file() {
        return Some(git_dirs(folder));
    }
    let is_bare = folder.join("HEAD").is_file() && folder.join("objects").is_dir();
    is_bare.then(|| vec![folder.to_path_buf()])
}

fn setting_of(path: &Path) -> Option<String> {
    // Opening a pipe would wait for its writer, and so would git.
    if !fs::metadata(path).ok()?.is_file() {
        return Some(path.to_string_lossy().into_owned());
    }
    let file = fs::File::open(path).ok()?;
    let mut text = String::new();
    if file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text).is_err() || text.len() as u64 > MAX_CONFIG_BYTES {
        return Some(path.to_string_lossy().into_owned());
    }
    let settings = settings(&text);
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

    fn check(config: &str, expected: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        fs::create_dir_all(dir.path().join("sub/deep")).unwrap();
        fs::write(dir.path().join(".git/config"), config).unwrap();
        let found = running_setting(&[dir.path().join("sub/deep")]);
        assert_eq!(found.as_deref(), expected, "{config}");
    }

    #[test]
    fn a_configuration_that_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        fs::create_dir_all(&git).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, git.join("config"), pipe, rustix::fs::Mode::RUSR, 0).unwrap();
        assert!(running_setting(&[dir.path().to_path_buf()]).unwrap().ends_with("config"));
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
        check("[core]\nworktree = ../../../sub", None);
    }

    #[test]
    fn a_repository_without_a_working_tree_counts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub/objects")).unwrap();
        fs::write(dir.path().join("sub/HEAD"), "ref: refs/heads/main").unwrap();
        fs::write(dir.path().join("sub/config"), "[core]\nfsmonitor = touch PWN").unwrap();
        assert_eq!(running_setting(&[dir.path().join("sub")]).as_deref(), Some("core.fsmonitor"));
        assert_eq!(running_setting(&[dir.path().to_path_buf()]), None);
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
        assert_eq!(running_setting(&[dir.path().join("w")]).as_deref(), Some("core.fsmonitor"));
    }
}
