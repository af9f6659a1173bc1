-- Sessions in the web console, and API keys: each lets its holder call as a member until ends_at. Stored by the SHA-256 of the
-- secret.
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    hash       TEXT NOT NULL UNIQUE,
    -- 'browser' or 'api-key'.
    kind       TEXT NOT NULL,
    member     TEXT NOT NULL,
    -- The member's epoch: when it changes, the session has ended.
    epoch      BIGINT NOT NULL,
    -- The member's customer; empty: the site.
    customer   TEXT NOT NULL,
    -- Of an API key: its role, which may be less than the member's. Empty: the member's role.
    role       TEXT NOT NULL DEFAULT '',
    -- Of an API key: what it is for, in the member's words.
    label      TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL,
    -- The last call, to the minute.
    used_at    BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL,
    -- Where it was opened from, and the client's own name for itself.
    address    TEXT NOT NULL DEFAULT '',
    client     TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sessions_member ON sessions (member);
CREATE INDEX sessions_ends ON sessions (ends_at);
