//! The file: permissions, damage, schemas.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

async fn fill(home: &Path) {
    let store = Store::open(home);
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    store.close().await.unwrap();
}

fn names(home: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn nobody_else_can_read_the_store() {
    let outer = tempfile::tempdir().unwrap();
    let home = outer.path().join("new/home");
    let store = Store::open(&home);
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    assert_eq!(mode(&home), 0o700);
    assert_eq!(names(&home), ["sessions.db", "sessions.db-shm", "sessions.db-wal"]);
    for name in names(&home) {
        assert_eq!(mode(&home.join(&name)), 0o600, "{name}");
    }
    store.close().await.unwrap();
    assert_eq!(names(&home), ["sessions.db"]);

    std::fs::set_permissions(home.join("sessions.db"), std::fs::Permissions::from_mode(0o666)).unwrap();
    Store::open(&home).ready().await.unwrap();
    assert_eq!(mode(&home.join("sessions.db")), 0o600);
}

#[tokio::test]
async fn commits_wait_for_the_disk_and_keys_are_checked() {
    let home = tempfile::tempdir().unwrap();
    let pragma = |db: &mut Db, name: &str| -> String {
        db.connection
            .query_row(&format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}"), [], |row| row.get(0))
            .unwrap()
    };
    let values = Store::open(home.path())
        .call(move |db| Ok(["journal_mode", "synchronous", "foreign_keys"].map(|name| pragma(db, name))))
        .await
        .unwrap();
    assert_eq!(values, ["wal", "2", "1"]);
}

#[tokio::test]
async fn a_damaged_file_is_kept_aside_and_a_new_one_begun() {
    let garbage = [b"not a database".repeat(1000), b"short".to_vec(), b"SQLite format 3\0".repeat(500)];
    for bytes in garbage {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("sessions.db"), &bytes).unwrap();
        fill(home.path()).await;
        let names = names(home.path());
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[1].starts_with("sessions.db.corrupt-"), "{names:?}");
        assert_eq!(std::fs::read(home.path().join(&names[1])).unwrap(), bytes);
        assert!(Store::open(home.path()).load_session("s").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn the_user_is_told_of_a_damaged_file_once() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("sessions.db"), b"garbage ".repeat(1000)).unwrap();
    let store = Store::open(home.path());
    store.ready().await.unwrap();
    assert!(store.notice().unwrap().contains("sessions.db.corrupt-"));
    store.close().await.unwrap();
    let again = Store::open(home.path());
    again.ready().await.unwrap();
    assert_eq!(again.notice(), None);
}

#[tokio::test]
async fn an_empty_file_is_a_new_store() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("sessions.db"), "").unwrap();
    fill(home.path()).await;
    assert_eq!(names(home.path()), ["sessions.db"]);
}

#[tokio::test]
async fn what_hinders_opening_is_answered_until_it_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("sessions.db");
    std::fs::create_dir(&path).unwrap();
    let store = Store::open(home.path());
    assert_eq!(store.ready().await.unwrap_err().kind(), "store_io");
    assert_eq!(store.list_sessions(ListQuery::default()).await.unwrap_err().kind(), "store_io");
    std::fs::remove_dir(&path).unwrap();
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_removed_is_not_written_to() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(session("s"))]).await.unwrap();
    for name in names(home.path()) {
        std::fs::remove_file(home.path().join(name)).unwrap();
    }
    assert_eq!(store.write(vec![append("s", "t", Message::user("lost"))]).await, Err(StoreError::UnknownSession));
    store.write(vec![Write::CreateSession(session("s")), append("s", "t", Message::user("kept"))]).await.unwrap();
    let loaded = Store::open(home.path()).load_session("s").await.unwrap().unwrap();
    assert_eq!(texts(&loaded), ["kept"]);
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_read_and_never_written() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path()).await;
    let file = rusqlite::Connection::open(home.path().join("sessions.db")).unwrap();
    file.pragma_update(None, "user_version", 99).unwrap();
    let store = Store::open(home.path());
    let newer = StoreError::NewerVersion { found: 99, known: schema::newest(schema::MIGRATIONS) };
    assert_eq!(store.ready().await, Err(newer.clone()));
    assert_eq!(store.open_session("s").await, Err(newer.clone()));
    assert!(store.load_session("s").await.unwrap().is_some());
    assert_eq!(store.list_sessions(ListQuery::default()).await.unwrap().0.len(), 1);
    file.execute_batch("ALTER TABLE sessions RENAME COLUMN cwd TO folder").unwrap();
    assert_eq!(store.list_sessions(ListQuery::default()).await, Err(newer));
}

#[tokio::test]
async fn a_migration_leaves_a_backup_and_all_or_nothing() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path()).await;
    let path = home.path().join("sessions.db");
    let known = schema::newest(schema::MIGRATIONS);
    let with = |step| [schema::MIGRATIONS, &[step]].concat();

    file::open_file(&path, &with("ALTER TABLE sessions ADD COLUMN mood TEXT; SELECT nonsense;")).unwrap_err();
    assert_eq!(schema::found(&rusqlite::Connection::open(&path).unwrap()).unwrap(), known);

    file::open_file(&path, &with("ALTER TABLE sessions ADD COLUMN mood TEXT;")).unwrap();
    let count = |path: &Path, sql: &str| -> rusqlite::Result<i64> {
        rusqlite::Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0))
    };
    assert_eq!(count(&path, "SELECT count(*) FROM sessions WHERE mood IS NULL"), Ok(1));
    let backup = home.path().join(format!("sessions.db.backup-v{known}"));
    assert_eq!(count(&backup, "SELECT count(*) FROM sessions"), Ok(1));
    assert!(count(&backup, "SELECT count(mood) FROM sessions").is_err());
    assert_eq!(mode(&backup), 0o600);
}

#[tokio::test]
async fn many_stores_may_make_the_same_file_at_once() {
    let home = tempfile::tempdir().unwrap();
    let stores: Vec<_> = (0..8).map(|_| Store::open(home.path())).collect();
    for store in &stores {
        store.ready().await.unwrap();
    }
}
