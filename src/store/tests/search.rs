//! Finding messages again.

use super::*;

async fn store_of(messages: &[&str]) -> Store {
    let store = Store::in_memory();
    let mut writes = vec![Write::CreateSession(SessionRow { title: Some("T".into()), ..session("s") })];
    writes.extend(messages.iter().map(|text| append("s", "t", Message::user(*text))));
    store.write(writes).await.unwrap();
    store
}

fn find(text: &str) -> SearchQuery {
    SearchQuery { text: text.to_owned(), limit: 10, outside: None }
}

async fn found(store: &Store, query: &str) -> Vec<String> {
    store.search(find(query)).await.unwrap().into_iter().map(|hit| hit.snippet).collect()
}

#[tokio::test]
async fn every_word_must_occur_and_the_last_may_be_begun() {
    let store = store_of(&["fix the parser", "the parser is fine", "Überraschung", "foo_bar.rs:12"]).await;
    let check = async |query: &str, expected: &[&str]| assert_eq!(found(&store, query).await, expected, "{query}");
    check("parser fix", &["fix the parser"]).await;
    check("pars", &["fix the parser", "the parser is fine"]).await;
    check("pars fix", &[]).await;
    check("uberraschung", &["Überraschung"]).await;
    check("foo_bar.rs", &["foo_bar.rs:12"]).await;
    check("nothing", &[]).await;
}

#[tokio::test]
async fn no_query_is_a_syntax_error() {
    let store = store_of(&["fix the parser"]).await;
    let long = "x ".repeat(10_000);
    for query in [
        "",
        "\"",
        "fix\"",
        "fix AND",
        "NOT fix",
        "(fix",
        "fix*",
        "content:fix",
        "NEAR(fix",
        "^fix + -",
        "'; --",
        "\0",
        "%世_",
        &long,
    ] {
        store.search(SearchQuery { limit: 0, ..find(query) }).await.unwrap();
    }
    assert_eq!(found(&store, "\"fix*\" (parser").await, ["fix the parser"]);
}

#[tokio::test]
async fn text_without_spaces_is_found_by_any_part_of_it() {
    let store = store_of(&["東京タワーへ行く", "turnd で世界を変える", "100% 世"]).await;
    let check = async |query: &str, expected: &[&str]| assert_eq!(found(&store, query).await, expected, "{query}");
    check("タワー", &["東京タワーへ行く"]).await;
    check("世界", &["turnd で世界を変える"]).await;
    check("turnd 世", &["turnd で世界を変える"]).await;
    check("% 世", &["100% 世", "turnd で世界を変える"]).await;
    check("大阪城", &[]).await;
}

#[tokio::test]
async fn only_what_is_still_said_is_found() {
    let store = store_of(&["before"]).await;
    let amend = Write::AmendMessage {
        session_id: "s".into(),
        turn_id: Some("t".into()),
        message: Message::user("after 世界線"),
    };
    assert_eq!(found(&store, "before").await, ["before"]);
    store.write(vec![amend]).await.unwrap();
    assert_eq!(found(&store, "before").await, [""; 0]);
    let hits = store.search(find("after")).await.unwrap();
    assert_eq!((hits.len(), hits[0].session_id.as_str(), hits[0].title.as_deref()), (1, "s", Some("T")));
    store.delete("s").await.unwrap();
    assert_eq!(found(&store, "after").await, [""; 0]);
    assert_eq!(found(&store, "世界線").await, [""; 0]);
    let left: i64 = store
        .call(|db| Ok(db.connection.query_row("SELECT count(*) FROM messages_trigrams", [], |row| row.get(0))?))
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn messages_are_indexed_when_a_turn_ends_and_some_wait_or_many_wait() {
    let store = Store::in_memory();
    let indexed = async || -> i64 {
        let count = |db: &mut Db| {
            Ok(db.connection.query_row("SELECT count(*) FROM messages_words_docsize", [], |row| row.get(0))?)
        };
        store.call(count).await.unwrap()
    };
    store.write(vec![Write::CreateSession(session("s")), append("s", "t", Message::user("one"))]).await.unwrap();
    store.write(vec![Write::FinishTurn(turn("s", "t", "completed"))]).await.unwrap();
    assert_eq!(indexed().await, 0);
    let some = (0..15).map(|index| append("s", "t", Message::user(format!("some {index}"))));
    store.write(some.collect()).await.unwrap();
    assert_eq!(indexed().await, 0);
    store.write(vec![Write::FinishTurn(turn("s", "t", "completed"))]).await.unwrap();
    assert_eq!(indexed().await, 16);
    let many = (0..300).map(|index| append("s", "t", Message::user(format!("many {index}"))));
    store.write(many.collect()).await.unwrap();
    assert_eq!(indexed().await, 316);
    // An unindexed message that is replaced or deleted never comes up.
    let amend =
        Write::AmendMessage { session_id: "s".into(), turn_id: Some("u".into()), message: Message::user("new") };
    store.write(vec![append("s", "u", Message::user("old")), amend]).await.unwrap();
    assert_eq!(found(&store, "old").await, [""; 0]);
    assert_eq!(found(&store, "new").await, ["new"]);
    store.write(vec![append("s", "v", Message::user("gone"))]).await.unwrap();
    store.delete("s").await.unwrap();
    assert_eq!(found(&store, "gone").await, [""; 0]);
    assert_eq!(indexed().await, 0);
}
