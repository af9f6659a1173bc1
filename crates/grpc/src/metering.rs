//! `MeteringService`: the usage of customers, the part of it under reserved terms, and breaches of isolation.

pub(crate) mod breaches;
mod sums;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use prost_types::Timestamp as ProtoTime;
use rackwright_api::v1;
use rackwright_api::v1::metering_service_server::MeteringService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::usage::second_of;
use rackwright_lifecycle::{ClusterId, CustomerId};
use rackwright_store::{Period, UsageRow};
use tonic::{Request, Response, Status};

use super::call::MutatingCall;
use super::caller::{self, Caller};
use super::names::{self, Pages};

/// The first second of the year 10000: later than any period.
const LATEST_S: i64 = 253_402_300_800;

/// Implements `MeteringService`.
#[derive(Debug, Clone)]
pub struct Metering(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

/// A second as a message.
fn time(second: i64) -> Option<ProtoTime> {
    Some(ProtoTime {
        seconds: second,
        nanos: 0,
    })
}

/// The whole second in a field.
fn second(field: &str, time: &ProtoTime) -> Result<i64, ApiError> {
    if time.nanos != 0 {
        return Err(ApiError::invalid(field, "must be a whole second"));
    }
    if !(0..=LATEST_S).contains(&time.seconds) {
        return Err(ApiError::invalid(field, "must be between the years 1970 and 10000"));
    }
    Ok(time.seconds)
}

/// The requested period.
#[derive(Debug, Clone, Copy)]
struct PeriodRequest {
    from_s: i64,
    /// `None`: until now.
    to_s: Option<i64>,
}

impl PeriodRequest {
    fn new(start: Option<&ProtoTime>, end: Option<&ProtoTime>) -> Result<Self, ApiError> {
        let start = start.ok_or_else(|| ApiError::invalid("start_time", "is required"))?;
        let from_s = second("start_time", start)?;
        let to_s = end.map(|end| second("end_time", end)).transpose()?;
        if to_s.is_some_and(|to_s| to_s <= from_s) {
            return Err(ApiError::invalid("end_time", "must be later than start_time"));
        }
        Ok(Self { from_s, to_s })
    }

    /// The end of the period at `now_s`: open usage counts up to now.
    fn end_s(self, now_s: i64) -> i64 {
        self.to_s.unwrap_or(LATEST_S).min(now_s).max(self.from_s)
    }
}

/// The id of the requested cluster; none: all clusters.
fn cluster_of(name: &str) -> Result<Option<ClusterId>, ApiError> {
    match name {
        "" => Ok(None),
        name => names::cluster_id("cluster", name).map(Some),
    }
}

/// `clusters/{id}`; empty without a cluster.
fn cluster_name(id: Option<&ClusterId>) -> String {
    id.map(|id| format!("clusters/{id}")).unwrap_or_default()
}

/// The customer of a request; none: all customers. Members of a customer may only read their own usage.
fn customer_of(caller: &Caller, requested: &str) -> Result<Option<CustomerId>, ApiError> {
    match (caller.scope.customer(), requested) {
        (None, "") => Ok(None),
        (None, requested) => Ok(Some(CustomerId::named(requested))),
        (Some(own), "") => Ok(Some(own.clone())),
        (Some(own), requested) if *own == requested => Ok(Some(own.clone())),
        // Customers must not learn whether another customer of this name exists.
        (Some(_), _) => Err(ApiError::invalid("customer", "must be empty or your own customer")),
    }
}

/// A usage interval, clipped to the period.
fn record(row: &UsageRow, period: &Period<'_>) -> v1::UsageRecord {
    let from_s = row.from_s.max(period.from_s);
    let to_s = row.to_s.unwrap_or(period.to_s).min(period.to_s);
    v1::UsageRecord {
        node: format!("nodes/{}", row.node),
        customer: row.holder.customer.to_string(),
        cluster: cluster_name(row.holder.cluster.as_ref()),
        sku: row.sku.clone(),
        start_time: time(from_s),
        end_time: time(to_s),
        node_seconds: to_s - from_s,
        open: row.to_s.is_none(),
    }
}

/// The place in a page token: the end of the period for all pages of the list, and the position.
fn parse_page_token(token: &str) -> Result<Option<(i64, i64)>, ApiError> {
    if token.is_empty() {
        return Ok(None);
    }
    let place = token.split_once('.').and_then(|(end_s, position)| {
        let place: (i64, i64) = (end_s.parse().ok()?, position.parse().ok()?);
        Some(place)
    });
    place
        .map(Some)
        .ok_or_else(|| ApiError::invalid("page_token", "is not a page token of this list"))
}

/// The fields that the requests of both lists have.
struct ListFields<'a> {
    list: &'static str,
    customer: &'a str,
    cluster: &'a str,
    start_time: Option<&'a ProtoTime>,
    end_time: Option<&'a ProtoTime>,
    page_size: i32,
    page_token: &'a str,
}

