//! Where the commands of a text run, and what their words name from there.

use std::path::{Path, PathBuf};

use super::case::Case;
use super::place::{Spot, expand};
use super::program;
use super::shell::{Command, Joined, RedirectKind, Word, WordKind};

/// Folders a command may be in at once before nobody can follow.
pub(super) const MAX_FOLDERS: usize = 16;

/// The folders a command may be in.
pub(super) struct Folders {
    pub(super) all: Vec<PathBuf>,
    /// Where the chain of `&&` began, when a `cd` in it may have failed.
    before: Vec<PathBuf>,
    is_after_cd: bool,
    pub(super) is_lost: bool,
}

fn is_cd(command: &Command) -> bool {
    command.words.first().is_some_and(|program| matches!(program.text.as_str(), "cd" | "pushd"))
}

impl Folders {
    pub(super) fn at(start: PathBuf) -> Self {
        Self { all: vec![start], before: Vec::new(), is_after_cd: false, is_lost: false }
    }

    /// Every folder that any `cd` found could lead to.
    pub(super) fn of(found: &[Command], start: &Path, case: &Case<'_>) -> Self {
        let mut folders = Self::at(start.to_path_buf());
        for command in found {
            folders.follow(command, case);
        }
        folders
    }

    /// Where a plain command runs: within a chain of `&&` behind a `cd` only where that leads, after it
    /// also where it began.
    pub(super) fn enter(&mut self, command: &Command) {
        let stays = command.joined == Joined::And || (command.joined == Joined::Pipe && !self.is_after_cd);
        if !stays {
            for folder in std::mem::take(&mut self.before) {
                self.add(folder);
            }
        }
    }

    /// Goes where a plain `cd` leads.
    pub(super) fn go(&mut self, command: &Command, case: &Case<'_>) {
        self.is_after_cd = is_cd(command);
        if !self.is_after_cd {
            return;
        }
        let has_dash = command.arguments().iter().any(|word| word.text == "-");
        let Some(targets) = self.targets(command, case).filter(|_| !has_dash) else {
            self.is_lost = true;
            return;
        };
        if command.joined == Joined::Pipe {
            targets.into_iter().for_each(|folder| self.add(folder));
            return;
        }
        self.before =
            std::mem::replace(&mut self.all, targets).into_iter().chain(std::mem::take(&mut self.before)).collect();
        self.bound();
    }

    /// Adds where any `cd` could lead. The old folders stay: it may fail, or not be reached.
    fn follow(&mut self, command: &Command, case: &Case<'_>) {
        if is_cd(command) {
            match self.targets(command, case) {
                Some(targets) => targets.into_iter().for_each(|folder| self.add(folder)),
                None => self.is_lost = true,
            }
        }
    }

    fn targets(&self, command: &Command, case: &Case<'_>) -> Option<Vec<PathBuf>> {
        let target = command.arguments().iter().find(|word| !word.text.starts_with('-'));
        let home = Word::literal("~");
        let spots = self.spots(target.unwrap_or(&home), case)?;
        Some(spots.into_iter().map(|spot| spot.real).collect())
    }

    fn add(&mut self, folder: PathBuf) {
        if !self.all.contains(&folder) {
            self.all.push(folder);
        }
        self.bound();
    }

    fn bound(&mut self) {
        if self.all.len() > MAX_FOLDERS || self.before.len() > MAX_FOLDERS {
            self.all.truncate(MAX_FOLDERS);
            self.before.truncate(MAX_FOLDERS);
            self.is_lost = true;
        }
    }

    /// Everything a word may name; `None` when that cannot be told.
    pub(super) fn spots(&self, word: &Word, case: &Case<'_>) -> Option<Vec<Spot>> {
        let bases = self.all.iter();
        match word.kind {
            WordKind::Unknown => None,
            WordKind::Literal => Some(bases.map(|base| case.places.spot(base, Path::new(&word.text))).collect()),
            WordKind::Glob => {
                let mut spots = Vec::new();
                for base in bases {
                    let pattern = case.places.spot(base, Path::new(&word.text)).spelled;
                    spots.extend(expand(&pattern)?.iter().map(|path| case.places.spot(base, path)));
                    spots.push(Spot { spelled: pattern.clone(), real: fixed_part(&pattern) });
                }
                Some(spots)
            }
        }
    }

    /// The command with each pattern that no file's name makes an option of written so that it cannot be one.
    pub(super) fn settled(&self, command: &Command, case: &Case<'_>) -> Command {
        let is_harmless = |text: &str| {
            self.all.iter().all(|folder| {
                let pattern = case.places.spot(folder, Path::new(text)).spelled;
                let is_option =
                    |path: &PathBuf| path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('-'));
                expand(&pattern).is_some_and(|found| !found.iter().any(is_option))
            })
        };
        let settle = |word: &Word| match word.kind {
            WordKind::Glob if !word.text.contains('/') && !word.text.starts_with('-') && is_harmless(&word.text) => {
                Word { text: format!("./{}", word.text), ..word.clone() }
            }
            _ => word.clone(),
        };
        Command { words: command.words.iter().map(settle).collect(), ..command.clone() }
    }

    /// Everything that any word of a command may name, values of options included.
    pub(super) fn mentioned(&self, command: &Command, case: &Case<'_>) -> Vec<Spot> {
        let targets =
            command.redirects.iter().filter(|r| r.kind != RedirectKind::Plain).map(|redirect| &redirect.target);
        let assessment = program::assess(command);
        let words: Vec<&Word> = match assessment.is_read_only {
            true => assessment.paths.iter().chain(targets).collect(),
            false => command.arguments().iter().chain(targets).collect(),
        };
        words.into_iter().flat_map(|word| self.mentioned_by(word, case)).collect()
    }

    fn mentioned_by(&self, word: &Word, case: &Case<'_>) -> Vec<Spot> {
        let text = match word.text.split_once('=') {
            Some((_, value)) => value,
            None => word.text.strip_prefix('@').unwrap_or(&word.text),
        };
        if text.is_empty() || text.len() > 4096 {
            return Vec::new();
        }
        let kind = if word.kind == WordKind::Unknown { WordKind::Literal } else { word.kind };
        self.spots(&Word { text: text.to_owned(), kind }, case).unwrap_or_default()
    }
}

/// The folder of a pattern up to its first wildcard.
fn fixed_part(pattern: &Path) -> PathBuf {
    pattern.components().take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?', '['])).collect()
}
