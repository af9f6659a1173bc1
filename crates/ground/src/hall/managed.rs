//! Compute fabrics of the site without a manager. Their ports get no partition keys, so no cluster is placed there.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_infiniband::Guid;
use rackwright_site::file::Places;
use rackwright_site::finding::Sink;
use rackwright_site::model::{Fabric, FabricPurpose, NodeId, Site};

use crate::config::fabric::Settings;

/// The fabrics with a manager, by the settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Managed {
    /// No fabric manager is configured: clusters have no partitions.
    #[default]
    Off,
    /// One manager, without the name of its fabric.
    Unnamed,
    /// A manager for each of these fabrics.
    Named(BTreeSet<String>),
}

impl Managed {
    /// The fabrics with a manager in these settings.
    #[must_use]
    pub fn of(settings: Option<&Settings>) -> Self {
        let Some(settings) = settings else { return Self::Off };
        let names: BTreeSet<String> = settings.fabrics().map(str::to_owned).collect();
        match names.is_empty() {
            true => Self::Unnamed,
            false => Self::Named(names),
        }
    }

    /// The compute fabrics of the site without a manager. Empty if it is not known which fabric the only manager has.
    #[must_use]
    pub fn missing<'a>(&self, site: &'a Site) -> Vec<&'a Fabric> {
        let Self::Named(names) = self else { return Vec::new() };
        let fabrics = compute_fabrics(site);
        fabrics.filter(|fabric| !names.contains(&*fabric.name)).collect()
    }

    /// By fabric without a manager, the nodes with a compute port that is cabled to it.
    #[must_use]
    pub fn nodes_without(&self, site: &Site) -> BTreeMap<String, BTreeSet<NodeId>> {
        let mut nodes: BTreeMap<String, BTreeSet<NodeId>> = BTreeMap::new();
        let missing: BTreeSet<&str> = self.missing(site).into_iter().map(|fabric| &*fabric.name).collect();
        if missing.is_empty() {
            return nodes;
        }
        for (node, _, switch) in site.cabled_hcas() {
            let fabric = site.switch(switch).fabric.map(|fabric| &*site.fabric(fabric).name);
            if let Some(name) = fabric.filter(|name| missing.contains(name)) {
                nodes.entry(name.to_owned()).or_default().insert(node);
            }
        }
        nodes
    }

    /// The fabric without a manager that has one of these ports.
    #[must_use]
    pub fn fabric_without<'a>(&self, site: &'a Site, ports: &BTreeSet<Guid>) -> Option<&'a str> {
        let missing = self.missing(site);
        if missing.is_empty() {
            return None;
        }
        site.cabled_hcas().find_map(|(node, hca, switch)| {
            let guid = Guid::new(site.node(node).port_guids.get(hca).copied().flatten()?)?;
            let name = &*site.fabric(site.switch(switch).fabric?).name;
            let is_missing = missing.iter().any(|fabric| *fabric.name == *name);
            (ports.contains(&guid) && is_missing).then_some(name)
        })
    }

    /// Warnings about the managers of this site: fabric and sentence.
    #[must_use]
    pub fn warnings(&self, site: &Site) -> Vec<(String, String)> {
        let of_fabric = |fabric: &Fabric| (fabric.name.to_string(), without(&fabric.name));
        let mut warnings: Vec<(String, String)> = self.missing(site).into_iter().map(of_fabric).collect();
        let names: Vec<&str> = compute_fabrics(site).map(|fabric| &*fabric.name).collect();
        if *self == Self::Unnamed
            && let [first, _, ..] = names[..]
        {
            let text = format!(
                "the site has the compute fabrics {}, and the settings of rackwrightd have one manager without the name of \
                 its fabric: the ports of the other fabrics get no partition keys",
                names.join(", ")
            );
            warnings.push((first.to_owned(), text));
        }
        warnings
    }

    /// Adds the warnings to the findings of the site's files.
    pub(super) fn warn(&self, site: &Site, places: &Places, sink: &mut Sink) {
        for (fabric, text) in self.warnings(site) {
            let is_of = |id: &_| {
                site.switch(*id)
                    .fabric
                    .is_some_and(|of| *site.fabric(of).name == *fabric)
            };
            let place = site.switch_ids().find(is_of);
            let (at, path) = place.map_or_else(|| places.site(), |switch| places.switch(switch, "fabric"));
            let fix = format!("name its manager in the settings of rackwrightd: `fabric.managers.{fabric}`");
            sink.warning(at, path, text, fix);
        }
    }
}

