//! The hall and the requests of the benchmark: pods of 32 units of 32 nodes, three levels, non-blocking.

use rackwright_placement::{
    Bandwidth, ClusterId, CoolingId, CoolingSpec, CustomerId, DomainId, DomainSpec, HallSpec, LabelId, LabelKind,
    LabelSpec, NodeSpec, PodSpec, Request, SkuId, SkuSpec, Tree, UnitId,
};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Number of units per pod, hosts per unit, spines per pod, and cores above a spine.
pub const WIDTH: u32 = 32;
/// Draw of a node, in watts: a DGX H100.
const NODE_W: u64 = 10_200;

/// The random numbers of one seed.
pub struct Dice(SplitMix64);

impl Dice {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }

    /// A number above 0 and at most 1.
    pub fn part(&mut self) -> f64 {
        ((self.roll() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// A normally distributed number (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (self.part(), self.part());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// A hall with this number of pods. Each rack has four nodes on strips A and B of 45 kW, and each strip can carry its
/// rack alone. Each row has its feeds, each row of four units has a CDU, and each rack has a label.
pub fn hall(pods: u32) -> HallSpec {
    let mut spec = HallSpec {
        tree: Tree {
            spines: WIDTH,
            links_per_spine: 1,
            cores_per_spine: WIDTH,
            links_per_core: 1,
        },
        skus: vec![SkuSpec {
            name: "dgx-h100".to_owned(),
            watts: NODE_W,
            psus_needed: 2,
        }],
        ..HallSpec::default()
    };
    let pod_w = NODE_W * u64::from(WIDTH * WIDTH);
    for pod in 0..pods {
        let names = (0..WIDTH).map(|u| format!("su{:02}", u + 1)).collect();
        spec.pods.push(PodSpec {
            name: format!("pod{:02}", pod + 1),
            units: names,
        });
        let utilities = [0, 1].map(|side| domain(&mut spec, format!("pod{pod} utility {side}"), None, pod_w, false));
        for unit in 0..WIDTH {
            if unit % 4 == 0 {
                add_row(&mut spec, utilities);
            }
            add_unit(&mut spec, pod * WIDTH + unit);
        }
    }
    spec
}

fn domain(spec: &mut HallSpec, name: String, parent: Option<u32>, capacity_w: u64, feed: bool) -> u32 {
    let circuit = name.starts_with("strip");
    spec.domains.push(DomainSpec {
        name,
        parent: parent.map(DomainId),
        capacity_w,
        other_w: 0,
        feed,
        circuit,
    });
    spec.domains.len() as u32 - 1
}

fn add_row(spec: &mut HallSpec, utilities: [u32; 2]) {
    let row = spec.cooling.len();
    let row_w = NODE_W * u64::from(WIDTH) * 4;
    for (side, utility) in utilities.into_iter().enumerate() {
        domain(spec, format!("row {row} feed {side}"), Some(utility), row_w, true);
    }
    spec.cooling.push(CoolingSpec {
        name: format!("row {row} cdu"),
        capacity_w: row_w,
        other_w: 0,
    });
    spec.labels.push(LabelSpec {
        kind: LabelKind(1),
        name: format!("row {row}"),
    });
}

fn add_unit(spec: &mut HallSpec, unit: u32) {
    let cooling = CoolingId(spec.cooling.len() as u32 - 1);
    let row_label = spec.labels.iter().rposition(|l| l.kind == LabelKind(1)).unwrap_or(0);
    let feeds: Vec<u32> = (0..spec.domains.len() as u32)
        .rev()
        .filter(|&d| spec.domains[d as usize].feed)
        .take(2)
        .collect();
    for rack in 0..WIDTH / 4 {
        let strips: Vec<DomainId> = feeds
            .iter()
            .map(|&feed| DomainId(domain(spec, format!("strip {unit}-{rack}"), Some(feed), 45_000, false)))
            .collect();
        spec.labels.push(LabelSpec {
            kind: LabelKind(0),
            name: format!("rack {unit}-{rack}"),
        });
        let rack_label = LabelId(spec.labels.len() as u32 - 1);
        for _ in 0..4 {
            spec.nodes.push(NodeSpec {
                name: format!("gpu-{:06}", spec.nodes.len() + 1),
                unit: Some(UnitId(unit)),
                sku: SkuId(0),
                psus: vec![strips[0], strips[0], strips[1], strips[1]],
                cooling: vec![(cooling, NODE_W)],
                labels: vec![rack_label, LabelId(row_label as u32)],
                excluded: false,
                impaired: false,
            });
        }
    }
}

/// The number of nodes of a cluster: powers of two with these weights in thousandths. Three in ten are reduced to any
/// number down to half.
pub fn size(dice: &mut Dice, most: u32) -> u32 {
    const WEIGHTS: [(u32, u64); 9] = [
        (1, 270),
        (2, 140),
        (4, 140),
        (8, 140),
        (16, 120),
        (32, 90),
        (64, 60),
        (128, 30),
        (256, 10),
    ];
    let mut at = dice.below(1000);
    let mut size = 1;
    for (nodes, weight) in WEIGHTS {
        size = nodes;
        if at < weight {
            break;
        }
        at -= weight;
    }
    let odd = dice.below(10) < 3 && size > 2;
    let size = if odd {
        size / 2 + 1 + dice.below(u64::from(size / 2)) as u32
    } else {
        size
    };
    size.min(most)
}

/// A request without constraints.
pub fn plain(cluster: u64, nodes: u32) -> Request {
    Request::plain(ClusterId(cluster), CustomerId((cluster % 50) as u32), SkuId(0), nodes)
}

/// A request with constraints: survival of a feed loss, dedicated circuits, spares, oversubscription, spread.
pub fn random_request(dice: &mut Dice, cluster: u64, nodes: u32) -> Request {
    let mut request = plain(cluster, nodes);
    request.survives_feed_loss = dice.below(2) == 0;
    request.own_circuits = dice.below(3) == 0;
    request.spares = nodes / 32;
    if dice.below(5) == 0 {
        request.bandwidth = Bandwidth::Ratio { down: 2, up: 1 };
    }
    if dice.below(10) == 0 {
        request.affinity.spread.push((LabelKind(0), 2));
    }
    request
}
