-- SHA-256 of the authority without which no replica may start: the last rotation has ended with it. Empty before the first.
ALTER TABLE site ADD COLUMN authority TEXT NOT NULL DEFAULT '';
-- The authorities that a replica trusts, separated by spaces, and the one that signs client certificates there.
ALTER TABLE replicas ADD COLUMN authorities TEXT NOT NULL DEFAULT '';
ALTER TABLE replicas ADD COLUMN issues_with TEXT NOT NULL DEFAULT '';
-- The authority that signed the newest certificate of a member, and of the agent of a node's newest boot. Empty where that
-- was not recorded.
ALTER TABLE members ADD COLUMN authority TEXT NOT NULL DEFAULT '';
ALTER TABLE agent_boots ADD COLUMN authority TEXT NOT NULL DEFAULT '';
-- Erase certificates form one chain: number and hash of the newest one. 0 and empty: there is none in the chain yet.
ALTER TABLE site ADD COLUMN erase_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE site ADD COLUMN erase_head TEXT NOT NULL DEFAULT '';
-- Number of each certificate in the chain, and the SHA-256 of its payload. 0 and empty: it is from before the chain.
ALTER TABLE erase_certificates ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE erase_certificates ADD COLUMN payload_hash TEXT NOT NULL DEFAULT '';
CREATE INDEX erase_certificates_number ON erase_certificates (number);
-- SHA-256 of the last quote of the node's newest boot. Empty where there was none.
ALTER TABLE agent_boots ADD COLUMN quote TEXT NOT NULL DEFAULT '';
