//! The fake's usage records.

use rackwright_api::v1::metering_service_server::MeteringService;
use rackwright_api::v1::*;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service, key};

/// The fake's data, and the requests it received.
#[derive(Default)]
pub struct Metering {
    pub records: Vec<UsageRecord>,
    pub sums: SumUsageResponse,
    pub breaches: Vec<UsageBreach>,
    pub terms: Vec<Term>,
    /// The requests as received.
    pub listed: Vec<ListUsageRequest>,
    pub summed: Vec<SumUsageRequest>,
    pub breaches_listed: Vec<ListUsageBreachesRequest>,
}

#[tonic::async_trait]
impl MeteringService for Service {
    async fn list_usage(&self, request: Request<ListUsageRequest>) -> Answer<ListUsageResponse> {
        self.enter("ListUsage", &request, "")?;
        let request = request.into_inner();
        let mut state = self.state();
        // One record per page: the client must read further pages.
        let number: usize = request.page_token.parse().unwrap_or(0);
        let records = &state.metering.records;
        let answer = ListUsageResponse {
            records: records.iter().skip(number).take(1).cloned().collect(),
            next_page_token: match number + 1 {
                next if next < records.len() => next.to_string(),
                _ => String::new(),
            },
            start_time: request.start_time,
            end_time: state.metering.sums.end_time,
        };
        state.metering.listed.push(request);
        Ok(Response::new(answer))
    }

    async fn sum_usage(&self, request: Request<SumUsageRequest>) -> Answer<SumUsageResponse> {
        self.enter("SumUsage", &request, "")?;
        let mut state = self.state();
        state.metering.summed.push(request.into_inner());
        Ok(Response::new(state.metering.sums.clone()))
    }

    async fn list_usage_breaches(
        &self,
        request: Request<ListUsageBreachesRequest>,
    ) -> Answer<ListUsageBreachesResponse> {
        self.enter("ListUsageBreaches", &request, "")?;
        let request = request.into_inner();
        let mut state = self.state();
        // One breach per page, as above.
        let number: usize = request.page_token.parse().unwrap_or(0);
        let breaches = &state.metering.breaches;
        let answer = ListUsageBreachesResponse {
            breaches: breaches.iter().skip(number).take(1).cloned().collect(),
            next_page_token: match number + 1 {
                next if next < breaches.len() => next.to_string(),
                _ => String::new(),
            },
            start_time: request.start_time,
            end_time: state.metering.sums.end_time,
        };
        state.metering.breaches_listed.push(request);
        Ok(Response::new(answer))
    }

    async fn set_term(&self, request: Request<SetTermRequest>) -> Answer<Term> {
        self.enter("SetTerm", &request, &key(&request.get_ref().mutation))?;
        let term = request.into_inner().term.unwrap_or_default();
        let mut state = self.state();
        state.metering.terms.retain(|known| known.name != term.name);
        state.metering.terms.push(term.clone());
        Ok(Response::new(term))
    }

    async fn list_terms(&self, request: Request<ListTermsRequest>) -> Answer<ListTermsResponse> {
        self.enter("ListTerms", &request, "")?;
        let customer = request.into_inner().customer;
        let state = self.state();
        let terms = state.metering.terms.iter();
        let terms = terms.filter(|term| customer.is_empty() || term.customer == customer);
        Ok(Response::new(ListTermsResponse {
            terms: terms.cloned().collect(),
            ..Default::default()
        }))
    }

    async fn delete_term(&self, request: Request<DeleteTermRequest>) -> Answer<()> {
        self.enter("DeleteTerm", &request, &key(&request.get_ref().mutation))?;
        let name = request.into_inner().name;
        let mut state = self.state();
        let before = state.metering.terms.len();
        state.metering.terms.retain(|term| term.name != name);
        if state.metering.terms.len() == before {
            return Err(Status::not_found(format!("term {name:?} does not exist")));
        }
        Ok(Response::new(()))
    }
}
