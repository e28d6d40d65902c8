//! Every exit reason is produced by something real: most by a transcript, a few here in process.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use turnd::app;
use turnd::config::{Config, ConfigFlags};
use turnd::message::Part;
use turnd::session::port::{ClientPort, PermissionQuestion, SessionEvent};
use turnd::session::{Host, OpenKind, OpenRequest, PromptOutcome, Registry};
use turnd::tool::Editor;
use turnd::tool::clarify::{Inquiry, InquiryEnd};
use turnd::turn::event::TurnEvent;
use turnd::turn::port::Answer;
use turnd::turn::{ExitReason, TurnReport};

/// Reasons that the cases of this file produce; every other one is the name of a transcript's case.
const HERE: [ExitReason; 2] = [ExitReason::LocalProcessingError, ExitReason::SessionPersistenceFailed];

#[test]
fn every_exit_reason_is_produced_by_a_case() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/exits/reasons.jsonl"));
    let cases = turnd::script::format::parse(&text.unwrap()).unwrap();
    let produced: BTreeSet<&str> =
        cases.iter().map(|case| case.name.as_str()).chain(HERE.map(ExitReason::as_str)).collect();
    let all: BTreeSet<&str> = ExitReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(produced, all);
}

/// A client that breaks the turn in the middle of a tool call, its own way.
struct Breaker {
    host: Arc<Host>,
    how: How,
    told: std::sync::Mutex<Vec<SessionEvent>>,
}

#[derive(Clone, Copy)]
enum How {
    Panic,
    CloseStore,
}

impl std::fmt::Debug for Breaker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Breaker")
    }
}

impl ClientPort for Breaker {
    fn tell(&self, event: SessionEvent) -> BoxFuture<'_, ()> {
        let is_time = matches!(&event, SessionEvent::Turn { event: TurnEvent::ToolCallStarted { .. }, .. });
        self.told.lock().unwrap().push(event);
        Box::pin(async move {
            match self.how {
                How::Panic if is_time => panic!("the client is broken"),
                How::CloseStore if is_time => self.host.store.close().await.unwrap(),
                _ => {}
            }
        })
    }

    fn ask(&self, _: PermissionQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(async { Answer::AllowOnce })
    }

    fn inquire(&self, _: Inquiry) -> BoxFuture<'_, InquiryEnd> {
        Box::pin(async { InquiryEnd::Dismissed })
    }

    fn child(&self, _: &Arc<str>) -> Option<Arc<dyn ClientPort>> {
        None
    }

    fn editor(&self) -> Option<Arc<dyn Editor>> {
        None
    }
}

/// Runs one turn that breaks; gives its report, what the client was told, the home and the workspace.
async fn broken_turn(how: How) -> (TurnReport, Vec<SessionEvent>, tempfile::TempDir) {
    let root = tempfile::tempdir().unwrap();
    let (home, work) = (root.path().join("home"), root.path().join("work"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&work).unwrap();
    let script = root.path().join("model.jsonl");
    std::fs::write(&script, "{\"model\":{\"tool_calls\":[{\"id\":\"c1\",\"name\":\"todo\",\"arguments\":{}}]}}\n")
        .unwrap();
    let hook = "[[hooks]]\non = \"on_session_end\"\ncommand = [\"sh\", \"-c\", \"cat >> ends.json\"]\n";
    std::fs::write(home.join("config.toml"), hook).unwrap();
    let flags = ConfigFlags { script: Some(script), ..ConfigFlags::default() };
    let host = app::host(Config::load(&home, &flags));
    let client = Arc::new(Breaker { host: Arc::clone(&host), how, told: std::sync::Mutex::default() });
    let sessions = Registry::new(Arc::clone(&host));
    let (session, opening) = sessions.open(OpenRequest {
        id: "s1".into(),
        kind: OpenKind::New,
        cwd: work.clone(),
        additional_roots: Vec::new(),
        client: Arc::clone(&client) as Arc<dyn ClientPort>,
        mcp_servers: Vec::new(),
        notices: Vec::new(),
    });
    drop(opening.await.unwrap().unwrap());
    let (_, reply) = session.admit(vec![Part::text("go")]).unwrap();
    let PromptOutcome::Turn(report) = reply.await.unwrap().unwrap().outcome else { panic!("no turn") };
    host.shutdown.cancel();
    sessions.drained().await;
    app::close(&host).await;
    let told = std::mem::take(&mut *client.told.lock().unwrap());
    (*report, told, root)
}

async fn check(how: How, exit: ExitReason) -> tempfile::TempDir {
    let (report, told, root) = broken_turn(how).await;
    assert_eq!(report.exit, exit);
    let ends = std::fs::read_to_string(root.path().join("work/ends.json")).unwrap();
    let end: serde_json::Value = serde_json::from_str(&ends).expect("one call of the hook");
    assert_eq!(end["exit_reason"], exit.as_str());
    let closed = told.iter().filter(|event| {
        matches!(event, SessionEvent::Turn { event: TurnEvent::ToolCallEnded { is_failed: true, .. }, .. })
    });
    assert_eq!(closed.count(), 1, "the call on the client's screen was not closed: {told:?}");
    root
}

#[tokio::test]
async fn a_fault_of_our_own_ends_the_turn_like_any_other_exit() {
    let root = check(How::Panic, ExitReason::LocalProcessingError).await;
    let store = turnd::store::Store::open(&root.path().join("home"));
    let loaded = store.open_session("s1").await.unwrap().unwrap();
    let turn = &loaded.turns[0];
    assert_eq!((turn.status.as_str(), turn.exit_reason.as_deref()), ("failed", Some("local_processing_error")));
    assert_eq!(loaded.messages.len(), 3, "the open call has one stored result: {:?}", loaded.messages);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_store_that_dies_in_mid_turn_ends_the_turn_like_any_other_exit() {
    check(How::CloseStore, ExitReason::SessionPersistenceFailed).await;
}
