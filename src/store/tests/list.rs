//! Pages of the list, and what is kept beside the messages.

use super::*;

async fn pages(store: &Store, cwd: Option<&str>, limit: usize) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let query = ListQuery { cwd: cwd.map(str::to_owned), cursor, limit, ..ListQuery::default() };
        let (rows, next) = store.list_sessions(query).await.unwrap();
        pages.push(rows.into_iter().map(|row| row.id).collect());
        cursor = next;
        if cursor.is_none() {
            return pages;
        }
    }
}

#[tokio::test]
async fn pages_are_newest_first_and_miss_and_repeat_nothing() {
    let store = Store::in_memory();
    let row = |id: &str, updated_at_ms, cwd: &str| {
        Write::CreateSession(SessionRow { updated_at_ms, cwd: cwd.into(), ..session(id) })
    };
    // Three of the same age, so that the id decides.
    let rows = [row("b", 5, "/x"), row("a", 5, "/y"), row("c", 5, "/x"), row("new:er", 9, "/x"), row("old", 1, "/y")];
    store.write(rows.to_vec()).await.unwrap();
    let check = async |cwd, limit, expected: &[&[&str]]| assert_eq!(pages(&store, cwd, limit).await, expected);
    check(None, 2, &[&["new:er", "c"], &["b", "a"], &["old"]]).await;
    check(None, 5, &[&["new:er", "c", "b", "a", "old"]]).await;
    check(None, 0, &[&["new:er"], &["c"], &["b"], &["a"], &["old"]]).await;
    check(Some("/x"), 2, &[&["new:er", "c"], &["b"]]).await;
    check(Some("/none"), 2, &[&[]]).await;
}

#[tokio::test]
async fn a_session_that_changes_between_pages_hides_no_other() {
    let store = Store::in_memory();
    let rows = ["a", "b", "c"].map(|id| Write::CreateSession(session(id)));
    store.write(rows.to_vec()).await.unwrap();
    let (first, cursor) = store.list_sessions(ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap();
    assert_eq!(first[0].id, "c");
    store.write(vec![append("c", "t", Message::user("newer"))]).await.unwrap();
    let (rest, _) = store.list_sessions(ListQuery { limit: 9, cursor, ..ListQuery::default() }).await.unwrap();
    assert_eq!(rest.into_iter().map(|row| row.id).collect::<Vec<_>>(), ["b", "a"]);
}

#[tokio::test]
async fn a_cursor_of_somebody_else_is_refused() {
    let store = Store::in_memory();
    for cursor in ["", "zz", "3", "35", "3a", "é", "ff3a61", "+1+2"] {
        let query = ListQuery { cursor: Some(cursor.into()), ..ListQuery::default() };
        assert_eq!(store.list_sessions(query).await, Err(StoreError::BadCursor), "{cursor}");
    }
}

#[tokio::test]
async fn a_session_changes_only_where_it_is_told_to() {
    let store = Store::in_memory();
    let update = Write::UpdateSession {
        id: "s".into(),
        title: Some("T".into()),
        mode: None,
        model: Some("p/other".into()),
        system_prompt: None,
        updated_at_ms: 7,
    };
    let row = SessionRow { system_prompt: Some("be brief".into()), ..session("s") };
    store.write(vec![Write::CreateSession(row.clone()), update]).await.unwrap();
    let loaded = store.load_session("s").await.unwrap().unwrap();
    assert_eq!(loaded.row, SessionRow { title: Some("T".into()), model: "p/other".into(), updated_at_ms: 7, ..row });
}

#[tokio::test]
async fn turns_calls_and_decisions_are_kept_in_their_last_form() {
    let store = Store::in_memory();
    let call = |status: &str| ToolCallRow {
        id: "c".into(),
        turn_id: "t".into(),
        name: "terminal".into(),
        status: status.into(),
        display: serde_json::json!({"title": status}),
    };
    let put = |row| Write::PutToolCall { session_id: "s".into(), row };
    let approval =
        ApprovalRow { tool_call_id: "c".into(), turn_id: "t".into(), outcome: "allow_once".into(), remembered: None };
    let done =
        TurnRow { exit_reason: Some("text_response".into()), ended_at_ms: Some(9), ..turn("s", "t", "completed") };
    let writes = vec![
        Write::CreateSession(session("s")),
        Write::StartTurn(turn("s", "t", "running")),
        put(call("pending")),
        Write::RecordApproval { session_id: "s".into(), row: approval.clone() },
        put(call("completed")),
        Write::FinishTurn(done.clone()),
    ];
    store.write(writes).await.unwrap();
    let loaded = store.load_session("s").await.unwrap().unwrap();
    assert_eq!(loaded.tool_calls, [call("completed")]);
    assert_eq!(loaded.turns, [done]);
    assert_eq!(loaded.approvals, [approval]);
}

#[tokio::test]
async fn usage_is_summed_per_model_without_overflow() {
    let store = Store::in_memory();
    let add = |model: &str, tokens, cost_micros| Write::AddUsage {
        session_id: "s".into(),
        provider: "p".into(),
        model: model.into(),
        usage: Usage { input_tokens: tokens, ..Usage::default() },
        cost_micros,
    };
    let writes = vec![
        Write::CreateSession(session("s")),
        add("m", 10, None),
        add("m", 5, Some(3)),
        add("m", 1, Some(4)),
        add("n", u64::MAX, None),
        add("n", u64::MAX, None),
    ];
    store.write(writes).await.unwrap();
    let usage = store.load_session("s").await.unwrap().unwrap().usage;
    let sums: Vec<_> =
        usage.iter().map(|row| (row.model.as_str(), row.calls, row.usage.input_tokens, row.cost_micros)).collect();
    assert_eq!(sums, [("m", 3, 16, Some(7)), ("n", 2, 1 << 54, None)]);
}

#[tokio::test]
async fn a_deleted_session_leaves_its_children_and_nothing_of_its_own() {
    let store = Store::in_memory();
    let child = SessionRow { parent_id: Some("s".into()), ..session("child") };
    let orphan = SessionRow { parent_id: Some("gone".into()), ..session("orphan") };
    let writes = vec![
        Write::CreateSession(session("s")),
        Write::CreateSession(child.clone()),
        Write::CreateSession(orphan),
        Write::StartTurn(turn("s", "t", "running")),
        append("s", "t", Message::user("hi")),
    ];
    store.write(writes).await.unwrap();
    assert_eq!(store.load_session("child").await.unwrap().unwrap().row, child);
    store.delete("s").await.unwrap();
    assert_eq!(store.load_session("s").await.unwrap(), None);
    assert_eq!(store.load_session("child").await.unwrap().unwrap().row.parent_id, None);
    assert_eq!(store.load_session("orphan").await.unwrap().unwrap().row.parent_id, None);
    let left: i64 = store
        .call(|db| {
            let sql = "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM turns)";
            Ok(db.connection.query_row(sql, [], |row| row.get(0))?)
        })
        .await
        .unwrap();
    assert_eq!(left, 0);
}
