//! Generates switches and cables.

use serde::Serialize;

use super::facility::node;
use super::skus::Reference;
use super::{Request, digits, span, times};
use crate::text::Writer;

/// Number of ports of a switch.
const PORTS: usize = 64;

/// Half of the ports go down, half go up.
const HALF: usize = PORTS / 2;

/// Number of nodes in a scalable unit.
const UNIT: usize = HALF;

/// Number of switches in a network rack.
const SWITCHES_PER_RACK: usize = 32;

/// The number of switches in a fabric and their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of scalable units. The last one may be smaller.
    pub units: usize,
    /// Number of leaves: one for each rail of a scalable unit.
    pub leaves: usize,
    /// Number of pods. 1 with two levels.
    pub pods: usize,
    /// Number of spines per pod.
    pub spines_per_pod: usize,
    /// Number of cores above each spine. 0 with two levels. Spines at the same position in their pods share them.
    pub cores_per_group: usize,
    /// Number of uplinks per leaf.
    pub uplinks: usize,
    /// Number of parallel cables per pair: leaf and spine with two levels, spine and core with three.
    pub parallel: usize,
}

impl Shape {
    /// Number of spines.
    #[must_use]
    pub fn spines(&self) -> usize {
        self.pods * self.spines_per_pod
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores_per_group * self.spines_per_pod
    }
}

/// Maximum number of nodes in one fabric: 64 pods.
fn most_nodes(rails: usize) -> usize {
    PORTS * (HALF / rails) * UNIT
}

/// The fat-tree for this number of nodes and rails (4 or 8). At most 8,192 nodes with 8 rails and 16,384 with 4.
#[must_use]
pub fn shape(nodes: usize, rails: usize) -> Shape {
    let units = nodes.div_ceil(UNIT);
    let leaves = units * rails;
    if leaves <= PORTS {
        // A single unit needs only as many uplinks as it has nodes.
        let uplinks = if units > 1 { HALF } else { nodes };
        let fits = |spines: &usize| uplinks.is_multiple_of(*spines) && leaves * (uplinks / spines) <= PORTS;
        let spines = ((leaves * uplinks).div_ceil(PORTS)..uplinks)
            .find(fits)
            .unwrap_or(uplinks);
        return Shape {
            nodes,
            units,
            leaves,
            pods: 1,
            spines_per_pod: spines,
            cores_per_group: 0,
            uplinks,
            parallel: uplinks / spines,
        };
    }
    let pods = units.div_ceil(HALF / rails);
    let fits = |cores: &usize| HALF.is_multiple_of(*cores) && pods * (HALF / cores) <= PORTS;
    let cores = ((pods * HALF).div_ceil(PORTS)..HALF).find(fits).unwrap_or(HALF);
    Shape {
        nodes,
        units,
        leaves,
        pods,
        spines_per_pod: HALF,
        cores_per_group: cores,
        uplinks: HALF,
        parallel: HALF / cores,
    }
}

/// One of the fabrics of a site.
struct Fabric<'a> {
    shape: Shape,
    sku: &'a Reference,
    /// Number of nodes in the whole site. `first_node` counts those in earlier fabrics.
    all_nodes: usize,
    first_node: usize,
    /// Number of scalable units in the whole site. `first_unit` counts those in earlier fabrics.
    all_units: usize,
    first_unit: usize,
    /// Number of pods in earlier fabrics.
    first_pod: usize,
    /// The name, if there are several fabrics.
    name: Option<String>,
    /// The prefix of the names of spines and cores, if there are several fabrics.
    prefix: String,
    seed: u8,
}

