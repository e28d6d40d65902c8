//! Many writers: in one process, in several, and on a full disk.

use futures_util::future::join_all;

use super::*;
use claim::Owner;

fn set_owner(home: &std::path::Path, owner: &str) {
    let file = rusqlite::Connection::open(home.join("sessions.db")).unwrap();
    file.execute("UPDATE sessions SET owner = ?1", [owner]).unwrap();
}

async fn commits(store: &Store) -> usize {
    store.call(|db| Ok(db.commits)).await.unwrap()
}

#[tokio::test]
async fn writes_that_wait_together_are_committed_together_and_fail_alone() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    let before = commits(&store).await;

    // The thread is held until all writes wait.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let held = store.call(move |_| Ok(wait.recv().is_ok()));
    let writes = (0..50).map(|index| {
        let target = if index == 20 { "unknown" } else { "s" };
        let good = append("s", "t", Message::user(index.to_string()));
        store.write(vec![good, append(target, "t", Message::user("second"))])
    });
    let release = async { go.send(()).unwrap() };
    let (held, results, ()) = tokio::join!(held, join_all(writes), release);
    assert!(held.unwrap());
    for (index, result) in results.into_iter().enumerate() {
        assert_eq!(result, if index == 20 { Err(StoreError::UnknownSession) } else { Ok(()) }, "{index}");
    }
    assert_eq!(commits(&store).await, before + 1);
    let texts = texts(&store.load_session("s").await.unwrap().unwrap());
    assert_eq!(texts.len(), 98);
    assert!(!texts.contains(&"20".to_owned()), "a failed write leaves nothing");
}

#[tokio::test]
async fn two_stores_of_one_file_write_side_by_side() {
    let home = tempfile::tempdir().unwrap();
    let stores = [Store::open(home.path()), Store::open(home.path())];
    let run = async |store: &Store, id: &'static str| {
        store.write(vec![Write::CreateSession(session(id))]).await.unwrap();
        for index in 0..100 {
            store.write(vec![append(id, "t", Message::user(index.to_string()))]).await.unwrap();
        }
    };
    tokio::join!(run(&stores[0], "a"), run(&stores[1], "b"));
    let expected: Vec<_> = (0..100).map(|index| index.to_string()).collect();
    for (store, id) in [(&stores[0], "b"), (&stores[1], "a")] {
        assert_eq!(texts(&store.load_session(id).await.unwrap().unwrap()), expected);
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_handle_that_is_dropped() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    drop(store.write(vec![append("s", "t", Message::user("never sent, never stored"))]));
    store.write(vec![append("s", "t", Message::user("kept"))]).await.unwrap();
    drop(store);
    let loaded = Store::open(home.path()).open_session("s").await.unwrap().unwrap();
    assert_eq!(texts(&loaded), ["kept"]);
}

#[tokio::test]
async fn a_session_of_another_live_process_can_be_read_and_not_taken() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("s")), append("s", "t", Message::user("hi"))]).await.unwrap();
    set_owner(home.path(), Owner::of(1).text());

    assert_eq!(store.open_session("s").await, Err(StoreError::Owned { pid: 1 }));
    assert_eq!(store.delete("s").await, Err(StoreError::Owned { pid: 1 }));
    assert!(store.load_session("s").await.unwrap().is_some());
    store.delete("unknown").await.unwrap();
    // Neither a release nor the end of this store touches the other's claim.
    store.write(vec![Write::ReleaseSession { id: "s".into() }]).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(Store::open(home.path()).open_session("s").await, Err(StoreError::Owned { pid: 1 }));
}

#[tokio::test]
async fn the_claim_of_a_dead_process_is_void() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    // A pid that was reused, one beyond the kernel's limit, and texts nobody wrote.
    for owner in ["1:1:another-boot", "4194305:1:boot", "", "x", "0:0:", "99999999999999:1:b"] {
        set_owner(home.path(), owner);
        assert!(store.open_session("s").await.unwrap().is_some(), "{owner}");
    }
}

#[tokio::test]
async fn closing_a_store_gives_its_sessions_up() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("a")), Write::CreateSession(session("b"))]).await.unwrap();
    let owners = || -> i64 {
        let file = rusqlite::Connection::open(home.path().join("sessions.db")).unwrap();
        file.query_row("SELECT count(owner) FROM sessions", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(owners(), 2);
    store.write(vec![Write::ReleaseSession { id: "a".into() }]).await.unwrap();
    assert_eq!(owners(), 1);
    store.close().await.unwrap();
    assert_eq!(owners(), 0);
}

#[tokio::test]
async fn a_full_disk_fails_the_write_that_does_not_fit_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    let limit = |pages: u32| {
        store.call(move |db| {
            let used: i64 = db.connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            Ok(db.connection.pragma_update(None, "max_page_count", used + i64::from(pages))?)
        })
    };
    limit(20).await.unwrap();
    let big = store.write(vec![append("s", "t", Message::user("x".repeat(1 << 20)))]);
    let small = store.write(vec![append("s", "t", Message::user("small"))]);
    assert_eq!(tokio::join!(big, small), (Err(StoreError::Full), Ok(())));
    limit(1 << 20).await.unwrap();
    store.write(vec![append("s", "t", Message::user("room again"))]).await.unwrap();
    assert_eq!(texts(&store.load_session("s").await.unwrap().unwrap()), ["small", "room again"]);
}

#[tokio::test]
async fn writes_to_an_unknown_session_say_so() {
    let store = Store::in_memory();
    let update = Write::UpdateSession {
        id: "s".into(),
        title: None,
        mode: None,
        model: None,
        system_prompt: None,
        updated_at_ms: 1,
    };
    for write in [update, append("s", "t", Message::user("hi")), Write::StartTurn(turn("s", "t", "running"))] {
        assert_eq!(store.write(vec![write]).await, Err(StoreError::UnknownSession));
    }
}
