//! The fingerprint that ties an approval to exactly one call.

use std::fmt;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::tool::{Access, CallPlan, Hold};

/// SHA-256 over tool, exact argument bytes, folder, resolved paths and policy epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

/// What a digest is taken over.
pub(super) struct Subject<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) plan: &'a CallPlan,
    pub(super) cwd: &'a Path,
    /// Where the plan's paths lead now, in the plan's order.
    pub(super) real_paths: &'a [std::path::PathBuf],
    pub(super) epoch: u64,
}

impl Subject<'_> {
    /// Every field goes in with its length, so that no two subjects share bytes.
    pub(super) fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(b"turnd call 1");
        field(self.tool.as_bytes());
        field(&serde_json::to_vec(self.arguments).unwrap_or_default());
        field(self.cwd.as_os_str().as_encoded_bytes());
        for access in &self.plan.access {
            match access {
                Access::Read(path) => {
                    field(b"read");
                    field(path.as_os_str().as_encoded_bytes());
                }
                Access::Write(path) => {
                    field(b"write");
                    field(path.as_os_str().as_encoded_bytes());
                }
                Access::Execute { command, cwd } => {
                    field(b"execute");
                    field(command.as_bytes());
                    field(cwd.as_os_str().as_encoded_bytes());
                }
                Access::Note(path) => {
                    field(b"note");
                    field(path.as_os_str().as_encoded_bytes());
                }
                Access::Fetch(address) => {
                    field(b"fetch");
                    field(address.as_bytes());
                }
                Access::Feed(hold) => field(match hold {
                    Hold::Sandbox => b"feed held",
                    Hold::Nothing => b"feed free",
                }),
                Access::External(tool) => {
                    field(b"external");
                    field(tool.name.as_bytes());
                    field(tool.definition.as_bytes());
                }
            }
        }
        field(b"real");
        for path in self.real_paths {
            field(path.as_os_str().as_encoded_bytes());
        }
        field(&self.epoch.to_be_bytes());
        Digest(hash.finalize().into())
    }
}
