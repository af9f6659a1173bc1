-- Breaches of isolation that concerned a cluster, for its customer's usage: from the second from_s since 1970 UTC to the
-- second to_s, open while to_s is none. Kept also when breach and cluster are deleted, as rows of `usage` are.
CREATE TABLE usage_breaches (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    breach_id   TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    cluster_id  TEXT NOT NULL,
    customer    TEXT NOT NULL,
    kind        TEXT NOT NULL,
    -- The last second in which a reading showed no such breach; none: unknown.
    good_s      BIGINT,
    -- A short breach begins and ends in the same second.
    from_s      BIGINT NOT NULL,
    to_s        BIGINT,
    UNIQUE (breach_id, cluster_uid)
);
CREATE INDEX usage_breaches_customer ON usage_breaches (customer, position);
CREATE INDEX usage_breaches_open ON usage_breaches (cluster_uid) WHERE to_s IS NULL;
