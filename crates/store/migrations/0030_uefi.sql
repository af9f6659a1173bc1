-- What a node's boot options and Secure Boot were at its inspection: later readings are held against it.
CREATE TABLE node_uefi (
    node_id TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    -- JSON.
    body    TEXT NOT NULL
);
