//! The actions on nodes that start an operation, and their calls.

use rackwright_api::v1::credential_service_client::CredentialServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::settings_service_client::SettingsServiceClient;
use rackwright_api::v1::{
    ApplyNodeSettingsRequest, DeployNodeRequest, Deployment, Mutation, Operation, PowerAction, ReadmitNodeRequest,
    ReimageNodeRequest, ReleaseNodeRequest, ResumeNodeRequest, RetryNodeRequest, RotateBmcPasswordRequest,
    SetNodePowerRequest,
};
use rackwright_cli_context::client::{Client, rpc};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::wait::WaitArgs;
use rackwright_cli_context::{Cx, names, operation};

use super::targets::Chosen;

/// The action for each of several nodes, with everything except the node and the mutation.
pub enum Verb {
    Power(PowerAction),
    Deploy(Deployment),
    Reimage(Deployment),
    Release,
    /// With the nodes that it may erase.
    Resume(Vec<String>),
    /// Whether to accept the last reported drives, and the TPM to accept.
    Readmit(bool, String),
    Retry,
    RotatePassword,
    Settings,
}

impl Verb {
    /// The words in "cannot ... gpu-001".
    pub fn verb_text(&self) -> &'static str {
        match self {
            Self::Power(PowerAction::On) => "switch on",
            Self::Power(PowerAction::Off) => "switch off",
            Self::Power(_) => "power-cycle",
            Self::Deploy(_) => "deploy",
            Self::Reimage(_) => "reimage",
            Self::Release => "release",
            Self::Resume(_) => "resume",
            Self::RotatePassword => "change the BMC password of",
            Self::Readmit(..) => "readmit",
            Self::Retry => "retry",
            Self::Settings => "apply settings to",
        }
    }

    async fn send(&self, client: &Client, id: &str, mutation: Mutation) -> Result<Operation, CliError> {
        let doing = format!("{} {id}", self.verb_text());
        let name = names::full("nodes", id);
        let mutation = Some(mutation);
        match self {
            Self::Power(action) => {
                let request = SetNodePowerRequest {
                    name,
                    action: *action as i32,
                    mutation,
                };
                rpc!(client, NodeServiceClient.set_node_power, doing, request).await
            }
            Self::Deploy(deployment) => {
                let request = DeployNodeRequest {
                    name,
                    deployment: Some(deployment.clone()),
                    mutation,
                };
                rpc!(client, NodeServiceClient.deploy_node, doing, request).await
            }
            Self::Reimage(deployment) => {
                let request = ReimageNodeRequest {
                    name,
                    deployment: Some(deployment.clone()),
                    mutation,
                };
                rpc!(client, NodeServiceClient.reimage_node, doing, request).await
            }
            Self::Release => {
                rpc!(
                    client,
                    NodeServiceClient.release_node,
                    doing,
                    ReleaseNodeRequest { name, mutation }
                )
                .await
            }
            Self::Resume(confirmed) => {
                let request = ResumeNodeRequest {
                    name,
                    mutation,
                    confirm_erase: confirmed.iter().any(|confirmed| confirmed == id),
                };
                rpc!(client, NodeServiceClient.resume_node, doing, request).await
            }
            Self::RotatePassword => {
                rpc!(
                    client,
                    CredentialServiceClient.rotate_bmc_password,
                    doing,
                    RotateBmcPasswordRequest { name, mutation }
                )
                .await
            }
            Self::Readmit(accept_drives, accept_tpm) => {
                let request = ReadmitNodeRequest {
                    name,
                    mutation,
                    confirm_erase: true,
                    accept_drives: *accept_drives,
                    accept_tpm: accept_tpm.clone(),
                };
                rpc!(client, NodeServiceClient.readmit_node, doing, request).await
            }
            Self::Retry => {
                rpc!(
                    client,
                    NodeServiceClient.retry_node,
                    doing,
                    RetryNodeRequest { name, mutation }
                )
                .await
            }
            Self::Settings => {
                let request = ApplyNodeSettingsRequest { name, mutation };
                rpc!(client, SettingsServiceClient.apply_node_settings, doing, request).await
            }
        }
    }
}

/// Starts the verb on every node, waits on request, and reports. A refusal of one node does not stop the others.
pub async fn start_all(
    cx: &Cx,
    verb: Verb,
    chosen: &Chosen,
    waiting: WaitArgs,
    mutation: &MutationArgs,
) -> Result<(), CliError> {
    let mutations = chosen.mutations(mutation)?;
    let client = cx.client().await?;
    let mut started = Vec::new();
    let mut errors = Vec::new();
    for id in &chosen.ids {
        match verb.send(&client, id, mutations.of(id)).await {
            Ok(operation) => started.push(operation),
            // Without a server the other calls would only fail in the same way, slowly.
            Err(error) if error.is_outage() => {
                errors.push(error);
                break;
            }
            Err(error) => errors.push(error),
        }
    }
    if !started.is_empty()
        && let Err(error) = operation::finish(cx, &client, started, waiting).await
    {
        errors.push(error);
    }
    CliError::gather(errors)
}
