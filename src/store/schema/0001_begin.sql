-- Facts about the file itself.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
    id               TEXT PRIMARY KEY,
    parent_id        TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    cwd              TEXT NOT NULL,
    additional_roots TEXT NOT NULL,     -- JSON array of paths
    model            TEXT NOT NULL,
    mode             TEXT NOT NULL,
    title            TEXT,
    created_at_ms    INTEGER NOT NULL,
    updated_at_ms    INTEGER NOT NULL,
    owner            TEXT,              -- the process that has it open: pid, start time, boot id
    system_prompt    TEXT               -- last, because it is long and lists do not read it
) STRICT;
CREATE INDEX sessions_by_age ON sessions (updated_at_ms, id);
CREATE INDEX sessions_by_folder ON sessions (cwd, updated_at_ms, id);
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;

-- Append-only: a newer form of a message is a new row with the same seq, and the old one has active = 0.
CREATE TABLE messages (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id    TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq           INTEGER NOT NULL,     -- place in the session, from 1
    active        INTEGER NOT NULL DEFAULT 1,
    turn_id       TEXT,
    role          TEXT NOT NULL,
    tool_call_id  TEXT,                 -- of a tool result
    created_at_ms INTEGER NOT NULL,
    body          TEXT NOT NULL,        -- the whole message as JSON, {"v": 1, "role": ...}
    content       TEXT NOT NULL         -- its plain text
) STRICT;
CREATE INDEX messages_by_place ON messages (session_id, seq);

-- Indexes only, without a copy of the text; the second one holds rows with text of scripts without spaces.
CREATE VIRTUAL TABLE messages_words USING fts5 (content, content = '', contentless_delete = 1, tokenize = 'unicode61');
CREATE VIRTUAL TABLE messages_trigrams USING fts5 (content, content = '', contentless_delete = 1, tokenize = 'trigram');

CREATE TABLE turns (
    session_id         TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    id                 TEXT NOT NULL,
    status             TEXT NOT NULL,
    exit_reason        TEXT,
    steps              INTEGER NOT NULL,
    api_calls          INTEGER NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cached_tokens      INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens   INTEGER NOT NULL,
    started_at_ms      INTEGER NOT NULL,
    ended_at_ms        INTEGER,
    PRIMARY KEY (session_id, id)
) STRICT;

CREATE TABLE tool_calls (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    id         TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    display    TEXT NOT NULL,           -- JSON, what the client was shown last
    PRIMARY KEY (session_id, id)
) STRICT;

CREATE TABLE approvals (
    id            INTEGER PRIMARY KEY,
    session_id    TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id       TEXT NOT NULL,
    tool_call_id  TEXT NOT NULL,
    outcome       TEXT NOT NULL,
    remembered    TEXT,
    decided_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX approvals_by_session ON approvals (session_id);

CREATE TABLE usage (
    session_id         TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    provider           TEXT NOT NULL,
    model              TEXT NOT NULL,
    calls              INTEGER NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cached_tokens      INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens   INTEGER NOT NULL,
    cost_micros        INTEGER,         -- millionths of a US dollar; NULL when no price is known
    PRIMARY KEY (session_id, provider, model)
) STRICT;
