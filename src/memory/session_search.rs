//! `session_search`: what was said in earlier sessions.

use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock;
use crate::store::{SearchHit, SearchQuery, Store};
use crate::tool::output::one_line;
use crate::tool::{
    CallPlan, Prepared, RunContext, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec, args,
};

const DESCRIPTION: &str = "Search your earlier sessions for messages that contain all words of query.";

/// Sessions shown when the call does not say, and at most.
const DEFAULT_SESSIONS: u32 = 5;
const MAX_SESSIONS: u32 = 20;

/// Places shown of one session.
const MAX_PLACES: usize = 3;

/// Characters of a query that count.
const MAX_QUERY_CHARS: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    query: String,
    /// Sessions shown, 1 to 20
    limit: Option<u32>,
}

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| args::spec::<Arguments>("session_search", DESCRIPTION));

/// Searches earlier sessions.
#[derive(Debug)]
pub struct SessionSearch {
    store: Store,
    /// The session that searches: what it has in its context needs no search.
    session_id: Arc<str>,
}

impl SessionSearch {
    /// The tool of one session.
    #[must_use]
    pub fn new(store: Store, session_id: Arc<str>) -> Self {
        Self { store, session_id }
    }
}

impl Tool for SessionSearch {
    fn spec(&self) -> &Arc<ToolSpec> {
        &SPEC
    }

    /// What was said then may hold anything that was ever read.
    fn is_foreign(&self) -> bool {
        true
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolFailure>> {
        Box::pin(async move {
            let Arguments { query, limit } = args::parse(&SPEC, arguments)?;
            let text: String = query.chars().take(MAX_QUERY_CHARS).collect();
            if text.trim().is_empty() {
                return Err(ToolFailure::new("`query` is empty"));
            }
            let sessions = limit.unwrap_or(DEFAULT_SESSIONS).clamp(1, MAX_SESSIONS);
            let sessions = usize::try_from(sessions).unwrap_or(1);
            let title = format!("Search earlier sessions for {}", one_line(&text, 80));
            let plan = CallPlan { title, kind: ToolKind::Search, ..CallPlan::default() };
            let (store, session_id) = (self.store.clone(), self.session_id.to_string());
            Ok(Prepared::new(plan, move |_: RunContext| async move {
                // More places than sessions are wanted, because the best ones may all be of one session.
                let limit = sessions * MAX_PLACES * 2;
                match store.search(SearchQuery { text, limit, outside: Some(session_id) }).await {
                    Ok(hits) => ToolOutput::text(render(&hits, sessions)),
                    Err(error) => ToolOutput::error(format!("the earlier sessions cannot be searched: {error}")),
                }
            }))
        })
    }
}

/// The sessions in the order of their best place, each with its first places.
fn render(hits: &[SearchHit], sessions: usize) -> String {
    let mut order: Vec<&SearchHit> = Vec::new();
    for hit in hits {
        if order.len() < sessions && !order.iter().any(|known| known.session_id == hit.session_id) {
            order.push(hit);
        }
    }
    if order.is_empty() {
        return "nothing was found in earlier sessions; other or fewer words may help".into();
    }
    let mut text = String::from("A record of what was said in earlier sessions:\n");
    for session in order {
        let title = one_line(session.title.as_deref().unwrap_or("(no title)"), 100);
        text.push_str(&format!("session {}, {}, {}\n", session.session_id, clock::date(session.created_at_ms), title));
        for hit in hits.iter().filter(|hit| hit.session_id == session.session_id).take(MAX_PLACES) {
            text.push_str(&format!("  {}: {}\n", hit.role, hit.snippet));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(session_id: &str, snippet: &str) -> SearchHit {
        SearchHit {
            session_id: session_id.into(),
            title: Some("T".into()),
            message_id: 1,
            role: "user".into(),
            snippet: snippet.into(),
            created_at_ms: 0,
        }
    }

    #[test]
    fn what_was_found_is_grouped_by_session_and_bounded() {
        let hits: Vec<_> = (0..5).map(|n| hit("a", &format!("a{n}"))).collect();
        let hits = [hits, vec![hit("b", "b0"), hit("c", "c0")]].concat();
        let text = render(&hits, 2);
        assert_eq!(text.matches("\n  user: a").count(), 3, "{text}");
        assert!(text.contains("session b, 1970-01-01") && !text.contains("session c"));
        assert!(render(&[], 2).contains("nothing was found"));
    }
}
