//! `ControlService`: state and control of the control plane itself.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::control_service_server::ControlService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::start::other::is_proven;
use rackwright_lifecycle::EventKind;
use tonic::{Request, Response, Status};

use super::call::MutatingCall;
use super::caller;

/// Implements `ControlService`.
#[derive(Debug, Clone)]
pub struct Control(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

impl Control {
    async fn state(&self, paused: bool) -> Result<v1::Control, ApiError> {
        Ok(v1::Control {
            paused,
            doubted_nodes: self.0.store.doubted_nodes().await?,
            warnings: self.0.config.ethernet.warnings(),
        })
    }
}

#[tonic::async_trait]
impl ControlService for Control {
    async fn get_control(&self, request: Request<v1::GetControlRequest>) -> Answer<v1::Control> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(self.state(self.0.pause.is_on()).await?))
    }

    async fn resume_control(&self, request: Request<v1::ResumeControlRequest>) -> Answer<v1::Control> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "ResumeControl", request.mutation.as_ref(), &request)?;
        let tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        drop(tx);
        self.0.audit_now().await.map_err(ApiError::from)?;
        if !self.0.pause.end(&self.0).await.map_err(ApiError::from)? {
            return Err(ApiError::precondition(
                "control",
                "the control plane is not paused",
                "`rackwright control show` shows its state",
            )
            .into());
        }
        let mut tx = self.0.store.write().await.map_err(ApiError::from)?;
        let message = format!("{} ended the pause of {}", caller.name, self.0.replica);
        tx.add_event(&call.event(EventKind::SecurityControlResumed, "site", message))
            .await
            .map_err(ApiError::from)?;
        let answer = self.state(false).await?;
        Ok(Response::new(call.end_in(tx, answer).await?))
    }

    async fn prove_database(&self, request: Request<v1::ProveDatabaseRequest>) -> Answer<()> {
        let request = request.into_inner();
        if !is_proven(&self.0.keys.sealer, &request.challenge, &request.proof) {
            let message = "this call is only for control planes of this site, and the proof of the caller is not valid";
            return Err(ApiError::Unauthenticated(message.into()).into());
        }
        let written = self.0.store.put_challenge(&request.challenge).await;
        written.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }
}
