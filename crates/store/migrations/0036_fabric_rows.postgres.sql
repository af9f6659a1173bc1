-- The statements of 0036_fabric_rows.sql for PostgreSQL, which has other functions for JSON.
INSERT INTO fabric (id, first_key, last_key, given_key, wanted, applied, reading, proven_at, fault, absent_changes)
SELECT 1, (doc #>> '{pool,first}')::bigint, (doc #>> '{pool,last}')::bigint, (doc #>> '{pool,given}')::bigint,
    (doc ->> 'wanted')::bigint, (doc ->> 'applied')::bigint, (doc ->> 'reading')::bigint,
    (doc ->> 'proven_at')::bigint, doc ->> 'fault', 1
FROM (SELECT NULLIF(fabric, '')::jsonb AS doc FROM hall) AS was
WHERE (doc ->> 'wanted')::bigint > 0;

WITH was AS MATERIALIZED (
    SELECT NULLIF(fabric, '')::jsonb AS doc FROM hall
), absent_ports AS MATERIALIZED (
    SELECT p.port FROM was, jsonb_array_elements_text(doc -> 'absent') AS p(port)
), cut_off_ports AS MATERIALIZED (
    SELECT p.port FROM was, jsonb_array_elements_text(doc -> 'cut_off') AS p(port)
), partitions AS MATERIALIZED (
    SELECT (m.value ->> 'key')::bigint AS pkey, m.value ->> 'name' AS name, m.value -> 'ports' AS members
    FROM was, jsonb_each(doc -> 'members') AS m
), states AS MATERIALIZED (
    SELECT k.key::bigint AS pkey, (k.value #>> '{draining,released_at}')::bigint AS released_at,
        COALESCE(k.value -> 'held', k.value -> 'draining') AS state
    FROM was, jsonb_each(doc #> '{pool,keys}') AS k
), keys AS MATERIALIZED (
    SELECT states.pkey, released_at, state ->> 'owner' AS owner, state -> 'ports' AS ports,
        COALESCE(name, '') AS name, COALESCE(members, '[]') AS members
    FROM states LEFT JOIN partitions ON partitions.pkey = states.pkey AND released_at IS NULL
), marked AS MATERIALIZED (
    SELECT pkey, released_at, owner, ports, name, members,
        (SELECT COALESCE(jsonb_agg(port ORDER BY port), '[]') FROM
            jsonb_array_elements_text(CASE WHEN released_at IS NULL THEN members ELSE ports END) AS p(port)
            WHERE port IN (SELECT a.port FROM absent_ports AS a)) AS absent,
        (SELECT COALESCE(jsonb_agg(port ORDER BY port), '[]') FROM
            jsonb_array_elements_text(CASE WHEN released_at IS NULL THEN '[]' ELSE ports END) AS p(port)
            WHERE port IN (SELECT c.port FROM cut_off_ports AS c)) AS cut_off
    FROM keys
)
INSERT INTO fabric_keys (pkey, owner, name, released_at, port_count, member_count, cut_off_count,
    absent, cut_off, members, ports)
SELECT pkey, owner, name, released_at, jsonb_array_length(ports), jsonb_array_length(members), jsonb_array_length(cut_off),
    absent::text, cut_off::text, members::text, ports::text
FROM marked;

INSERT INTO fabric_comparison (id, checked_at, problem, more_faults, compared_changes, compared_reading)
SELECT 1, (doc #>> '{watch,checked_at}')::bigint, COALESCE(doc #>> '{watch,problem}', ''),
    COALESCE((doc #>> '{watch,more}')::bigint, 0), 0, (doc #>> '{watch,read_at}')::bigint
FROM (SELECT NULLIF(fabric, '')::jsonb AS doc FROM hall) AS was
WHERE doc IS NOT NULL;

INSERT INTO fabric_faults (id, body)
SELECT o.key, o.value::text
FROM (SELECT NULLIF(fabric, '')::jsonb AS doc FROM hall) AS was, jsonb_each(doc #> '{watch,open}') AS o;

INSERT INTO fabric_broken_links (cable)
SELECT b.cable
FROM (SELECT NULLIF(fabric, '')::jsonb AS doc FROM hall) AS was,
    jsonb_array_elements_text(doc #> '{watch,broken}') AS b(cable);

INSERT INTO fabric_impaired_nodes (node_id, since, seen, why)
SELECT i.key, (i.value ->> 'since')::bigint, (i.value ->> 'seen')::bigint, i.value ->> 'why'
FROM (SELECT NULLIF(fabric, '')::jsonb AS doc FROM hall) AS was, jsonb_each(doc #> '{watch,impaired}') AS i;

ALTER TABLE hall DROP COLUMN fabric;
