-- What the TPM of a node says of its firmware.
CREATE TABLE node_firmware_values (
    node_id       TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    -- When these values were first seen; 0: none were seen yet.
    first_seen_at BIGINT NOT NULL,
    tpm_ek        TEXT NOT NULL,
    -- JSON: the registers with their values and events.
    body          TEXT NOT NULL,
    -- The last difference that an event told of; empty: there is none.
    reported      TEXT NOT NULL,
    -- The last update by the control plane that no session has followed yet; 0: none.
    updated_at    BIGINT NOT NULL,
    updated_to    TEXT NOT NULL
);
-- What operators have approved as the good values of a SKU.
CREATE TABLE golden_firmware (
    id          TEXT PRIMARY KEY,
    sku         TEXT NOT NULL,
    body        TEXT NOT NULL,
    approved_at BIGINT NOT NULL,
    approved_by TEXT NOT NULL,
    node_id     TEXT NOT NULL,
    reason      TEXT NOT NULL
);
CREATE INDEX golden_firmware_sku ON golden_firmware (sku, approved_at);
