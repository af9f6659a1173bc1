//! One run: finds the lanes, tests rounds of pairs, further rounds after a slow pair, then all nodes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::config::network_test::Settings;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{ClusterId, NodeId};
use rackwright_nodes::perform;
use rackwright_planner::network::{
    Judgement, Kind, Lane, Round, Rule, Summary, Test, Topology, Transport, Usual, follow_up, judge, schedule, shifts,
};
use rackwright_site::model::Site;
use rackwright_store::{NetworkTest, NodeRecord};
use rackwright_validate::{self as validate, LaneTarget, MeasureRequest, Measured, ServedLane, TrafficSetup};

use super::machines::{self, Machines};
use super::{deployment, is_wanted};

/// Most sets of further rounds.
const FURTHER: usize = 2;
/// Duration of a round apart from sending, in seconds.
const ROUND_S: i64 = 4;

/// Time to clean the machines when the process stops. A server that is left ends by itself.
pub const CLOSING: Duration = Duration::from_millis(2500);

/// The findings of a run.
#[derive(Debug, Default)]
pub struct Found {
    /// The nodes, in the numbering of the judgement.
    pub topology: Topology,
    /// Nodes without an earlier pass.
    pub fresh: BTreeSet<usize>,
    /// The judgement over all pairs.
    pub judgement: Judgement,
    /// Summary of the work.
    pub summary: Summary,
    /// Nodes that could not take part or lack a lane of the others, with the reason.
    pub excluded: BTreeMap<usize, String>,
    /// Why no test was possible at all.
    pub refused: Option<String>,
    /// The run is no longer wanted.
    pub abandoned: bool,
}

/// Seconds after which a run counts as lost: far more than it takes.
#[must_use]
pub fn longest_s(settings: &Settings, nodes: usize) -> i64 {
    let nodes = i64::try_from(nodes).unwrap_or(i64::MAX).max(2);
    let log = i64::from(i64::BITS - nodes.leading_zeros());
    // All pairs of a small cluster, distances of a large one with all pairs of leaves, and further rounds.
    let rounds = (2 * log + 32).min(nodes + 2 * log) + 16 * FURTHER as i64;
    let turns = 1 + nodes / 2 / i64::try_from(settings.at_once).unwrap_or(1).max(1);
    300 + rounds * turns * (2 * i64::from(settings.seconds) + ROUND_S) + nodes
}

/// Makes a run. `None`: the process stops. The machines are cleaned in either case.
pub async fn run(core: &Arc<Core>, id: &ClusterId, began: &NetworkTest, nodes: Vec<NodeRecord>) -> Option<Found> {
    let names: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
    let site = core.sites.current(&core.store).await;
    let unread = site
        .as_ref()
        .err()
        .map(|error| format!("the site cannot be read: {error}"));
    let site = site.ok().flatten().map(|(_, site)| site);
    let topology = match &site {
        Some(site) => Topology::of_site(site, &names),
        None => Topology::bare(&names),
    };
    let is_fresh = |node: &NodeRecord| began.passed.get(&node.id) != Some(&deployment(node));
    let fresh = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| is_fresh(node))
        .map(|(at, _)| at);
    let mut found = Found {
        fresh: fresh.collect(),
        topology,
        ..Found::default()
    };
    // A single node has no peer and is not tested, as the report states.
    if nodes.len() < 2 {
        return Some(found);
    }
    // Without the site, adapters of a storage fabric would be tested as lanes between nodes.
    if unread.is_some() {
        found.refused = unread;
        return Some(found);
    }
    match open(core, began, &nodes).await {
        Ok((machines, rule)) => {
            let lanes = Lanes::of(&machines, site.as_deref(), &nodes, core.config.network_test.rdma);
            lanes.excluded(&machines, &mut found);
            let run = Run {
                core,
                id,
                began,
                machines: &machines,
                lanes,
                rule,
                usual: usual(began),
            };
            if core
                .stop
                .run_until_cancelled(run.measure_all(&mut found))
                .await
                .is_none()
            {
                let _ = tokio::time::timeout(CLOSING, machines.close()).await;
                return None;
            }
            note_unclean(&mut found, machines.close().await);
        }
        Err(why) => found.refused = Some(why),
    }
    Some(found)
}

