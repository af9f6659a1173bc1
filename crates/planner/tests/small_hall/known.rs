//! The hall of placement against the parts that a small hall has: what the reading of the site file loses is seen here.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_placement::{DomainId, DomainSpec, Hall, NodeId, NodeSpec, NodeStatus, PodId, UnitId, Wirings};

use super::{NODE_WATTS, SmallHall};

/// Continuous capacity of a rack PDU in watts: three phases of 415 V and 32 A, of which 80 % count.
const PDU_WATTS: f64 = 1.732_050_8 * 415.0 * 32.0 * 0.8;

impl SmallHall {
    /// Compares a hall without clusters with this small hall: nodes, units, links and power.
    pub fn compare(&self, hall: &Hall) {
        let spec = hall.spec();
        assert!(spec.more_fabrics.is_empty(), "the storage fabric takes no clusters");
        self.compare_power(&spec.domains);
        let units = self.compare_nodes(hall);
        assert_eq!(units.len() as u64, self.units(), "units with nodes");
        assert_eq!(spec.pods.len() as u64, self.pods);
        let mut known: BTreeMap<u64, BTreeSet<UnitId>> = BTreeMap::new();
        for (unit, id) in &units {
            known.entry(self.pod_of(*unit)).or_default().insert(*id);
        }
        let mut first = 0;
        for ((at, pod), of_pod) in (0..).zip(&spec.pods).zip(known.values()) {
            let ids: BTreeSet<UnitId> = (first..first + pod.units.len() as u32).map(UnitId).collect();
            first += pod.units.len() as u32;
            assert_eq!(ids, *of_pod, "units of {}", pod.name);
            self.compare_cores(hall, PodId(at));
        }
        for (unit, id) in &units {
            self.compare_uplinks(hall, *unit, *id);
        }
    }

    /// Compares the nodes, and returns the hall's number of each unit.
    fn compare_nodes(&self, hall: &Hall) -> BTreeMap<u64, UnitId> {
        let spec = hall.spec();
        let mut units: BTreeMap<u64, UnitId> = BTreeMap::new();
        let stores = if self.has_storage { 3 } else { 0 };
        assert_eq!(spec.nodes.len() as u64, self.node_count() + stores);
        for (at, node) in (0..).zip(&spec.nodes) {
            let own = node.name.strip_prefix('n').and_then(|number| number.parse().ok());
            let placed = own.and_then(|own| self.placed_at(own));
            assert_eq!(node.unit.is_some(), placed.is_some(), "{} is placed", node.name);
            let is_free = hall.node_status(NodeId(at)) == Some(NodeStatus::Free);
            assert_eq!(is_free, placed.is_some(), "{} is free", node.name);
            if let (Some(own), Some(unit), Some(id)) = (own, placed, node.unit) {
                assert_eq!(*units.entry(unit).or_insert(id), id, "{} is in unit {unit}", node.name);
                self.compare_node(hall, own, node);
            }
        }
        let different: BTreeSet<&UnitId> = units.values().collect();
        assert_eq!(different.len(), units.len(), "two units have become one");
        units
    }

    fn compare_node(&self, hall: &Hall, own: u64, node: &NodeSpec) {
        let (spec, name) = (hall.spec(), &node.name);
        assert_eq!(node.impaired, !self.is_whole(own), "{name} is impaired");
        let sku = &spec.skus[node.sku.0 as usize];
        assert_eq!(
            (&*sku.name, sku.watts, sku.psus_needed),
            ("gpu", NODE_WATTS, 3),
            "{name}"
        );
        let strip = |psu: &DomainId| spec.domains[psu.0 as usize].name.as_str();
        let strips: Vec<&str> = node.psus.iter().map(strip).collect();
        let [a, b] = ["a", "b"].map(|feed| format!("pdu-{feed}-r{own:02}"));
        assert_eq!(strips, [&a, &a, &a, &b, &b, &b], "{name}");
        assert_eq!(
            node.cooling.iter().map(|(_, watts)| *watts).collect::<Vec<_>>(),
            [NODE_WATTS]
        );
    }

    fn compare_uplinks(&self, hall: &Hall, unit: u64, id: UnitId) {
        let Wirings { spines, .. } = hall.wirings(PodId(0));
        let free = hall.free_uplinks(id);
        let found: Vec<u32> = (0..spines.peers).map(|spine| spines.count(free, spine)).collect();
        let wanted: Vec<u32> = (1..=self.hosts)
            .map(|spine| u32::from(self.has_uplink(unit, spine)))
            .collect();
        assert_eq!(found, wanted, "uplinks of unit {unit}");
    }

    fn compare_cores(&self, hall: &Hall, pod: PodId) {
        let Wirings { spines, cores } = hall.wirings(pod);
        let links = |spine| {
            let free = hall.free_core_links(pod, spine);
            (0..cores.peers)
                .map(|core| u64::from(cores.count(free, core)))
                .sum::<u64>()
        };
        let found: Vec<u64> = (0..spines.peers).map(links).collect();
        let number = u64::from(pod.0) + 1;
        let wanted: Vec<u64> = (1..=self.hosts)
            .map(|spine| self.core_links_of(number, spine))
            .collect();
        assert_eq!(found, wanted, "core links of pod {number}");
    }

    fn compare_power(&self, domains: &[DomainSpec]) {
        assert_eq!(domains.len() as u64, 2 + 2 * (self.node_count() + 3));
        for domain in domains {
            let DomainSpec {
                name,
                parent,
                capacity_w,
                other_w,
                feed,
                circuit,
            } = domain;
            let above = parent.map(|parent| domains[parent.0 as usize].name.as_str());
            let (wanted_above, watts) = match name.split('-').collect::<Vec<_>>()[..] {
                ["pdu", "a", _] => (Some("utility-a"), PDU_WATTS as u64),
                ["pdu", "b", _] => (Some("utility-b"), PDU_WATTS as u64),
                _ => (None, self.feed_watts),
            };
            assert_eq!((above, *capacity_w, *other_w), (wanted_above, watts, 0), "{name}");
            assert_eq!((*feed, *circuit), (above.is_none(), above.is_some()), "{name}");
        }
    }
}
