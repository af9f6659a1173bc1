-- Of a member who logs in by an OpenID Connect provider: the provider's issuer, and its name for the person, which it never
-- gives to another. Empty: the member joined by an invitation.
ALTER TABLE members ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE members ADD COLUMN subject TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX members_origin ON members (issuer, subject) WHERE issuer <> '';
