-- SSH keys of members, by the SHA-256 of the key: a key is one member's.
CREATE TABLE member_ssh_keys (
    fingerprint TEXT PRIMARY KEY,
    member      TEXT NOT NULL,
    public_key  TEXT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX member_ssh_keys_member ON member_ssh_keys (member, created_at);

-- The SSH host key that the console of a node's BMC showed first, or that must answer. By the enrolment, never reused, and the
-- BMC's host: at another one it is another BMC.
CREATE TABLE console_pins (
    node_uid TEXT NOT NULL,
    address  TEXT NOT NULL,
    host_key TEXT NOT NULL,
    PRIMARY KEY (node_uid, address)
);

-- Private keys of the site itself, sealed.
CREATE TABLE sealed_keys (
    name   TEXT PRIMARY KEY,
    sealed BLOB NOT NULL
);
