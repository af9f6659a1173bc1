//! `BootService`: observations of machines during their boot.

use std::sync::{Arc, PoisonError};

use rackwright_api::v1;
use rackwright_api::v1::boot_service_server::BootService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_store::{StoreError, UnknownMachineRow};
use tonic::{Request, Response, Status};

use super::names::Pages;
use super::{caller, convert, names};

/// Most bytes of inventories in a page: clients accept messages of 4 MiB by default.
const PAGE_BYTES: usize = 3 << 20;

/// Implements `BootService`.
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

/// The page of machines after the MAC address `after`; `rows` are in order.
fn page(
    rows: Vec<UnknownMachineRow>,
    after: &str,
    pages: &Pages<'_>,
) -> Result<v1::ListUnknownMachinesResponse, StoreError> {
    let mut page = v1::ListUnknownMachinesResponse::default();
    let limit = usize::try_from(pages.limit).unwrap_or(usize::MAX);
    let (mut bytes, mut last) = (0, "");
    let rest: Vec<_> = rows.into_iter().filter(|row| row.mac.as_str() > after).collect();
    for row in &rest {
        bytes += row.inventory.as_ref().map_or(0, Vec::len);
        let is_full = page.machines.len() == limit || (bytes > PAGE_BYTES && !page.machines.is_empty());
        if is_full {
            page.next_page_token = pages.token_after(last);
            break;
        }
        page.machines.push(convert::unknown_machine(row.clone())?);
        last = &row.mac;
    }
    Ok(page)
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
        let request = request.into_inner();
        let pages = Pages {
            list: "ListUnknownMachines",
            narrowed: "",
            limit: names::page_size(request.page_size)?,
        };
        let after = pages.after(&request.page_token)?;
        let rows = self.0.store.unknown_machines().await.map_err(ApiError::from)?;
        Ok(Response::new(page(rows, after, &pages).map_err(ApiError::from)?))
    }

    async fn get_counters(
        &self,
        request: Request<v1::GetCountersRequest>,
    ) -> Result<Response<v1::GetCountersResponse>, Status> {
        caller::member(&self.0, &request).await?;
        let source = self
            .0
            .boot_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let counters = source
            .map(|boot| (boot.counters)().into_iter().collect())
            .unwrap_or_default();
        Ok(Response::new(v1::GetCountersResponse { counters }))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use rackwright_lifecycle::Timestamp;

    use super::*;

    /// A stored inventory of slightly more than `bytes` bytes.
    fn inventory(bytes: usize) -> Vec<u8> {
        let drive = v1::Drive {
            name: "x".repeat(bytes),
            ..v1::Drive::default()
        };
        let inventory = v1::Inventory {
            drives: vec![drive],
            ..v1::Inventory::default()
        };
        inventory.encode_to_vec()
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_to_be_taken() {
        let row = |number: u8, bytes: usize| UnknownMachineRow {
            mac: format!("52:54:00:00:00:{number:02x}"),
            first_seen: Timestamp(1),
            last_seen: Timestamp(1),
            architecture: String::new(),
            relay: String::new(),
            system_uuid: String::new(),
            inventory: (bytes > 0).then(|| inventory(bytes)),
        };
        let large = PAGE_BYTES / 2 + 1;
        let rows = vec![
            row(1, 0),
            row(2, large),
            row(3, large),
            row(4, 2 * PAGE_BYTES),
            row(5, 0),
        ];
        let pages = Pages {
            list: "ListUnknownMachines",
            narrowed: "",
            limit: 50,
        };
        let (mut token, mut read) = (String::new(), Vec::new());
        loop {
            let page = page(rows.clone(), pages.after(&token).unwrap(), &pages).unwrap();
            read.push(page.machines.iter().map(|m| m.mac[15..].to_owned()).collect::<Vec<_>>());
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(read, [vec!["01", "02"], vec!["03"], vec!["04"], vec!["05"]]);
    }
}
