//! The end of a discovery: decides which findings belong to one machine, and which of the machines are nodes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rackwright_ground::core::Core;
use rackwright_ground::stored;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_import::discovery::{Judgement, KnownNode, Seen, judge};
use rackwright_lifecycle::{NodeId, OperationId};
use rackwright_redfish::{BmcClient, RetryPolicy, Settings};
use rackwright_store::{FindingRow, NodeRecord, Scope, StoreError};
use tokio::task::JoinSet;

use super::look::Body;
use super::spec::normal;

/// Rows read or stored at once.
const PAGE: i64 = 1000;
/// Longest time for a node's former address to answer, when the node seems to have moved.
const FORMER_TIMEOUT: Duration = Duration::from_secs(5);
/// Former addresses that are tried in total, and in parallel.
const FORMER_MAX: usize = 1000;
const FORMER_AT_ONCE: usize = 16;

/// States that stay when the machine is judged to be new.
const LOCKED_STATES: [&str; 3] = ["login-needed", "login-refused", "unreadable"];

/// All findings of a discovery, in order.
pub async fn findings(core: &Core, discovery: &OperationId) -> Result<Vec<FindingRow>, StoreError> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = core.store.findings(discovery, "*", &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after.clone_from(&last.place);
        all.extend(page);
    }
}

/// A node in the form in which it is compared with findings.
#[must_use]
pub fn known_node(record: &NodeRecord) -> KnownNode {
    let identity = &record.identity;
    KnownNode {
        id: record.id.to_string(),
        address: normal(&record.spec.bmc_address).unwrap_or_else(|_| record.spec.bmc_address.clone()),
        uuid: identity.uuid.clone(),
        manufacturer: identity.vendor.clone(),
        serial: identity.serial.clone(),
        macs: identity.macs.clone(),
    }
}

/// Nodes, and the pinned certificates of their BMCs.
#[derive(Debug, Default)]
pub struct Nodes {
    /// The nodes in the form in which they are compared with findings.
    pub known: Vec<KnownNode>,
    /// Address and certificate by node name. A node has no entry if its BMC was never contacted.
    pins: HashMap<NodeId, (String, String)>,
}

impl Nodes {
    /// Why a BMC that answers at its node's address but shows another certificate is suspect.
    fn certificate_conflict(&self, node: &NodeId, row: &FindingRow, body: &Body) -> Option<String> {
        let (address, pin) = self.pins.get(node)?;
        let is_another = *address == row.address && !body.certificate.is_empty() && *pin != body.certificate;
        is_another.then(|| {
            format!(
                "node {node} has this BMC address with certificate {pin}, and the BMC shows {}: this is another machine, \
                 or the BMC has a new certificate",
                body.certificate
            )
        })
    }
}

