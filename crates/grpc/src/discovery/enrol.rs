//! Enrols findings as nodes. All findings are judged again first, because nodes may have been added meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};

use rackwright_api::v1;
use rackwright_control::discovery::finish;
use rackwright_control::discovery::look::{Body, GoodLogin};
use rackwright_control::discovery::spec::normal;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_ground::hall::HallError;
use rackwright_ground::keys::purposes::login_purpose;
use rackwright_ground::stored;
use rackwright_import::discovery::{Judgement, KnownNode, NameSource, judge, node_name};
use rackwright_lifecycle::{EventKind, NodeId, OperationId, OperationKind};
use rackwright_site::model::Site;
use rackwright_store::{FindingRow, NodeRecord, StoreError, WriteTx};
use secrecy::ExposeSecret as _;

use super::super::call::MutatingCall;
use super::super::caller::Caller;
use super::super::nodes::Nodes;
use super::super::{convert, enrolment, names};
use super::{Faults, finding_name, internal};

/// Most findings of one call.
const AT_ONCE: usize = 1000;
/// The deadline of an enrolment: each state has a deadline of its own that ends it sooner.
const DEADLINE_MIN: i64 = 7 * 24 * 60;

/// The action for a finding.
enum Action {
    Enrol(Box<NodeRecord>),
    Update { node: NodeId },
    Skip { reason: String },
}

struct Planned {
    row: FindingRow,
    action: Action,
}

/// BMCs in the site file.
struct SiteBmcs {
    by_address: HashMap<String, (String, String)>,
}

impl SiteBmcs {
    async fn read(core: &Core) -> Result<Self, ApiError> {
        let site = match core.sites.current(&core.store).await {
            Ok(site) => site.map(|(_, site)| site),
            // Then the names come from elsewhere.
            Err(HallError::NoSite | HallError::Broken(_)) => None,
            Err(HallError::Store(error)) => return Err(error.into()),
        };
        let by_address = site.as_deref().map(Self::of).unwrap_or_default();
        Ok(Self { by_address })
    }

    fn of(site: &Site) -> HashMap<String, (String, String)> {
        let nodes = site.nodes.iter().filter_map(|node| {
            let address = normal(node.bmc.as_deref()?).ok()?;
            let sku = site.skus.get(node.sku.index()).map(|sku| sku.name.to_string());
            Some((address, (node.name.to_string(), sku.unwrap_or_default())))
        });
        nodes.collect()
    }

    fn at(&self, address: &str) -> (&str, &str) {
        let found = self.by_address.get(address);
        found.map_or(("", ""), |(name, sku)| (name.as_str(), sku.as_str()))
    }
}

/// Enrols findings, or returns a plan.
///
/// # Errors
/// Faults of any finding; then no finding is enrolled.
pub(super) async fn enrol(
    core: &std::sync::Arc<Core>,
    caller: &Caller,
    request: v1::EnrolFindingsRequest,
) -> Result<v1::EnrolFindingsResponse, ApiError> {
    let mut plain = request.clone();
    let labels = std::mem::take(&mut plain.labels);
    let mutation = request.mutation.as_ref();
    let call = MutatingCall::with_maps(core, caller, "EnrolFindings", mutation, &plain, &[labels])?;
    let id = &OperationId::named(names::id_of("parent", &request.parent, "discoveries")?);
    check(&request)?;
    let places = SiteBmcs::read(core).await?;
    let mut tx = match call.begin().await? {
        Ok(tx) => tx,
        Err(former) => return Ok(former),
    };
    // Locked until the end: no other call enrols findings meanwhile.
    tx.open_discoveries().await?;
    let discovery = core.store.discovery(id).await?;
    if discovery.ended_at.is_none() {
        let hint = format!("`rackwright operation wait {id}` waits for its end");
        let message = "the discovery has not ended yet: its findings are compared with nodes at its end";
        return Err(ApiError::precondition(&request.parent, message, hint));
    }
    let (rows, remaining) = selected_findings(core, id, &request).await?;
    let planner = Planner {
        core,
        request: &request,
        places,
        known: finish::nodes(core).await?.known,
        now: call.now(),
    };
    let planned = planner.plan(rows)?;
    let mut findings = Vec::with_capacity(planned.len());
    let mut updated = Vec::new();
    for one in planned {
        if let (Action::Update { node }, false) = (&one.action, request.validate_only) {
            updated.push(node.clone());
        }
        findings.push(carry_out(&mut tx, &call, caller, one, request.validate_only).await?);
    }
    let response = call.end(tx, v1::EnrolFindingsResponse { findings, remaining }).await?;
    core.running_steps.due.notify_one();
    for node in updated {
        core.bmcs.forget(&node).await;
        core.notify_due(&node);
    }
    Ok(response)
}

