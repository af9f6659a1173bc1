//! `FirmwareService`.

mod golden;

use std::collections::HashMap;
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::firmware_service_server::FirmwareService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::intent;
use rackwright_ground::stored;
use rackwright_lifecycle::{EventKind, NodeId, OperationKind};
use rackwright_nodes::firmware;
use rackwright_redfish::FirmwareState;
use rackwright_site::firmware::Row;
use rackwright_site::model::WantedFirmware;
use rackwright_store::{FirmwareFileRow, FirmwareSeenRow, NodeRecord, Scope, StoreError};
use tonic::{Request, Response, Status, Streaming};

use super::call::{MutatingCall, SideChanges};
use super::names::{self, Pages};
use super::{caller, convert, windows};

/// Largest file in bytes: bundles for whole baseboards have some GiB.
const SIZE_MAX: u64 = 8 << 30;
/// Largest piece in one message, in bytes.
const PIECE_MAX: usize = 1 << 20;
/// Longest name of a component, version or file, in bytes.
const NAME_MAX: usize = 128;

/// Implements `FirmwareService`.
#[derive(Debug, Clone)]
pub struct Firmware(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

fn message(row: &FirmwareFileRow) -> v1::Firmware {
    v1::Firmware {
        name: format!("firmware/{}", row.digest),
        component: row.component.clone(),
        version: row.version.clone(),
        file_name: row.name.clone(),
        size_bytes: u64::try_from(row.bytes).unwrap_or(0),
        create_time: convert::time(row.created_at),
    }
}

fn row_message(row: &Row) -> v1::FirmwareRow {
    v1::FirmwareRow {
        component: row.component.to_string(),
        id: row.id.clone(),
        installed: row.installed.clone(),
        wanted: row.wanted.to_string(),
        verdict: row.verdict.name().to_owned(),
        file: row
            .file
            .as_ref()
            .map(|file| format!("firmware/{file}"))
            .unwrap_or_default(),
        order: row.order.name().to_owned(),
    }
}

/// Checks the announced facts about a file.
fn announced(first: &v1::AddFirmwareRequest) -> Result<String, ApiError> {
    let mut faults = Vec::new();
    let given = [
        ("component", &first.component),
        ("version", &first.version),
        ("file_name", &first.file_name),
    ];
    for (field, text) in given {
        if text.trim().is_empty() || text.len() > NAME_MAX || text.chars().any(char::is_control) {
            faults.push((
                field.to_owned(),
                format!("must have 1 to {NAME_MAX} printable characters"),
            ));
        }
    }
    if first.file_name.contains(['/', '\\', '"']) {
        faults.push((
            "file_name".to_owned(),
            "must be a file name without a path and without quotes".to_owned(),
        ));
    }
    let sha256 = first.sha256.to_ascii_lowercase();
    if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
        faults.push((
            "sha256".to_owned(),
            "must be the 64 hex digits of the file's SHA-256".to_owned(),
        ));
    }
    match faults.is_empty() {
        true => Ok(format!("sha256:{sha256}")),
        false => Err(ApiError::Invalid(faults)),
    }
}

fn cannot_write(error: &std::io::Error) -> ApiError {
    ApiError::Internal(format!("the firmware file cannot be written: {error}"))
}

