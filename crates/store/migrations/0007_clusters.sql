-- The site as it was applied, each version whole; the newest one holds.
CREATE TABLE sites (
    version    BIGINT PRIMARY KEY,
    uid        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    -- JSON of the files.
    files      BLOB NOT NULL,
    applied_by TEXT NOT NULL,
    applied_at BIGINT NOT NULL
);

CREATE TABLE clusters (
    id          TEXT PRIMARY KEY,
    uid         TEXT NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    state       TEXT NOT NULL,
    state_since BIGINT NOT NULL,
    customer    TEXT NOT NULL,
    body        TEXT NOT NULL,
    due_at      BIGINT NOT NULL,
    wait_why    TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
CREATE INDEX clusters_due ON clusters (due_at);
CREATE INDEX clusters_customer ON clusters (customer, id);

-- A node is in one cluster at most: the database refuses a second.
CREATE TABLE cluster_nodes (
    node_id    TEXT PRIMARY KEY REFERENCES nodes (id),
    cluster_id TEXT NOT NULL REFERENCES clusters (id)
);
CREATE INDEX cluster_nodes_cluster ON cluster_nodes (cluster_id, node_id);

CREATE TABLE cluster_history (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster_id TEXT NOT NULL REFERENCES clusters (id) ON DELETE CASCADE,
    edge       TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    at         BIGINT NOT NULL,
    spent_us   BIGINT NOT NULL,
    reason     TEXT NOT NULL
);
CREATE INDEX cluster_history_cluster ON cluster_history (cluster_id, position);

-- One row: what holds of the hall as a whole. Who reserves or frees locks it and counts it up, so that what was worked out
-- of an earlier state is not written.
CREATE TABLE hall (
    id      BIGINT PRIMARY KEY,
    version BIGINT NOT NULL,
    -- JSON: partition keys and who is in which, and what is known of the ports.
    fabric  TEXT NOT NULL,
    -- Who brings the partitions to the fabric, until when.
    fabric_owner TEXT NOT NULL,
    fabric_until BIGINT NOT NULL
);
INSERT INTO hall (id, version, fabric, fabric_owner, fabric_until) VALUES (1, 0, '', '', 0);
