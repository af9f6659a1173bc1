-- What customers used: a node in use in the seconds since 1970 UTC [from_s, to_s), open while to_s is none. Kept also when
-- node and cluster are forgotten: bills are made of it.
CREATE TABLE usage (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    node_id    TEXT NOT NULL,
    -- Empty: nobody in particular.
    customer   TEXT NOT NULL,
    -- Empty: the node was deployed by itself.
    cluster_id TEXT NOT NULL,
    sku        TEXT NOT NULL,
    from_s     BIGINT NOT NULL,
    to_s       BIGINT
);
-- A node is in use once at a time: the database refuses a second.
CREATE UNIQUE INDEX usage_open ON usage (node_id) WHERE to_s IS NULL;
CREATE INDEX usage_node ON usage (node_id, to_s);
CREATE INDEX usage_customer ON usage (customer, sku, from_s, position);

-- What is running now was handed over when its node became active, and is read as such by rackwrightd at its start.

-- Reserved terms: so many nodes of a SKU for a customer in the seconds [from_s, to_s).
CREATE TABLE terms (
    id         TEXT PRIMARY KEY,
    uid        TEXT NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    customer   TEXT NOT NULL,
    sku        TEXT NOT NULL,
    nodes      BIGINT NOT NULL,
    from_s     BIGINT NOT NULL,
    to_s       BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX terms_customer ON terms (customer, sku);
