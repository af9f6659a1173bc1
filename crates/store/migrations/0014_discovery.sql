-- Searches for BMCs, by the id of their operation. Those that ended are kept until newer ones take their place.
CREATE TABLE discoveries (
    id           TEXT PRIMARY KEY,
    requested_by TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT,
    -- listening, looking, judging, done
    phase        TEXT NOT NULL,
    -- How it ended when not well.
    message      TEXT NOT NULL,
    -- What was asked for, and what was learned before addresses are looked at; JSON.
    spec         TEXT NOT NULL,
    heard        TEXT NOT NULL,
    -- Sealed credentials.
    secrets      BLOB NOT NULL,
    -- All targets before this one are done.
    reached      BIGINT NOT NULL,
    total        BIGINT NOT NULL,
    -- Targets that did not answer.
    silent       BIGINT NOT NULL,
    -- The replica at work, until its lease ends.
    owner        TEXT NOT NULL,
    lease_until  BIGINT NOT NULL
);

CREATE TABLE discovery_findings (
    discovery_id TEXT NOT NULL REFERENCES discoveries (id) ON DELETE CASCADE,
    -- Sorts as addresses do.
    place        TEXT NOT NULL,
    address      TEXT NOT NULL,
    state        TEXT NOT NULL,
    -- Place of the entry of the same machine; empty: it is the entry.
    first        TEXT NOT NULL,
    node_id      TEXT NOT NULL,
    why          TEXT NOT NULL,
    -- Logins that were tried, counted before each.
    tries        BIGINT NOT NULL,
    body         TEXT NOT NULL,
    -- Sealed: the login that was good.
    login        BLOB NOT NULL,
    PRIMARY KEY (discovery_id, place)
);
CREATE INDEX discovery_findings_first ON discovery_findings (discovery_id, first);

-- Whoever begins a search holds this row, so that two that overlap do not begin at the same time.
CREATE TABLE discovery_guard (id TEXT PRIMARY KEY);
INSERT INTO discovery_guard (id) VALUES ('one');
