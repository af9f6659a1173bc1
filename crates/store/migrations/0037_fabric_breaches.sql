-- The last check of the isolation of clusters: one row from the first check or proof on.
CREATE TABLE fabric_check (
    id         BIGINT PRIMARY KEY,
    -- When it was made. Why later ones failed; empty: none failed.
    checked_at BIGINT,
    problem    TEXT NOT NULL,
    -- The port that the next check continues after; empty: it begins with the first.
    last_port  TEXT NOT NULL,
    -- Replica and digest of the partition file that is in place, and of the one that is being written. Empty: none.
    written    TEXT NOT NULL,
    intended   TEXT NOT NULL
);
-- Breaches of isolation. `body` is JSON: the clusters and the ports.
CREATE TABLE fabric_breaches (
    id       TEXT PRIMARY KEY,
    kind     TEXT NOT NULL,
    -- The last time at which there was none.
    good_at  BIGINT,
    -- When it was first seen, last seen, and over; no end: it is open.
    since    BIGINT NOT NULL,
    seen     BIGINT NOT NULL,
    ended_at BIGINT,
    body     TEXT NOT NULL
);
CREATE INDEX fabric_breaches_since ON fabric_breaches (since);
CREATE INDEX fabric_breaches_open ON fabric_breaches (since) WHERE ended_at IS NULL;