pub(super) fn write(text: &mut Writer, request: &Request, sku: &Reference) {
    let rails = sku.hcas.len();
    let most = most_nodes(rails);
    let count = request.nodes.div_ceil(most);
    let mut fabrics: Vec<Fabric<'_>> = Vec::new();
    for i in 0..count {
        let before = fabrics.last();
        fabrics.push(Fabric {
            shape: shape(most.min(request.nodes - i * most), rails),
            sku,
            all_nodes: request.nodes,
            first_node: i * most,
            all_units: request.nodes.div_ceil(UNIT),
            first_unit: i * most / UNIT,
            first_pod: before.map_or(0, |fabric| fabric.first_pod + fabric.shape.pods),
            name: (count > 1).then(|| format!("f{}", i + 1)),
            prefix: if count > 1 {
                format!("f{}-", i + 1)
            } else {
                String::new()
            },
            seed: request.seed,
        });
    }
    let racks: usize = fabrics.iter().map(Fabric::racks).sum();
    text.line("\n# Racks of the network.");
    text.line("---");
    text.line("rooms:");
    text.item(&[("name", "network".to_owned())]);
    text.section("racks");
    let width = digits(racks);
    text.item(&[
        ("name", format!("net-r{}", span(1, racks, width))),
        ("room", "network".to_owned()),
        ("units", "48".to_owned()),
    ]);
    if count > 1 {
        text.section("fabrics");
        text.item(&[("name", format!("f{}", span(1, count, 1)))]);
    }
    text.section("switches");
    let mut place = Place { next: 0, width };
    for fabric in &fabrics {
        fabric.switches(text, &mut place);
    }
    text.section("cables");
    let mut labels = Labels {
        next: 1,
        width: digits(fabrics.iter().map(Fabric::cables).sum()),
    };
    for fabric in &fabrics {
        fabric.down(text, &mut labels);
        fabric.up(text, &mut labels);
        fabric.across(text, &mut labels);
    }
}

/// The position of the next switch.
struct Place {
    next: usize,
    width: usize,
}

impl Place {
    /// `rack`, `unit` and `guid` of the next switches, which fit one rack or fill several.
    fn take(&mut self, count: usize, seed: u8) -> [(&'static str, String); 3] {
        let (rack, unit) = (self.next / SWITCHES_PER_RACK, self.next % SWITCHES_PER_RACK);
        let racks = (unit + count).div_ceil(SWITCHES_PER_RACK);
        let here = count.min(SWITCHES_PER_RACK);
        let units: Vec<String> = (unit + 1..=unit + here).map(|unit| unit.to_string()).collect();
        let guid = (0xfc_6a1c << 40) | (u64::from(seed) << 32) | (self.next as u64 * 0x40);
        self.next += count;
        [
            (
                "rack",
                times(format!("net-r{}", span(rack + 1, racks, self.width)), here),
            ),
            ("unit", format!("[{}]", units.join(", "))),
            ("guid", format!("{guid:#018x}+0x40")),
        ]
    }

    fn new_rack(&mut self) {
        self.next = self.next.next_multiple_of(SWITCHES_PER_RACK);
    }
}

struct Labels {
    next: usize,
    width: usize,
}

impl Labels {
    fn cables(&mut self, text: &mut Writer, count: usize, a: String, b: String) {
        let label = format!("c{}", span(self.next, count, self.width));
        self.next += count;
        text.item(&[("label", label), ("a", a), ("b", b)]);
    }
}

impl Fabric<'_> {
    fn racks(&self) -> usize {
        let racks = |switches: usize| switches.div_ceil(SWITCHES_PER_RACK);
        racks(self.shape.leaves) + self.shape.pods * racks(self.shape.spines_per_pod) + racks(self.shape.cores())
    }

    fn cables(&self) -> usize {
        let up = self.shape.leaves * self.shape.uplinks;
        let across = if self.shape.cores_per_group > 0 {
            self.shape.spines() * HALF
        } else {
            0
        };
        self.shape.nodes * self.sku.hcas.len() + up + across
    }

    fn nodes_in(&self, unit: usize) -> usize {
        UNIT.min(self.shape.nodes - unit * UNIT)
    }

    /// The pod of a scalable unit.
    fn pod_of(&self, unit: usize) -> usize {
        if self.shape.cores_per_group == 0 {
            0
        } else {
            unit / (HALF / self.sku.hcas.len())
        }
    }

    fn leaf(&self, unit: usize, rail: &str) -> String {
        format!(
            "leaf-su{}-r{rail}",
            span(self.first_unit + unit + 1, 1, digits(self.all_units))
        )
    }

    fn spine(&self, pod: usize, spine: &str) -> String {
        match self.shape.cores_per_group {
            0 => format!("{}spine-{spine}", self.prefix),
            _ => format!("{}spine-p{}-{spine}", self.prefix, span(self.first_pod + pod + 1, 1, 2)),
        }
    }