impl Firmware {
    async fn take_in(
        &self,
        first: v1::AddFirmwareRequest,
        stream: &mut Streaming<v1::AddFirmwareRequest>,
        digest: &str,
    ) -> Result<u64, ApiError> {
        let files = &self.0.firmware_files;
        let mut writing = files.begin(&self.0.new_id()).await.map_err(|e| cannot_write(&e))?;
        let mut next = Some(first);
        while let Some(piece) = next {
            if piece.data.len() > PIECE_MAX || writing.bytes() + piece.data.len() as u64 > SIZE_MAX {
                let fault = format!("a piece has at most {PIECE_MAX} bytes, the file at most {SIZE_MAX}");
                return Err(ApiError::invalid("data", fault));
            }
            self.0.space.check(files.dir(), piece.data.len() as u64)?;
            writing.write(&piece.data).await.map_err(|e| cannot_write(&e))?;
            let broken = |s: Status| ApiError::invalid("data", format!("the stream broke: {}", s.message()));
            next = stream.message().await.map_err(broken)?;
        }
        let bytes = writing.bytes();
        if bytes == 0 {
            return Err(ApiError::invalid("data", "the file is empty"));
        }
        let found = writing.digest();
        if found != digest {
            let fault = format!("the received file has the SHA-256 {found}; send the file again");
            return Err(ApiError::invalid("sha256", fault));
        }
        files.keep(writing).await.map_err(|e| cannot_write(&e))?;
        Ok(bytes)
    }

    async fn record(&self, name: &str) -> Result<NodeRecord, ApiError> {
        let id = &names::node_id("name", name)?;
        Ok(self.0.store.node(&Scope::Site, id).await?)
    }
}

/// The last reading of a node's firmware: its time, and its content.
fn seen(node: &NodeId, row: Option<&FirmwareSeenRow>) -> Result<(v1::NodeFirmware, FirmwareState), StoreError> {
    let body = row.map_or("", |row| row.body.as_str());
    let state: FirmwareState = stored::json("firmware of the node", node.as_str(), body)?;
    let message = v1::NodeFirmware {
        name: format!("nodes/{node}"),
        seen_time: row.and_then(|row| convert::time(row.at)),
        ..v1::NodeFirmware::default()
    };
    Ok((message, state))
}

/// The compliance of a node with the `wanted` firmware, from its last reading.
fn compliance(
    record: &NodeRecord,
    wanted: &[WantedFirmware],
    row: Option<&FirmwareSeenRow>,
    files: &[FirmwareFileRow],
) -> Result<v1::NodeCompliance, StoreError> {
    let (seen, state) = seen(&record.id, row)?;
    let rows = firmware::rows(wanted, &state, files);
    let drift: Vec<&Row> = rows.iter().filter(|row| row.verdict.is_drift()).collect();
    let word = match (&seen.seen_time, drift.is_empty()) {
        (None, _) => "unknown",
        (Some(_), true) => "compliant",
        (Some(_), false) => "drift",
    };
    let is_known = seen.seen_time.is_some();
    Ok(v1::NodeCompliance {
        node: format!("nodes/{}", record.id),
        sku: record.spec.sku.clone(),
        state: word.to_owned(),
        seen_time: seen.seen_time,
        rows: drift.into_iter().filter(|_| is_known).map(row_message).collect(),
    })
}

/// One page of the report. Site, files and readings are read once each, regardless of the number of nodes.
async fn report_of(core: &Core, after: &str, records: &[NodeRecord]) -> Result<Vec<v1::NodeCompliance>, StoreError> {
    let (Some(last), Some(site)) = (records.last(), firmware::site(core).await?) else {
        return Ok(Vec::new());
    };
    let files = core.store.firmware_files().await?;
    let rows = core.store.firmware_seen_between(after, last.id.as_str()).await?;
    let seen: HashMap<&str, &FirmwareSeenRow> = rows.iter().map(|row| (row.node.as_str(), row)).collect();
    let wanting = records
        .iter()
        .map(|record| (record, firmware::wanted_in(&site, record)))
        .filter(|(_, wanted)| !wanted.is_empty());
    let reported =
        wanting.map(|(record, wanted)| compliance(record, wanted, seen.get(record.id.as_str()).copied(), &files));
    reported.collect()
}