/// A node on which a traffic server may still run counts as faulty and is not handed over: the next run cleans it.
pub(super) fn note_unclean(found: &mut Found, left: BTreeMap<usize, String>) {
    for (node, why) in left {
        found
            .excluded
            .entry(node)
            .or_insert(format!("after the network test: {why}"));
    }
}

async fn open(core: &Arc<Core>, began: &NetworkTest, nodes: &[NodeRecord]) -> Result<(Machines, Rule), String> {
    let settings = &core.config.network_test;
    let program = machines::program(&settings.file()?).await?;
    let profile = perform::thresholds(core, nodes.first().map_or("", |node| &node.spec.sku)).await?;
    let mut token = [0; 16];
    core.rng.fill(&mut token).map_err(|e| e.to_string())?;
    let setup = TrafficSetup {
        id: began.run.clone(),
        token: token.iter().map(|byte| format!("{byte:02x}")).collect(),
        deadline_s: u64::try_from(longest_s(settings, nodes.len()))
            .unwrap_or(600)
            .min(6 * 3600),
        port: settings.port,
    };
    let rule = Rule {
        floor_gbit_per_s: profile.network_min_gbit_per_s,
        share_of_usual: profile.network_min_share,
    };
    Ok((Machines::open(core, nodes, &program, setup).await, rule))
}

fn usual(began: &NetworkTest) -> Usual {
    let known = |kind: Kind| Some((kind, *began.usual.get(kind.name())?));
    Kind::ALL.into_iter().filter_map(known).collect()
}

/// The stored form.
#[must_use]
pub fn stored(usual: &Usual) -> BTreeMap<String, f64> {
    let known = |kind: Kind| Some((kind.name().to_owned(), *usual.get(&kind)?));
    Kind::ALL.into_iter().filter_map(known).collect()
}

/// The lanes on which the nodes reach each other.
struct Lanes {
    /// By node.
    of: Vec<BTreeMap<Lane, ServedLane>>,
    /// The lanes of most nodes. Empty: the nodes use their addresses.
    common: BTreeSet<Lane>,
}

impl Lanes {
    /// The lanes of the nodes. With `rdma`, adapters without an IP address count as well.
    fn of(machines: &Machines, site: Option<&Site>, nodes: &[NodeRecord], rdma: bool) -> Self {
        let mut of = Vec::new();
        let mut counts: BTreeMap<Lane, usize> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            let mut lanes = BTreeMap::new();
            let served = machines.machine(at).map_or(&[][..], |machine| &machine.server.lanes);
            let served: Vec<&ServedLane> = served.iter().filter(|lane| rdma || lane.address.is_some()).collect();
            let known = site.map_or_else(BTreeMap::new, |site| places(site, &node.id, &served));
            for (known, lane) in known {
                *counts.entry(known).or_default() += 1;
                lanes.insert(known, lane.clone());
            }
            of.push(lanes);
        }
        let takes_part = (0..nodes.len()).filter(|at| machines.machine(*at).is_ok()).count();
        let most = |count: usize| count * 2 > takes_part && count > 1;
        let common = counts
            .into_iter()
            .filter(|(_, count)| most(*count))
            .map(|(lane, _)| lane);
        Self {
            of,
            common: common.collect(),
        }
    }

    /// Notes the nodes that do not take part or lack a common lane.
    fn excluded(&self, machines: &Machines, found: &mut Found) {
        for (node, lanes) in self.of.iter().enumerate() {
            if let Err(why) = machines.machine(node) {
                found
                    .excluded
                    .insert(node, format!("the node could not take part in the network test: {why}"));
                continue;
            }
            let own: BTreeSet<Lane> = lanes.keys().copied().collect();
            let missing: Vec<String> = missing(&found.topology, node, &own, &self.common)
                .into_iter()
                .map(|lane| found.topology.end_text(node, lane))
                .collect();
            if !missing.is_empty() {
                let why = format!(
                    "{}: not active, or reachable neither by RDMA nor by an IP address; these ports of the other nodes are",
                    missing.join("; ")
                );
                found.excluded.insert(node, why);
            }
        }
    }

    /// The lanes from one node to another.
    fn between(&self, machines: &Machines, a: usize, b: usize) -> Vec<(Lane, LaneTarget)> {
        let Ok(machine) = machines.machine(b) else {
            return Vec::new();
        };
        let port = machine.server.port;
        if self.common.is_empty() {
            let goal = LaneTarget {
                lane: "-".to_owned(),
                peer: None,
                address: machine.address,
                port,
            };
            return vec![(Lane::Address, goal)];
        }
        let method = |lane: &Lane| {
            let (from, to) = (self.of.get(a)?.get(lane)?, self.of.get(b)?.get(lane)?);
            // If one of the two lanes has no address, the nodes' own addresses serve to agree on RDMA.
            let own = to.address.filter(|_| from.address.is_some());
            let goal = LaneTarget {
                lane: from.name.clone(),
                peer: own.is_none().then(|| to.name.clone()),
                address: own.unwrap_or(machine.address),
                port,
            };
            Some((*lane, goal))
        };
        self.common.iter().filter_map(method).collect()
    }
}

