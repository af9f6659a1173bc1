//! A fabric with breaking links, under clusters in use and clusters being built.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod agreement;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rackwright_control::clusters::faults::Watch;
use rackwright_control::clusters::network::{deployment, fact};
use rackwright_control::clusters::reserve;
use rackwright_control::testing::{Schedule, run_round};
use rackwright_fabric::{Applied, FabricError, FabricManager, Fence, Inspection, Reading};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::testing::TestCore;
use rackwright_infiniband::partition::HealthCheck;
use rackwright_infiniband::twice::{GuidPlace, TwiceGuid};
use rackwright_infiniband::{
    Device, Dump, Fabric as Discovered, FabricBuilder, Guid, Partitions, PortRef, Rate, Speed, Tables, Width,
};
use rackwright_lifecycle::cluster::{LINK_GRACE_S, Network, State, Wait};
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_planner::cabling;
use rackwright_site::model::{Cable, Port, Site};
use rackwright_store::{NetworkTest, Scope, SiteFile};

use super::{
    FABRIC, build, check, cluster, ended, fabric, hall, hand_over, names, prove, put, site, site_with_other_ports,
    spec, step, store_fabric,
};
use crate::test_calls::{apply_site, create_cluster, replace_cluster_node};

/// Nodes of the site.
const NODES: usize = 64;

/// A fabric as in the site, except for these cables.
#[derive(Debug)]
struct Played {
    site: Arc<Site>,
    gone: Mutex<BTreeSet<String>>,
    /// The site that has the GUIDs of the fabric's ports. `None`: the first one, and ports are discovered without GUIDs.
    replaced: Mutex<Option<Arc<Site>>>,
    /// Port GUIDs that answer in several fabrics.
    twice: Mutex<Vec<TwiceGuid>>,
}

impl Played {
    fn fabric(&self) -> Discovered {
        let replaced = self.replaced.lock().unwrap().clone();
        let plan = cabling::plan(replaced.as_ref().unwrap_or(&self.site)).unwrap();
        let gone = self.gone.lock().unwrap();
        let planned = plan.fabric();
        let mut builder = FabricBuilder::default();
        let mut ixs = BTreeMap::new();
        let links = planned.links();
        for (_, link) in links.filter(|(ix, _)| !gone.contains(plan.cable_name(*ix))) {
            let mut end = |end: PortRef| {
                let known = planned.device(end.device);
                let device = *ixs.entry(end.device).or_insert_with(|| {
                    builder.device(Device {
                        guid: known.guid,
                        ..Device::new(known.kind, &known.name, known.port_count)
                    })
                });
                PortRef { device, ..end }
            };
            let (a, b) = (end(link.a), end(link.b));
            let rate = Rate {
                width: Width::X4,
                speed: Speed::Ndr,
            };
            builder.connect(a, b, Some(rate)).unwrap();
            for end in [a, b] {
                let device = builder.get(end.device);
                let guid = device.guid.filter(|_| replaced.is_some() && device.is_adapter());
                builder.port(end).unwrap().guid = guid;
            }
        }
        builder.finish()
    }
}

#[async_trait]
impl FabricManager for Played {
    fn name(&self) -> &'static str {
        "played"
    }

    async fn topology(&self) -> Result<Dump, FabricError> {
        let mut dump = Dump::of(self.fabric());
        dump.twice.clone_from(&self.twice.lock().unwrap());
        Ok(dump)
    }

    async fn apply(&self, _: &Partitions, _: &dyn Fence) -> Result<Applied, FabricError> {
        Err(FabricError::Unsupported("not asked for here"))
    }

    async fn tables(&self) -> Result<Reading, FabricError> {
        Err(FabricError::Unsupported("not asked for here"))
    }

    async fn inspect(&self, _: &BTreeSet<Guid>) -> Result<Inspection, FabricError> {
        Err(FabricError::Unsupported("not asked for here"))
    }

    async fn confirm(&self, _: &Tables) -> Result<Tables, FabricError> {
        Err(FabricError::Unsupported("not asked for here"))
    }

    async fn health(&self) -> Result<Vec<HealthCheck>, FabricError> {
        Ok(Vec::new())
    }
}

/// A hall with a simulated fabric.
struct Stage {
    core: TestCore,
    site: Arc<Site>,
    played: Arc<Played>,
}

impl Stage {
    async fn new() -> Self {
        Self::with_settings("").await
    }

