-- Whether the newest boot's BMC brings its machine a secret: 'inserted', why the BMC does not, or '' where none was asked.
ALTER TABLE agent_boots ADD COLUMN bmc_secret TEXT NOT NULL DEFAULT '';
