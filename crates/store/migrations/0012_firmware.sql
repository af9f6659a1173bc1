-- Firmware files, by the digest under which they lie in the shared folder.
CREATE TABLE firmware_files (
    digest     TEXT PRIMARY KEY,
    component  TEXT NOT NULL,
    version    TEXT NOT NULL,
    -- What a BMC is told that it is called.
    name       TEXT NOT NULL,
    bytes      BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX firmware_files_component ON firmware_files (component, version);

-- What each node's BMC said last of its firmware.
CREATE TABLE firmware_seen (
    node_id TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    at      BIGINT NOT NULL,
    body    TEXT NOT NULL
);

-- The one update that is under way on a node, so that whoever goes on with it after a crash asks for it and does not begin
-- it again.
CREATE TABLE firmware_updates (
    node_id    TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    digest     TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    body       TEXT NOT NULL
);

-- When machines that somebody has may be disturbed: of "nodes/{node}", which counts for one claim, and "clusters/{cluster}".
CREATE TABLE maintenance_windows (
    target     TEXT PRIMARY KEY,
    generation BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    body       TEXT NOT NULL
);
