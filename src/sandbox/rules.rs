//! The Landlock layer.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};

use super::policy::SandboxPolicy;

/// The newest kernel interface that is used where there is one; older kernels give what they have.
const ABI_WANTED: ABI = ABI::V6;

/// Devices that every program may write to.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Restricts this process.
pub(super) fn enter(policy: &SandboxPolicy) -> Result<(), String> {
    let restrict = || -> Result<RulesetStatus, landlock::RulesetError> {
        let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI_WANTED))?;
        if !policy.network {
            ruleset = ruleset.handle_access(AccessNet::from_all(ABI_WANTED))?;
        }
        let created = ruleset.scope(Scope::from_all(ABI_WANTED))?.create()?;
        let devices = AccessFs::WriteFile | AccessFs::ReadFile;
        let status = created
            .add_rules(path_beneath_rules(["/"], AccessFs::from_read(ABI_WANTED)))?
            .add_rules(path_beneath_rules(&policy.writable, AccessFs::from_all(ABI_WANTED)))?
            .add_rules(path_beneath_rules(DEVICES, devices))?
            .restrict_self()?;
        Ok(status.ruleset)
    };
    match restrict() {
        Ok(RulesetStatus::NotEnforced) => Err("the kernel has no Landlock".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("Landlock refused: {error}")),
    }
}

/// The newest version of Landlock's interface that the kernel has, of those that turnd uses; 0 below the third, in
/// which files can still be emptied.
pub(super) fn version() -> u8 {
    let has = |abi: ABI| {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))
            .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(abi)))
            .and_then(|ruleset| ruleset.scope(Scope::from_all(abi)))
            .and_then(Ruleset::create)
            .is_ok()
    };
    // An older interface has no network and no scopes to ask for.
    let has_files = |abi: ABI| {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        ruleset.handle_access(AccessFs::from_all(abi)).and_then(Ruleset::create).is_ok()
    };
    if has(ABI_WANTED) {
        return 6;
    }
    [(ABI::V5, 5), (ABI::V3, 3)].into_iter().find(|(abi, _)| has_files(*abi)).map_or(0, |(_, version)| version)
}
