//! `DiscoveryService`: stores requests for discoveries; `rackwright_control::discovery` carries them out.

mod enrol;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::discovery_service_server::DiscoveryService;
use rackwright_control::discovery::Discoveries;
use rackwright_control::discovery::look::Body;
use rackwright_control::discovery::spec::{
    DiscoverySpec, Plan, SecretLogin, Secrets, SourceResults, Target, TargetSpec, overlap,
};
use rackwright_control::discovery::{DEADLINE_MIN, KEPT, TRIES, TRIES_MAX};
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::keys::purposes::secrets_purpose;
use rackwright_ground::stored;
use rackwright_import::discovery::{Ranges, TARGETS_MAX};
use rackwright_lifecycle::{EventKind, OperationId, OperationKind};
use rackwright_store::{DiscoveryRow, FindingRow, StoreError};
use tonic::{Request, Response, Status};

use super::call::MutatingCall;
use super::names::Pages;
use super::{caller, convert, enrolment, names};

/// Most ports that are tried in ranges.
const PORTS_MAX: usize = 4;
/// Most ranges of one discovery.
const RANGES_MAX: usize = 1000;
/// Most logins of one discovery: each row of a table may have its own.
const LOGINS_MAX: usize = 10_100;
/// Most discoveries that are open at the same time.
const OPEN_MAX: usize = 8;
/// Longest short text, in bytes.
const TEXT_MAX: usize = 256;
/// States by which a list can be filtered.
const STATES: &[&str] = &[
    "new",
    "known",
    "moved",
    "conflict",
    "login-needed",
    "login-refused",
    "unreadable",
    "not-redfish",
    "unreachable",
    "enrolled",
    "same",
    "read",
];

