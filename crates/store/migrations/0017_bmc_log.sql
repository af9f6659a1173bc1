-- What was read last of a node's event log at its BMC, and what is to be done with it next.
CREATE TABLE bmc_logs (
    node_id    TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    -- 'read', 'clear' or 'ac-cycle'; '' when there is nothing to do.
    wanted     TEXT NOT NULL,
    -- Of clear: the log, or '' for all. Of ac-cycle: 'forced', or ''.
    argument   TEXT NOT NULL,
    wanted_at  BIGINT NOT NULL,
    wanted_by  TEXT NOT NULL,
    -- Whoever does it has it until then.
    due_at     BIGINT NOT NULL,
    -- What came of the last thing that was wanted; the error is '' where it was done.
    done       TEXT NOT NULL,
    done_at    BIGINT NOT NULL,
    error      TEXT NOT NULL,
    read_at    BIGINT NOT NULL,
    body       TEXT NOT NULL
);
CREATE INDEX bmc_logs_due ON bmc_logs (due_at) WHERE wanted <> '';
