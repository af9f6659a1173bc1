-- The replica that a node's agent is connected to, empty where none is; a number that grows with every connection and with
-- every end of one; and when the last one was found to be gone.
ALTER TABLE nodes ADD COLUMN agent_holder TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN agent_session BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN agent_gone_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX nodes_agent_holder ON nodes (agent_holder) WHERE agent_holder <> '';
-- One row: the certificate authority of this site. Who has another one belongs to another site.
CREATE TABLE site (
    id        BIGINT PRIMARY KEY,
    ca_sha256 TEXT NOT NULL
);