/// Implements `DiscoveryService`.
#[derive(Debug, Clone)]
pub struct Discovery(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;
type Faults = enrolment::Faults;

/// Progress of a discovery.
pub(super) async fn progress(core: &Core, id: &OperationId) -> Result<v1::Progress, StoreError> {
    let row = match core.store.discovery(id).await {
        Err(StoreError::NotFound { .. }) => return Ok(v1::Progress::default()),
        other => other?,
    };
    let percent = match row.phase.as_str() {
        "looking" => (row.reached.saturating_mul(99) / row.total.max(1)).clamp(0, 99),
        "judging" | "done" => 99,
        _ => 0,
    };
    let step = match row.phase.as_str() {
        "looking" => format!("looking at {} addresses", row.total),
        "listening" => "collecting addresses from other sources".to_owned(),
        _ => "comparing the findings with nodes".to_owned(),
    };
    Ok(v1::Progress {
        step,
        percent: u32::try_from(percent).unwrap_or(0),
        ..v1::Progress::default()
    })
}

fn short(field: String, text: &str, faults: &mut Faults) {
    if text.len() > TEXT_MAX || text.chars().any(char::is_control) {
        faults.push((
            field,
            format!("must have at most {TEXT_MAX} bytes, without control characters"),
        ));
    }
}

/// The request in its stored form. Every fault is added to `faults`.
fn spec(request: &v1::StartDiscoveryRequest, max: u64, faults: &mut Faults) -> DiscoverySpec {
    if request.ranges.len() > RANGES_MAX {
        faults.push(("ranges".into(), format!("must have at most {RANGES_MAX} entries")));
    } else if let Err(list) = Ranges::parse(&request.ranges, max) {
        faults.extend(
            list.into_iter()
                .map(|fault| (format!("ranges[{}]", fault.index), fault.what)),
        );
    }
    let ports: BTreeSet<u16> = request
        .ports
        .iter()
        .filter_map(|port| u16::try_from(*port).ok())
        .collect();
    if request.ports.len() > PORTS_MAX || ports.len() != request.ports.len() || ports.contains(&0) {
        faults.push((
            "ports".into(),
            format!("must have at most {PORTS_MAX} ports from 1 to 65535, each once"),
        ));
    }
    if request.targets.len() > TARGETS_MAX {
        faults.push(("targets".into(), format!("must have at most {TARGETS_MAX} entries")));
    }
    let logins: BTreeSet<&str> = request.logins.iter().map(|login| login.name.as_str()).collect();
    let targets = request.targets.iter().take(TARGETS_MAX).enumerate();
    let spec = DiscoverySpec {
        ranges: request.ranges.clone(),
        ports: ports.into_iter().collect(),
        targets: targets
            .map(|(index, one)| target(index, one, &logins, faults))
            .collect(),
        ssdp: request.ssdp,
        leases: request.leases,
        login_tries: if request.login_tries == 0 {
            TRIES
        } else {
            request.login_tries
        },
        factory_credentials: request.factory_credentials,
    };
    if request.login_tries > TRIES_MAX {
        faults.push((
            "login_tries".into(),
            format!("must be at most {TRIES_MAX}: BMCs lock accounts"),
        ));
    }
    let is_empty = spec.ranges.is_empty() && spec.targets.is_empty() && !spec.ssdp && !spec.leases;
    if is_empty {
        faults.push((
            "ranges".into(),
            "no source of addresses is set: set ranges, targets, ssdp or leases".into(),
        ));
    }
    if faults.is_empty() {
        let total = Plan::new(&spec, &SourceResults::default(), max).count();
        if total > max {
            let fault = format!("these are {total} pairs of address and port; one discovery takes at most {max}");
            faults.push(("ranges".into(), fault));
        }
    }
    spec
}

fn target(index: usize, one: &v1::DiscoveryTarget, logins: &BTreeSet<&str>, faults: &mut Faults) -> TargetSpec {
    let field = |name: &str| format!("targets[{index}].{name}");
    let target = TargetSpec {
        address: one.address.clone(),
        login: one.login.clone(),
        name: one.node_id.clone(),
        rack: one.rack.clone(),
        unit: u16::try_from(one.unit).unwrap_or_default(),
        sku: one.sku.clone(),
        system: one.system.clone(),
        labels: one.labels.clone().into_iter().collect(),
        source: one.source.clone(),
    };
    if let Err(what) = Target::parse(target.clone()) {
        faults.push((field("address"), what));
    }
    if !one.login.is_empty() && !logins.contains(one.login.as_str()) {
        faults.push((field("login"), format!("no login has the name {:?}", one.login)));
    }
    if !one.node_id.is_empty()
        && let Err(ApiError::Invalid(list)) = names::check_id(&field("node_id"), &one.node_id)
    {
        faults.extend(list);
    }
    if one.unit > 100 {
        faults.push((field("unit"), "must be at most 100".into()));
    }
    for (name, text) in [("rack", &one.rack), ("system", &one.system), ("source", &one.source)] {
        short(field(name), text, faults);
    }
    let of_node = enrolment::sku_faults(&one.sku).into_iter();
    let of_node = of_node.chain(enrolment::label_faults(&one.labels));
    faults.extend(of_node.map(|(name, what)| (format!("targets[{index}].{name}"), what)));
    target
}

fn secrets(request: &v1::StartDiscoveryRequest, faults: &mut Faults) -> Secrets {
    if request.logins.len() > LOGINS_MAX {
        faults.push(("logins".into(), format!("must have at most {LOGINS_MAX} entries")));
    }
    let mut logins = Vec::new();
    for (index, login) in request.logins.iter().take(LOGINS_MAX).enumerate() {
        let field = |name: &str| format!("logins[{index}].{name}");
        short(field("name"), &login.name, faults);
        if login.username.is_empty() || login.username.len() > TEXT_MAX {
            faults.push((field("username"), format!("must have 1 to {TEXT_MAX} bytes")));
        }
        let of_password = enrolment::password_faults(&login.password).into_iter();
        faults.extend(of_password.map(|(_, what)| (field("password"), what)));
        logins.push(SecretLogin {
            name: login.name.clone(),
            username: login.username.clone(),
            password: login.password.clone(),
        });
    }
    Secrets { logins }
}

fn internal(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::Internal(error.to_string())
}

fn discovery(row: &DiscoveryRow, counts: Vec<(String, i64)>) -> Result<v1::Discovery, StoreError> {
    let spec: DiscoverySpec = stored::json("discovery", row.id.as_str(), &row.spec)?;
    let heard: SourceResults = stored::json("discovery", row.id.as_str(), &row.heard)?;
    let notes = std::iter::once(row.message.clone()).chain(heard.notes);
    let notes: Vec<String> = notes.filter(|note| !note.is_empty()).collect();
    Ok(v1::Discovery {
        name: format!("discoveries/{}", row.id),
        requested_by: row.requested_by.clone(),
        create_time: convert::time(row.created_at),
        end_time: row.ended_at.and_then(convert::time),
        phase: row.phase.clone(),
        message: notes.join("; "),
        ranges: spec.ranges,
        total: row.total,
        reached: row.reached,
        silent: row.silent,
        counts: counts.into_iter().filter(|(state, _)| state != "asking").collect(),
        operation: format!("operations/{}", row.id),
    })
}

/// Name of a finding: its address without the `https` scheme.
fn finding_name(row: &FindingRow) -> String {
    let address = row.address.strip_prefix("https://").unwrap_or(&row.address);
    format!("discoveries/{}/findings/{address}", row.discovery)
}

fn finding(row: FindingRow, other_addresses: Vec<String>) -> Result<v1::Finding, StoreError> {
    let body: Body = stored::json("finding of a discovery", &row.address, &row.body)?;
    let node = row.node.as_ref().map(|node| format!("nodes/{node}"));
    Ok(v1::Finding {
        name: finding_name(&row),
        address: row.address,
        other_addresses,
        state: row.state,
        reason: row.why,
        node: node.unwrap_or_default(),
        certificate_sha256: body.certificate,
        vendor: body.vendor,
        product: body.product,
        redfish_version: body.redfish_version,
        manufacturer: body.manufacturer,
        model: body.model,
        serial: body.serial,
        uuid: body.uuid,
        macs: body.macs,
        bmc_firmware: body.bmc_firmware,
        username: body.username,
        rack: body.rack,
        unit: body.unit.into(),
        sku: body.sku,
        labels: body.labels.into_iter().collect(),
        source: body.source,
        login_tries: u32::try_from(row.tries).unwrap_or_default(),
    })
}

/// The request without its labels, and the labels: maps have no order.
fn without_labels(request: &v1::StartDiscoveryRequest) -> (v1::StartDiscoveryRequest, Vec<HashMap<String, String>>) {
    let mut plain = request.clone();
    let labels = plain
        .targets
        .iter_mut()
        .map(|target| std::mem::take(&mut target.labels))
        .collect();
    (plain, labels)
}

#[tonic::async_trait]
impl DiscoveryService for Discovery {
    async fn start_discovery(&self, request: Request<v1::StartDiscoveryRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let (plain, labels) = without_labels(&request);
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::with_maps(&self.0, &caller, "StartDiscovery", mutation, &plain, &labels)?;
        let max = self.0.config.discovery.max_addresses;
        let mut faults = Faults::new();
        let spec = spec(&request, max, &mut faults);
        let secrets = secrets(&request, &mut faults);
        enrolment::none(faults)?;
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        let open = tx.open_discoveries().await.map_err(ApiError::from)?;
        check_open(&open, &spec, max)?;
        let mut operation = call.new_operation(OperationKind::Discover, "", DEADLINE_MIN);
        operation.target = format!("discoveries/{}", operation.id);
        let text = serde_json::to_string(&secrets).map_err(|e| internal(&e))?;
        let sealed = self.0.keys.sealer.seal(&text.into(), &secrets_purpose(&operation.id));
        let row = DiscoveryRow {
            id: operation.id.clone(),
            requested_by: caller.name.clone(),
            created_at: call.now(),
            phase: "listening".into(),
            spec: serde_json::to_string(&spec).map_err(|e| internal(&e))?,
            heard: "{}".into(),
            secrets: sealed.map_err(|e| internal(&e))?,
            total: i64::try_from(Plan::new(&spec, &SourceResults::default(), max).count()).unwrap_or(i64::MAX),
            ..DiscoveryRow::default()
        };
        tx.insert_discovery(&row, KEPT).await.map_err(ApiError::from)?;
        tx.insert_operation(&operation).await.map_err(ApiError::from)?;
        let message = format!("{} began a discovery of {} addresses", caller.name, row.total);
        let event = call.event(EventKind::Requested, &operation.target, message);
        tx.add_event(&event).await.map_err(ApiError::from)?;
        let response = call.end(tx, convert::operation(&operation, None)).await?;
        self.0.feature::<Discoveries>().wake();
        Ok(Response::new(response))
    }

    async fn get_discovery(&self, request: Request<v1::GetDiscoveryRequest>) -> Answer<v1::Discovery> {
        caller::member(&self.0, &request).await?;
        let id = &OperationId::named(names::id_of("name", &request.get_ref().name, "discoveries")?);
        let row = self.0.store.discovery(id).await.map_err(ApiError::from)?;
        let counts = self.0.store.finding_counts(id).await.map_err(ApiError::from)?;
        Ok(Response::new(discovery(&row, counts).map_err(ApiError::from)?))
    }

    async fn list_discoveries(
        &self,
        request: Request<v1::ListDiscoveriesRequest>,
    ) -> Answer<v1::ListDiscoveriesResponse> {
        caller::member(&self.0, &request).await?;
        let request = request.into_inner();
        let limit = names::page_size(request.page_size)?;
        let pages = Pages {
            list: "ListDiscoveries",
            narrowed: "",
            limit,
        };
        let before = pages.after(&request.page_token)?;
        let rows = self.0.store.discoveries(before, limit).await.map_err(ApiError::from)?;
        let next_page_token = pages.token(rows.len(), rows.last().map(|row| row.id.to_string()));
        let mut discoveries = Vec::with_capacity(rows.len());
        for row in &rows {
            let counts = self.0.store.finding_counts(&row.id).await.map_err(ApiError::from)?;
            discoveries.push(discovery(row, counts).map_err(ApiError::from)?);
        }
        Ok(Response::new(v1::ListDiscoveriesResponse {
            discoveries,
            next_page_token,
        }))
    }

    async fn list_findings(&self, request: Request<v1::ListFindingsRequest>) -> Answer<v1::ListFindingsResponse> {
        caller::member(&self.0, &request).await?;
        let request = request.into_inner();
        let id = &OperationId::named(names::id_of("parent", &request.parent, "discoveries")?);
        if !request.state.is_empty() && !STATES.contains(&request.state.as_str()) {
            let fault = format!("{:?} is not one of {}", request.state, STATES.join(", "));
            return Err(ApiError::invalid("state", fault).into());
        }
        let limit = names::page_size(request.page_size)?;
        let narrowed = format!("{id} {}", request.state);
        let pages = Pages {
            list: "ListFindings",
            narrowed: &narrowed,
            limit,
        };
        let after = pages.after(&request.page_token)?;
        // Returns an error for a discovery that does not exist, instead of an empty list.
        self.0.store.discovery(id).await.map_err(ApiError::from)?;
        let rows = self
            .0
            .store
            .findings(id, &request.state, after, limit)
            .await
            .map_err(ApiError::from)?;
        let next_page_token = pages.token(rows.len(), rows.last().map(|row| row.place.clone()));
        let mut others: BTreeMap<String, Vec<String>> = BTreeMap::new();
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            let of_page = self.0.store.finding_others(id, &first.place, &last.place).await;
            for (of, address) in of_page.map_err(ApiError::from)? {
                others.entry(of).or_default().push(address);
            }
        }
        let findings = rows.into_iter().map(|row| {
            let others = others.remove(&row.place).unwrap_or_default();
            finding(row, others)
        });
        Ok(Response::new(v1::ListFindingsResponse {
            findings: findings.collect::<Result<_, _>>().map_err(ApiError::from)?,
            next_page_token,
        }))
    }

    async fn enrol_findings(&self, request: Request<v1::EnrolFindingsRequest>) -> Answer<v1::EnrolFindingsResponse> {
        let caller = caller::operator(&self.0, &request).await?;
        Ok(Response::new(
            enrol::enrol(&self.0, &caller, request.into_inner()).await?,
        ))
    }
}

/// Limits open discoveries, and refuses two that look at the same address.
fn check_open(open: &[DiscoveryRow], spec: &DiscoverySpec, max: u64) -> Result<(), ApiError> {
    for row in open {
        let other: DiscoverySpec = stored::json("discovery", row.id.as_str(), &row.spec)?;
        if let Some(both) = overlap(spec, &other, max) {
            let subject = format!("discoveries/{}", row.id);
            let message = format!("discovery {} of {} scans {both} already", row.id, row.requested_by);
            let hint = format!(
                "`rackwright operation wait {0}` waits for it, `rackwright operation cancel {0}` ends it",
                row.id
            );
            return Err(ApiError::precondition(subject, message, hint));
        }
    }
    if open.len() >= OPEN_MAX {
        let message = format!("{} discoveries are under way", open.len());
        let hint = "`rackwright discover list` shows them; wait for one, or cancel it";
        return Err(ApiError::precondition("discoveries", message, hint));
    }
    Ok(())
}
