//! Parts of the fabric that are replaced under clusters of customers: cables, an adapter, and a leaf switch. None of it is
//! a breach. A cluster is degraded if one of its ports is concerned, and ready again when the port was read with the key.

use std::time::SystemTime;

use rackwright_fabric::FabricManager as _;
use rackwright_infiniband::Guid;
use rackwright_site::model::{Port, SwitchRole};
use rackwright_tests::hall::{keys_of_ports, read};
use serde_json::Value;

use super::{Attacked, CLUSTERS, ENROLLED, text, time};

/// The position of the replaced adapter in its node.
const REPLACED: usize = 5;
/// The rail of the replaced leaf switch. OpenSM's own adapter is in rail 0.
const RAIL: u8 = 4;

impl Attacked {
    /// A customer's port goes and comes again: no breach, but its cluster is degraded meanwhile.
    pub(super) async fn port_flap(&mut self) {
        let [node, _, adapter] = self.names(ENROLLED[1], 3);
        let cluster = self.cluster_of(&node);
        let cable = self.lab.cable(&adapter, 1);
        let begun = SystemTime::now();
        self.lab.unlink(&cable).await;
        self.until(&cluster, "CLUSTER_STATE_DEGRADED").await;
        let faults = self.site.json(["fabric", "faults"]);
        let mut open = faults["faults"].as_array().expect("faults").iter();
        let absent = open.find(|fault| text(fault, "kind") == "port-absent");
        let since = absent.and_then(|fault| time(&fault["since"]));
        let since = since.unwrap_or_else(|| panic!("no port is absent: {faults}"));
        assert!(since >= begun && since <= SystemTime::now(), "{faults}");
        self.lab.relink(&cable).await;
        self.until(&cluster, "CLUSTER_STATE_READY").await;
        for kind in ["fabric.port-absent", "fabric.port-back"] {
            let events = self.events_of_kind(kind).into_iter();
            let messages: Vec<String> = events.map(|event| text(&event, "message").to_owned()).collect();
            assert!(
                messages.len() == 1 && messages[0].contains(&node),
                "{kind}: {messages:?}"
            );
        }
        self.no_breach("a port that goes and comes").await;
    }

    /// A customer's adapter is replaced: its cluster is degraded until the site file has the port GUID and the port the key.
    pub(super) async fn replaced_adapter(&mut self) {
        let [name, hca, adapter] = self.names(ENROLLED[3], REPLACED);
        let former = self.port(ENROLLED[3], REPLACED);
        let new = Guid::new(former.get() + 0x0f00_0000).expect("a GUID");
        let cluster = self.cluster_of(&name);
        self.lab.replace_adapter(&adapter, new).await;
        self.until(&cluster, "CLUSTER_STATE_DEGRADED").await;
        // The first comparison may fall between the loss of the former port and the link of the new one.
        let needed = format!("`guids: {{{hca}: {new}}}` of node {name}");
        let names_it = |hall: &Self| {
            let cluster = hall.site.json(["cluster", "get", &cluster]);
            text(&cluster["status"], "reason").contains(&needed)
        };
        self.wait(&format!("{cluster} needs {needed}"), names_it).await;
        let tables = self.lab.opensm().tables().await.expect("tables").tables;
        let holders = keys_of_ports(&tables);
        assert!(tables.read.contains_key(&new) && holders.values().all(|ports| !ports.contains(&new)));

        let line = format!("{hca}: {former}");
        assert_eq!(self.text.matches(&line).count(), 1, "{line} is in the site file once");
        self.text = self.text.replace(&line, &format!("{hca}: {new}"));
        self.model = read(&self.text);
        assert_eq!(self.port(ENROLLED[3], REPLACED), new);
        self.apply_site();
        self.until(&cluster, "CLUSTER_STATE_READY").await;
        self.isolated().await;
        // Degraded from the loss of the port until the new one was read with the key.
        assert_eq!(self.steps_of(&cluster), ["degraded", "ports", "ready"]);
        self.no_breach("a replaced adapter").await;
    }

    /// The cable of a customer's port is replaced, then one between two switches, which no node needs.
    pub(super) async fn replaced_cables(&mut self) {
        let [node, _, adapter] = self.names(ENROLLED[2], 2);
        let cluster = self.cluster_of(&node);
        let own = self.lab.cable(&adapter, 1);
        self.lab.unlink(&own).await;
        self.until(&cluster, "CLUSTER_STATE_DEGRADED").await;
        let reason = self.reason(&cluster);
        assert!(reason.contains(&own.name) && reason.contains(&node), "{reason}");
        self.lab.relink(&own).await;
        self.until(&cluster, "CLUSTER_STATE_READY").await;
        self.isolated().await;
        assert_eq!(self.steps_of(&cluster), ["degraded", "ready"]);
        self.no_breach("a replaced cable of a node").await;

        let is_switch = |end: &Port| matches!(end, Port::Switch { .. });
        let mut between = self.model.cables.iter();
        let between = between.find(|cable| is_switch(&cable.a) && is_switch(&cable.b));
        let between = between.expect("a cable between switches");
        let Port::Switch { switch, port } = between.a else {
            unreachable!("both ends are at switches");
        };
        let (switch, port) = (&self.model.switch(switch).name, u8::try_from(port).expect("a port"));
        let cable = self.lab.cable(switch, port);
        self.lab.unlink(&cable).await;
        let is_seen = |hall: &Self| {
            let faults = hall.faults();
            faults.len() == 1 && faults[0]["cables"] == serde_json::json!([cable.name])
        };
        self.wait(&format!("cable {} is missing", cable.name), is_seen).await;
        self.lab.relink(&cable).await;
        self.wait("no fault", |hall| hall.faults().is_empty()).await;
        self.isolated().await;
        for (cluster, _) in CLUSTERS {
            assert_eq!(self.steps_of(cluster), [""; 0], "no node needs {}", cable.name);
        }
        self.no_breach("a replaced cable between switches").await;
    }

