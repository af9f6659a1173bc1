-- The drives of a node according to one source: 'bmc', 'bmc-reclaiming', 'inspection', 'operator', 'accepted' or 'reported'.
CREATE TABLE node_drives (
    node_id    TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    source     TEXT NOT NULL,
    said_at    BIGINT NOT NULL,
    -- The operator who accepted the drives; else ''.
    said_by    TEXT NOT NULL,
    -- JSON.
    body       TEXT NOT NULL,
    PRIMARY KEY (node_id, source)
);
