-- The audit: a chain of signed records, see docs/audit.md. The columns beside the record serve searches; a check compares them
-- with the record.
CREATE TABLE audit (
    position BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    caller TEXT NOT NULL,
    customer TEXT NOT NULL,
    method TEXT NOT NULL,
    target TEXT NOT NULL,
    outcome TEXT NOT NULL,
    record TEXT NOT NULL,
    hash TEXT NOT NULL,
    key TEXT NOT NULL,
    signature TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at, position);
CREATE INDEX audit_caller ON audit (caller, position);
CREATE INDEX audit_target ON audit (target, position);
-- The end of the chain. Whoever adds a record locks this row; position 0: there is no record yet.
CREATE TABLE audit_head (
    id BIGINT NOT NULL PRIMARY KEY,
    position BIGINT NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO audit_head (id, position, hash) VALUES (1, 0, '');
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
