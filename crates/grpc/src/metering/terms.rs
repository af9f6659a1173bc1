//! Reserved terms, which operators set.

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::text::counted;
use rackwright_lifecycle::{CustomerId, EventKind};
use rackwright_store::{Scope, Store, StoreError, TermRow};

use super::{second, time};
use crate::call::MutatingCall;
use crate::convert;
use crate::names::{self, Pages};

/// Most nodes of one term: far more than any site has, and few enough that sums do not overflow.
const NODES_MAX: u32 = 1_000_000;
/// Longest name of a customer or SKU, in bytes.
const NAME_MAX: usize = 255;

/// A term from a request, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    id: String,
    customer: CustomerId,
    sku: String,
    nodes: u32,
    from_s: i64,
    to_s: i64,
}

/// Checks a term and reports every fault.
///
/// # Errors
/// The invalid fields.
pub fn checked(term: &v1::Term) -> Result<Wanted, ApiError> {
    let id = names::id_of("term.name", &term.name, "terms")?;
    names::check_id("term.name", id)?;
    let mut faults = Vec::new();
    for (field, text) in [("term.customer", &term.customer), ("term.sku", &term.sku)] {
        if text.is_empty() || text.len() > NAME_MAX || text.chars().any(char::is_control) {
            faults.push((
                field.to_owned(),
                format!("must have 1 to {NAME_MAX} bytes without control characters"),
            ));
        }
    }
    if !(1..=NODES_MAX).contains(&term.nodes) {
        faults.push(("term.nodes".to_owned(), format!("must be 1 to {NODES_MAX}")));
    }
    let mut at = |field: &str, time: Option<&prost_types::Timestamp>| {
        let read = time.map_or_else(
            || Err(ApiError::invalid(field, "is required")),
            |time| second(field, time),
        );
        match read {
            Ok(second) => second,
            Err(ApiError::Invalid(of_field)) => {
                faults.extend(of_field);
                0
            }
            Err(_) => 0,
        }
    };
    let from_s = at("term.start_time", term.start_time.as_ref());
    let to_s = at("term.end_time", term.end_time.as_ref());
    if faults.is_empty() && to_s <= from_s {
        faults.push(("term.end_time".to_owned(), "must be later than start_time".to_owned()));
    }
    if !faults.is_empty() {
        return Err(ApiError::Invalid(faults));
    }
    Ok(Wanted {
        id: id.to_owned(),
        customer: CustomerId::named(&term.customer),
        sku: term.sku.clone(),
        nodes: term.nodes,
        from_s,
        to_s,
    })
}

fn message(row: &TermRow) -> v1::Term {
    v1::Term {
        name: format!("terms/{}", row.id),
        customer: row.customer.to_string(),
        sku: row.sku.clone(),
        nodes: row.nodes,
        start_time: time(row.from_s),
        end_time: time(row.to_s),
        metadata: Some(v1::Metadata {
            uid: row.uid.clone(),
            resource_version: row.version.to_string(),
            create_time: convert::time(row.created_at),
            update_time: convert::time(row.updated_at),
            labels: Default::default(),
        }),
    }
}

/// The term as text for the event: after a change, the former term is stored nowhere else.
fn words(row: &TermRow) -> String {
    format!(
        "{} of {} for {} in the seconds {} to {}",
        counted(row.nodes, "node"),
        row.sku,
        row.customer,
        row.from_s,
        row.to_s
    )
}

/// Creates or changes a term.
///
/// # Errors
/// The version is stale, or the term was changed at the same time.
pub async fn set(core: &Core, call: &MutatingCall<'_>, caller: &str, wanted: Wanted) -> Result<v1::Term, ApiError> {
    let mut tx = match call.begin::<v1::Term>().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    let former = tx.term(&wanted.id).await?;
    let name = format!("terms/{}", wanted.id);
    let version = former.as_ref().map_or(0, |row| row.version);
    call.check_version(&name, version)?;
    let was = former.as_ref().map(|row| format!("; it was {}", words(row)));
    // A term of a customer that left the site can still be changed.
    if former.as_ref().is_none_or(|row| row.customer != wanted.customer) {
        let known = core.sites.check_customer(&core.store, &wanted.customer).await?;
        known.map_err(|fault| ApiError::invalid("term.customer", fault))?;
    }
    let row = TermRow {
        version: version + 1,
        uid: former.as_ref().map_or_else(|| core.new_id(), |row| row.uid.clone()),
        created_at: former.map_or(call.now(), |row| row.created_at),
        updated_at: call.now(),
        id: wanted.id,
        customer: wanted.customer,
        sku: wanted.sku,
        nodes: wanted.nodes,
        from_s: wanted.from_s,
        to_s: wanted.to_s,
    };
    tx.put_term(&row).await?;
    let text = format!(
        "{caller} set the term {}: {}{}",
        row.id,
        words(&row),
        was.unwrap_or_default()
    );
    tx.add_event(&call.event(EventKind::TermSet, &name, text)).await?;
    call.end(tx, message(&row)).await
}

/// Deletes a term.
///
/// # Errors
/// The term does not exist, its version is stale, or it was changed at the same time.
pub async fn delete(call: &MutatingCall<'_>, caller: &str, name: &str) -> Result<(), ApiError> {
    let id = names::id_of("name", name, "terms")?;
    let mut tx = match call.begin::<()>().await? {
        Ok(tx) => tx,
        Err(()) => return Ok(()),
    };
    let row = tx.term(id).await?.ok_or_else(|| StoreError::NotFound {
        kind: "term",
        id: id.to_owned(),
    })?;
    call.check_version(name, row.version)?;
    tx.delete_term(&row).await?;
    let text = format!("{caller} forgot the term {id}: {}", words(&row));
    tx.add_event(&call.event(EventKind::TermDeleted, name, text)).await?;
    call.end(tx, ()).await
}

/// A page of the terms within `scope`.
///
/// # Errors
/// The page token is invalid.
pub async fn list(
    store: &Store,
    scope: &Scope,
    request: &v1::ListTermsRequest,
) -> Result<v1::ListTermsResponse, ApiError> {
    let limit = names::page_size(request.page_size)?;
    let pages = Pages {
        list: "ListTerms",
        narrowed: &request.customer,
        limit,
    };
    let customer = Some(CustomerId::named(&request.customer)).filter(|customer| !customer.is_empty());
    let rows = store
        .terms(scope, customer.as_ref(), pages.after(&request.page_token)?, limit)
        .await?;
    Ok(v1::ListTermsResponse {
        terms: rows.iter().map(message).collect(),
        next_page_token: pages.token(rows.len(), rows.last().map(|row| row.id.clone())),
    })
}