fn check(request: &v1::EnrolFindingsRequest) -> Result<(), ApiError> {
    let mut faults = Faults::new();
    if request.findings.is_empty() != request.all_new {
        faults.push(("findings".into(), "set either findings or all_new".into()));
    }
    if request.findings.len() > AT_ONCE {
        faults.push(("findings".into(), format!("must have at most {AT_ONCE} entries")));
    }
    if request.name_template.len() > 256 {
        faults.push(("name_template".into(), "must have at most 256 bytes".into()));
    }
    faults.extend(
        enrolment::sku_faults(&request.sku)
            .into_iter()
            .map(|(_, what)| ("sku".to_owned(), what)),
    );
    faults.extend(enrolment::label_faults(&request.labels));
    enrolment::none(faults)
}

/// The chosen findings, and the number of further ones.
async fn selected_findings(
    core: &Core,
    id: &OperationId,
    request: &v1::EnrolFindingsRequest,
) -> Result<(Vec<FindingRow>, i64), ApiError> {
    if request.all_new {
        let limit = i64::try_from(AT_ONCE).unwrap_or(i64::MAX);
        let mut rows = core.store.findings(id, "new", "", limit).await?;
        let counts: BTreeMap<String, i64> = core.store.finding_counts(id).await?.into_iter().collect();
        let all = counts.get("new").copied().unwrap_or_default();
        let remaining = (all - i64::try_from(rows.len()).unwrap_or(0)).max(0);
        if request.update {
            rows.extend(core.store.findings(id, "moved", "", limit).await?);
        }
        return Ok((rows, remaining));
    }
    let (mut rows, mut faults, mut places) = (Vec::new(), Faults::new(), HashSet::new());
    for (index, text) in request.findings.iter().enumerate() {
        let field = format!("findings[{index}]");
        let address = match normal(
            text.rsplit_once("/findings/")
                .map_or(text.as_str(), |(_, address)| address),
        ) {
            Ok(address) => address,
            Err(what) => {
                faults.push((field, what));
                continue;
            }
        };
        match core.store.finding(id, &address).await {
            Ok(row) if places.insert(row.place.clone()) => rows.push(row),
            Ok(_) => faults.push((field, format!("{text} is named twice"))),
            Err(StoreError::NotFound { .. }) => {
                faults.push((field, format!("this discovery found nothing at {address}")));
            }
            Err(error) => return Err(error.into()),
        }
    }
    enrolment::none(faults)?;
    Ok((rows, 0))
}

struct Planner<'a> {
    core: &'a std::sync::Arc<Core>,
    request: &'a v1::EnrolFindingsRequest,
    places: SiteBmcs,
    known: Vec<KnownNode>,
    now: rackwright_lifecycle::Timestamp,
}

