-- What meters and sensors said last: of nodes, rack PDUs and cooling units of the site, by their names there.
CREATE TABLE facility_readings (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    at   BIGINT NOT NULL,
    -- Whoever judges takes up what was stored since.
    stored_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX facility_readings_stored ON facility_readings (stored_at);

-- PDUs and cooling units: where each was spoken to first and the certificate that was shown there. Kept as long as the site
-- has a thing of that name, however long it does not answer.
CREATE TABLE facility_pins (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    pin  TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What is wrong now.
CREATE TABLE facility_alarms (
    id        TEXT PRIMARY KEY,
    kind      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    severity  TEXT NOT NULL,
    message   TEXT NOT NULL,
    advice    TEXT NOT NULL,
    -- Thousandths of the unit.
    measured  BIGINT,
    limit_at  BIGINT,
    unit      TEXT NOT NULL,
    nodes     BIGINT NOT NULL,
    blocks    BIGINT NOT NULL,
    cordons   BIGINT NOT NULL,
    opened_at BIGINT NOT NULL,
    seen_at   BIGINT NOT NULL,
    -- A digest of the names of the nodes that hang on it.
    which     TEXT NOT NULL
);

-- The nodes that an alarm keeps from starting or from being given to a cluster.
CREATE TABLE facility_holds (
    alarm_id TEXT NOT NULL REFERENCES facility_alarms (id) ON DELETE CASCADE,
    node_id  TEXT NOT NULL,
    blocks   BIGINT NOT NULL,
    cordons  BIGINT NOT NULL,
    PRIMARY KEY (node_id, alarm_id)
);
CREATE INDEX facility_holds_alarm ON facility_holds (alarm_id, node_id);
