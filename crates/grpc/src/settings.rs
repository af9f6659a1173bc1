//! `SettingsService`: firmware settings of machines, compared with the wishes of their SKUs.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::settings_service_server::SettingsService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::hall::HallError;
use rackwright_ground::intent;
use rackwright_lifecycle::{NodeId, OperationKind};
use rackwright_nodes::firmware_settings;
use rackwright_nodes::firmware_settings::WantedCache;
use rackwright_site::model::{SettingRow, SettingStatus};
use rackwright_store::{NodeRecord, Scope, SettingsRow, StoreError};
use tonic::{Request, Response, Status};

use super::call::{MutatingCall, SideChanges};
use super::names::{self, Pages};
use super::{caller, convert};

/// Implements `SettingsService`.
#[derive(Debug, Clone)]
pub struct Settings(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

fn standing(standing: SettingStatus) -> v1::SettingStanding {
    match standing {
        SettingStatus::AsWanted => v1::SettingStanding::AsWanted,
        SettingStatus::Pending => v1::SettingStanding::Pending,
        SettingStatus::Differs => v1::SettingStanding::Differs,
        SettingStatus::ReadOnly => v1::SettingStanding::ReadOnly,
        SettingStatus::Missing => v1::SettingStanding::Missing,
    }
}

/// `is_read`: the setting was read after the wish.
fn setting(row: SettingRow, is_read: bool) -> v1::NodeSetting {
    let standing = if is_read {
        standing(row.standing)
    } else {
        v1::SettingStanding::Unspecified
    };
    v1::NodeSetting {
        name: row.name,
        wanted: row.wanted,
        current: row.seen,
        pending: row.pending,
        standing: standing.into(),
    }
}

impl Settings {
    async fn of(&self, id: &NodeId) -> Result<v1::NodeSettings, ApiError> {
        let core = &self.0;
        let record = core.store.node(&Scope::Site, id).await?;
        let row = core.store.node_settings(id).await?;
        self.message(&record, row).await
    }

    async fn message(&self, record: &NodeRecord, row: Option<SettingsRow>) -> Result<v1::NodeSettings, ApiError> {
        let core = &self.0;
        let site = match core.sites.current(&core.store).await {
            Ok(site) => site,
            Err(HallError::NoSite) => None,
            Err(error) => return Err(error.into()),
        };
        let sku = site.and_then(|(_, site)| {
            let own = site.skus.iter().find(|sku| *sku.name == *record.spec.sku);
            let named = || site.node_named(record.id.as_str()).map(|node| site.sku_of(node));
            own.or_else(named).map(|sku| format!("skus/{}", sku.name))
        });
        let mut message = v1::NodeSettings {
            name: format!("nodes/{}", record.id),
            sku: sku.unwrap_or_default(),
            ..v1::NodeSettings::default()
        };
        let Some(wanted) = core.feature::<WantedCache>().of(core, record).await? else {
            return Ok(message);
        };
        let known = row
            .as_ref()
            .map(|row| firmware_settings::rows_of(&record.id, &row.body))
            .transpose()?
            .unwrap_or_default();
        let rows = firmware_settings::rejudge(&wanted, &known);
        let is_astray = |(row, is_read): &(SettingRow, bool)| *is_read && row.standing != SettingStatus::AsWanted;
        let astray = rows.iter().any(is_astray);
        message.settings = rows.into_iter().map(|(row, is_read)| setting(row, is_read)).collect();
        if let Some(row) = row {
            message.read_time = convert::time(row.read_at);
            message.verify_time = row.verified_at.and_then(convert::time);
            message.drift_time = row.drifted_at.filter(|_| astray).and_then(convert::time);
        }
        Ok(message)
    }

    async fn drift(&self, request: v1::ListSettingsDriftRequest) -> Result<v1::ListSettingsDriftResponse, ApiError> {
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "ListSettingsDrift",
            narrowed: "",
            limit,
        };
        let after = pages.after(&request.page_token)?;
        let rows = self.0.store.settings_drift(after, limit).await?;
        let next_page_token = pages.token(rows.len(), rows.last().map(|row| row.node.to_string()));
        let mut nodes = Vec::with_capacity(rows.len());
        for row in rows {
            let record = match self.0.store.node(&Scope::Site, &row.node).await {
                // The node was deleted meanwhile.
                Err(StoreError::NotFound { .. }) => continue,
                record => record?,
            };
            let mut message = self.message(&record, Some(row)).await?;
            message.settings.retain(|setting| {
                !matches!(
                    setting.standing(),
                    v1::SettingStanding::AsWanted | v1::SettingStanding::Unspecified
                )
            });
            // Empty if the wishes have changed since the reading.
            if !message.settings.is_empty() {
                nodes.push(message);
            }
        }
        let (mut known, mut read) = (0, 0);
        if request.page_token.is_empty() {
            (known, read) = self.0.store.count_settings_read().await?;
        }
        Ok(v1::ListSettingsDriftResponse {
            nodes,
            next_page_token,
            known_nodes: i32::try_from(known).unwrap_or(i32::MAX),
            read_nodes: i32::try_from(read).unwrap_or(i32::MAX),
        })
    }

    async fn apply(&self, call: &MutatingCall<'_>, id: &NodeId) -> Result<v1::Operation, ApiError> {
        let record = self.0.store.node(&Scope::Site, id).await?;
        let wants = self.0.feature::<WantedCache>().of(&self.0, &record).await?.is_some();
        let change = |record: &mut NodeRecord| {
            if !wants {
                let message = format!("{id} has no wanted firmware settings");
                let hint = "`bios` and `secure_boot` of its SKU in the site file set the wanted settings";
                return Err(ApiError::precondition(format!("nodes/{id}"), message, hint));
            }
            intent::apply_settings(record).map(|()| SideChanges::default())
        };
        call.node_operation(id, OperationKind::Settings, change).await
    }
}

#[tonic::async_trait]
impl SettingsService for Settings {
    async fn get_node_settings(&self, request: Request<v1::GetNodeSettingsRequest>) -> Answer<v1::NodeSettings> {
        caller::member(&self.0, &request).await?;
        let id = &names::node_id("name", &request.get_ref().name)?;
        Ok(Response::new(self.of(id).await?))
    }

    async fn list_settings_drift(
        &self,
        request: Request<v1::ListSettingsDriftRequest>,
    ) -> Answer<v1::ListSettingsDriftResponse> {
        caller::member(&self.0, &request).await?;
        Ok(Response::new(self.drift(request.into_inner()).await?))
    }

    async fn apply_node_settings(&self, request: Request<v1::ApplyNodeSettingsRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::new(&self.0, &caller, "ApplyNodeSettings", mutation, &request)?;
        let id = &names::node_id("name", &request.name)?;
        Ok(Response::new(self.apply(&call, id).await?))
    }
}
