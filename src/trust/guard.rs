//! Hooks of a workspace: each call first makes sure that what was trusted is still what is there.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;

use crate::hook::{Hook, HookFailure, HookPoint};

use super::{Fingerprint, Project};

/// What was trusted, and where to look whether it still stands.
#[derive(Clone, Debug)]
pub struct Seal {
    workspace: PathBuf,
    turnd_home: PathBuf,
    fingerprint: Fingerprint,
}

impl Seal {
    /// The seal on a project as it was read.
    #[must_use]
    pub fn new(project: &Project, turnd_home: PathBuf) -> Self {
        Self { workspace: project.workspace.clone(), turnd_home, fingerprint: project.fingerprint.clone() }
    }

    /// True while not a byte has changed. Reads every covered file, so it blocks.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let project = Project::read(&self.workspace, &self.turnd_home);
        project.is_ok_and(|project| project.is_some_and(|project| project.fingerprint == self.fingerprint))
    }
}

/// A hook of a workspace. Once its files changed it fails, which for a deciding hook is a no.
#[derive(Debug)]
pub struct GuardedHook {
    hook: Arc<dyn Hook>,
    seal: Seal,
}

impl GuardedHook {
    /// The hook behind the seal.
    #[must_use]
    pub fn new(hook: Arc<dyn Hook>, seal: Seal) -> Self {
        Self { hook, seal }
    }
}

impl Hook for GuardedHook {
    fn point(&self) -> HookPoint {
        self.hook.point()
    }

    fn call<'a>(&'a self, payload: &'a Value) -> BoxFuture<'a, Result<Value, HookFailure>> {
        async move {
            let seal = self.seal.clone();
            let is_whole = tokio::task::spawn_blocking(move || seal.is_whole()).await.unwrap_or(false);
            if is_whole {
                return self.hook.call(payload).await;
            }
            Err(HookFailure {
                name: format!("of the workspace on {}", self.point().as_str()),
                problem: "its files changed since they were trusted; the next prompt asks about them".into(),
            })
        }
        .boxed()
    }
}