#[tonic::async_trait]
impl FirmwareService for Firmware {
    async fn add_firmware(&self, request: Request<Streaming<v1::AddFirmwareRequest>>) -> Answer<v1::Firmware> {
        let caller = caller::operator(&self.0, &request).await?;
        let mut stream = request.into_inner();
        let first = stream.message().await?.unwrap_or_default();
        let digest = announced(&first)?;
        let mut row = FirmwareFileRow {
            digest: digest.clone(),
            component: first.component.trim().to_owned(),
            version: first.version.trim().to_owned(),
            name: first.file_name.clone(),
            bytes: 0,
            created_at: clock::now(),
        };
        let bytes = self.take_in(first, &mut stream, &digest).await?;
        row.bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut tx = self.0.store.write().await.map_err(ApiError::from)?;
        tx.add_firmware_file(&row).await.map_err(ApiError::from)?;
        let event = rackwright_store::EventRow {
            at: clock::now(),
            kind: EventKind::FirmwareAdded,
            target: format!("firmware/{digest}"),
            message: format!("{} added {} {}", caller.name, row.component, row.version),
            attributes: [("by".to_owned(), caller.name.clone())].into(),
            ..Default::default()
        };
        tx.add_event(&event).await.map_err(ApiError::from)?;
        self.0.commit(tx).await.map_err(ApiError::from)?;
        Ok(Response::new(message(&row)))
    }

    async fn list_firmware(&self, request: Request<v1::ListFirmwareRequest>) -> Answer<v1::ListFirmwareResponse> {
        caller::member(&self.0, &request).await?;
        let rows = self.0.store.firmware_files().await.map_err(ApiError::from)?;
        Ok(Response::new(v1::ListFirmwareResponse {
            firmware: rows.iter().map(message).collect(),
        }))
    }

