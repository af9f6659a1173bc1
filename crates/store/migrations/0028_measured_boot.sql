-- What the TPM says of the newest boot: 'as served', why that is not proven, or '' where nothing was shown.
ALTER TABLE agent_boots ADD COLUMN measured TEXT NOT NULL DEFAULT '';
