-- How the settings of a node's firmware stood when they were last read against what its SKU wants.
CREATE TABLE node_settings (
    node_id     TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    read_at     BIGINT NOT NULL,
    -- When they were last all as wanted after a start that the control plane made; none: never.
    verified_at BIGINT,
    -- Since when they are otherwise than wanted; none: they are not.
    drifted_at  BIGINT,
    -- JSON: every wanted setting beside what was read.
    body        TEXT NOT NULL
);
CREATE INDEX node_settings_drifted ON node_settings (drifted_at, node_id);