    /// `more`: further settings of the fabric, each with a comma.
    async fn with_settings(more: &str) -> Self {
        Self::with_all_settings(&FABRIC.replace("fabric: {", &format!("fabric: {{check_s: 1, {more}"))).await
    }

    async fn with_all_settings(settings: &str) -> Self {
        let core = hall(NODES, settings).await;
        let (_, site) = core.sites.current(&core.store).await.unwrap().unwrap();
        let played = Arc::new(Played {
            site: site.clone(),
            gone: Mutex::default(),
            replaced: Mutex::default(),
            twice: Mutex::default(),
        });
        Self { core, site, played }
    }

    /// Compares the fabric without these cables.
    async fn look(&self, gone: &[&Cable]) {
        *self.played.gone.lock().unwrap() = gone.iter().map(|cable| cable.label.to_string()).collect();
        let manager: Arc<dyn FabricManager> = self.played.clone();
        let settings = self.core.config.fabric.clone().unwrap();
        self.known(|watch| watch.comparison.checked_at = None).await;
        run_round(&self.core, &settings, &manager, &mut Schedule::default())
            .await
            .unwrap();
        let comparison = self.core.store.fabric_comparison().await.unwrap().unwrap();
        assert_eq!(comparison.problem, "");
        assert!(comparison.checked_at.is_some());
    }

    /// Changes the known faults.
    async fn known(&self, change: impl FnOnce(&mut Watch)) {
        let mut tx = self.core.store.write().await.unwrap();
        tx.hall().await.unwrap();
        let before = Watch::load(&mut tx).await.unwrap();
        let mut watch = before.clone();
        change(&mut watch);
        watch.store(&mut tx, &before).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// All partitions are in place, except for these ports, which are missing.
    async fn read(&self, absent: BTreeSet<Guid>) {
        let mut fabric = fabric(&self.core).await;
        fabric.record_proof(fabric.state.wanted, absent, None, clock::now());
        store_fabric(&self.core, &fabric).await;
    }

    fn cables_of(&self, node: &str) -> Vec<&Cable> {
        let id = self.site.node_named(node).unwrap();
        let is = |end: &Port| matches!(end, Port::Hca { node, .. } if *node == id);
        let cables = self.site.cables.iter();
        cables.filter(|cable| [cable.a, cable.b].iter().any(is)).collect()
    }

    fn uplinks(&self) -> Vec<&Cable> {
        let is = |end: &Port| matches!(end, Port::Switch { .. });
        let cables = self.site.cables.iter();
        cables.filter(|cable| [cable.a, cable.b].iter().all(is)).collect()
    }

    async fn events(&self) -> Vec<(String, String)> {
        let events = self.core.store.events(&Scope::Site, 0, "fabric", 100).await.unwrap();
        events
            .into_iter()
            .map(|event| (event.kind.to_string(), event.message))
            .collect()
    }

    async fn faults(&self) -> rackwright_api::v1::ListFabricFaultsResponse {
        crate::fabric::faults(&self.core.store).await.unwrap()
    }
}

/// The site where this HCA of every node has another port GUID: the file, and the site.
fn with_other_ports(hca: &str) -> (String, Arc<Site>) {
    let text = site_with_other_ports(NODES, hca);
    let file = SiteFile {
        name: "site.yaml".into(),
        text: text.clone(),
    };
    (text, Arc::new(rackwright_ground::hall::read(&[file]).site.unwrap()))
}

async fn first(core: &Core, id: &str) -> String {
    names(core, id).await.first().unwrap().clone()
}

#[tokio::test]
async fn a_port_that_goes_down_degrades_its_cluster_until_it_is_back() {
    let stage = Stage::new().await;
    build(&stage.core, "alpha", "bolt", 4).await;
    let node = first(&stage.core, "alpha").await;
    stage.look(&[]).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Ready);
    assert!(stage.faults().await.faults.is_empty());