impl Planner<'_> {
    /// The action for each finding.
    fn plan(&self, rows: Vec<FindingRow>) -> Result<Vec<Planned>, ApiError> {
        let bodies: Vec<Body> = rows
            .iter()
            .map(|row| stored::json("finding of a discovery", &row.address, &row.body))
            .collect::<Result<_, _>>()?;
        let seen: Vec<_> = rows
            .iter()
            .zip(&bodies)
            .map(|(row, body)| finish::seen(row, body))
            .collect();
        let judged = judge(&seen, &self.known, &HashSet::new());
        let mut taken: HashMap<String, String> =
            self.known.iter().map(|node| (node.id.clone(), String::new())).collect();
        let (mut planned, mut faults) = (Vec::new(), Faults::new());
        for ((row, body), judgement) in rows.into_iter().zip(&bodies).zip(judged) {
            let action = match (row.state.as_str(), judgement) {
                ("new", Judgement::New) => self.new_node(&row, body, &mut taken, &mut faults)?,
                ("moved", Judgement::Moved { node, .. }) if row.node.as_ref().is_some_and(|id| *id == node) => {
                    self.update(&row, body, NodeId::stored(node))
                }
                (_, judgement) => Action::Skip {
                    reason: reason(&row, &judgement),
                },
            };
            planned.push(Planned { row, action });
        }
        enrolment::none(faults)?;
        Ok(planned)
    }

    fn update(&self, row: &FindingRow, body: &Body, node: NodeId) -> Action {
        if !self.request.update {
            let reason = format!("{}; --update sets the new address of the node", row.why);
            return Action::Skip { reason };
        }
        if body.certificate.is_empty() {
            let reason = "the BMC was not found over TLS: set its address with `rackwright node update`".to_owned();
            return Action::Skip { reason };
        }
        Action::Update { node }
    }

    fn new_node(
        &self,
        row: &FindingRow,
        body: &Body,
        taken: &mut HashMap<String, String>,
        faults: &mut Faults,
    ) -> Result<Action, ApiError> {
        let field = row.address.clone();
        let skip = Action::Skip { reason: String::new() };
        let name = match self.name(row, body) {
            Ok(name) => name,
            Err(what) => {
                faults.push((field, what));
                return Ok(skip);
            }
        };
        if let Some(other) = taken.insert(name.clone(), row.address.clone()) {
            let what = match other.as_str() {
                "" => format!("node {name} exists already and is another machine: choose another name"),
                other => format!("the finding {other} gets the name {name} too: choose another name"),
            };
            faults.push((field, what));
            return Ok(skip);
        }
        let request = self.enrolment(row, body, name)?;
        let of_one = enrolment::faults(&request);
        if !of_one.is_empty() {
            faults.extend(of_one.into_iter().map(|(name, what)| (format!("{field} {name}"), what)));
            return Ok(skip);
        }
        let mut record = Nodes(self.core.clone()).new_record(&request, self.now)?;
        // Identifies the same machine before its BMC is read.
        record.identity.uuid.clone_from(&body.uuid);
        record.identity.serial.clone_from(&body.serial);
        record.identity.vendor.clone_from(&body.manufacturer);
        record.identity.model.clone_from(&body.model);
        Ok(Action::Enrol(Box::new(record)))
    }

    fn name(&self, row: &FindingRow, body: &Body) -> Result<String, String> {
        let unit = if body.unit == 0 {
            String::new()
        } else {
            body.unit.to_string()
        };
        let source = NameSource {
            given: &body.name,
            site: self.places.at(&row.address).0,
            serial: &body.serial,
            uuid: &body.uuid,
            rack: &body.rack,
            unit: &unit,
            host: row
                .address
                .split_once("://")
                .map_or(row.address.as_str(), |(_, host)| host),
        };
        node_name(&self.request.name_template, &source)
    }

    fn enrolment(&self, row: &FindingRow, body: &Body, node_id: String) -> Result<v1::EnrollNodeRequest, ApiError> {
        let purpose = login_purpose(&row.discovery, &row.place);
        let login = self
            .core
            .keys
            .sealer
            .open(&row.login, &purpose)
            .map_err(|e| internal(&e))?;
        let login: GoodLogin = serde_json::from_str(login.expose_secret())
            .map_err(|_| ApiError::Internal(format!("the login kept for {} cannot be read", row.address)))?;
        let sku = [body.sku.as_str(), self.places.at(&row.address).1, &self.request.sku];
        let mut labels: HashMap<String, String> = self.request.labels.clone();
        labels.extend(body.labels.clone());
        if !body.rack.is_empty() {
            labels.entry("rack".into()).or_insert_with(|| body.rack.clone());
        }
        if body.unit != 0 {
            labels.entry("unit".into()).or_insert_with(|| body.unit.to_string());
        }
        Ok(v1::EnrollNodeRequest {
            node_id,
            spec: Some(v1::NodeSpec {
                bmc: Some(v1::Bmc {
                    address: row.address.clone(),
                    username: login.username,
                    password: login.password,
                    certificate_sha256: body.certificate.clone(),
                    system: body.system.clone(),
                }),
                sku: sku
                    .into_iter()
                    .find(|sku| !sku.is_empty())
                    .unwrap_or_default()
                    .to_owned(),
                ..v1::NodeSpec::default()
            }),
            labels,
            ..v1::EnrollNodeRequest::default()
        })
    }
}

