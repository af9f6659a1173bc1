//! The fake's discoveries.

use rackwright_api::v1::discovery_service_server::DiscoveryService;
use rackwright_api::v1::*;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service};

/// The fake's data.
#[derive(Default)]
pub struct Discoveries {
    pub started: Vec<StartDiscoveryRequest>,
    pub all: Vec<Discovery>,
    pub findings: Vec<Finding>,
    pub enrolled: Vec<EnrolFindingsRequest>,
    /// Answers of `EnrolFindings`, in order.
    pub answers: std::collections::VecDeque<EnrolFindingsResponse>,
}

fn key(mutation: Option<&Mutation>) -> String {
    mutation
        .map(|mutation| mutation.idempotency_key.clone())
        .unwrap_or_default()
}

#[tonic::async_trait]
impl DiscoveryService for Service {
    async fn start_discovery(&self, request: Request<StartDiscoveryRequest>) -> Answer<Operation> {
        let key = key(request.get_ref().mutation.as_ref());
        self.enter("StartDiscovery", &request, &key)?;
        self.state().discoveries.started.push(request.into_inner());
        self.start("StartDiscovery", &key, "discover", "discoveries/d1")
    }

    async fn get_discovery(&self, request: Request<GetDiscoveryRequest>) -> Answer<Discovery> {
        self.enter("GetDiscovery", &request, "")?;
        let name = request.into_inner().name;
        let state = self.state();
        let known = state.discoveries.all.iter().find(|one| one.name == name);
        let known = known
            .cloned()
            .ok_or_else(|| Status::not_found(format!("{name} does not exist")));
        Ok(Response::new(known?))
    }

    async fn list_discoveries(&self, request: Request<ListDiscoveriesRequest>) -> Answer<ListDiscoveriesResponse> {
        self.enter("ListDiscoveries", &request, "")?;
        Ok(Response::new(ListDiscoveriesResponse {
            discoveries: self.state().discoveries.all.clone(),
            ..Default::default()
        }))
    }

    async fn list_findings(&self, request: Request<ListFindingsRequest>) -> Answer<ListFindingsResponse> {
        self.enter("ListFindings", &request, "")?;
        let request = request.into_inner();
        let state = self.state();
        if !state.discoveries.all.iter().any(|one| one.name == request.parent) {
            return Err(Status::not_found(format!("{} does not exist", request.parent)));
        }
        // One finding per page: the client must read further pages.
        let all = state.discoveries.findings.iter();
        let all: Vec<_> = all
            .filter(|one| request.state.is_empty() || one.state == request.state)
            .collect();
        let number: usize = request.page_token.parse().unwrap_or(0);
        let more = number + 1 < all.len();
        Ok(Response::new(ListFindingsResponse {
            findings: all.into_iter().skip(number).take(1).cloned().collect(),
            next_page_token: if more { (number + 1).to_string() } else { String::new() },
        }))
    }

    async fn enrol_findings(&self, request: Request<EnrolFindingsRequest>) -> Answer<EnrolFindingsResponse> {
        let key = key(request.get_ref().mutation.as_ref());
        self.enter("EnrolFindings", &request, &key)?;
        let mut state = self.state();
        state.discoveries.enrolled.push(request.into_inner());
        Ok(Response::new(state.discoveries.answers.pop_front().unwrap_or_default()))
    }
}
