-- What machines share that has room for so many at once. Whoever changes who has a place in it locks its row.
CREATE TABLE bounds (
    resource TEXT PRIMARY KEY,
    room     BIGINT NOT NULL
);
-- What a node has a place in, or stands in line for. The count of the rows that are taken is what is in use: nothing else
-- counts it, so that nothing can be lost.
CREATE TABLE permits (
    node_id   TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    resource  TEXT NOT NULL,
    -- The first word of the resource.
    kind      TEXT NOT NULL,
    customer  TEXT NOT NULL,
    -- 0: an operator asked for this machine itself; 1: the others.
    rank      BIGINT NOT NULL,
    asked_at  BIGINT NOT NULL,
    -- None while it stands in line.
    taken_at  BIGINT,
    -- The try that uses it; none while it waits for more that it needs.
    effect_id TEXT,
    -- How long it stays taken when that has ended, and until when that is.
    settle_us BIGINT NOT NULL,
    free_at   BIGINT,
    PRIMARY KEY (node_id, resource)
);
-- The first in line of each customer, and how many permits each has.
CREATE INDEX permits_line ON permits (resource, rank, customer, asked_at, node_id) WHERE taken_at IS NULL;
CREATE INDEX permits_taken ON permits (resource, customer) WHERE taken_at IS NOT NULL;
CREATE INDEX permits_effect ON permits (effect_id) WHERE effect_id IS NOT NULL;
-- Who had the last turns in a line.
CREATE TABLE turns (
    resource TEXT NOT NULL,
    customer TEXT NOT NULL,
    number   BIGINT NOT NULL,
    PRIMARY KEY (resource, customer)
);
-- How long a node stood in line before a try was begun.
ALTER TABLE effects ADD COLUMN in_line_us BIGINT NOT NULL DEFAULT 0;