/// Why a finding is skipped.
fn reason(row: &FindingRow, judgement: &Judgement) -> String {
    match (row.state.as_str(), judgement) {
        ("new" | "moved", Judgement::Known { node } | Judgement::Moved { node, .. }) => {
            format!("it belongs to node {node} now")
        }
        ("new" | "moved", Judgement::Conflict { why }) => why.clone(),
        ("same", _) => "it is another address of a machine that has its own finding: use that finding".to_owned(),
        ("known" | "enrolled", _) => format!("it is node {}", row.node.as_ref().map_or("", NodeId::as_str)),
        (state, _) if row.why.is_empty() => format!("it is {state}"),
        (state, _) => format!("{state}: {}", row.why),
    }
}

async fn carry_out(
    tx: &mut WriteTx,
    call: &MutatingCall<'_>,
    caller: &Caller,
    planned: Planned,
    is_dry_run: bool,
) -> Result<v1::EnrolledFinding, ApiError> {
    let Planned { mut row, action } = planned;
    let mut enrolled = v1::EnrolledFinding {
        finding: finding_name(&row),
        ..v1::EnrolledFinding::default()
    };
    let by = format!(
        "{} enrolled {} as discovery {} found it",
        caller.name, row.address, row.discovery
    );
    match action {
        Action::Skip { reason } => {
            "skip".clone_into(&mut enrolled.action);
            enrolled.reason = reason;
            return Ok(enrolled);
        }
        Action::Enrol(record) => {
            "enrol".clone_into(&mut enrolled.action);
            enrolled.node = format!("nodes/{}", record.id);
            if is_dry_run {
                return Ok(enrolled);
            }
            tx.insert_node(&record).await?;
            let operation = call.new_operation(OperationKind::Enroll, &enrolled.node, DEADLINE_MIN);
            tx.insert_operation(&operation).await?;
            tx.add_event(&call.event(EventKind::Requested, &enrolled.node, by))
                .await?;
            enrolled.operation = Some(convert::operation(&operation, None));
            row.node = Some(record.id.clone());
        }
        Action::Update { node } => {
            let mut record = tx.node(&node).await?;
            enrolled.node = format!("nodes/{node}");
            let body: Body = stored::json("finding of a discovery", &row.address, &row.body)?;
            let pin = finish::pin_of(&record.spec.bmc_certificate);
            if !record.spec.bmc_certificate.is_empty() && pin != body.certificate {
                "skip".clone_into(&mut enrolled.action);
                enrolled.reason = format!(
                    "node {node} has the stored certificate {pin}, but {} shows {}: if the new certificate is right, set \
                     the address and the certificate with `rackwright node update`",
                    row.address, body.certificate
                );
                return Ok(enrolled);
            }
            "update".clone_into(&mut enrolled.action);
            enrolled.reason = format!("from {} to {}", record.spec.bmc_address, row.address);
            if is_dry_run {
                return Ok(enrolled);
            }
            record.spec.bmc_address.clone_from(&row.address);
            tx.save_node(&mut record, call.now()).await?;
            let message = format!("{} moved the BMC of {node} {}", caller.name, enrolled.reason);
            tx.add_event(&call.event(EventKind::Requested, &enrolled.node, message))
                .await?;
            row.node = Some(node);
        }
    }
    "enrolled".clone_into(&mut row.state);
    // The node has its own login now.
    row.login.clear();
    row.why.clear();
    tx.put_findings(&[row]).await?;
    Ok(enrolled)
}
