-- Names and passwords that machines come with from the factory, in the order in which they are tried. Passwords are sealed.
CREATE TABLE factory_credentials (
    id         TEXT PRIMARY KEY,
    pattern    TEXT NOT NULL,
    username   TEXT NOT NULL,
    password   BLOB NOT NULL,
    place      BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX factory_credentials_place ON factory_credentials (place, id);