    /// A leaf switch is replaced: clusters with ports there are degraded while it is off. When the new switch has the
    /// cables, their ports have the keys again, and the fault names the GUID until the site file has it.
    pub(super) async fn replaced_switch(&mut self) {
        let mut leaves = self.model.switches.iter();
        let leaf = leaves.find(|switch| switch.role == SwitchRole::Leaf && switch.rail == Some(RAIL));
        let leaf = leaf.expect("a leaf of the rail").name.to_string();
        self.lab.switch_off(&leaf).await;
        for (cluster, _) in CLUSTERS {
            self.until(cluster, "CLUSTER_STATE_DEGRADED").await;
            assert!(self.reason(cluster).contains(&leaf), "{}", self.reason(cluster));
        }

        let former: Vec<Guid> = self.leaf_guids().into_iter().map(|(_, guid)| guid).collect();
        let mut present = self.leaf_guids();
        let (_, guid) = present.iter_mut().find(|(name, _)| *name == leaf).expect("the leaf");
        let new = Guid::new(guid.get() + 0x0f00_0000).expect("a GUID");
        *guid = new;
        self.lab.replace_switch(&leaf, new).await;
        let needed = format!("the site file needs `guid: {new}` of switch {leaf}");
        let names_it = |hall: &Self| {
            let faults = hall.faults();
            faults.len() == 1 && text(&faults[0], "text").contains(&needed)
        };
        self.wait(&format!("the only fault says: {needed}"), names_it).await;
        for (cluster, _) in CLUSTERS {
            self.until(cluster, "CLUSTER_STATE_READY").await;
        }
        self.isolated().await;

        let line = format!("guid: {}+0x40", former[0]);
        assert_eq!(self.text.matches(&line).count(), 1, "{line} is in the site file once");
        let guids: Vec<String> = present.iter().map(|(_, guid)| guid.to_string()).collect();
        self.text = self.text.replace(&line, &format!("guid: [{}]", guids.join(", ")));
        self.model = read(&self.text);
        assert_eq!(self.leaf_guids(), present);
        self.apply_site();
        self.wait("no fault", |hall| hall.faults().is_empty()).await;
        self.isolated().await;
        for (cluster, _) in CLUSTERS {
            assert_eq!(self.steps_of(cluster), ["degraded", "ready"], "{cluster}");
        }
        self.no_breach("a replaced switch").await;
    }

    /// The names and GUIDs of all leaf switches, in the order of the site file.
    fn leaf_guids(&self) -> Vec<(String, Guid)> {
        let switches = self.model.switches.iter();
        let leaves = switches.filter(|switch| switch.role == SwitchRole::Leaf);
        let named = leaves.map(|leaf| {
            let guid = leaf.guid.and_then(Guid::new).expect("a GUID");
            (leaf.name.to_string(), guid)
        });
        named.collect()
    }

    fn apply_site(&self) {
        std::fs::write(&self.site_file, &self.text).expect("the site file");
        let file = self.site_file.display().to_string();
        self.site.cli(["site", "apply", &file, "--yes", "--quiet"]);
    }

    fn reason(&self, cluster: &str) -> String {
        let cluster = self.site.json(["cluster", "get", cluster]);
        text(&cluster["status"], "reason").to_owned()
    }

    /// The open faults of the fabric.
    fn faults(&self) -> Vec<Value> {
        let faults = self.site.json(["fabric", "faults"]);
        faults["faults"].as_array().expect("faults").clone()
    }

    /// The states that a cluster has reached since the last deed, and the changes of its ports.
    fn steps_of(&self, cluster: &str) -> Vec<String> {
        let target = format!("clusters/{cluster}");
        let events = self.events_of(None).into_iter();
        let of_cluster = events.filter(|event| text(event, "target") == target);
        of_cluster.map(|event| step_of(&event)).collect()
    }
}

/// The state that an event reports, or `ports` for a change of the ports.
fn step_of(event: &Value) -> String {
    match text(event, "kind") {
        "cluster.ports" => "ports".to_owned(),
        _ => text(&event["attributes"], "to").to_owned(),
    }
}
