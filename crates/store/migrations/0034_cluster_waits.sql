-- What a cluster waits for is data (a lifecycle::cluster::Wait in JSON, empty at rest) with its kind beside it. The former texts
-- are not read: the clusters that waited are due, and their next step says what they wait for.
ALTER TABLE clusters RENAME COLUMN wait_why TO wait;
ALTER TABLE clusters ADD COLUMN wait_kind TEXT NOT NULL DEFAULT '';
UPDATE clusters SET wait = '', due_at = updated_at WHERE wait <> '';
