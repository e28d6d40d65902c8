//! One call under judgement: its accesses against places and rules.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::RuleEffect;
use crate::tool::output::one_line;
use crate::tool::{Access, CallPlan, ForeignTool, Hold};

use super::display;
use super::need::{Findings, NeedKind};
use super::place::{Places, Site, Spot, Standing, View};
use super::rule::{Reach, Rule};

/// A call with everything that bears on it.
pub(super) struct Case<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) plan: &'a CallPlan,
    pub(super) places: &'a View<'a>,
    pub(super) rules: &'a [Rule],
}

/// Characters of a foreign tool's words that a reason shows.
const MAX_DEFINITION_CHARS: usize = 600;

/// Whether a file is read or written.
#[derive(Clone, Copy, PartialEq)]
enum Touch {
    Read,
    Write,
}

impl Case<'_> {
    pub(super) fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        self.whole_tool_rules(&mut findings);
        for access in &self.plan.access {
            match access {
                Access::Read(path) => self.file(Touch::Read, path, &mut findings),
                Access::Write(path) => self.file(Touch::Write, path, &mut findings),
                Access::Execute { command, cwd } => self.command(command, cwd, &mut findings),
                Access::Fetch(address) => self.fetch(address, &mut findings),
                Access::Note(path) => self.note(path, &mut findings),
                Access::External(tool) => self.external(tool, &mut findings),
                Access::Feed(hold) => self.feed(*hold, &mut findings),
            }
        }
        let is_foreign = self.tool.starts_with("mcp_");
        if is_foreign && !self.plan.access.iter().any(|access| matches!(access, Access::External(_))) {
            let tool = ForeignTool { name: self.tool.to_owned(), ..ForeignTool::default() };
            self.external(&tool, &mut findings);
        }
        findings
    }

    /// Where the plan's paths lead now, for the digest.
    pub(super) fn real_paths(&self) -> Vec<PathBuf> {
        let real = |path: &PathBuf| self.places.spot(self.places.cwd(), path).real;
        self.plan
            .access
            .iter()
            .map(|access| match access {
                Access::Read(path) | Access::Write(path) | Access::Note(path) => real(path),
                Access::Execute { cwd, .. } => real(cwd),
                Access::Fetch(_) | Access::External(_) | Access::Feed(_) => PathBuf::new(),
            })
            .collect()
    }

    pub(super) fn rules_with(&self, effect: RuleEffect) -> impl Iterator<Item = &Rule> {
        // What may not be run may not be typed into a shell that runs.
        let feeds = self.plan.access.iter().any(|access| matches!(access, Access::Feed(_)));
        let concerns = move |rule: &Rule| {
            rule.concerns_tool(self.tool) || feeds && effect != RuleEffect::Allow && rule.concerns_tool("terminal")
        };
        self.rules.iter().filter(move |rule| rule.effect == effect && concerns(rule))
    }

    fn whole_tool_rules(&self, findings: &mut Findings) {
        if let Some(rule) = self.rules_with(RuleEffect::Deny).find(|rule| rule.is_whole_tool()) {
            findings.deny(&rule.text);
        }
        findings
            .asked
            .extend(self.rules_with(RuleEffect::Ask).filter(|rule| rule.is_whole_tool()).map(|rule| rule.text.clone()));
    }

    /// The spot of an access: the path as the arguments spell it, and where it leads now.
    fn spot(&self, path: &Path) -> Spot {
        let spot = self.places.spot(self.places.cwd(), path);
        let as_written = self.arguments.get("path").and_then(Value::as_str);
        let written = as_written.map(|text| self.places.spot(self.places.cwd(), Path::new(text)));
        match written {
            Some(written) if written.real == spot.real => Spot { spelled: written.spelled, real: spot.real },
            _ => spot,
        }
    }

    fn file(&self, touch: Touch, path: &Path, findings: &mut Findings) {
        let spot = self.spot(path);
        let shown = show(&spot);
        if touch == Touch::Write {
            findings.changes(|| format!("writes {shown}"));
            self.write_floor(&spot, findings);
        }
        self.file_rules(&spot, findings);
        if touch == Touch::Read && self.places.is_result(&spot) {
            return;
        }
        if let Some(twin) = self.linked_twin(&spot) {
            let twin = display::escape(&twin.to_string_lossy());
            match touch {
                Touch::Write => findings.floor(|| format!("{shown} is another name of {twin}")),
                Touch::Read => findings.need(NeedKind::Always, format!("{shown} is another name of {twin}")),
            }
        }
        let reach = self.reach(&spot);
        let is_exact = reach == Some(Reach::Exact);
        match self.places.standing(&spot) {
            Standing::Secret if !is_exact => findings.need(NeedKind::Always, format!("may hold secrets: {shown}")),
            Standing::Steering(what) if touch == Touch::Write && !is_exact => {
                findings.need(NeedKind::Always, format!("steers {what}: {shown}"));
            }
            _ => {}
        }
        if reach.is_some() {
            return;
        }
        match (touch, self.places.site(&spot)) {
            (Touch::Read, Site::Inside) => {}
            (Touch::Read, _) => findings.need(NeedKind::Elsewhere, format!("reads outside the workspace: {shown}")),
            (Touch::Write, Site::Inside) if Places::link_count(&spot) > 1 => {
                findings.need(NeedKind::Elsewhere, format!("the file has other names elsewhere: {shown}"));
            }
            (Touch::Write, Site::Inside) => findings.need(NeedKind::WorkspaceEdit, format!("writes {shown}")),
            (Touch::Write, Site::Outside) => {
                findings.need(NeedKind::Elsewhere, format!("writes outside the workspace: {shown}"));
            }
            (Touch::Write, Site::LinkedOut) => {
                findings.need(NeedKind::LinkedEdit, format!("writes outside the workspace through a link: {shown}"));
            }
        }
    }

    pub(super) fn write_floor(&self, spot: &Spot, findings: &mut Findings) {
        if let Some(what) = self.places.protection(spot) {
            findings.floor(|| format!("{} belongs to {what}, which no tool may change", show(spot)));
        }
    }

    /// Deny and ask rules on a path, and the folders that nobody may read.
    pub(super) fn file_rules(&self, spot: &Spot, findings: &mut Findings) {
        if self.places.denies_read(spot) {
            findings.deny(&format!("sandbox.deny_read covers {}", show(spot)));
        }
        if let Some(rule) = self.rules_with(RuleEffect::Deny).find(|rule| rule.hits_path(spot)) {
            findings.deny(&rule.text);
        }
        let asked = self.rules_with(RuleEffect::Ask).filter(|rule| rule.hits_path(spot)).map(|rule| rule.text.clone());
        findings.asked.extend(asked);
    }

    fn linked_twin(&self, spot: &Spot) -> Option<PathBuf> {
        if Places::link_count(spot) > 1 { self.places.twin(spot) } else { None }
    }

    /// How closely an allow rule covers a file.
    pub(super) fn reach(&self, spot: &Spot) -> Option<Reach> {
        self.rules_with(RuleEffect::Allow).filter_map(|rule| rule.covers_path(spot)).max()
    }

    fn fetch(&self, address: &str, findings: &mut Findings) {
        let host = host(address);
        if let Some(rule) =
            self.rules_with(RuleEffect::Deny).find(|rule| !rule.is_whole_tool() && rule.matches_host(&host))
        {
            findings.deny(&rule.text);
        }
        let asked = self.rules_with(RuleEffect::Ask).filter(|rule| !rule.is_whole_tool() && rule.matches_host(&host));
        findings.asked.extend(asked.map(|rule| rule.text.clone()));
        if !self.rules_with(RuleEffect::Allow).any(|rule| rule.matches_host(&host)) {
            findings.need(NeedKind::Elsewhere, format!("talks to {}", display::escape(&host)));
        }
    }

    /// The agent's own notes: what is written there steers every later session, so only the user's word
    /// or a rule for the whole tool lets it pass.
    fn note(&self, path: &Path, findings: &mut Findings) {
        let shown = display::escape(&path.to_string_lossy());
        findings.changes(|| format!("writes {shown}"));
        if !self.rules_with(RuleEffect::Allow).any(Rule::is_whole_tool) {
            findings.need(NeedKind::Elsewhere, format!("changes what every later session is told: {shown}"));
        }
    }

    /// Input to a command that runs. What it means there is not known: it may go on where other input ended.
    fn feed(&self, hold: Hold, findings: &mut Findings) {
        findings.changes(|| "gives input to a command that runs".to_owned());
        if self.rules_with(RuleEffect::Allow).any(Rule::is_whole_tool) {
            return;
        }
        match hold {
            Hold::Sandbox => findings.need(NeedKind::Command, "gives input to a command that runs"),
            Hold::Nothing => findings.need(NeedKind::Elsewhere, "gives input to a command that no sandbox holds"),
        }
    }

    /// A tool of somebody else: nothing it says of itself counts for it, and an approval counts only for what it
    /// was given to.
    fn external(&self, tool: &ForeignTool, findings: &mut Findings) {
        let mut outdated = tool.was.as_deref();
        for rule in self.rules_with(RuleEffect::Allow).filter(|rule| rule.is_whole_tool()) {
            match rule.definition.as_deref() {
                Some(definition) if definition != tool.definition => outdated = Some(definition),
                None if tool.was.is_some() => {}
                _ => {
                    findings.allowed_by.push(rule.text.clone());
                    return;
                }
            }
        }
        let name = display::escape(&tool.name);
        findings.changes(|| format!("calls {name}, whose effect is not known"));
        if let Some(outdated) = outdated {
            findings.need(NeedKind::Elsewhere, changed(&name, outdated, &tool.definition));
        }
        findings.need(NeedKind::Elsewhere, format!("calls {name}, whose effect is not known"));
    }
}

/// How a foreign tool differs from what it was, for a person.
fn changed(name: &str, before: &str, now: &str) -> String {
    let said = |definition: &str| display::escape(one_line(definition, MAX_DEFINITION_CHARS).as_str());
    let (before, now) = (said(before), said(now));
    format!("{name} is not what it was when it was allowed or first seen. It said: “{before}” Now it says: “{now}”")
}

/// The host of an address, in lower case, without port and credentials.
pub(super) fn host(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// A path for a reason: as written, with its real target when that is elsewhere.
pub(super) fn show(spot: &Spot) -> String {
    let spelled = display::escape(&spot.spelled.to_string_lossy());
    if spot.spelled == spot.real {
        return spelled;
    }
    format!("{spelled} (really {})", display::escape(&spot.real.to_string_lossy()))
}