/// A page of a list over a period.
struct PeriodPage {
    list: &'static str,
    customer: Option<CustomerId>,
    cluster: Option<ClusterId>,
    from_s: i64,
    /// The same for all pages of the list.
    to_s: i64,
    /// The position at the end of the previous page.
    after: i64,
    limit: i64,
    /// The request without its place, so that a page token serves no other request.
    narrowed: String,
}

impl PeriodPage {
    fn new(caller: &Caller, fields: &ListFields<'_>) -> Result<Self, ApiError> {
        let customer = customer_of(caller, fields.customer)?;
        let requested = PeriodRequest::new(fields.start_time, fields.end_time)?;
        let cluster = cluster_of(fields.cluster)?;
        let narrowed = format!(
            "{requested:?} {} {}",
            cluster.as_ref().map_or("", ClusterId::as_str),
            customer.as_ref().map_or("", CustomerId::as_str)
        );
        let mut page = Self {
            list: fields.list,
            customer,
            cluster,
            from_s: requested.from_s,
            to_s: requested.end_s(second_of(clock::now())),
            after: 0,
            limit: names::page_size(fields.page_size)?,
            narrowed,
        };
        if let Some(place) = parse_page_token(page.pages().after(fields.page_token)?)? {
            (page.to_s, page.after) = place;
        }
        Ok(page)
    }

    fn pages(&self) -> Pages<'_> {
        Pages {
            list: self.list,
            narrowed: &self.narrowed,
            limit: self.limit,
        }
    }

    fn period(&self) -> Period<'_> {
        Period {
            from_s: self.from_s,
            to_s: self.to_s,
            customer: self.customer.as_ref(),
            cluster: self.cluster.as_ref(),
        }
    }

    /// The token of the page after this one, which has `rows` rows and ends at the position `last`.
    fn next_token(&self, rows: usize, last: Option<i64>) -> String {
        let place = last.map(|position| format!("{}.{position}", self.to_s));
        self.pages().token(rows, place)
    }
}

impl Metering {
    async fn list(&self, caller: &Caller, request: &v1::ListUsageRequest) -> Result<v1::ListUsageResponse, ApiError> {
        let fields = ListFields {
            list: "ListUsage",
            customer: &request.customer,
            cluster: &request.cluster,
            start_time: request.start_time.as_ref(),
            end_time: request.end_time.as_ref(),
            page_size: request.page_size,
            page_token: &request.page_token,
        };
        let page = PeriodPage::new(caller, &fields)?;
        let period = page.period();
        let rows = self
            .0
            .store
            .usage(&caller.scope, &period, page.after, page.limit)
            .await?;
        Ok(v1::ListUsageResponse {
            records: rows.iter().map(|row| record(row, &period)).collect(),
            next_page_token: page.next_token(rows.len(), rows.last().map(|row| row.position)),
            start_time: time(period.from_s),
            end_time: time(period.to_s),
        })
    }
}

#[tonic::async_trait]
impl MeteringService for Metering {
    async fn list_usage(&self, request: Request<v1::ListUsageRequest>) -> Answer<v1::ListUsageResponse> {
        let caller = caller::accountant(&self.0, &request).await?;
        Ok(Response::new(self.list(&caller, request.get_ref()).await?))
    }

    async fn sum_usage(&self, request: Request<v1::SumUsageRequest>) -> Answer<v1::SumUsageResponse> {
        let caller = caller::accountant(&self.0, &request).await?;
        let request = request.get_ref();
        let requested = PeriodRequest::new(request.start_time.as_ref(), request.end_time.as_ref())?;
        let customer = customer_of(&caller, &request.customer)?;
        let cluster = cluster_of(&request.cluster)?;
        let period = Period {
            from_s: requested.from_s,
            to_s: requested.end_s(second_of(clock::now())),
            customer: customer.as_ref(),
            cluster: cluster.as_ref(),
        };
        Ok(Response::new(sums::of(&self.0.store, &caller.scope, &period).await?))
    }

    async fn list_usage_breaches(
        &self,
        request: Request<v1::ListUsageBreachesRequest>,
    ) -> Answer<v1::ListUsageBreachesResponse> {
        let caller = caller::accountant(&self.0, &request).await?;
        let list = breaches::list(&self.0.store, &caller, request.get_ref());
        Ok(Response::new(list.await?))
    }

    async fn set_term(&self, request: Request<v1::SetTermRequest>) -> Answer<v1::Term> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "SetTerm", request.mutation.as_ref(), &request)?;
        let wanted = terms::checked(&request.term.clone().unwrap_or_default())?;
        Ok(Response::new(terms::set(&self.0, &call, &caller.name, wanted).await?))
    }

    async fn list_terms(&self, request: Request<v1::ListTermsRequest>) -> Answer<v1::ListTermsResponse> {
        let caller = caller::member(&self.0, &request).await?;
        let list = terms::list(&self.0.store, &caller.scope, request.get_ref());
        Ok(Response::new(list.await?))
    }

    async fn delete_term(&self, request: Request<v1::DeleteTermRequest>) -> Answer<()> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "DeleteTerm", request.mutation.as_ref(), &request)?;
        terms::delete(&call, &caller.name, &request.name).await?;
        Ok(Response::new(()))
    }
}
