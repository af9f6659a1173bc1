-- What tells a database from a copy of it and from an older state of it: a random id, a counter that only grows, and the last
-- challenge that a starting daemon had another one write here.
ALTER TABLE site ADD COLUMN database_id TEXT NOT NULL DEFAULT '';
ALTER TABLE site ADD COLUMN age BIGINT NOT NULL DEFAULT 0;
ALTER TABLE site ADD COLUMN challenge TEXT NOT NULL DEFAULT '';
-- Why a node's record may be older than its machine; empty: it is not doubted. The highest claim generation that the machine
-- has shown; 0: none.
ALTER TABLE nodes ADD COLUMN doubt_cause TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN doubt_since BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN doubt_why TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN doubt_generation BIGINT NOT NULL DEFAULT 0;
CREATE INDEX nodes_doubted ON nodes (doubt_cause, id) WHERE doubt_cause <> '';
