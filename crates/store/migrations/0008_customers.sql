-- Whose member it is; empty: the site's.
ALTER TABLE members ADD COLUMN customer TEXT NOT NULL DEFAULT '';

-- Whose the node is by its claim, and since when; empty: nobody's. What happened to it before is not that customer's to see.
ALTER TABLE nodes ADD COLUMN customer TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN customer_since BIGINT NOT NULL DEFAULT 0;
CREATE INDEX nodes_customer ON nodes (customer, id);

-- Whose the node was when it was examined or erased: a node goes from customer to customer, its papers do not.
ALTER TABLE reports ADD COLUMN customer TEXT NOT NULL DEFAULT '';
ALTER TABLE erase_certificates ADD COLUMN customer TEXT NOT NULL DEFAULT '';

UPDATE nodes SET customer = COALESCE(json_extract(body, '$.claim.customer'), ''), customer_since = updated_at;
