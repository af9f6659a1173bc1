-- What nodes wait for, to be counted: 36 characters tell the reasons apart (Wait::HEAD), and nodes at rest, which are most,
-- are not in it.
CREATE INDEX nodes_waiting ON nodes (state, substr(wait_why, 1, 36)) WHERE wait_why <> '';