    // A free node is switched off: its links give no fault.
    let idle = stage.site.nodes.last().unwrap().name.to_string();
    let (cable, other) = (stage.cables_of(&node)[3], stage.cables_of(&idle)[0]);
    stage.look(&[cable, other]).await;
    let faults = stage.faults().await.faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    let id = format!("port-absent/{node}/");
    assert!(faults[0].id.starts_with(&id), "{}", faults[0].id);
    assert_eq!(faults[0].cables, [cable.label.to_string()]);
    assert_eq!(faults[0].nodes, [format!("nodes/{node}")]);
    assert_eq!(faults[0].clusters, ["clusters/alpha"]);
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    let record = cluster(&stage.core, "alpha").await;
    assert!(record.reason.starts_with(&format!("{node}: ")), "{}", record.reason);
    let is_its_link = matches!(&record.wait, Wait::LinkFault { node: at, .. } if *at == node);
    assert!(is_its_link, "{:?}", record.wait);
    assert!(
        names(&stage.core, "alpha").await.contains(&node),
        "it is its customer's"
    );

    stage.look(&[]).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Ready);
    let kinds: Vec<String> = stage.events().await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["fabric.port-absent", "fabric.port-back"]);
}

#[tokio::test]
async fn a_guid_in_two_fabrics_is_a_fault_that_degrades_no_cluster() {
    let stage = Stage::new().await;
    build(&stage.core, "alpha", "bolt", 4).await;
    let node = first(&stage.core, "alpha").await;
    let id = stage.site.node_named(&node).unwrap();
    let port = stage.site.node(id).port_guids[0].and_then(Guid::new).unwrap();
    let place = |fabric: &str| GuidPlace {
        fabric: fabric.into(),
        adapter: format!("a host of {fabric}").into(),
        switch: None,
    };
    let places = vec![place("east"), place("west")];
    *stage.played.twice.lock().unwrap() = vec![TwiceGuid { port, places }];
    stage.look(&[]).await;
    let faults = stage.faults().await.faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(
        (faults[0].kind.as_str(), faults[0].id.clone()),
        ("guid-twice", format!("guid-twice/{port}"))
    );
    assert_eq!(faults[0].clusters, ["clusters/alpha"]);
    assert_eq!(step(&stage.core, "alpha").await, State::Ready);
    stage.played.twice.lock().unwrap().clear();
    stage.look(&[]).await;
    let events = stage.events().await;
    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["fabric.guid-twice", "fabric.guid-twice-over"]);
    let message = &events[0].1;
    assert!(
        message.starts_with(&format!(
            "port {port} answers in 2 fabrics: in fabric east as \"a host of east\""
        )),
        "{message}"
    );
}

#[tokio::test]
async fn a_replaced_adapter_degrades_its_cluster_and_the_words_name_the_port_guid_for_the_site_file() {
    let stage = Stage::new().await;
    build(&stage.core, "alpha", "bolt", 4).await;
    let node = first(&stage.core, "alpha").await;
    let id = stage.site.node_named(&node).unwrap();
    let hca = stage.site.sku_of(id).hcas[3].name.to_string();
    let (text, other) = with_other_ports(&hca);
    let guid = |site: &Site| site.node(id).port_guids[3].and_then(Guid::new).unwrap();
    let (former, new) = (guid(&stage.site), guid(&other));
    *stage.played.replaced.lock().unwrap() = Some(other.clone());
    stage.look(&[]).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    let record = cluster(&stage.core, "alpha").await;
    let Wait::LinkFault { node: at, fault } = record.wait.clone() else {
        panic!("{:?}", record.wait);
    };
    assert_eq!(
        (&at, record.reason),
        (&NodeId::stored(node.as_str()), format!("{node}: {fault}"))
    );
    assert!(fault.contains(&format!("instead of {former}")), "{fault}");
    let field = format!("the site file needs `guids: {{{hca}: {new}}}` of node {node}");
    assert!(fault.ends_with(&field), "{fault}");

    // The site confirms the adapter. Its port gets the key.
    apply_site(&stage.core, "other", &text).await.unwrap();
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    assert_eq!(cluster(&stage.core, "alpha").await.wait, Wait::Partition);
    stage.look(&[]).await;
    assert!(stage.faults().await.faults.is_empty());
    assert_eq!(
        step(&stage.core, "alpha").await,
        State::Degraded,
        "the key is not proven"
    );
    prove(&stage.core).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Ready);
}

