//! Compaction: what is sent changes, what was said does not.

use super::*;
use crate::message::{Origin, UserMessage};

fn summary(text: &str) -> Message {
    Message::User(UserMessage { content: vec![Part::text(text)], origin: Origin::Compaction })
}

fn compact(before: usize, dropped: &[usize], rewritten: Vec<(usize, Message)>, text: &str) -> Write {
    Write::Compact {
        session_id: "s".into(),
        before,
        dropped: dropped.to_vec(),
        rewritten,
        summary: (!text.is_empty()).then(|| summary(text)),
    }
}

fn sent(session: &LoadedSession) -> Vec<String> {
    session.history().map(|stored| stored.message.plain_text()).collect()
}

fn shown(session: &LoadedSession) -> Vec<String> {
    session.shown().map(|stored| stored.message.plain_text()).collect()
}

async fn loaded(store: &Store) -> LoadedSession {
    store.load_session("s").await.unwrap().unwrap()
}

/// A question with two results that landed in the other order, and its answer; then a second question.
async fn talk(store: &Store) {
    let writes = vec![
        Write::CreateSession(session("s")),
        append("s", "t1", Message::user("first")),
        append("s", "t1", calls(&["a", "b"])),
        append("s", "t1", result("b", "B")),
        append("s", "t1", result("a", "A")),
        append("s", "t2", Message::user("second")),
        append("s", "t2", calls(&["c"])),
        append("s", "t2", result("c", "C long")),
    ];
    store.write(writes).await.unwrap();
}

#[tokio::test]
async fn what_is_sent_becomes_shorter_and_what_is_shown_stays() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    talk(&store).await;
    let said = shown(&loaded(&store).await);
    let change = compact(7, &[0, 1, 2, 3], vec![(6, result("c", "C"))], "record of the first");
    store.write(vec![change]).await.unwrap();
    let after = loaded(&store).await;
    assert_eq!(sent(&after), ["record of the first", "second", "", "C"]);
    assert_eq!(shown(&after), said);
    store.close().await.unwrap();

    let again = Store::open(home.path()).open_session("s").await.unwrap().unwrap();
    assert_eq!((sent(&again), shown(&again)), (sent(&after), said), "nothing is repaired that is whole");
}

#[tokio::test]
async fn a_later_summary_replaces_the_earlier_one_and_what_follows_keeps_its_place() {
    let store = Store::in_memory();
    talk(&store).await;
    store.write(vec![compact(7, &[0, 1, 2, 3], Vec::new(), "one")]).await.unwrap();
    let amend = |message| Write::AmendMessage { session_id: "s".into(), turn_id: Some("t2".into()), message };
    store.write(vec![amend(Message::user("second, better")), amend(result("c", "C steered"))]).await.unwrap();
    store.write(vec![append("s", "t2", calls(&["d"])), append("s", "t2", result("d", "D"))]).await.unwrap();
    store.write(vec![compact(6, &[0, 2, 3], Vec::new(), "two")]).await.unwrap();
    let after = loaded(&store).await;
    assert_eq!(sent(&after), ["second, better", "two", "", "D"]);
    assert_eq!(shown(&after), ["first", "", "A", "B", "second, better", "", "C steered", "", "D"]);
    let found = |hits: Vec<SearchHit>| hits.into_iter().map(|hit| hit.snippet).collect::<Vec<_>>();
    let find = |text: &str| SearchQuery { text: text.to_owned(), limit: 9, outside: Some("s".to_owned()) };
    assert_eq!(found(store.search(find("first")).await.unwrap()), ["first"], "what was compacted is found");
    assert!(found(store.search(find("two")).await.unwrap()).is_empty(), "a summary is not");
}

#[tokio::test]
async fn a_change_of_another_history_changes_nothing() {
    let store = Store::in_memory();
    talk(&store).await;
    let before = loaded(&store).await;
    let writes = vec![append("s", "t2", Message::user("with it")), compact(7, &[0], Vec::new(), "wrong")];
    let refused = store.write(writes).await.unwrap_err().to_string();
    assert!(refused.contains("cannot compact a history of 8 messages as one of 7"), "{refused}");
    assert_eq!(loaded(&store).await, before);
}
