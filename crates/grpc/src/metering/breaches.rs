//! Breaches of isolation that concerned clusters in a period.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_store::{Period, Store, UsageBreachRow};

use super::{ListFields, PeriodPage, cluster_name, time};
use crate::caller::Caller;

/// A page of the breaches that the caller may see.
///
/// # Errors
/// The request is wrong, or the database failed.
pub async fn list(
    store: &Store,
    caller: &Caller,
    request: &v1::ListUsageBreachesRequest,
) -> Result<v1::ListUsageBreachesResponse, ApiError> {
    let fields = ListFields {
        list: "ListUsageBreaches",
        customer: &request.customer,
        cluster: &request.cluster,
        start_time: request.start_time.as_ref(),
        end_time: request.end_time.as_ref(),
        page_size: request.page_size,
        page_token: &request.page_token,
    };
    let page = PeriodPage::new(caller, &fields)?;
    let period = page.period();
    let rows = store
        .usage_breaches(&caller.scope, &period, page.after, page.limit)
        .await?;
    Ok(v1::ListUsageBreachesResponse {
        breaches: rows.iter().map(|row| breach(row, &period)).collect(),
        next_page_token: page.next_token(rows.len(), rows.last().map(|row| row.position)),
        start_time: time(period.from_s),
        end_time: time(period.to_s),
    })
}

fn breach(row: &UsageBreachRow, period: &Period<'_>) -> v1::UsageBreach {
    let from_s = row.from_s.max(period.from_s);
    let to_s = row.to_s.unwrap_or(period.to_s).min(period.to_s);
    v1::UsageBreach {
        kind: row.kind.clone(),
        customer: row.customer.as_ref().map(ToString::to_string).unwrap_or_default(),
        cluster: cluster_name(row.cluster.as_ref()),
        good_time: row.good_s.and_then(time),
        since: time(row.from_s),
        end_time: row.to_s.and_then(time),
        seconds: to_s - from_s,
    }
}
