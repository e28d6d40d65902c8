//! Full-text search over all sessions.
//!
//! Two indexes: words for text that is written with spaces, and trigrams for text that is not, which a
//! word index would take for one long word. Deliberately absent: a query language. A query is a list of
//! words that all must occur.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::error::StoreError;

/// A message that matches a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// Its session.
    pub session_id: String,
    /// That session's title.
    pub title: Option<String>,
    /// The message's row.
    pub message_id: i64,
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// The text around the first match, on one line.
    pub snippet: String,
    /// Unix milliseconds.
    pub created_at_ms: i64,
}

/// What to search for, and where not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// Words that all must occur. Any text is a valid query.
    pub text: String,
    /// Most hits, 1 to 200.
    pub limit: usize,
    /// Leaves out what this session has in its history.
    pub outside: Option<String>,
}

/// Characters of one message that are indexed; the tail of a long tool output is not worth its cost.
const INDEXED_CHARS: usize = 16_384;
/// Messages that are indexed in one transaction: a few milliseconds of work.
pub(super) const INDEX_BATCH: usize = 128;
/// Words of a query that count.
const MAX_TERMS: usize = 16;
/// Most hits of one search, whatever was asked for.
const MAX_HITS: usize = 200;
/// Shortest text a trigram index can find.
const TRIGRAM: usize = 3;
/// Characters of a snippet, and how many of them stand before the match.
const SNIPPET: (usize, usize) = (160, 40);

/// Indexes the next [`INDEX_BATCH`] messages that are not indexed yet; true when there may be more.
///
/// Indexing costs as much as storing, so it is not done while somebody waits for the commit of one message.
/// `meta.indexed_to` is the last row that is done; rows are committed in the order of their ids.
pub(super) fn index_batch(connection: &Connection) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, active, content FROM messages
         WHERE id > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_to'), 0)
         ORDER BY id LIMIT ?1",
    )?;
    let mut rows = statement.query([i64::try_from(INDEX_BATCH).unwrap_or(i64::MAX)])?;
    let (mut last, mut count) = (0, 0);
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        count += 1;
        // Summaries and shortened forms say nothing that is not found elsewhere.
        if matches!(row.get(1)?, 1_i64 | 2) {
            add(connection, last, row.get_ref(2)?.as_str().unwrap_or_default())?;
        }
    }
    if count > 0 {
        connection
            .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('indexed_to', CAST(?1 AS TEXT))")?
            .execute([last])?;
    }
    Ok(count == INDEX_BATCH)
}

fn add(connection: &Connection, id: i64, content: &str) -> Result<(), StoreError> {
    let text: &str = match content.char_indices().nth(INDEXED_CHARS) {
        Some((end, _)) => content.split_at(end).0,
        None => content,
    };
    if text.is_empty() {
        return Ok(());
    }
    connection
        .prepare_cached("INSERT INTO messages_words (rowid, content) VALUES (?1, ?2)")?
        .execute(params![id, text])?;
    if text.chars().any(is_unspaced) {
        connection
            .prepare_cached("INSERT INTO messages_trigrams (rowid, content) VALUES (?1, ?2)")?
            .execute(params![id, text])?;
    }
    Ok(())
}

/// Takes a message out of the index, if it is in.
pub(super) fn remove(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM messages_words WHERE rowid = ?1")?.execute([id])?;
    connection.prepare_cached("DELETE FROM messages_trigrams WHERE rowid = ?1")?.execute([id])?;
    Ok(())
}

