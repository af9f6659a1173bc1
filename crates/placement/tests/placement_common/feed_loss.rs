//! Halls in which the loss of a feed makes a budget scarce, and nodes take unequal parts of that budget.

use rackwright_placement::*;

use super::{Dice, sku};

/// Watts of a node.
pub const NODE_W: u64 = 10_000;

/// One room with one pod, racks of `rack` nodes, and a strip of each feed in each rack. `wiring` has for each node the
/// number of its power supplies on each feed. A feed has the capacity of `feeds`, a strip that of its rack.
pub fn room(units: u32, hosts: u32, rack: u32, feeds: &[u64], wiring: &[Vec<usize>]) -> HallSpec {
    let mut spec = HallSpec {
        tree: Tree {
            spines: hosts,
            links_per_spine: 1,
            cores_per_spine: 0,
            links_per_core: 0,
        },
        pods: vec![PodSpec {
            name: "pod".to_owned(),
            units: (0..units).map(|unit| format!("su{unit}")).collect(),
        }],
        skus: vec![sku("dgx", NODE_W, 2), sku("storage", 1_700, 1)],
        cooling: vec![CoolingSpec {
            name: "room".to_owned(),
            capacity_w: NODE_W * u64::from(units * hosts),
            other_w: 0,
        }],
        ..HallSpec::default()
    };
    for (feed, &capacity_w) in feeds.iter().enumerate() {
        spec.domains.push(DomainSpec {
            name: format!("feed {feed}"),
            capacity_w,
            feed: true,
            ..DomainSpec::default()
        });
    }
    for node in 0..units * hosts {
        if (node % hosts).is_multiple_of(rack) {
            for feed in 0..feeds.len() {
                spec.domains.push(DomainSpec {
                    name: format!("strip {feed} at {node}"),
                    parent: Some(DomainId(feed as u32)),
                    capacity_w: NODE_W * u64::from(rack),
                    circuit: true,
                    ..DomainSpec::default()
                });
            }
        }
        let first = spec.domains.len() - feeds.len();
        let supplies = wiring[node as usize].iter().enumerate();
        let strips = supplies.flat_map(|(feed, &count)| vec![DomainId((first + feed) as u32); count]);
        spec.nodes.push(NodeSpec {
            name: format!("n{node}"),
            unit: Some(UnitId(node / hosts)),
            sku: SkuId(0),
            psus: strips.collect(),
            cooling: vec![(CoolingId(0), NODE_W)],
            labels: Vec::new(),
            excluded: false,
            impaired: false,
        });
    }
    spec
}

/// A random small room. Most nodes are wired alike; the others have odd wiring. Some feeds are scarce, and sometimes
/// strips are, and other clusters are there.
pub fn feed_loss_hall(seed: u64) -> (Hall, Dice) {
    let mut dice = Dice::new(seed);
    let (units, hosts) = (dice.roll(1, 3) as u32, dice.roll(2, 6) as u32);
    let rack = dice.roll(1, u64::from(hosts.min(4))) as u32;
    let feeds = dice.roll(2, 4) as usize;
    let usual: Vec<usize> = (0..feeds).map(|_| 2).collect();
    let odd = dice.roll(10, 60);
    let mut wiring = Vec::new();
    for _ in 0..units * hosts {
        let mut own = usual.clone();
        if dice.chance(odd) {
            own = (0..feeds).map(|_| dice.roll(0, 3) as usize).collect();
            // Two supplies work after the loss of any feed, for most of these nodes.
            own[dice.roll(0, feeds as u64 - 1) as usize] += 2;
        }
        wiring.push(own);
    }
    let all = NODE_W * u64::from(units * hosts);
    let capacities: Vec<u64> = (0..feeds).map(|_| all * dice.roll(30, 110) / 100).collect();
    let mut spec = room(units, hosts, rack, &capacities, &wiring);
    let scarce_strips = dice.chance(40);
    for strip in spec.domains.iter_mut().skip(feeds).filter(|_| scarce_strips) {
        strip.capacity_w = strip.capacity_w * dice.roll(40, 110) / 100;
    }
    for node in &mut spec.nodes {
        if dice.chance(10) {
            node.sku = SkuId(1);
        }
        node.excluded = dice.chance(4);
    }
    let mut hall = Hall::new(spec).unwrap();
    for cluster in 0..dice.roll(0, 3) {
        let mut wish = Request::plain(
            ClusterId(cluster),
            CustomerId(0),
            SkuId(dice.roll(0, 1) as u32),
            dice.roll(1, 4) as u32,
        );
        wish.survives_feed_loss = dice.chance(50);
        if let Ok(placement) = plan(&hall, &wish) {
            hall.take(&placement).unwrap();
        }
    }
    (hall, dice)
}

/// A request that survives the loss of a feed, for about as many nodes as such a room holds.
pub fn feed_loss_request(dice: &mut Dice, hall: &Hall, cluster: u64) -> Request {
    let free = u64::from(hall.free_nodes(SkuId(0))).max(1);
    let nodes = dice.roll(free.div_ceil(3), free) as u32;
    let mut request = Request::plain(ClusterId(cluster), CustomerId(1), SkuId(0), nodes);
    request.survives_feed_loss = dice.chance(90);
    request.bandwidth = if dice.chance(30) {
        Bandwidth::BestEffort
    } else {
        Bandwidth::FULL
    };
    request
}
