//! Commands under judgement: both readings against places, rules and what is known of programs.

use std::path::{Path, PathBuf};

use crate::config::RuleEffect;

use super::case::{Case, show};
use super::danger;
use super::display;
use super::floor;
use super::folders::{Folders, MAX_FOLDERS};
use super::need::{Findings, NeedKind};
use super::place::{Site, Spot, Standing};
use super::program::{self, Assessment, Objection, Sees};
use super::rule::{Reach, Rule};
use super::shell::{self, Analysis, Command, Plainness, RedirectKind, Word};

/// Variables that a plain command may be given: they change how it prints, not what it does.
const PLAIN_VARIABLES: [&str; 22] = [
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CARGO_TERM_COLOR",
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_COLLATE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "TZ",
    "COLUMNS",
    "LINES",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "NODE_ENV",
    "DEBIAN_FRONTEND",
];

/// Files that may be read and written without any effect.
const PLAIN_FILES: [&str; 4] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/63"];

/// Files outside any workspace that say what machine this is, and nothing of anybody.
const PUBLIC_FILES: [&str; 5] = ["/etc/os-release", "/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg"];

impl Case<'_> {
    pub(super) fn command(&self, text: &str, cwd: &Path, findings: &mut Findings) {
        let analysis = shell::analyse(text);
        let start = self.places.spot(self.places.cwd(), cwd);
        let folders = Folders::of(&analysis.found, &start.real, self);
        if let Some(reason) = floor::reason(&analysis, self.places, &folders.all) {
            findings.floor(|| reason);
        }
        if analysis.is_cut {
            findings.unchecked = Some("it is too long or too deep to be checked whole".to_owned());
        }
        self.command_rules(&analysis, &folders, findings);
        let mut lifted = Vec::new();
        match &analysis.plain {
            Plainness::Plain(commands) => {
                if self.places.site(&start) != Site::Inside {
                    findings.need(NeedKind::CommandRead, format!("runs outside the workspace: {}", show(&start)));
                }
                let mut now = Folders::at(start.real);
                for command in commands {
                    self.step(command, &mut now, &mut lifted, findings);
                }
                if now.is_lost {
                    findings.need(NeedKind::Command, "changes to a folder that is only known when it runs");
                }
            }
            Plainness::Opaque(reason) => {
                findings.changes(|| format!("runs a command that is not plain: {reason}"));
                findings.need(NeedKind::Command, format!("cannot be read plainly: {reason}"));
                findings.to_cover = None;
            }
        }
        self.harm(&analysis, &folders, &lifted, findings);
    }

    /// Deny and ask rules against everything found, in any spelling.
    fn command_rules(&self, analysis: &Analysis, folders: &Folders, findings: &mut Findings) {
        let plain: &[Command] = if let Plainness::Plain(commands) = &analysis.plain { commands } else { &[] };
        let all = || analysis.found.iter().chain(plain);
        let meets = |rule: &&Rule| {
            rule.command().is_some_and(|pattern| {
                all().any(|command| pattern.hits(&command.texts()))
                    || (analysis.is_cut
                        && pattern.program().is_some_and(|program| {
                            let name = shell::program_name(&program);
                            all()
                                .any(|command| command.words.iter().any(|word| shell::program_name(&word.text) == name))
                        }))
            })
        };
        if let Some(rule) = self.rules_with(RuleEffect::Deny).find(meets) {
            findings.deny(&rule.text);
        }
        findings.asked.extend(self.rules_with(RuleEffect::Ask).filter(meets).map(|rule| rule.text.clone()));
        let has_path_rules = self.rules_with(RuleEffect::Deny).chain(self.rules_with(RuleEffect::Ask)).next().is_some();
        if has_path_rules || self.places.has_deny_read() {
            for spot in all().flat_map(|command| folders.mentioned(command, self)) {
                self.file_rules(&spot, findings);
            }
        }
    }

    /// Harm that the permissive reading sees and no rule has spelled out.
    fn harm(&self, analysis: &Analysis, folders: &Folders, lifted: &[Objection], findings: &mut Findings) {
        let mut objections: Vec<Objection> =
            analysis.dangers.iter().map(|reason| Objection::new(*reason, "")).collect();
        for command in &analysis.found {
            objections.extend(danger::objections(command, self.places, &folders.all));
            objections.extend(self.secrets(command, folders));
        }
        for objection in objections {
            if !lifted.contains(&objection) {
                findings.changes(|| objection.reason.clone());
                findings.need(NeedKind::Always, display::escape(&objection.reason));
            }
        }
    }

    /// Files with secrets that the words of a command name.
    fn secrets(&self, command: &Command, folders: &Folders) -> Vec<Objection> {
        let assessment = program::assess(command);
        if assessment.is_read_only && assessment.sees == Sees::Names {
            return Vec::new();
        }
        let spots = folders.mentioned(command, self);
        spots
            .into_iter()
            .filter(|spot| self.places.standing(spot) == Standing::Secret)
            .map(|spot| Objection::new(format!("may hold secrets: {}", show(&spot)), spot.real.to_string_lossy()))
            .collect()
    }

    /// One plain command: covered by what is known of it, by a rule, or not at all.
    fn step(&self, command: &Command, now: &mut Folders, lifted: &mut Vec<Objection>, findings: &mut Findings) {
        now.enter(command);
        self.redirects(command, now, findings);
        self.variables(command, findings);
        let Some(inner) = peel(command) else {
            return;
        };
        let assessment = program::assess(&now.settled(&inner, self));
        let mut objections = assessment.objections.clone();
        objections.extend(danger::objections(&inner, self.places, &now.all));
        let setting = self.repository_runs(&inner, &assessment, now);
        let planted = self.planted_by_workspace(&inner, &assessment, now);
        if let Some(reason) = setting.or(planted) {
            findings.changes(|| reason.clone());
            findings.need(NeedKind::Command, display::escape(&reason));
            findings.to_cover = None;
        }
        let secrets = self.secrets(&inner, now);
        let rule = self.covering_rule(command, &inner, &objections);
        if let Some(rule) = rule {
            findings.allowed_by.push(rule.text.clone());
            lifted.extend(objections.iter().cloned());
            lifted.extend(secrets.iter().filter(|secret| spells_path(rule, secret)).cloned());
        }
        let words = display::escape(&shorten(&inner.texts().join(" ")));
        if !assessment.is_read_only {
            findings.changes(|| format!("runs `{words}`"));
        }
        if rule.is_none() && !assessment.is_read_only {
            findings.to_cover.iter_mut().for_each(|commands| commands.push(inner.clone()));
            let known: Vec<String> = objections.iter().map(|objection| display::escape(&objection.reason)).collect();
            match known.is_empty() {
                true => findings.need(NeedKind::Command, format!("runs `{words}`")),
                false => known
                    .into_iter()
                    .for_each(|reason| findings.need(NeedKind::Command, format!("runs `{words}`: {reason}"))),
            }
        }
        self.paths(&inner, &assessment, rule, now, findings);
        self.searched(&assessment, now, findings);
        now.go(&inner, self);
    }

    /// Why this reading git command would run something that its repository names, or read what is elsewhere.
    fn repository_runs(&self, command: &Command, assessment: &Assessment, now: &Folders) -> Option<String> {
        let is_git = command.words.first().is_some_and(|program| shell::program_name(&program.text) == "git");
        if !is_git || !assessment.is_read_only {
            return None;
        }
        let elsewhere =
            assessment.paths.iter().filter_map(|path| now.spots(path, self)).flatten().map(|spot| spot.real);
        let folders: Vec<PathBuf> = now.all.iter().cloned().chain(elsewhere).take(MAX_FOLDERS * 4).collect();
        self.places.repository_hazard(&folders)
    }

    /// Why a program that only tells its version would run another one that the workspace names.
    fn planted_by_workspace(&self, command: &Command, assessment: &Assessment, now: &Folders) -> Option<String> {
        let program = command.words.first().filter(|_| assessment.asks_version)?;
        let file = self.places.planted_program(&shell::program_name(&program.text), &now.all)?;
        Some(format!("`{}` says what runs as `{}`", file.display(), program.text))
    }

    /// Paths that a reading command names.
    fn paths(
        &self,
        command: &Command,
        assessment: &Assessment,
        rule: Option<&Rule>,
        now: &Folders,
        findings: &mut Findings,
    ) {
        for word in &assessment.paths {
            let Some(spots) = now.spots(word, self) else {
                if rule.is_none() {
                    let program = command.words.first().map(|word| word.text.as_str()).unwrap_or_default();
                    let reason = format!("`{}` reads what is only known when it runs", display::escape(program));
                    findings.need(NeedKind::CommandRead, reason);
                }
                continue;
            };
            for spot in spots {
                self.file_rules(&spot, findings);
                let is_outside =
                    self.places.site(&spot) != Site::Inside && !is_plain_file(&spot.spelled) && !is_public_file(&spot);
                let is_spelled = rule.is_some_and(|rule| assessment.sees == Sees::Names || spells(rule, word));
                if is_outside && !is_spelled && self.reach(&spot).is_none() {
                    findings.need(NeedKind::CommandRead, format!("reads outside the workspace: {}", show(&spot)));
                }
                if assessment.sees == Sees::Content
                    && self.places.standing(&spot) == Standing::Secret
                    && self.reach(&spot) != Some(Reach::Exact)
                    && rule.is_none()
                {
                    findings.need(NeedKind::Always, format!("may hold secrets: {}", show(&spot)));
                }
            }
        }
    }

    /// What a command would come upon in the folders it searches: secrets, links out of the workspace.
    fn searched(&self, assessment: &Assessment, now: &Folders, findings: &mut Findings) {
        let Some(below) = &assessment.below else { return };
        let named: Vec<PathBuf> =
            assessment.paths.iter().filter_map(|path| now.spots(path, self)).flatten().map(|spot| spot.real).collect();
        let folders = if named.is_empty() { &now.all } else { &named };
        if let Some(hazard) = folders.iter().find_map(|folder| self.places.hazard_below(folder, below)) {
            findings.need(NeedKind::Always, display::escape(&hazard));
        }
    }

    fn redirects(&self, command: &Command, now: &Folders, findings: &mut Findings) {
        for redirect in &command.redirects {
            if redirect.kind == RedirectKind::Plain || is_plain_file(Path::new(&redirect.target.text)) {
                continue;
            }
            let target = display::escape(&redirect.target.text);
            let Some(spots) = now.spots(&redirect.target, self) else {
                findings.changes(|| format!("redirects to {target}"));
                findings.need(NeedKind::Command, "redirects to what is only known when it runs");
                continue;
            };
            for spot in spots {
                self.redirect_to(redirect.kind, &spot, findings);
            }
        }
    }

    fn redirect_to(&self, kind: RedirectKind, spot: &Spot, findings: &mut Findings) {
        let shown = show(spot);
        self.file_rules(spot, findings);
        let reach = self.reach(spot);
        let is_inside = self.places.site(spot) == Site::Inside;
        let standing = self.places.standing(spot);
        if standing == Standing::Secret && reach != Some(Reach::Exact) {
            findings.need(NeedKind::Always, format!("may hold secrets: {shown}"));
        }
        if kind == RedirectKind::Read {
            if !is_inside && reach.is_none() {
                findings.need(NeedKind::CommandRead, format!("reads outside the workspace: {shown}"));
            }
            return;
        }
        findings.changes(|| format!("writes {shown}"));
        self.write_floor(spot, findings);
        if let (Standing::Steering(what), true) = (standing, reach != Some(Reach::Exact)) {
            findings.need(NeedKind::Always, format!("steers {what}: {shown}"));
        }
        match (is_inside, reach) {
            (_, Some(_)) => {}
            (true, None) => findings.need(NeedKind::WorkspaceEdit, format!("writes {shown}")),
            (false, None) => findings.need(NeedKind::Elsewhere, format!("writes outside the workspace: {shown}")),
        }
    }

    fn variables(&self, command: &Command, findings: &mut Findings) {
        let for_program = peel(command).map(|inner| inner.assignments).unwrap_or_default();
        if command.words.is_empty() {
            return;
        }
        for (name, value) in for_program {
            let is_plain_value = value.as_literal().is_some_and(|value| {
                value.chars().all(|c| c.is_ascii_alphanumeric() || "_.:,=-+".contains(c))
                    || (name == "RUST_LOG" && !value.contains('/'))
            });
            let is_pager =
                matches!(name.as_str(), "PAGER" | "GIT_PAGER" | "MANPAGER") && value.as_literal() == Some("cat");
            let is_plain = PLAIN_VARIABLES.contains(&name.as_str()) && is_plain_value;
            if !is_pager && !is_plain {
                findings.changes(|| format!("sets {name} for a program"));
                findings.need(NeedKind::Command, format!("sets `{}` for a program", display::escape(&name)));
            }
        }
    }

    /// The allow rule that covers a command and spells everything that stands against it.
    fn covering_rule(&self, outer: &Command, inner: &Command, objections: &[Objection]) -> Option<&Rule> {
        let words = inner.literals()?;
        let outer_words = outer.literals()?;
        self.rules_with(RuleEffect::Allow).find(|rule| {
            let Some(pattern) = rule.command() else { return rule.is_whole_tool() && objections.is_empty() };
            let spells_all =
                objections.iter().all(|objection| !objection.word.is_empty() && pattern.spells(&objection.word));
            let program = words.first().copied().unwrap_or_default();
            let covers_outer = || pattern.spells(program) && pattern.covers(&outer_words);
            spells_all && (pattern.covers(&words) || covers_outer())
        })
    }
}

/// The command inside its wrappers; `None` when there are only assignments or redirections.
pub(super) fn peel(command: &Command) -> Option<Command> {
    if command.words.is_empty() {
        return None;
    }
    let mut command = command.clone();
    while let Some(inner) = shell::plain_inner(&command) {
        if program::assess(&command).is_read_only {
            break;
        }
        command = inner;
    }
    Some(command)
}

fn spells(rule: &Rule, word: &Word) -> bool {
    rule.is_whole_tool() || rule.command().is_some_and(|pattern| pattern.spells(&word.text))
}

fn spells_path(rule: &Rule, secret: &Objection) -> bool {
    let name = secret.word.rsplit('/').next().unwrap_or_default();
    rule.command().is_some_and(|pattern| pattern.spells(&secret.word) || pattern.spells(name))
}

fn shorten(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}

fn is_public_file(spot: &Spot) -> bool {
    PUBLIC_FILES.iter().any(|public| spot.spelled == Path::new(public))
}

fn is_plain_file(path: &Path) -> bool {
    PLAIN_FILES.iter().any(|plain| path == Path::new(plain))
}
