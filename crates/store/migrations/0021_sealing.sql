-- cloud-config of a deployment's users, sealed. NULL where there is none, and after the hand-over.
ALTER TABLE deployment_keys ADD COLUMN user_data BLOB;
-- Ids of the sealing keys that a replica has, separated by spaces, newest first, and of the one that it seals with.
ALTER TABLE replicas ADD COLUMN sealing_keys TEXT NOT NULL DEFAULT '';
ALTER TABLE replicas ADD COLUMN seals_with TEXT NOT NULL DEFAULT '';
-- Id of the sealing key without which no replica may start: the last rotation has ended with it. Empty before the first.
ALTER TABLE site ADD COLUMN sealing_key TEXT NOT NULL DEFAULT '';
-- Answers that older versions kept of these calls hold cloud-config in the clear. Set again, a lease ends when it did.
DELETE FROM requests WHERE method = 'SetClusterLease';
