-- How a session comes from its parent. A session of its own has no row. Apart from `sessions`, because a
-- column behind the long system prompt would make every list read that too.
CREATE TABLE lineage (
    session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL            -- 'child': a child agent works for the parent
) STRICT, WITHOUT ROWID;
