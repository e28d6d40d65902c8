//! Words in the middle of a turn, at every moment at which the turn says something: the model reads them
//! once, or the user gets them back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use turnd::app;
use turnd::config::{Config, ConfigFlags};
use turnd::message::Part;
use turnd::session::port::{ClientPort, PermissionQuestion, SessionEvent};
use turnd::session::{Command, Host, OpenKind, OpenRequest, PromptOutcome, Registry, SessionHandle, Steer};
use turnd::store::Store;
use turnd::tool::Editor;
use turnd::turn::TurnReport;
use turnd::turn::port::Answer;
use turnd_protocol::ext::{SteeringOutcome, SteeringResult};

const WORDS: &str = "the words in between";

/// Two steps with tools, a cut answer with its rest, and an answer to whatever the words begin.
const MODEL: &str = r#"
{"model":{"text":"one","tool_calls":[{"id":"c1","name":"todo","arguments":{}},{"id":"c2","name":"todo","arguments":{}}]}}
{"model":{"tool_calls":[{"id":"c3","name":"todo","arguments":{}}]}}
{"model":{"text":"cut","chunk":1,"finish":"length"}}
{"model":{"text":"rest","chunk":1,"repeat":true}}
"#;

#[derive(Clone, Copy, Debug)]
enum How {
    Steer,
    Redirect,
}

/// A client that speaks up as it is told the event with this number.
struct Interjector {
    how: How,
    at: usize,
    told: AtomicUsize,
    session: OnceLock<SessionHandle>,
    outcome: Mutex<Option<oneshot::Receiver<SteeringResult>>>,
}

impl std::fmt::Debug for Interjector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Interjector")
    }
}

impl ClientPort for Interjector {
    fn tell(&self, _: SessionEvent) -> BoxFuture<'_, ()> {
        if let Some(session) = self.session.get()
            && self.told.fetch_add(1, Ordering::Relaxed) == self.at
        {
            let steer = Steer { parts: vec![Part::text(WORDS)], expected_turn_id: None, wants_prompt_when_idle: false };
            let (reply, outcome) = oneshot::channel();
            *self.outcome.lock().unwrap() = Some(outcome);
            session
                .send(match self.how {
                    How::Steer => Command::Steer(steer, reply),
                    How::Redirect => Command::Redirect(steer, reply),
                })
                .unwrap();
        }
        Box::pin(std::future::ready(()))
    }

    fn ask(&self, _: PermissionQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::AllowOnce))
    }

    fn editor(&self) -> Option<Arc<dyn Editor>> {
        None
    }
}

/// What became of the words.
#[derive(Debug)]
struct Fate {
    /// What the user was told at once.
    outcome: SteeringOutcome,
    /// Messages that the model is given, with the words in them.
    messages: usize,
    is_handed_back: bool,
}

/// Plays two turns and speaks up at an event; `None` when there are fewer events.
async fn speak(how: How, at: usize) -> Option<Fate> {
    let root = tempfile::tempdir().unwrap();
    let (home, work) = (root.path().join("home"), root.path().join("work"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&work).unwrap();
    let script = root.path().join("model.jsonl");
    std::fs::write(&script, MODEL).unwrap();
    let flags = ConfigFlags { script: Some(script), ..ConfigFlags::default() };
    let host = app::host(Config::load(&home, &flags));
    let client = Arc::new(Interjector {
        how,
        at,
        told: AtomicUsize::new(0),
        session: OnceLock::new(),
        outcome: Mutex::default(),
    });
    let sessions = Registry::new(Arc::clone(&host));
    let (session, opening) = sessions.open(OpenRequest {
        id: "s1".into(),
        kind: OpenKind::New,
        cwd: work,
        additional_roots: Vec::new(),
        client: Arc::clone(&client) as Arc<dyn ClientPort>,
        mcp_servers: Vec::new(),
        notices: Vec::new(),
    });
    drop(opening.await.unwrap().unwrap());
    client.session.set(session.clone()).unwrap();
    let first = prompt(&session, "go").await;
    // Behind a turn that the words may have begun.
    let second = prompt(&session, "and now").await;
    close(host, &sessions).await;
    let store = Store::open(&home);
    let loaded = store.open_session("s1").await.unwrap().unwrap();
    store.close().await.unwrap();
    let sent = loaded.messages.iter().filter(|stored| stored.standing.is_sent());
    let outcome = client.outcome.lock().unwrap().take()?;
    Some(Fate {
        outcome: outcome.await.unwrap().outcome,
        messages: sent.filter(|stored| stored.message.plain_text().contains(WORDS)).count(),
        is_handed_back: [first, second].iter().any(|report| report.pending_steer.as_deref() == Some(WORDS)),
    })
}

async fn prompt(session: &SessionHandle, text: &str) -> TurnReport {
    let (_, reply) = session.admit(vec![Part::text(text)]).unwrap();
    let PromptOutcome::Turn(report) = reply.await.unwrap().unwrap().outcome else { panic!("no turn") };
    *report
}

async fn close(host: Arc<Host>, sessions: &Registry) {
    host.shutdown.cancel();
    sessions.drained().await;
    app::close(&host).await;
}

#[tokio::test]
async fn a_steer_is_read_once_or_handed_back_whenever_it_comes() {
    let mut events = 0;
    while let Some(fate) = speak(How::Steer, events).await {
        assert_eq!(fate.messages + usize::from(fate.is_handed_back), 1, "at event {events}: {fate:?}");
        events += 1;
    }
    assert!(events > 20, "the turns say too little to try anything: {events} events");
}

#[tokio::test]
async fn a_correction_is_read_or_handed_back_or_refused_whenever_it_comes() {
    let mut events = 0;
    while let Some(fate) = speak(How::Redirect, events).await {
        let is_taken = fate.outcome == SteeringOutcome::Injected;
        assert_eq!((fate.messages > 0) != fate.is_handed_back, is_taken, "at event {events}: {fate:?}");
        events += 1;
    }
}