/// The adapters of a node's lanes in the SKU: by the GUID if the site knows it, else by the name. A machine without one of
/// its adapters may give the name of this adapter to another one, so a name counts only for an adapter without a GUID match.
/// Adapters that lead to a storage fabric are no lanes between nodes.
pub(super) fn places<'l>(site: &Site, node: &NodeId, lanes: &[&'l ServedLane]) -> BTreeMap<Lane, &'l ServedLane> {
    let Some(node) = site.node_named(node.as_str()) else {
        return BTreeMap::new();
    };
    let lane = |at: usize| u8::try_from(at).ok().map(Lane::Hca);
    let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
    for one in lanes {
        let guid = u64::from_str_radix(one.guid.trim_start_matches("0x"), 16).ok();
        let mut guids = site.node(node).port_guids.iter();
        match guids.position(|known| known.is_some() && *known == guid).and_then(lane) {
            Some(known) => _ = found.insert(known, *one),
            None => unknown.push(*one),
        }
    }
    for one in unknown {
        let mut hcas = site.sku_of(node).hcas.iter();
        if let Some(known) = hcas.position(|hca| *hca.name == *one.name).and_then(lane) {
            found.entry(known).or_insert(one);
        }
    }
    found.retain(|lane, _| !matches!(lane, Lane::Hca(hca) if site.is_storage_port(node, usize::from(*hca))));
    found
}

/// The common lanes that a node should have and lacks. A lane without a cable in the site is not expected, as long as the
/// node has another common lane.
pub(super) fn missing(topology: &Topology, node: usize, own: &BTreeSet<Lane>, common: &BTreeSet<Lane>) -> Vec<Lane> {
    let takes_part = !own.is_disjoint(common);
    let lacks = |lane: &&Lane| !own.contains(lane) && (!takes_part || topology.may_have(node, **lane));
    common.iter().filter(lacks).copied().collect()
}

struct Run<'a> {
    core: &'a Core,
    id: &'a ClusterId,
    began: &'a NetworkTest,
    machines: &'a Machines,
    lanes: Lanes,
    rule: Rule,
    usual: Usual,
}