/// Takes all messages of a session out of the index.
pub(super) fn remove_session(connection: &Connection, session_id: &str) -> Result<(), StoreError> {
    let ids: Vec<i64> = connection
        .prepare_cached("SELECT id FROM messages WHERE session_id = ?1 AND active <> 0")?
        .query_map([session_id], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    ids.into_iter().try_for_each(|id| remove(connection, id))
}

/// Scripts that are written without spaces: Thai, Lao, Myanmar, Khmer, kana, Han, Hangul.
fn is_unspaced(char: char) -> bool {
    matches!(char,
        '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}'
        | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// The messages that contain every word of the query, best first. Child agents' sessions are left out: what
/// came of them stands in the sessions they worked for.
pub(super) fn search(connection: &Connection, query: &SearchQuery) -> Result<Vec<SearchHit>, StoreError> {
    let terms = terms(&query.text);
    let (sql, values) = statement(&terms);
    let Some(sql) = sql else { return Ok(Vec::new()) };
    let limit = i64::try_from(query.limit.clamp(1, MAX_HITS)).unwrap_or(1);
    let outside = query.outside.clone().unwrap_or_default();
    let values = values.into_iter().chain([Value::Text(outside), Value::Integer(limit)]);
    let hits = connection
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), |row| hit(row, &terms))?
        .collect::<Result<_, _>>()?;
    Ok(hits)
}

/// The words of a query. Quotes and signs between words mean nothing, so no query can be malformed.
fn terms(query: &str) -> Vec<String> {
    query
        .split(|char: char| char.is_whitespace() || matches!(char, '"' | '\0'))
        .filter(|term| term.chars().any(char::is_alphanumeric))
        .take(MAX_TERMS)
        .map(str::to_owned)
        .collect()
}

/// The SQL for the terms, without the values of the session left out and the limit, and its values; `None` when nothing is asked for.
fn statement(terms: &[String]) -> (Option<String>, Vec<Value>) {
    const COLUMNS: &str = "m.session_id, s.title, m.id, m.role, m.content, m.created_at_ms";
    const SESSION: &str = "JOIN sessions s ON s.id = m.session_id
             AND NOT EXISTS (SELECT 1 FROM lineage l WHERE l.session_id = m.session_id)";
    const OUTSIDE: &str = "AND NOT (m.session_id = ? AND m.active = 1)";
    let quoted = |terms: &mut dyn Iterator<Item = &String>| {
        terms.map(|term| format!("\"{term}\"")).collect::<Vec<_>>().join(" ")
    };
    let indexed = |index: &str, filter: &str| {
        format!(
            "SELECT {COLUMNS} FROM {index} JOIN messages m ON m.id = {index}.rowid {SESSION}
             WHERE {index} MATCH ? {filter} {OUTSIDE} ORDER BY {index}.rank LIMIT ?"
        )
    };
    if terms.is_empty() {
        return (None, Vec::new());
    }
    if !terms.iter().any(|term| term.chars().any(is_unspaced)) {
        // The last word may still be being typed.
        let words = format!("{}*", quoted(&mut terms.iter()));
        return (Some(indexed("messages_words", "")), vec![words.into()]);
    }
    let (long, short): (Vec<_>, Vec<_>) = terms.iter().partition(|term| term.chars().count() >= TRIGRAM);
    let filter = " AND m.content LIKE ? ESCAPE '\\'".repeat(short.len());
    let patterns = short.iter().map(|term| Value::from(like_pattern(term)));
    if long.is_empty() {
        let scan = format!(
            "SELECT {COLUMNS} FROM messages m {SESSION} WHERE m.active IN (1, 2) {filter} {OUTSIDE} ORDER BY m.id DESC LIMIT ?"
        );
        return (Some(scan), patterns.collect());
    }
    let trigrams = Value::from(quoted(&mut long.into_iter()));
    (Some(indexed("messages_trigrams", &filter)), [trigrams].into_iter().chain(patterns).collect())
}

fn like_pattern(term: &str) -> String {
    let escaped = term.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

fn hit(row: &Row<'_>, terms: &[String]) -> rusqlite::Result<SearchHit> {
    Ok(SearchHit {
        session_id: row.get(0)?,
        title: row.get(1)?,
        message_id: row.get(2)?,
        role: row.get(3)?,
        snippet: snippet(row.get_ref(4)?.as_str()?, terms),
        created_at_ms: row.get(5)?,
    })
}

/// The text around the first place where one of the terms stands, on one line.
fn snippet(content: &str, terms: &[String]) -> String {
    let (length, before) = SNIPPET;
    let terms: Vec<Vec<char>> = terms.iter().map(|term| term.chars().flat_map(char::to_lowercase).collect()).collect();
    let chars: Vec<char> = content.chars().take(INDEXED_CHARS).collect();
    let lower: Vec<char> = chars.iter().map(|char| char.to_lowercase().next().unwrap_or(*char)).collect();
    let first = terms.iter().filter_map(|term| lower.windows(term.len()).position(|window| window == term)).min();
    let start = first.unwrap_or(0).saturating_sub(before);
    let cut: String = chars.iter().skip(start).take(length).collect();
    let mut line = cut.split_whitespace().collect::<Vec<_>>().join(" ");
    if start > 0 {
        line.insert(0, '…');
    }
    if chars.len() > start + length {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_its_words() {
        let check = |query: &str, expected: &[&str]| assert_eq!(terms(query), expected, "{query}");
        check("fix the  parser", &["fix", "the", "parser"]);
        check(r#""fix" OR (-*^ NEAR"#, &["fix", "OR", "NEAR"]);
        check("a\0b\u{3000}世界", &["a", "b", "世界"]);
        check(" * \" - ", &[]);
    }

    #[test]
    fn a_snippet_is_one_line_around_the_match() {
        let terms = ["needle".to_owned()];
        assert_eq!(snippet("a\n  NEEDLE\tb", &terms), "a NEEDLE b");
        assert_eq!(snippet("no match", &terms), "no match");
        let long = snippet(&format!("{} needle {}", "x".repeat(300), "y".repeat(300)), &terms);
        assert!(long.starts_with("…x") && long.contains("needle") && long.ends_with("y…"), "{long}");
        assert!(long.chars().count() <= 162);
    }
}