#[tokio::test]
async fn another_version_of_the_site_is_compared_with_the_fabric_at_once() {
    let stage = Stage::new().await;
    let manager: Arc<dyn FabricManager> = stage.played.clone();
    let mut settings = stage.core.config.fabric.clone().unwrap();
    settings.check_s = 600;
    let mut schedule = Schedule::default();
    let mut faults = async || {
        run_round(&stage.core, &settings, &manager, &mut schedule)
            .await
            .unwrap();
        stage.faults().await.faults.len()
    };
    assert_eq!(faults().await, 0);
    let (_, other) = with_other_ports("mlx5_0");
    *stage.played.replaced.lock().unwrap() = Some(other);
    assert_eq!(faults().await, 0, "the next comparison is due in 10 minutes");
    let same = format!("{}# as before\n", site(NODES));
    apply_site(&stage.core, "same", &same).await.unwrap();
    assert_eq!(faults().await, NODES);
}

#[tokio::test]
async fn a_port_that_a_reading_misses_degrades_its_cluster_and_delays_nobody_else() {
    let stage = Stage::new().await;
    build(&stage.core, "alpha", "bolt", 4).await;
    let all = names(&stage.core, "alpha").await;
    let mut nodes = all.iter();
    let (absent, bad) = (nodes.next().unwrap(), nodes.next().unwrap());
    let ports = |name: &str| -> BTreeSet<Guid> {
        let node = stage.site.node(stage.site.node_named(name).unwrap());
        node.port_guids
            .iter()
            .flatten()
            .filter_map(|guid| Guid::new(*guid))
            .collect()
    };
    let gone = ports(absent).into_iter().take(1).collect::<BTreeSet<_>>();
    stage.read(gone.clone()).await;
    let cable = stage.cables_of(absent)[0];
    stage.look(&[cable]).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    // Another node is replaced meanwhile.
    let operation = replace_cluster_node(&stage.core, "replace", "alpha", bad)
        .await
        .unwrap();
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    let now = names(&stage.core, "alpha").await;
    let new = now.difference(&all).next().unwrap();
    check(&stage.core, new).await;
    stage.read(gone).await;
    step(&stage.core, "alpha").await;
    let seat = stage
        .core
        .store
        .node(&Scope::Site, &NodeId::stored(new.as_str()))
        .await
        .unwrap()
        .node
        .claim
        .unwrap()
        .cluster;
    assert!(seat.unwrap().let_go.is_some(), "the port of the other one delays it");
    assert_eq!(ended(&stage.core, &operation).await, None);
    hand_over(&stage.core, new).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Degraded);
    assert_eq!(ended(&stage.core, &operation).await, Some(tonic::Code::Ok as i32));
}

#[tokio::test]
async fn a_checked_node_is_tested_again_after_its_cable_was_mended() {
    let settings = FABRIC.replace("fabric: {", "fabric: {check_s: 1, ");
    // A program that exists but cannot be sent.
    let stage = Stage::with_all_settings(&format!("{settings}network_test: {{program: /bin/sh}}\n")).await;
    let core = &stage.core;
    create_cluster(core, "alpha", "alpha", spec("bolt", 4)).await.unwrap();
    step(core, "alpha").await;
    for node in names(core, "alpha").await {
        check(core, &node).await;
    }
    let nodes = core
        .store
        .nodes_of_cluster(&Scope::Site, &"alpha".into())
        .await
        .unwrap();
    // The test has passed, and the cluster waits for its partition.
    let members: BTreeMap<NodeId, String> = nodes.iter().map(|node| (node.id.clone(), deployment(node))).collect();
    let mut tx = core.store.write().await.unwrap();
    let mut record = tx.cluster(&"alpha".into()).await.unwrap();
    record.network = Some(NetworkTest {
        passed: members.clone(),
        members,
        ..NetworkTest::default()
    });
    tx.save_cluster(&mut record, clock::now()).await.unwrap();
    tx.commit().await.unwrap();
    let state = async || fact(core, &cluster(core, "alpha").await, &nodes, clock::now());
    let bad = first(core, "alpha").await;
    stage.look(&stage.cables_of(&bad)[..1]).await;
    assert_eq!(state().await, Network::Passed);
    stage.look(&[]).await;
    assert_eq!(state().await, Network::Untested);
    let passed = cluster(core, "alpha").await.network.unwrap().passed;
    assert!(passed.len() == 3 && !passed.contains_key(bad.as_str()), "{passed:?}");
}