/// All nodes.
pub async fn nodes(core: &Core) -> Result<Nodes, StoreError> {
    let (mut all, mut after) = (Nodes::default(), String::new());
    loop {
        let page = core.store.nodes(&Scope::Site, &Vec::new(), &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        last.id.as_str().clone_into(&mut after);
        let pinned = page.iter().filter(|record| !record.spec.bmc_certificate.is_empty());
        let pins = pinned.map(|record| {
            let at = (known_node(record).address, pin_of(&record.spec.bmc_certificate));
            (record.id.clone(), at)
        });
        all.pins.extend(pins);
        all.known.extend(page.iter().map(known_node));
    }
}

/// A certificate in the form that findings use.
#[must_use]
pub fn pin_of(text: &str) -> String {
    format!("sha256:{}", text.trim_start_matches("sha256:"))
}

/// A finding in the form in which it is compared with others.
#[must_use]
pub fn seen(row: &FindingRow, body: &Body) -> Seen {
    Seen {
        address: row.address.clone(),
        service_uuid: body.service_uuid.clone(),
        uuid: body.uuid.clone(),
        manufacturer: body.manufacturer.clone(),
        serial: body.serial.clone(),
        macs: body.macs.clone(),
    }
}

/// Whether the finding is a BMC; only BMCs are judged.
fn is_bmc(row: &FindingRow) -> bool {
    !matches!(row.state.as_str(), "not-redfish" | "unreachable")
}

/// Judges all findings. Returns those of them with a changed state.
pub async fn judge_all(core: &Core, discovery: &OperationId) -> Result<Vec<FindingRow>, StoreError> {
    let rows: Vec<FindingRow> = findings(core, discovery).await?.into_iter().filter(is_bmc).collect();
    let bodies: Vec<Body> = rows
        .iter()
        .map(|row| stored::json("finding of a discovery", &row.address, &row.body))
        .collect::<Result<_, _>>()?;
    let all: Vec<Seen> = rows.iter().zip(&bodies).map(|(row, body)| seen(row, body)).collect();
    let nodes = nodes(core).await?;
    let known = &nodes.known;
    let first = judge(&all, known, &HashSet::new());
    let answering = answering_addresses(core, &first).await;
    let judged = match answering.is_empty() {
        true => first,
        false => judge(&all, known, &answering),
    };
    let places: Vec<String> = rows.iter().map(|row| row.place.clone()).collect();
    let taken = taken_macs(core, &bodies, &judged).await?;
    let mut changed = Vec::new();
    for (index, (mut row, judgement)) in rows.into_iter().zip(judged).enumerate() {
        let before = row.clone();
        apply(&mut row, &judgement, &places);
        if let Judgement::Known { node } = &judgement
            && let Some(why) = nodes.certificate_conflict(&NodeId::stored(node.as_str()), &row, &bodies[index])
        {
            "conflict".clone_into(&mut row.state);
            row.why = cut(&why, SENTENCE_MAX);
        }
        if let Some(node) = taken.get(&index) {
            "conflict".clone_into(&mut row.state);
            row.why = format!("node {node} has one of the machine's MAC addresses, and another UUID or serial number");
        }
        if row != before {
            changed.push(row);
        }
    }
    Ok(changed)
}

/// Machines judged as new that share a MAC address with a node: the node's id by index.
async fn taken_macs(core: &Core, bodies: &[Body], judged: &[Judgement]) -> Result<HashMap<usize, NodeId>, StoreError> {
    let mut taken = HashMap::new();
    for (index, body) in bodies
        .iter()
        .enumerate()
        .filter(|(index, _)| judged[*index] == Judgement::New)
    {
        for mac in &body.macs {
            if let Some(node) = core.store.node_of_mac(mac).await? {
                taken.insert(index, node);
                break;
            }
        }
    }
    Ok(taken)
}

fn apply(row: &mut FindingRow, judgement: &Judgement, places: &[String]) {
    let is_locked = LOCKED_STATES.contains(&row.state.as_str());
    row.first = String::new();
    row.node = None;
    let mut set = |state: &str, node: &str, why: &str| {
        state.clone_into(&mut row.state);
        row.node = (!node.is_empty()).then(|| NodeId::stored(node));
        row.why = cut(why, SENTENCE_MAX);
    };
    match judgement {
        Judgement::New if is_locked => {}
        Judgement::New => set("new", "", ""),
        Judgement::Known { node } => set("known", node, ""),
        Judgement::Moved { node, from } => {
            let why = format!("node {node} has the BMC address {from}, and nothing answers at that address");
            set("moved", node, &why);
        }
        Judgement::Conflict { why } => set("conflict", "", why),
        Judgement::SameAs { first } => {
            set("same", "", "");
            row.first = places.get(*first).cloned().unwrap_or_default();
        }
    }
}

/// Former addresses of nodes that seem to have moved, where a Redfish service still answers.
async fn answering_addresses(core: &Core, judged: &[Judgement]) -> HashSet<String> {
    let former: HashSet<String> = judged
        .iter()
        .filter_map(|one| match one {
            Judgement::Moved { from, .. } => Some(from.clone()),
            _ => None,
        })
        .take(FORMER_MAX)
        .collect();
    let settings = Settings {
        connect_timeout: FORMER_TIMEOUT,
        request_timeout: FORMER_TIMEOUT,
        retry: RetryPolicy {
            retries: 0,
            busy_retries: 0,
            ..RetryPolicy::default()
        },
        quirks: core.config.bmc_quirks.clone(),
        ..Settings::default()
    };
    let answers = map_concurrently(former, FORMER_AT_ONCE, move |address| {
        let settings = settings.clone();
        async move {
            let survey = BmcClient::survey(&address, settings).await;
            survey.is_ok_and(|survey| survey.service.is_some()).then_some(address)
        }
    });
    answers.await.into_iter().flatten().collect()
}

/// Runs `work` on each item, at most `at_once` in parallel. The results have no order.
async fn map_concurrently<T, R, F>(items: impl IntoIterator<Item = T>, at_once: usize, work: impl Fn(T) -> F) -> Vec<R>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    for item in items {
        if running.len() >= at_once {
            done.extend(running.join_next().await.and_then(Result::ok));
        }
        running.spawn(work(item));
    }
    while let Some(one) = running.join_next().await {
        done.extend(one.ok());
    }
    done
}
