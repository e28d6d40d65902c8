-- Words for a running turn that were accepted, until the turn's end is stored. Those of a turn that died may not
-- have been read.
CREATE TABLE words (
    id         INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    text       TEXT NOT NULL
) STRICT;
CREATE INDEX words_by_session ON words (session_id);
