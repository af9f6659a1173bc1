//! `BootService`: what was seen of machines while they booted.

use std::sync::{Arc, PoisonError};

use rackwright_api::v1;
use rackwright_api::v1::boot_service_server::BootService;
use tonic::{Request, Response, Status};

use super::errors::ApiError;
use super::{caller, convert};
use crate::core::Core;
use crate::text::{NAME_MAX, cut};

/// The service.
#[derive(Debug, Clone)]
pub struct Boot(pub Arc<Core>);

/// A MAC address in the form it is stored: lower case, colons.
///
/// # Errors
/// Not six bytes in hex.
pub fn mac(text: &str) -> Result<String, ApiError> {
    let plain: String = text.to_ascii_lowercase().replace(['-', ':', '.'], "");
    if plain.len() != 12 || !plain.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ApiError::invalid(
            "mac",
            format!(
                "{:?} is not six bytes in hex, such as 52:54:00:12:34:56",
                cut(text, NAME_MAX)
            ),
        ));
    }
    let bytes: Vec<&str> = (0..6).filter_map(|i| plain.get(2 * i..2 * i + 2)).collect();
    Ok(bytes.join(":"))
}

#[tonic::async_trait]
impl BootService for Boot {
    async fn trace_boot(
        &self,
        request: Request<v1::TraceBootRequest>,
    ) -> Result<Response<v1::TraceBootResponse>, Status> {
        caller::member(&self.0, &request).await?;
        let mac = mac(&request.get_ref().mac)?;
        let node = self.0.store.node_of_mac(&mac).await.map_err(ApiError::from)?;
        let stages = self.0.store.boot_stages(&mac).await.map_err(ApiError::from)?;
        Ok(Response::new(v1::TraceBootResponse {
            mac,
            node: node.map(|n| format!("nodes/{n}")).unwrap_or_default(),
            stages: stages.into_iter().map(convert::boot_stage).collect(),
        }))
    }

    async fn list_unknown_machines(
        &self,
        request: Request<v1::ListUnknownMachinesRequest>,
    ) -> Result<Response<v1::ListUnknownMachinesResponse>, Status> {
        caller::member(&self.0, &request).await?;
        let rows = self.0.store.unknown_machines().await.map_err(ApiError::from)?;
        let machines = rows.into_iter().map(convert::unknown_machine).collect();
        Ok(Response::new(v1::ListUnknownMachinesResponse { machines }))
    }

    async fn get_counters(
        &self,
        request: Request<v1::GetCountersRequest>,
    ) -> Result<Response<v1::GetCountersResponse>, Status> {
        caller::member(&self.0, &request).await?;
        let source = self
            .0
            .boot_counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let counters = source.map(|read| read().into_iter().collect()).unwrap_or_default();
        Ok(Response::new(v1::GetCountersResponse { counters }))
    }
}
