-- The state of the fabric as rows: a cluster's step reads the row of its own key. A change of these rows locks the hall.
-- `fabric` has its one row from the first partition on.
CREATE TABLE fabric (
    id             BIGINT PRIMARY KEY,
    -- The range of keys, and the key given most recently.
    first_key      BIGINT NOT NULL,
    last_key       BIGINT NOT NULL,
    given_key      BIGINT,
    -- The version of the partitions, and the version that was read back from every port.
    wanted         BIGINT NOT NULL,
    applied        BIGINT NOT NULL,
    -- Number and time of the last reading of the ports. Why the last try failed; empty: it succeeded.
    reading        BIGINT NOT NULL,
    proven_at      BIGINT,
    fault          TEXT NOT NULL,
    -- Grows when other ports of members are absent.
    absent_changes BIGINT NOT NULL
);
-- A key in use. `absent`, `cut_off`, `members` and `ports` are JSON lists of port GUIDs. The long lists come last: a read of
-- the columns before them skips them.
CREATE TABLE fabric_keys (
    pkey          BIGINT PRIMARY KEY,
    -- uid of the cluster.
    owner         TEXT NOT NULL,
    -- Name of the partition; empty: the key is returned.
    name          TEXT NOT NULL,
    -- Number of the last reading before the return of the key; NULL: the cluster holds the key.
    released_at   BIGINT,
    port_count    BIGINT NOT NULL,
    member_count  BIGINT NOT NULL,
    cut_off_count BIGINT NOT NULL,
    -- Ports of the partition, or of the returned key, that the last reading did not find.
    absent        TEXT NOT NULL,
    -- Ports of the returned key that the last reading of the ports themselves did not find.
    cut_off       TEXT NOT NULL,
    -- Ports of the partition.
    members       TEXT NOT NULL,
    -- Ports that may have the key.
    ports         TEXT NOT NULL
);
CREATE INDEX fabric_keys_owner ON fabric_keys (owner);
CREATE INDEX fabric_keys_returned ON fabric_keys (pkey) WHERE released_at IS NOT NULL;
-- The last comparison of the fabric with the site: one row from the first comparison on.
CREATE TABLE fabric_comparison (
    id               BIGINT PRIMARY KEY,
    checked_at       BIGINT,
    -- Why it failed; empty: it succeeded.
    problem          TEXT NOT NULL,
    -- Number of open faults without a row.
    more_faults      BIGINT NOT NULL,
    -- `absent_changes` and `proven_at` of the reading that it evaluated.
    compared_changes BIGINT NOT NULL,
    compared_reading BIGINT
);
-- Open faults. `body` is JSON.
CREATE TABLE fabric_faults (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
-- Cables between switches that plans must not use.
CREATE TABLE fabric_broken_links (
    cable TEXT PRIMARY KEY
);
-- Nodes of clusters without their full connection.
CREATE TABLE fabric_impaired_nodes (
    node_id TEXT PRIMARY KEY,
    since   BIGINT NOT NULL,
    seen    BIGINT NOT NULL,
    why     TEXT NOT NULL
);