impl Run<'_> {
    async fn measure_all(&self, found: &mut Found) {
        let settings = &self.core.config.network_test;
        found.summary.seconds = settings.seconds.into();
        let mut tests = Vec::new();
        let mut rounds = schedule(&found.topology, &found.fresh);
        for further in 0..=FURTHER {
            for round in rounds {
                if !is_wanted(self.core, self.id, &self.began.run).await {
                    found.abandoned = true;
                    return;
                }
                tests.extend(self.round(&round).await);
                found.summary.rounds += 1;
            }
            found.judgement = judge(&found.topology, &tests, &self.rule, &self.usual);
            if found.judgement.faults.is_empty() || further == FURTHER {
                break;
            }
            rounds = follow_up(&found.topology, &found.judgement.tests, &found.judgement.bad);
        }
        // With a slow pair, the measurement of the whole means nothing.
        if found.judgement.faults.is_empty() && found.excluded.is_empty() {
            for shift in shifts(&found.topology) {
                found.summary.all_at_once.push(self.shift(&shift).await);
            }
        }
    }

    fn order(&self, a: usize, b: usize, one_way: bool) -> (Vec<Lane>, MeasureRequest) {
        let settings = &self.core.config.network_test;
        let ways = self.lanes.between(self.machines, a, b);
        let lanes = ways.iter().map(|(lane, ..)| *lane).collect();
        let order = MeasureRequest {
            ms: u64::from(settings.seconds) * 1000,
            streams: settings.streams,
            one_way,
            tcp: !settings.rdma,
            lanes: ways.into_iter().map(|(_, goal)| goal).collect(),
        };
        (lanes, order)
    }

    /// Tests the pairs with two taking part, each on all their common lanes.
    async fn round(&self, round: &Round) -> Vec<Test> {
        let takes_part =
            |pair: &&(usize, usize)| self.machines.machine(pair.0).is_ok() && self.machines.machine(pair.1).is_ok();
        let (mut pairs, mut orders) = (Vec::new(), Vec::new());
        for (a, b) in round.iter().filter(takes_part) {
            let (lanes, order) = self.order(*a, *b, false);
            if !lanes.is_empty() {
                pairs.push((*a, *b, lanes, order.lanes.clone()));
                orders.push((*a, order));
            }
        }
        let mut tests = Vec::new();
        for (place, measured) in self.machines.measure(orders, false).await {
            let Some((a, b, lanes, goals)) = pairs.get(place) else {
                continue;
            };
            for (lane, goal) in lanes.iter().zip(goals) {
                let of = match &measured {
                    Ok(all) => all
                        .iter()
                        .find(|one| one.lane == goal.lane)
                        .cloned()
                        .ok_or("nothing was measured".to_owned()),
                    Err(error) => Err(error.clone()),
                };
                tests.push(test(*a, *b, *lane, of));
            }
        }
        tests
    }

    /// Each node's sending rate over all its lanes while all nodes send.
    async fn shift(&self, shift: &Round) -> Vec<f64> {
        let orders: Vec<(usize, MeasureRequest)> =
            shift.iter().map(|(a, b)| (*a, self.order(*a, *b, true).1)).collect();
        let count = orders.len();
        let mut rates = vec![0.0; count];
        for (place, measured) in self.machines.measure(orders, true).await {
            let sent = |one: &Measured| one.sent.map_or(0.0, |rate| rate.gbit_per_s.max(0.0));
            rates[place] = measured.iter().flatten().map(sent).sum();
        }
        rates
    }
}

fn test(a: usize, b: usize, lane: Lane, measured: Result<Measured, String>) -> Test {
    let mut test = Test {
        a,
        b,
        lane,
        transport: Transport::Tcp(None),
        gbit_per_s: 0.0,
        p99_us: 0.0,
        retransmits: 0,
        error: None,
    };
    if let Ok(measured) = &measured {
        test.transport = match measured.transport {
            validate::Transport::Rdma => Transport::Rdma,
            validate::Transport::Tcp => Transport::Tcp(measured.no_rdma.clone()),
        };
    }
    match measured {
        Err(error) | Ok(Measured { error: Some(error), .. }) => test.error = Some(error),
        Ok(measured) => match (measured.sent, measured.received) {
            (Some(there), Some(back)) => {
                test.gbit_per_s = there.gbit_per_s.min(back.gbit_per_s).max(0.0);
                test.retransmits = there.retransmits.saturating_add(back.retransmits);
                test.p99_us = measured.round_trip.map_or(0.0, |trip| trip.p99_us);
            }
            _ => test.error = Some("the measurement is incomplete".into()),
        },
    }
    test
}
