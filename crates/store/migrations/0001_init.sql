-- Times are microseconds since 1970 UTC. Ids are text. Bodies are JSON of the structs in the Rust code.
-- Written as SQLite has it; src/schema.rs says what is put otherwise for PostgreSQL.

CREATE TABLE nodes (
    id          TEXT PRIMARY KEY,
    uid         TEXT NOT NULL UNIQUE,
    version     BIGINT NOT NULL,
    state       TEXT NOT NULL,
    state_since BIGINT NOT NULL,
    sku         TEXT NOT NULL,
    body        TEXT NOT NULL,
    readings    TEXT NOT NULL,
    -- As reported last, and as the machine was when it was known to be whole: what installed systems are compared with.
    inventory   BLOB,
    expected    BLOB,
    -- Digests from the body: of the image that the node is given, and of the one that it holds.
    claimed_image TEXT NOT NULL,
    held_image  TEXT NOT NULL,
    address     TEXT NOT NULL,
    due_at      BIGINT NOT NULL,
    wait_why    TEXT NOT NULL,
    wait_until  BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);
-- One index finds due rows and rows whose lease ended.
CREATE INDEX nodes_due ON nodes (due_at);
CREATE INDEX nodes_state ON nodes (state, id);
CREATE INDEX nodes_sku ON nodes (sku, id);
-- Who is given an image, and who holds one.
CREATE INDEX nodes_claimed_image ON nodes (claimed_image);
CREATE INDEX nodes_held_image ON nodes (held_image);

CREATE TABLE node_labels (
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    name    TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (node_id, name)
);
CREATE INDEX node_labels_value ON node_labels (name, value, node_id);

CREATE TABLE nics (
    mac     TEXT PRIMARY KEY,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE
);
CREATE INDEX nics_node ON nics (node_id);

-- Machines that were forgotten while they held data that was not erased, by MAC. Enrolled again, they still do.
CREATE TABLE unerased_machines (
    mac        TEXT PRIMARY KEY,
    written_at BIGINT NOT NULL
);

-- Addresses we give out by DHCP: one a MAC, kept as long as the MAC is known.
CREATE TABLE addresses (
    mac      TEXT PRIMARY KEY,
    address  TEXT NOT NULL UNIQUE,
    given_at BIGINT NOT NULL
);

-- Single tries of effects; the id is what the agent's ledger calls the operation.
CREATE TABLE effects (
    position    INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    node_id     TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    state_since BIGINT NOT NULL,
    effect      TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    generation  BIGINT NOT NULL,
    owner       TEXT NOT NULL,
    boot_id     TEXT,
    started_at  BIGINT NOT NULL,
    deadline    BIGINT NOT NULL,
    ended_at    BIGINT,
    outcome     TEXT NOT NULL,
    code        TEXT NOT NULL,
    message     TEXT NOT NULL,
    retryable   BIGINT NOT NULL
);
-- At most one open effect a node: the database refuses a second.
CREATE UNIQUE INDEX effects_open ON effects (node_id) WHERE ended_at IS NULL;
CREATE INDEX effects_node ON effects (node_id, state_since, started_at);

-- Control planes on this database. One that was not heard of for a while is dead; what it left open is taken over.
CREATE TABLE replicas (
    id       TEXT PRIMARY KEY,
    heard_at BIGINT NOT NULL
);

CREATE TABLE history (
    position   INTEGER PRIMARY KEY,
    node_id    TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    edge       TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    at         BIGINT NOT NULL,
    spent_us   BIGINT NOT NULL,
    reason     TEXT NOT NULL
);
CREATE INDEX history_node ON history (node_id, position);

