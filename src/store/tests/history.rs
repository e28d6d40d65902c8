//! One session's history: order, newer forms, repair.

use super::*;

#[tokio::test]
async fn what_was_written_is_read_back_by_another_store_of_the_file() {
    let home = tempfile::tempdir().unwrap();
    let row = SessionRow { system_prompt: Some("be brief".into()), ..session("s") };
    let store = Store::open(home.path());
    store.write(vec![Write::CreateSession(row.clone()), append("s", "t", Message::user("hi"))]).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(store.ready().await, Err(StoreError::Closed));

    let loaded = Store::open(home.path()).open_session("s").await.unwrap().unwrap();
    assert_eq!(SessionRow { updated_at_ms: 1, ..loaded.row }, row);
    assert_eq!(loaded.messages[0].message, Message::user("hi"));
    assert_eq!(loaded.messages[0].turn_id.as_deref(), Some("t"));
}

#[tokio::test]
async fn results_come_back_in_call_order_whatever_order_they_landed() {
    let store = Store::in_memory();
    let writes = vec![
        Write::CreateSession(session("s")),
        append("s", "t", Message::user("go")),
        append("s", "t", calls(&["a", "b", "c"])),
        append("s", "t", result("c", "C")),
        append("s", "t", result("a", "A")),
        append("s", "t", Message::user("next")),
        append("s", "t", result("b", "B")),
    ];
    store.write(writes).await.unwrap();
    let loaded = store.load_session("s").await.unwrap().unwrap();
    assert_eq!(texts(&loaded), ["go", "", "A", "B", "C", "next"]);
}

#[tokio::test]
async fn an_amended_message_takes_the_old_ones_place_and_the_old_one_stays_in_the_file() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    let amend =
        |turn: &str, message| Write::AmendMessage { session_id: "s".into(), turn_id: Some(turn.to_owned()), message };
    let writes = vec![
        Write::CreateSession(session("s")),
        append("s", "t1", Message::user("one")),
        append("s", "t2", Message::user("two")),
        append("s", "t2", calls(&["a"])),
        append("s", "t2", result("a", "A")),
        append("s", "t2", Message::Assistant(AssistantMessage { text: "end".into(), ..Default::default() })),
    ];
    store.write(writes).await.unwrap();
    store.write(vec![amend("t2", result("a", "A steered")), amend("t2", Message::user("two, better"))]).await.unwrap();
    store.write(vec![amend("t2", result("a", "A steered twice"))]).await.unwrap();
    let loaded = store.load_session("s").await.unwrap().unwrap();
    assert_eq!(texts(&loaded), ["one", "two, better", "", "A steered twice", "end"]);
    store.close().await.unwrap();

    let file = rusqlite::Connection::open(home.path().join("sessions.db")).unwrap();
    let rows = |active: i64| -> i64 {
        file.query_row("SELECT count(*) FROM messages WHERE active = ?1", [active], |row| row.get(0)).unwrap()
    };
    assert_eq!((rows(1), rows(0)), (5, 3));
}

#[tokio::test]
async fn a_session_left_open_by_a_dead_process_is_repaired_once() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    let tool_call = |id: &str| Write::PutToolCall {
        session_id: "s".into(),
        row: ToolCallRow {
            id: id.into(),
            turn_id: "t".into(),
            name: "read_file".into(),
            status: "in_progress".into(),
            display: serde_json::json!({"title": id}),
        },
    };
    let writes = vec![
        Write::CreateSession(session("s")),
        Write::StartTurn(turn("s", "t", "running")),
        append("s", "t", Message::user("go")),
        append("s", "t", calls(&["a", "b", "c"])),
        tool_call("a"),
        tool_call("b"),
        append("s", "t", result("b", "B")),
    ];
    store.write(writes).await.unwrap();
    // The turn still runs here: opening it again only reads.
    let live = store.open_session("s").await.unwrap().unwrap();
    assert_eq!(texts(&live), ["go", "", "B"]);
    assert_eq!(live.turns[0].status, "running");
    drop(store);

    let after = Store::open(home.path());
    let repaired = after.open_session("s").await.unwrap().unwrap();
    let results: Vec<_> = repaired.messages[2..]
        .iter()
        .map(|stored| match &stored.message {
            Message::Tool(result) => (result.tool_call_id.as_str(), result.is_error, result.effect),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results, [("a", true, Effect::Unknown), ("b", false, Effect::Done), ("c", true, Effect::Unknown)]);
    assert!(texts(&repaired)[2].starts_with("Interrupted: turnd stopped"));
    let states: Vec<_> = repaired.tool_calls.iter().map(|call| (call.id.as_str(), call.status.as_str())).collect();
    assert_eq!(states, [("a", "failed"), ("b", "completed")]);
    assert_eq!(repaired.turns[0].status, "interrupted");
    assert_eq!(repaired.turns[0].exit_reason.as_deref(), Some("process_died"));

    let again = Store::open(home.path()).open_session("s").await.unwrap().unwrap();
    assert_eq!(again, repaired);
    assert_eq!(after.load_session("s").await.unwrap().unwrap(), repaired);
}

#[tokio::test]
async fn child_agents_that_died_with_their_parent_are_closed_with_it() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path());
    let mut writes = vec![Write::CreateSession(session("s")), Write::StartTurn(turn("s", "t", "running"))];
    for (parent, child) in [("s", "child"), ("child", "grandchild")] {
        writes.push(Write::CreateSession(SessionRow { parent_id: Some(parent.into()), ..session(child) }));
        writes.push(Write::StartTurn(turn(child, &format!("t-{child}"), "running")));
        writes.push(append(child, &format!("t-{child}"), calls(&[child])));
    }
    store.write(writes).await.unwrap();
    drop(store);

    let after = Store::open(home.path());
    after.open_session("s").await.unwrap().unwrap();
    for child in ["child", "grandchild"] {
        let loaded = after.load_session(child).await.unwrap().unwrap();
        assert_eq!(loaded.turns[0].exit_reason.as_deref(), Some("process_died"), "{child}");
        assert!(texts(&loaded)[1].starts_with("Interrupted: turnd stopped"), "{child}");
    }
}