    async fn remove_firmware(&self, request: Request<v1::RemoveFirmwareRequest>) -> Answer<()> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(&self.0, &caller, "RemoveFirmware", request.mutation.as_ref(), &request)?;
        let digest = names::id_of("name", &request.name, "firmware")?;
        let mut tx = match call.begin::<()>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        if !tx.remove_firmware_file(digest).await.map_err(ApiError::from)? {
            let hint = "wait for the end of the update; `rackwright firmware report` shows it";
            return Err(ApiError::precondition(&request.name, "an update is using it", hint).into());
        }
        let event = call.event(
            EventKind::FirmwareRemoved,
            &request.name,
            format!("{} removed {digest}", caller.name),
        );
        tx.add_event(&event).await.map_err(ApiError::from)?;
        call.end(tx, ()).await?;
        self.0.firmware_files.remove(digest).await;
        Ok(Response::new(()))
    }

    async fn get_node_firmware(&self, request: Request<v1::GetNodeFirmwareRequest>) -> Answer<v1::NodeFirmware> {
        caller::member(&self.0, &request).await?;
        let record = self.record(&request.get_ref().name).await?;
        let wanted = firmware::wanted_of(&self.0, &record).await.map_err(ApiError::from)?;
        let files = self.0.store.firmware_files().await.map_err(ApiError::from)?;
        let row = self.0.store.firmware_seen(&record.id).await.map_err(ApiError::from)?;
        let (mut answer, state) = seen(&record.id, row.as_ref()).map_err(ApiError::from)?;
        answer.rows = firmware::rows(&wanted, &state, &files)
            .iter()
            .map(row_message)
            .collect();
        let entry = |entry: &rackwright_redfish::FirmwareEntry| v1::FirmwareEntry {
            id: entry.id.clone(),
            title: entry.name.clone(),
            version: entry.version.clone(),
            software_id: entry.software_id.clone(),
            updateable: entry.updateable,
        };
        answer.inventory = state.entries.iter().map(entry).collect();
        let ways = [
            ("multipart", state.offer.multipart.is_some()),
            ("push", state.offer.push.is_some()),
            ("simple", state.offer.simple.is_some()),
        ];
        let offered = ways.into_iter().filter(|(_, is_offered)| *is_offered);
        answer.ways = offered.map(|(way, _)| way.to_owned()).collect();
        answer.under_way = match self.0.feature::<firmware::Firmware>().reported(&record.id) {
            Some(reported) => format!("{} ({} %)", reported.step, reported.percent),
            None if self
                .0
                .store
                .firmware_update(&record.id)
                .await
                .map_err(ApiError::from)?
                .is_some() =>
            {
                "an update has begun and has not ended".to_owned()
            }
            None => String::new(),
        };
        Ok(Response::new(answer))
    }

    async fn update_node_firmware(&self, request: Request<v1::UpdateNodeFirmwareRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "UpdateNodeFirmware",
            request.mutation.as_ref(),
            &request,
        )?;
        let record = self.record(&request.name).await?;
        if firmware::wanted_of(&self.0, &record)
            .await
            .map_err(ApiError::from)?
            .is_empty()
        {
            let hint =
                "set the wanted versions under `firmware:` of its SKU in the site file, then `rackwright site apply`";
            return Err(ApiError::precondition(&request.name, "its SKU wants no firmware", hint).into());
        }
        let now = call.now();
        let change = |record: &mut NodeRecord| intent::firmware(record, now).map(|()| SideChanges::default());
        Ok(Response::new(
            call.node_operation(&record.id, OperationKind::Firmware, change).await?,
        ))
    }

    async fn get_firmware_report(&self, request: Request<v1::GetFirmwareReportRequest>) -> Answer<v1::FirmwareReport> {
        caller::member(&self.0, &request).await?;
        let request = request.into_inner();
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "GetFirmwareReport",
            narrowed: "",
            limit,
        };
        let after = pages.after(&request.page_token)?;
        let records = self.0.store.nodes(&Scope::Site, &Vec::new(), after, limit).await;
        let records = records.map_err(ApiError::from)?;
        let next_page_token = pages.token(records.len(), records.last().map(|r| r.id.to_string()));
        let nodes = report_of(&self.0, after, &records).await.map_err(ApiError::from)?;
        Ok(Response::new(v1::FirmwareReport { nodes, next_page_token }))
    }

    async fn set_maintenance_window(
        &self,
        request: Request<v1::SetMaintenanceWindowRequest>,
    ) -> Answer<v1::MaintenanceWindow> {
        let caller = caller::user(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "SetMaintenanceWindow",
            request.mutation.as_ref(),
            &request,
        )?;
        let window = request.window.clone().unwrap_or_default();
        Ok(Response::new(windows::set(&self.0, &call, window).await?))
    }

    async fn get_maintenance_window(
        &self,
        request: Request<v1::GetMaintenanceWindowRequest>,
    ) -> Answer<v1::MaintenanceWindow> {
        let scope = caller::tenant(&self.0, &request).await?.scope;
        let target = request.into_inner().target;
        Ok(Response::new(windows::get(&self.0, &scope, target).await?))
    }

    async fn add_golden_firmware(&self, request: Request<v1::AddGoldenFirmwareRequest>) -> Answer<v1::GoldenFirmware> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::new(&self.0, &caller, "AddGoldenFirmware", mutation, &request)?;
        Ok(Response::new(golden::add(&call, &request).await?))
    }

    async fn list_golden_firmware(
        &self,
        request: Request<v1::ListGoldenFirmwareRequest>,
    ) -> Answer<v1::ListGoldenFirmwareResponse> {
        caller::member(&self.0, &request).await?;
        let rows = self.0.store.golden_firmware().await.map_err(ApiError::from)?;
        Ok(Response::new(v1::ListGoldenFirmwareResponse {
            golden: rows
                .iter()
                .map(golden::message)
                .collect::<Result<_, _>>()
                .map_err(ApiError::from)?,
        }))
    }

    async fn remove_golden_firmware(&self, request: Request<v1::RemoveGoldenFirmwareRequest>) -> Answer<()> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::new(&self.0, &caller, "RemoveGoldenFirmware", mutation, &request)?;
        golden::remove(&call, &request).await?;
        Ok(Response::new(()))
    }
}

#[cfg(test)]
mod tests;
