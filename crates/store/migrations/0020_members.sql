-- A member's certificates and SSH keys name its epoch, and those of another epoch have ended. A new member, and a member whose
-- certificates are ended, gets a new random epoch. Members from before have epoch 0, as their certificates do.
ALTER TABLE members ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
-- The last use, to the hour; 0: none is known.
ALTER TABLE members ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
-- The end of the certificate that was issued last; 0: none is known.
ALTER TABLE members ADD COLUMN certificate_ends_at BIGINT NOT NULL DEFAULT 0;
-- The end of a certificate that an event has warned of.
ALTER TABLE members ADD COLUMN warned_of BIGINT NOT NULL DEFAULT 0;

ALTER TABLE member_ssh_keys ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;

-- Of tokens for members: the customer of the new member (empty: the site), and the member who made the token.
ALTER TABLE tokens ADD COLUMN customer TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN made_by TEXT NOT NULL DEFAULT '';
UPDATE tokens SET customer = SUBSTR(body, LENGTH('customer-admin/') + 1)
    WHERE purpose = 'member' AND SUBSTR(body, 1, LENGTH('customer-admin/')) = 'customer-admin/';
UPDATE tokens SET customer = SUBSTR(body, LENGTH('customer-user/') + 1)
    WHERE purpose = 'member' AND SUBSTR(body, 1, LENGTH('customer-user/')) = 'customer-user/';
