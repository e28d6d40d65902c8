//! The gate of one session.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::config::{Mode, RuleConfig, RuleEffect};
use crate::sandbox::{self, SandboxPolicy, UNAVAILABLE};
use crate::tool::{Access, CallPlan, GitCare};

use super::case::Case;
use super::digest::{Digest, Subject};
use super::display;
use super::need::{Findings, NeedKind};
use super::place::{Places, View};
use super::remembered::{Remembered, RememberedRules, RulesError};
use super::rule::Rule;
use super::subject::subject;
use super::verdict::{HookVerdict, Judgement, Offer, Question, Scope, Verdict};

/// Reasons listed in one question; the rest is counted.
const MAX_REASONS: usize = 8;

/// What a gate is made from.
#[derive(Debug)]
pub struct GateSetup {
    /// The mode at start.
    pub mode: Mode,
    /// Rules of the user's configuration.
    pub rules: Vec<RuleConfig>,
    /// The store of remembered rules, shared by all sessions.
    pub remembered: Arc<RememberedRules>,
    /// The session's folders and the places that need care.
    pub places: Places,
    /// Whether commands run in the sandbox.
    pub sandbox: SandboxState,
}

/// Whether commands run in the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SandboxState {
    /// They do: the kernel holds what they can reach.
    On(Arc<SandboxPolicy>),
    /// They should, but this machine cannot hold all they could do.
    Unavailable {
        /// Why, for a person.
        why: Arc<str>,
        /// What still holds commands that only read.
        reading: Option<Arc<SandboxPolicy>>,
    },
    /// They do not.
    #[default]
    Off,
}

/// The gate of one session, shared by its turns.
#[derive(Debug)]
pub struct Gate {
    places: Places,
    configured: Vec<Rule>,
    remembered: Arc<RememberedRules>,
    sandbox: SandboxState,
    /// What holds commands that were found to read only.
    reading: Option<Arc<SandboxPolicy>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    session: Vec<Rule>,
    /// Rules of the workspace's own configuration, once it is trusted.
    workspace: Vec<Rule>,
    /// Counts changes that can make a verdict stricter; part of every digest.
    epoch: u64,
    /// The remembered rules that are compiled, as the store gave them.
    seen: Arc<[Remembered]>,
    /// All rules in force.
    rules: Arc<[Rule]>,
}

/// What counts at one moment.
struct Snapshot {
    mode: Mode,
    /// Every rule in force that is known.
    rules: Arc<[Rule]>,
    epoch: u64,
    /// Why the remembered rules cannot be read, if so.
    problem: Option<String>,
}

impl Gate {
    /// A gate for a session.
    #[must_use]
    pub fn new(setup: GateSetup) -> Self {
        let configured: Vec<Rule> = setup.rules.iter().map(|rule| Rule::new(rule, &setup.places)).collect();
        let rules = configured.clone().into();
        let reading = match &setup.sandbox {
            SandboxState::On(policy) => Some(Arc::new(policy.for_reading())),
            SandboxState::Unavailable { reading, .. } => reading.clone(),
            SandboxState::Off => None,
        };
        Self {
            reading,
            places: setup.places,
            configured,
            remembered: setup.remembered,
            sandbox: setup.sandbox,
            state: Mutex::new(State {
                mode: setup.mode,
                session: Vec::new(),
                workspace: Vec::new(),
                epoch: 0,
                seen: Arc::new([]),
                rules,
            }),
        }
    }

    /// Judges a prepared call. To be asked after the last rewrite of its arguments.
    #[must_use]
    pub fn judge(&self, tool: &str, arguments: &Value, plan: &CallPlan, hook: &HookVerdict) -> Judgement {
        let Snapshot { mode, rules, epoch, problem } = self.snapshot();
        let view = View::new(&self.places);
        let case = Case { tool, arguments, plan, places: &view, rules: &rules };
        let digest = self.subject(&case, epoch);
        let findings = Findings { unread: problem, ..case.findings() };
        let is_command = plan.access.iter().any(|access| matches!(access, Access::Execute { .. }));
        // A command that the mode lets pass is contained, also one that looks like a plain edit.
        let leans_on_sandbox = mode == Mode::Auto && is_command && !findings.needs.is_empty();
        // What runs without a question because it only reads is held to that.
        let only_reads = mode != Mode::FullAccess && is_command && findings.change.is_none();
        let verdict = self.verdict(&case, mode, hook, findings);
        let git = match mode {
            Mode::FullAccess => GitCare::AsConfigured,
            _ if leans_on_sandbox => GitCare::Wary,
            _ => GitCare::Quiet,
        };
        let sandbox = match (&self.sandbox, &verdict) {
            (SandboxState::On(policy), Verdict::Allow { .. }) if leans_on_sandbox => Some(Arc::clone(policy)),
            (_, Verdict::Allow { .. }) if only_reads && !sandbox::has_failed() => self.reading.clone(),
            _ => None,
        };
        Judgement { verdict, digest, sandbox, git }
    }

