-- The state of the fabric was one JSON document in the column `fabric` of the hall. The statements for PostgreSQL are in
-- 0036_fabric_rows.postgres.sql.
INSERT INTO fabric (id, first_key, last_key, given_key, wanted, applied, reading, proven_at, fault, absent_changes)
SELECT 1, json_extract(doc, '$.pool.first'), json_extract(doc, '$.pool.last'), json_extract(doc, '$.pool.given'),
    json_extract(doc, '$.wanted'), json_extract(doc, '$.applied'), json_extract(doc, '$.reading'),
    json_extract(doc, '$.proven_at'), json_extract(doc, '$.fault'), 1
FROM (SELECT NULLIF(fabric, '') AS doc FROM hall) AS was
WHERE json_extract(doc, '$.wanted') > 0;

WITH was AS MATERIALIZED (
    SELECT NULLIF(fabric, '') AS doc FROM hall
), absent_ports AS MATERIALIZED (
    SELECT p.value AS port FROM was, json_each(doc, '$.absent') AS p
), cut_off_ports AS MATERIALIZED (
    SELECT p.value AS port FROM was, json_each(doc, '$.cut_off') AS p
), partitions AS MATERIALIZED (
    SELECT json_extract(m.value, '$.key') AS pkey, json_extract(m.value, '$.name') AS name,
        json_extract(m.value, '$.ports') AS members
    FROM was, json_each(doc, '$.members') AS m
), states AS MATERIALIZED (
    SELECT CAST(k.key AS INTEGER) AS pkey, json_extract(k.value, '$.draining.released_at') AS released_at,
        COALESCE(json_extract(k.value, '$.held'), json_extract(k.value, '$.draining')) AS state
    FROM was, json_each(doc, '$.pool.keys') AS k
), keys AS MATERIALIZED (
    SELECT states.pkey, released_at, json_extract(state, '$.owner') AS owner, json_extract(state, '$.ports') AS ports,
        COALESCE(name, '') AS name, COALESCE(members, '[]') AS members
    FROM states LEFT JOIN partitions ON partitions.pkey = states.pkey AND released_at IS NULL
), marked AS MATERIALIZED (
    SELECT pkey, released_at, owner, ports, name, members,
        (SELECT json_group_array(value) FROM
            (SELECT value FROM json_each(CASE WHEN released_at IS NULL THEN members ELSE ports END)
                WHERE value IN (SELECT port FROM absent_ports) ORDER BY value)) AS absent,
        (SELECT json_group_array(value) FROM
            (SELECT value FROM json_each(CASE WHEN released_at IS NULL THEN '[]' ELSE ports END)
                WHERE value IN (SELECT port FROM cut_off_ports) ORDER BY value)) AS cut_off
    FROM keys
)
INSERT INTO fabric_keys (pkey, owner, name, released_at, port_count, member_count, cut_off_count,
    absent, cut_off, members, ports)
SELECT pkey, owner, name, released_at, json_array_length(ports), json_array_length(members), json_array_length(cut_off),
    absent, cut_off, members, ports
FROM marked;

INSERT INTO fabric_comparison (id, checked_at, problem, more_faults, compared_changes, compared_reading)
SELECT 1, json_extract(doc, '$.watch.checked_at'), COALESCE(json_extract(doc, '$.watch.problem'), ''),
    COALESCE(json_extract(doc, '$.watch.more'), 0), 0, json_extract(doc, '$.watch.read_at')
FROM (SELECT NULLIF(fabric, '') AS doc FROM hall) AS was
WHERE doc IS NOT NULL;

INSERT INTO fabric_faults (id, body)
SELECT o.key, o.value FROM (SELECT NULLIF(fabric, '') AS doc FROM hall) AS was, json_each(doc, '$.watch.open') AS o;

INSERT INTO fabric_broken_links (cable)
SELECT b.value FROM (SELECT NULLIF(fabric, '') AS doc FROM hall) AS was, json_each(doc, '$.watch.broken') AS b;

INSERT INTO fabric_impaired_nodes (node_id, since, seen, why)
SELECT i.key, json_extract(i.value, '$.since'), json_extract(i.value, '$.seen'), json_extract(i.value, '$.why')
FROM (SELECT NULLIF(fabric, '') AS doc FROM hall) AS was, json_each(doc, '$.watch.impaired') AS i;

ALTER TABLE hall DROP COLUMN fabric;
