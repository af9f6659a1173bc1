-- Since when there was always a replica that lived, as of this one's start: so long could agents come to one.
ALTER TABLE replicas ADD COLUMN up_since BIGINT NOT NULL DEFAULT 0;
