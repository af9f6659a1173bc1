-- The claim generation and the boot that the session of a node's agent belongs to. A boot is named by the id of the effect
-- that switched the machine on. Sessions from before this are ended: their agents have certificates that name no boot.
ALTER TABLE nodes ADD COLUMN agent_generation BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN agent_boot TEXT NOT NULL DEFAULT '';
UPDATE nodes SET agent_holder = '', agent_session = agent_session + 1 WHERE agent_holder <> '';
-- How the control plane knows nodes.address: 'dhcp', 'connection', or '' where an agent once named it.
ALTER TABLE nodes ADD COLUMN address_witness TEXT NOT NULL DEFAULT '';
-- The newest boot of each node into the agent: who got its plan, who registered, and who contested it.
CREATE TABLE agent_boots (
    node_id        TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    boot           TEXT NOT NULL,
    -- The state of the node that it belongs to, by when that was entered.
    state_since    BIGINT NOT NULL,
    powered_on_at  BIGINT NOT NULL,
    -- The last plan: to which MAC address, to which address, with which token (its hash), and how many there were.
    mac            TEXT NOT NULL,
    address        TEXT NOT NULL,
    token_hash     TEXT NOT NULL,
    plans          BIGINT NOT NULL,
    -- The registration; empty and 0: there was none.
    kernel_boot_id TEXT NOT NULL,
    key_sha256     TEXT NOT NULL,
    registered_at  BIGINT NOT NULL,
    -- Contests in this state; when the last one was and what was seen; 0 and empty: there was none.
    contests       BIGINT NOT NULL,
    contested_at   BIGINT NOT NULL,
    contested_why  TEXT NOT NULL,
    -- Microseconds from power-on to registration in the last boot that was not contested; 0: not known.
    usual_us       BIGINT NOT NULL
);
