//! The fake's firmware settings.

use rackwright_api::v1::settings_service_server::SettingsService;
use rackwright_api::v1::*;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service};

#[tonic::async_trait]
impl SettingsService for Service {
    async fn get_node_settings(&self, request: Request<GetNodeSettingsRequest>) -> Answer<NodeSettings> {
        self.enter("GetNodeSettings", &request, "")?;
        let name = request.into_inner().name;
        let found = self.state().settings.iter().find(|one| one.name == name).cloned();
        let found = found.ok_or_else(|| Status::not_found(format!("{name} does not exist")))?;
        Ok(Response::new(found))
    }

    async fn list_settings_drift(
        &self,
        request: Request<ListSettingsDriftRequest>,
    ) -> Answer<ListSettingsDriftResponse> {
        self.enter("ListSettingsDrift", &request, "")?;
        let token = request.into_inner().page_token;
        // One node per page: the client must read further pages.
        let state = self.state();
        let drifted: Vec<_> = state.settings.iter().filter(|one| one.drift_time.is_some()).collect();
        let number: usize = token.parse().unwrap_or(0);
        let more = number + 1 < drifted.len();
        Ok(Response::new(ListSettingsDriftResponse {
            nodes: drifted.get(number).map(|one| (*one).clone()).into_iter().collect(),
            next_page_token: if more { (number + 1).to_string() } else { String::new() },
            known_nodes: i32::try_from(state.settings.len()).expect("some"),
            read_nodes: i32::try_from(state.settings.iter().filter(|one| one.read_time.is_some()).count())
                .expect("some"),
        }))
    }

    async fn apply_node_settings(&self, request: Request<ApplyNodeSettingsRequest>) -> Answer<Operation> {
        let ApplyNodeSettingsRequest { name, mutation } = request.get_ref().clone();
        self.on_node("ApplyNodeSettings", &request, &mutation, "settings", &name)
    }
}