-- In the order in which they can be seen, without gaps.
CREATE TABLE events (
    position   BIGINT PRIMARY KEY,
    at         BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    target     TEXT NOT NULL,
    message    TEXT NOT NULL,
    attributes TEXT NOT NULL
);
CREATE INDEX events_target ON events (target, position);
CREATE INDEX events_at ON events (at);
-- PostgreSQL alone: committed, and without a position yet.
CREATE TABLE event_inbox (
    id         INTEGER PRIMARY KEY,
    at         BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    target     TEXT NOT NULL,
    message    TEXT NOT NULL,
    attributes TEXT NOT NULL
);
-- One row: the newest position given out.
CREATE TABLE event_counter (
    id   BIGINT PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO event_counter (id, last) VALUES (1, 0);

CREATE TABLE operations (
    id               TEXT PRIMARY KEY,
    version          BIGINT NOT NULL,
    kind             TEXT NOT NULL,
    target           TEXT NOT NULL,
    requested_by     TEXT NOT NULL,
    created_at       BIGINT NOT NULL,
    deadline         BIGINT NOT NULL,
    ended_at         BIGINT,
    code             BIGINT NOT NULL,
    message          TEXT NOT NULL,
    cancel_requested BIGINT NOT NULL
);
CREATE INDEX operations_target ON operations (target, created_at);
CREATE INDEX operations_open ON operations (target) WHERE ended_at IS NULL;

CREATE TABLE requests (
    actor    TEXT NOT NULL,
    key      TEXT NOT NULL,
    method   TEXT NOT NULL,
    digest   TEXT NOT NULL,
    -- None while the request is being answered.
    response BLOB,
    at       BIGINT NOT NULL,
    PRIMARY KEY (actor, key)
);
CREATE INDEX requests_at ON requests (at);

CREATE TABLE images (
    id         TEXT PRIMARY KEY,
    uid        TEXT NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE TABLE image_versions (
    image_id   TEXT NOT NULL REFERENCES images (id) ON DELETE CASCADE,
    digest     TEXT NOT NULL,
    body       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (image_id, digest)
);
CREATE INDEX image_versions_digest ON image_versions (digest);
CREATE TABLE uploads (
    id         TEXT PRIMARY KEY,
    image_id   TEXT NOT NULL,
    owner      TEXT NOT NULL,
    key        TEXT NOT NULL,
    body       TEXT NOT NULL,
    operation  TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (owner, key)
);

CREATE TABLE members (
    name       TEXT PRIMARY KEY,
    role       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
-- One-time tokens, by hash: of members, of boot scripts and of agents.
CREATE TABLE tokens (
    position   INTEGER PRIMARY KEY,
    hash       TEXT NOT NULL UNIQUE,
    purpose    TEXT NOT NULL,
    subject    TEXT NOT NULL,
    body       TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at    BIGINT,
    -- What whoever used it is known by, so that the same call again is answered; empty: it is not answered.
    used_by    TEXT NOT NULL DEFAULT ''
);
CREATE INDEX tokens_expiry ON tokens (expires_at);
CREATE INDEX tokens_subject ON tokens (purpose, subject);

-- Keys of one deployment, private parts sealed.
CREATE TABLE deployment_keys (
    node_id           TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    generation        BIGINT NOT NULL,
    deployment        BIGINT NOT NULL,
    host_public       TEXT NOT NULL,
    host_private      BLOB NOT NULL,
    provision_public  TEXT NOT NULL,
    provision_private BLOB NOT NULL,
    PRIMARY KEY (node_id, generation, deployment)
);

CREATE TABLE reports (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    node_id  TEXT NOT NULL,
    body     BLOB NOT NULL
);
CREATE INDEX reports_node ON reports (node_id, position);
-- Kept also when the node is forgotten: they are proof.
CREATE TABLE erase_certificates (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    node_id  TEXT NOT NULL,
    body     BLOB NOT NULL
);
CREATE INDEX erase_certificates_node ON erase_certificates (node_id, position);

CREATE TABLE boot_stages (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    mac      TEXT NOT NULL,
    at       BIGINT NOT NULL,
    stage    TEXT NOT NULL,
    detail   TEXT NOT NULL,
    remote   TEXT NOT NULL
);
CREATE INDEX boot_stages_mac ON boot_stages (mac, position);
CREATE INDEX boot_stages_at ON boot_stages (at);
CREATE TABLE unknown_machines (
    mac          TEXT PRIMARY KEY,
    first_seen   BIGINT NOT NULL,
    last_seen    BIGINT NOT NULL,
    architecture TEXT NOT NULL,
    relay        TEXT NOT NULL,
    system_uuid  TEXT NOT NULL,
    -- As its agent reported it, where the site boots such machines.
    inventory    BLOB
);
CREATE INDEX unknown_machines_seen ON unknown_machines (last_seen);