fn compute_fabrics(site: &Site) -> impl Iterator<Item = &Fabric> {
    let fabrics = site.fabrics.iter();
    fabrics.filter(|fabric| fabric.purpose != FabricPurpose::Storage)
}

/// The sentence about a compute fabric without a manager.
fn without(fabric: &str) -> String {
    format!(
        "compute fabric {fabric} has no manager in the settings of rackwrightd: its ports get no partition keys, and no \
         cluster is placed there"
    )
}

/// What a cluster or a request needs in this fabric.
#[must_use]
pub fn needs(fabric: &str) -> String {
    format!("compute fabric {fabric} has no manager: add `fabric.managers.{fabric}` to the settings of rackwrightd")
}

#[cfg(test)]
mod tests {
    use rackwright_store::SiteFile;

    use super::*;

    const SITE: &str = "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, hcas: [c0, s0]}]
nodes:
- {name: n1, sku: k, rack: r, unit: 1, guids: {c0: 0xa1, s0: 0xb1}}
- {name: n2, sku: k, rack: r, unit: 2, guids: {c0: 0xa2, s0: 0xb2}}
fabrics: [{name: east}, {name: west}, {name: disks, purpose: storage}]
switches:
- {name: leaf-e, role: leaf, ports: 8, fabric: east}
- {name: leaf-w, role: leaf, ports: 8, fabric: west}
- {name: leaf-d, role: leaf, ports: 8, fabric: disks}
cables:
- {label: e1, a: n1/c0, b: leaf-e/1}
- {label: w1, a: n2/c0, b: leaf-w/1}
- {label: d1, a: n1/s0, b: leaf-d/1}
";

    fn named(names: &[&str]) -> Managed {
        Managed::Named(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// The warnings about managers in the findings of the site's file.
    fn findings(managed: &Managed) -> Vec<String> {
        let (name, text) = ("s.yaml".to_owned(), SITE.to_owned());
        let checked = crate::hall::read_for(&[SiteFile { name, text }], managed);
        let of_managers = checked
            .findings
            .list
            .iter()
            .filter(|one| one.fix.contains("fabric.managers"));
        of_managers.map(|one| format!("{one}; {}", one.fix)).collect()
    }

    #[test]
    fn a_compute_fabric_without_a_manager_is_reported_with_its_place_and_setting() {
        for managed in [Managed::Off, named(&["east", "west"])] {
            assert_eq!(findings(&managed), Vec::<String>::new());
        }
        let found = findings(&named(&["east"]));
        assert_eq!(found.len(), 1, "a storage fabric needs none: {found:?}");
        for part in [
            "s.yaml:11:",
            "compute fabric west has no manager",
            "fabric.managers.west",
        ] {
            assert!(found[0].contains(part), "{part}: {found:?}");
        }
        let found = findings(&Managed::Unnamed);
        assert!(
            found.len() == 1 && found[0].contains("the compute fabrics east, west"),
            "{found:?}"
        );
    }

    #[test]
    fn nodes_and_ports_of_such_a_fabric_are_known() {
        let (name, text) = ("s.yaml".to_owned(), SITE.to_owned());
        let site = crate::hall::read(&[SiteFile { name, text }]).site.unwrap();
        let managed = named(&["east"]);
        let node = |name| site.node_named(name).unwrap();
        let nodes = managed.nodes_without(&site);
        assert_eq!(nodes, [("west".to_owned(), [node("n2")].into())].into());
        let fabric = |port| managed.fabric_without(&site, &[Guid::new(port).unwrap()].into());
        assert_eq!([0xa1, 0xa2, 0xb1].map(fabric), [None, Some("west"), None]);
        for managed in [Managed::Off, Managed::Unnamed, named(&["east", "west"])] {
            assert!(managed.nodes_without(&site).is_empty());
        }
    }
}
