-- What machines consist of is some KiB each and changes rarely: apart from what every step reads and writes.
CREATE TABLE node_inventories (
    node_id  TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    -- As reported last, and as the machine was when it was known to be whole: what installed systems are compared with.
    reported BLOB NOT NULL,
    expected BLOB
);
INSERT INTO node_inventories (node_id, reported, expected)
    SELECT id, inventory, expected FROM nodes WHERE inventory IS NOT NULL;
ALTER TABLE nodes DROP COLUMN inventory;
ALTER TABLE nodes DROP COLUMN expected;
