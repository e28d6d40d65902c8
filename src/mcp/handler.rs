//! What a server may ask of us or tell us: which folders are open, how a call goes on, that its tools changed.
//! Sampling is refused and elicitation declined: a server speaks to the model and the user through results only.

// The protocol is about to drop roots; servers of today ask for them.
#![expect(deprecated, reason = "roots are asked for by the servers of today")]

use std::collections::HashMap;
use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, Implementation, ListRootsResult, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProgressToken, Root, RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext};
use tokio::sync::{Notify, watch};

use super::notes::words;
use super::servers::Surroundings;
use super::spec::ServerSpec;

/// Log messages of one connection that are logged.
const MAX_LOGGED: usize = 200;

/// Who shows how far each running call is.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgressSlots(Arc<Mutex<HashMap<ProgressToken, watch::Sender<String>>>>);

/// The progress of one call, until it is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    token: ProgressToken,
    slots: ProgressSlots,
    texts: watch::Receiver<String>,
}

impl ProgressSlots {
    pub(super) fn watch(&self, token: &ProgressToken) -> Watched {
        let (sender, texts) = watch::channel(String::new());
        self.lock().insert(token.clone(), sender);
        Watched { token: token.clone(), slots: self.clone(), texts }
    }

    fn show(&self, token: &ProgressToken, text: String) {
        if let Some(slot) = self.lock().get(token) {
            slot.send_replace(text);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, watch::Sender<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// The next words about the call; several that came meanwhile count as the last one.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.texts.changed().await.ok()?;
        Some(self.texts.borrow_and_update().clone())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.slots.lock().remove(&self.token);
    }
}

/// Our side of one connection.
pub(super) struct Handler {
    spec: ServerSpec,
    roots: Vec<Root>,
    slots: ProgressSlots,
    changed: Arc<Notify>,
    logged: Mutex<usize>,
}

impl Handler {
    pub(super) fn new(spec: &ServerSpec, around: &Surroundings, slots: ProgressSlots, changed: Arc<Notify>) -> Self {
        let folders = std::iter::once(&around.cwd).chain(&around.additional_roots);
        let roots = folders.map(|folder| Root::new(file_url(folder))).collect();
        Self { spec: spec.clone(), roots, slots, changed, logged: Mutex::new(0) }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapabilities::default());
        ClientConfig::new(capabilities, Implementation::new("turnd", env!("CARGO_PKG_VERSION")))
    }

    fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<ListRootsResult, ErrorData>> + Send + '_ {
        ready(Ok(ListRootsResult::new(self.roots.clone())))
    }

    fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        let count = match params.total {
            Some(total) => format!("{} of {total}", params.progress),
            None => params.progress.to_string(),
        };
        let text = params.message.map_or_else(|| count.clone(), |message| format!("{count}: {message}"));
        self.slots.show(&params.progress_token, text);
        ready(())
    }

    fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) -> impl Future<Output = ()> + Send + '_ {
        self.changed.notify_one();
        ready(())
    }

    fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        *logged += 1;
        if *logged <= MAX_LOGGED {
            let said = words(&params.data.to_string(), self.spec.address(), 500);
            tracing::debug!(server = self.spec.name(), said, "an MCP server logs");
        }
        ready(())
    }
}

/// A folder as a `file` URL.
fn file_url(folder: &Path) -> String {
    let mut url = String::from("file://");
    for byte in folder.as_os_str().as_encoded_bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) => url.push(char::from(*byte)),
            byte => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_told_as_a_url() {
        assert_eq!(file_url(Path::new("/a b/ü#")), "file:///a%20b/%C3%BC%23");
    }
}