#[tokio::test]
async fn a_checked_node_whose_port_stays_absent_is_replaced_before_the_hand_over() {
    let stage = Stage::new().await;
    create_cluster(&stage.core, "alpha", "alpha", spec("bolt", 4))
        .await
        .unwrap();
    step(&stage.core, "alpha").await;
    let nodes = names(&stage.core, "alpha").await;
    for node in &nodes {
        check(&stage.core, node).await;
        // In this state for a long time.
        put(&stage.core, node, |record| record.node.since = Timestamp(1)).await;
        rackwright_ground::testing::rest(&stage.core, node, &rackwright_lifecycle::Wait::Cluster).await;
    }
    let bad = nodes.last().unwrap();
    let id = stage.site.node_named(bad).unwrap();
    let port = stage.site.node(id).port_guids[0].and_then(Guid::new).unwrap();
    stage.read([port].into()).await;
    stage.look(&stage.cables_of(bad)[..1]).await;
    assert_eq!(step(&stage.core, "alpha").await, State::Building);
    let wait = cluster(&stage.core, "alpha").await.wait;
    let is_missing = matches!(&wait, Wait::PartitionFault { fault } if fault.contains("not in the fabric"));
    assert!(is_missing, "{wait:?}");
    assert_eq!(names(&stage.core, "alpha").await, nodes, "it may come yet");

    stage.known(|watch| watch.age(LINK_GRACE_S)).await;
    stage.look(&stage.cables_of(bad)[..1]).await;
    step(&stage.core, "alpha").await;
    let now = names(&stage.core, "alpha").await;
    assert!(!now.contains(bad), "{now:?}");
    assert_eq!(now.len(), 4);
    let record = stage
        .core
        .store
        .node(&Scope::Site, &NodeId::stored(bad.as_str()))
        .await
        .unwrap();
    let why = record.node.wanted.condemn.unwrap();
    assert!(why.contains("its link to the fabric"), "{why}");
}

#[tokio::test]
async fn a_broken_link_between_switches_is_nobodys_and_who_counts_on_it_is_named() {
    let stage = Stage::new().await;
    build(&stage.core, "alpha", "bolt", 40).await;
    let before = stage.core.store.hall().await.unwrap().version;
    // All uplinks of one unit; alpha holds some of them.
    let all = stage.uplinks();
    stage.look(&all).await;
    assert!(
        stage.core.store.hall().await.unwrap().version > before,
        "plans are made anew"
    );
    let faults = stage.faults().await.faults;
    assert!(
        faults.iter().any(|fault| fault.counting_clusters == ["clusters/alpha"]),
        "{faults:?}"
    );
    let events = stage.events().await;
    assert!(
        events
            .iter()
            .any(|(kind, message)| kind == "fabric.cable" && message.contains("cluster alpha uses a broken link")),
        "{events:?}"
    );
    assert_eq!(step(&stage.core, "alpha").await, State::Ready, "its nodes are in order");
    let picture = stage.core.sites.picture(&stage.core.store).await.unwrap();
    assert_eq!(picture.broken.len(), all.len());
    let wanted = |nodes| reserve::Asked {
        id: "beta".into(),
        uid: "beta".into(),
        customer: "bolt".into(),
        spec: rackwright_store::ClusterSpec {
            sku: "dgx-h100".into(),
            nodes,
            bandwidth: "non-blocking".into(),
            ..rackwright_store::ClusterSpec::default()
        },
    };
    // A cluster inside one unit needs no link. 24 nodes are left in one unit, because alpha took the other whole.
    let fits = reserve::plan(picture.clone(), &wanted(24)).await;
    assert!(fits.is_ok(), "{fits:?}");
    stage.look(&[]).await;
    let picture = stage.core.sites.picture(&stage.core.store).await.unwrap();
    assert!(picture.broken.is_empty());
}

#[tokio::test]
async fn the_first_cluster_counts_on_no_link_that_is_broken() {
    let stage = Stage::new().await;
    stage.look(&stage.uplinks()).await;
    let refused = create_cluster(&stage.core, "a", "alpha", spec("bolt", 40)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("links between switches are out of order; `rackwright fabric faults` lists them"),
        "{refused}"
    );
    // The keys are still those of the settings, and no partition was written.
    assert_eq!(stage.core.store.fabric().await.unwrap(), None);
    stage.look(&[]).await;
    create_cluster(&stage.core, "b", "alpha", spec("bolt", 40))
        .await
        .unwrap();
    let comparison = stage.core.store.fabric_comparison().await.unwrap().unwrap();
    assert!(comparison.checked_at.is_some(), "the known links are kept");
}
