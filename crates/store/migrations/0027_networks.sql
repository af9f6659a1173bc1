-- The network to which a node's switch ports were wished last, see docs/ethernet.md. `step` grows with every wish: a switch
-- refuses an older one.
CREATE TABLE node_networks (
    node_id TEXT NOT NULL PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    network TEXT NOT NULL,
    vlan    BIGINT NOT NULL,
    step    BIGINT NOT NULL
);
CREATE INDEX node_networks_vlan ON node_networks (vlan);
-- VLANs that clusters and customers have. A VLAN is given again only after every switch was read without it since it was
-- last wished for a port, or away from one (`changed_at`).
CREATE TABLE vlans (
    vlan       BIGINT NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL UNIQUE,
    changed_at BIGINT NOT NULL
);