    /// The digest of a call as things stand now. An approval holds only while it stays the same.
    #[must_use]
    pub fn digest(&self, tool: &str, arguments: &Value, plan: &CallPlan) -> Digest {
        let Snapshot { rules, epoch, .. } = self.snapshot();
        let view = View::new(&self.places);
        self.subject(&Case { tool, arguments, plan, places: &view, rules: &rules }, epoch)
    }

    /// Remembers an offer that the user took.
    ///
    /// # Errors
    /// When `rules.toml` cannot be changed. The grant then holds for the session.
    pub fn grant(&self, offer: &Offer, scope: Scope) -> Result<(), RulesError> {
        self.remember(offer.rules.clone(), scope)
    }

    /// Remembers that the user never wants this.
    ///
    /// # Errors
    /// When `rules.toml` cannot be changed. The refusal then holds for the session.
    pub fn refuse(&self, offer: &Offer) -> Result<(), RulesError> {
        let rules = offer
            .rules
            .iter()
            .map(|rule| RuleConfig { effect: RuleEffect::Deny, definition: None, ..rule.clone() })
            .collect();
        self.remember(rules, Scope::Always)
    }

    /// Whether any rule in force denies or asks about something, or one that cannot be read might, so that each call
    /// must be seen.
    #[must_use]
    pub fn restricts_something(&self) -> bool {
        let Snapshot { rules, problem, .. } = self.snapshot();
        problem.is_some() || rules.iter().any(|rule| rule.effect != RuleEffect::Allow)
    }

