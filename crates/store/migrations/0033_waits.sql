-- What a node waits for is data (a lifecycle::Wait in JSON, empty at rest) with its kind beside it. The former texts are not
-- read: the nodes that waited are due, and their next step says what they wait for.
DROP INDEX nodes_waiting;
ALTER TABLE nodes RENAME COLUMN wait_why TO wait;
ALTER TABLE nodes ADD COLUMN wait_kind TEXT NOT NULL DEFAULT '';
UPDATE nodes SET wait = '', wait_until = 0, due_at = updated_at WHERE wait <> '';
CREATE INDEX nodes_waiting ON nodes (state, wait_kind) WHERE wait_kind <> '';