    fn all_spines(&self) -> String {
        span(1, self.shape.spines_per_pod, 2)
    }

    fn switches(&self, text: &mut Writer, place: &mut Place) {
        let three = self.shape.cores_per_group > 0;
        let rails = self.sku.hcas.len();
        let item = |text: &mut Writer, name: String, role: &str, more: Vec<(&str, String)>, place: &mut Place, n| {
            let mut fields = vec![
                ("name", name),
                ("role", role.to_owned()),
                ("ports", PORTS.to_string()),
                ("speed", "NDR".to_owned()),
            ];
            fields.extend(more);
            fields.extend(self.name.clone().map(|name| ("fabric", name)));
            fields.extend(place.take(n, self.seed));
            text.item(&fields);
        };
        let numbers: Vec<String> = (0..rails).map(|rail| rail.to_string()).collect();
        let pod = |pod: usize| ("pod", (self.first_pod + pod + 1).to_string());
        for unit in 0..self.shape.units {
            let mut more = vec![
                ("rail", format!("[{}]", numbers.join(", "))),
                ("scalable_unit", (self.first_unit + unit + 1).to_string()),
            ];
            more.extend(three.then(|| pod(self.pod_of(unit))));
            item(text, self.leaf(unit, &span(0, rails, 1)), "leaf", more, place, rails);
        }
        place.new_rack();
        for p in 0..self.shape.pods {
            let more = if three { vec![pod(p)] } else { Vec::new() };
            item(
                text,
                self.spine(p, &self.all_spines()),
                "spine",
                more,
                place,
                self.shape.spines_per_pod,
            );
            place.new_rack();
        }
        if three {
            let cores = format!(
                "{}core-g{}-{}",
                self.prefix,
                span(1, HALF, 2),
                span(1, self.shape.cores_per_group, 2)
            );
            item(text, cores, "core", Vec::new(), place, self.shape.cores());
            place.new_rack();
        }
    }

    /// Cables from nodes to leaves.
    fn down(&self, text: &mut Writer, labels: &mut Labels) {
        for unit in 0..self.shape.units {
            let count = self.nodes_in(unit);
            let nodes = node(self.all_nodes, self.first_node + unit * UNIT, count);
            for (rail, hca) in self.sku.hcas.iter().enumerate() {
                let leaf = self.leaf(unit, &rail.to_string());
                labels.cables(
                    text,
                    count,
                    format!("{nodes}/{hca}"),
                    format!("{leaf}/{}", span(1, count, 1)),
                );
            }
        }
    }

    /// Cables from leaves to spines.
    fn up(&self, text: &mut Writer, labels: &mut Labels) {
        let (rails, uplinks, parallel) = (self.sku.hcas.len(), self.shape.uplinks, self.shape.parallel);
        for leaf in 0..self.shape.leaves {
            let unit = leaf / rails;
            let pod = self.pod_of(unit);
            let a = format!(
                "{}/{}",
                self.leaf(unit, &(leaf % rails).to_string()),
                span(HALF + 1, uplinks, 1)
            );
            let ports = match self.shape.cores_per_group {
                0 => span(leaf * parallel + 1, parallel, 1),
                // A pod has as many leaves as a spine has downlink ports.
                _ => span(leaf % HALF + 1, 1, 1),
            };
            labels.cables(
                text,
                uplinks,
                a,
                format!("{}/{ports}", self.spine(pod, &self.all_spines())),
            );
        }
    }

    /// Cables from spines to cores.
    fn across(&self, text: &mut Writer, labels: &mut Labels) {
        if self.shape.cores_per_group == 0 {
            return;
        }
        for pod in 0..self.shape.pods {
            for spine in 1..=self.shape.spines_per_pod {
                let group = format!("{spine:02}");
                let cores = span(1, self.shape.cores_per_group, 2);
                let ports = span(pod * self.shape.parallel + 1, self.shape.parallel, 1);
                let a = format!("{}/{}", self.spine(pod, &group), span(HALF + 1, HALF, 1));
                labels.cables(text, HALF, a, format!("{}core-g{group}-{cores}/{ports}", self.prefix));
            }
        }
    }
}