    /// True when a search of a folder must not look into this file: it holds secrets, or a rule denies reading it.
    #[must_use]
    pub fn hides_from_search(&self, path: &Path) -> bool {
        let rules = Arc::clone(&self.lock().rules);
        let spot = View::new(&self.places).spot(self.places.cwd(), path);
        let denies = |rule: &Rule| {
            rule.effect == RuleEffect::Deny
                && ["search_files", "read_file"].iter().any(|tool| rule.concerns_tool(tool))
                && rule.hits_path(&spot)
        };
        self.places.hides_from_search(&spot) || rules.iter().any(denies)
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// True when the mode lets commands pass because the sandbox holds them.
    #[must_use]
    pub fn relies_on_sandbox(&self) -> bool {
        self.mode() == Mode::Auto
    }

    /// Changes the mode. Only the client may ask for this.
    pub fn set_mode(&self, mode: Mode) {
        let mut state = self.lock();
        if state.mode != mode {
            state.mode = mode;
            state.epoch += 1;
        }
    }

    /// Puts the rules of the workspace's own configuration in force, in place of those before. To be called
    /// with what the user trusted, and with nothing once that changed.
    pub fn set_workspace_rules(&self, rules: &[RuleConfig]) {
        let mut state = self.lock();
        if rules.is_empty() && state.workspace.is_empty() {
            return;
        }
        state.workspace = rules.iter().map(|rule| Rule::new(rule, &self.places)).collect();
        state.epoch += 1;
        state.rules = self.in_force(&state);
    }

    /// The store of remembered rules.
    #[must_use]
    pub fn remembered(&self) -> &RememberedRules {
        &self.remembered
    }

    /// The session's places.
    #[cfg(test)]
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subject(&self, case: &Case<'_>, epoch: u64) -> Digest {
        let subject = Subject {
            tool: case.tool,
            arguments: case.arguments,
            plan: case.plan,
            cwd: self.places.cwd(),
            real_paths: &case.real_paths(),
            epoch,
        };
        subject.digest()
    }

    fn snapshot(&self) -> Snapshot {
        let (remembered, problem) = self.remembered.list();
        let mut state = self.lock();
        if !Arc::ptr_eq(&remembered, &state.seen) {
            let is_lost = state.seen.iter().any(|rule| !remembered.contains(rule));
            let is_denied =
                remembered.iter().any(|rule| rule.rule.effect == RuleEffect::Deny && !state.seen.contains(rule));
            state.epoch += u64::from(is_lost || is_denied);
            state.seen = remembered;
            state.rules = self.in_force(&state);
        }
        Snapshot { mode: state.mode, rules: Arc::clone(&state.rules), epoch: state.epoch, problem }
    }

    fn in_force(&self, state: &State) -> Arc<[Rule]> {
        let ours = state.seen.iter().filter(|rule| rule.workspace == self.places.cwd());
        let remembered = ours.map(|rule| Rule::new(&rule.rule, &self.places));
        self.configured.iter().chain(&state.workspace).chain(&state.session).cloned().chain(remembered).collect()
    }

    fn remember(&self, rules: Vec<RuleConfig>, scope: Scope) -> Result<(), RulesError> {
        let stored = match scope {
            Scope::Session => Ok(()),
            Scope::Always => self.remembered.add(&rules, self.places.cwd()),
        };
        let compiled: Vec<Rule> = rules.iter().map(|rule| Rule::new(rule, &self.places)).collect();
        let mut state = self.lock();
        state.epoch += u64::from(compiled.iter().any(|rule| rule.effect != RuleEffect::Allow));
        if scope == Scope::Session || stored.is_err() {
            state.session.extend(compiled);
            state.rules = self.in_force(&state);
        }
        stored
    }

    /// Floor, deny, hook, ask rules, allow rules (already applied), mode, question: in this order.
    fn verdict(&self, case: &Case<'_>, mode: Mode, hook: &HookVerdict, findings: Findings) -> Verdict {
        if let Some(reason) = findings.floor.as_ref().or(findings.denied.as_ref()) {
            return block(reason);
        }
        if let HookVerdict::Block(reason) = hook {
            return block(reason);
        }
        if let (Mode::Plan, Some(change)) = (mode, &findings.change) {
            return block(&format!("plan mode only reads, and this {change}"));
        }
        if let (Mode::FullAccess, Some(reason)) = (mode, &findings.unchecked) {
            return block(reason);
        }
        let is_asked = !findings.asked.is_empty() || findings.unread.is_some() || matches!(hook, HookVerdict::Ask(_));
        let mut reasons: Vec<String> = Vec::new();
        if let HookVerdict::Ask(prompt) = hook {
            reasons.push(display::escape(prompt));
        }
        let unread = |problem| display::escape(&format!("a remembered rule may refuse it, but turnd {problem}"));
        reasons.extend(findings.unread.as_ref().map(unread));
        reasons.extend(findings.asked.iter().map(|rule| display::escape(&format!("an ask rule wants it: {rule}"))));
        let mut has_always = false;
        for need in &findings.needs {
            match self.passes(mode, need.kind) {
                Passage::Open => {}
                Passage::Asked => {
                    has_always |= need.kind == NeedKind::Always;
                    reasons.push(need.reason.clone());
                }
                Passage::Shut => return block(&need.reason),
                Passage::Unheld(why) => return block(&unheld(why)),
            }
        }
        if reasons.is_empty() {
            return Verdict::Allow { because: because(mode, &findings.allowed_by, findings.change.is_some()) };
        }
        let is_steering = case.plan.access.iter().all(|access| matches!(access, Access::Write(_)));
        let remember =
            if is_asked || (has_always && !is_steering) { None } else { Offer::of(case, findings.to_cover.as_deref()) };
        Verdict::Ask(Question { reasons: bounded(reasons), subject: subject(case), remember })
    }

    fn passes(&self, mode: Mode, kind: NeedKind) -> Passage<'_> {
        match (mode, kind) {
            (Mode::FullAccess, _) => Passage::Open,
            (Mode::Auto, NeedKind::LinkedEdit) => Passage::Shut,
            (Mode::Auto | Mode::AcceptEdits, NeedKind::WorkspaceEdit) => Passage::Open,
            (Mode::Auto, NeedKind::Command | NeedKind::CommandRead) => match &self.sandbox {
                SandboxState::On(_) if sandbox::has_failed() => Passage::Unheld("the kernel refused it"),
                SandboxState::On(_) => Passage::Open,
                SandboxState::Unavailable { why, .. } => Passage::Unheld(why),
                SandboxState::Off => Passage::Asked,
            },
            _ => Passage::Asked,
        }
    }
}

enum Passage<'a> {
    Open,
    Asked,
    Shut,
    /// The mode lets it pass in the sandbox only, and there is none.
    Unheld(&'a str),
}

/// What the model and the user are told of a command that only the sandbox could let pass.
fn unheld(why: &str) -> String {
    format!(
        "{UNAVAILABLE}: {why}. `turnd doctor` tells what this machine has; the mode ask asks for each command, and so \
         does auto with sandbox.mode = \"off\""
    )
}

fn block(reason: &str) -> Verdict {
    Verdict::Block { reason: display::escape(reason) }
}

fn because(mode: Mode, allowed_by: &[String], is_change: bool) -> String {
    match allowed_by.first() {
        Some(rule) => format!("an allow rule covers it: {}", display::escape(rule)),
        None if is_change => format!("the mode {} lets it pass", mode.as_str()),
        None => "it only reads".to_owned(),
    }
}

fn bounded(mut reasons: Vec<String>) -> Vec<String> {
    reasons.dedup();
    if reasons.len() > MAX_REASONS {
        let more = reasons.len() - MAX_REASONS;
        reasons.truncate(MAX_REASONS);
        reasons.push(format!("and {more} more reasons"));
    }
    reasons
}
