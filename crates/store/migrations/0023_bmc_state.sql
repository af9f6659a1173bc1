-- What was foreign on a node's BMC when it was last read, and what of it was removed.
CREATE TABLE node_bmc_state (
    node_id   TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    read_at   BIGINT NOT NULL,
    -- When the BMC was last proven to hold nothing foreign; none: never.
    proven_at BIGINT,
    -- JSON: each thing with what came of it.
    body      TEXT NOT NULL
);
