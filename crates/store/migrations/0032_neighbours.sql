-- What a node's Ethernet cards last heard by LLDP, see docs/ethernet.md#cabling: in which boot of the kernel, the agent's message,
-- and the differences from the site file that were told as an event.
CREATE TABLE node_neighbours (
    node_id  TEXT NOT NULL PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    boot_id  TEXT NOT NULL,
    heard_at BIGINT NOT NULL,
    body     BLOB NOT NULL,
    told     TEXT NOT NULL
);
