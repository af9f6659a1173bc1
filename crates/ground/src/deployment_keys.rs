//! Keys of a deployment: the host key of the installed system and the daemon's provisioning key.

use rackwright_lifecycle::NodeId;
use rackwright_store::DeploymentKeys;

use crate::api_error::ApiError;
use crate::core::Core;
use crate::user_data;

/// The purpose to which a sealed deployment key is bound.
#[must_use]
pub fn deployment_key_purpose(what: &str, id: &NodeId, generation: u64, deployment: u32) -> String {
    format!("{what}-key:nodes/{id}:{generation}:{deployment}")
}

/// Host and provisioning keys of a new deployment, and its user data. Private keys and user data are sealed for this
/// deployment alone.
///
/// # Errors
/// There are no random numbers, or the user data cannot be sealed.
pub fn new_keys(
    core: &Core,
    id: &NodeId,
    (generation, deployment): (u64, u32),
    user_data: &str,
) -> Result<DeploymentKeys, ApiError> {
    let internal = |e: &dyn std::fmt::Display| ApiError::Internal(e.to_string());
    let make = |what: &str| -> Result<(String, Vec<u8>), ApiError> {
        let comment = format!("{what}-{id}");
        let pair = rackwright_identity::SshKeyPair::generate(core.rng.as_ref(), &comment).map_err(|e| internal(&e))?;
        let purpose = deployment_key_purpose(what, id, generation, deployment);
        let sealed = core
            .keys
            .sealer
            .seal(pair.private_key(), &purpose)
            .map_err(|e| internal(&e))?;
        Ok((pair.public_line().to_owned(), sealed))
    };
    let (host_public, host_private) = make("host")?;
    let (provision_public, provision_private) = make("provision")?;
    let user_data = user_data::seal_for_node(&core.keys.sealer, user_data, (id, generation, deployment));
    Ok(DeploymentKeys {
        user_data: user_data.map_err(|error| ApiError::unsealed("deployment.user_data", &error))?,
        host_public,
        host_private,
        provision_public,
        provision_private,
    })
}
