-- How the machine of the node's last agent session was known: 'tpm', 'address only', or '' where that was not recorded.
ALTER TABLE nodes ADD COLUMN agent_identity TEXT NOT NULL DEFAULT '';
-- The same of the newest boot, and the TPM that answered in it.
ALTER TABLE agent_boots ADD COLUMN identity TEXT NOT NULL DEFAULT '';
ALTER TABLE agent_boots ADD COLUMN tpm_ek TEXT NOT NULL DEFAULT '';
-- What the last contest was about: '' a second machine, 'identity' a machine that did not prove which one it is.
ALTER TABLE agent_boots ADD COLUMN contest_kind TEXT NOT NULL DEFAULT '';
