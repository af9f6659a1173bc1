//! Derives roles, rails, scalable units and pods of switches from the cables.

use std::collections::BTreeMap;

use super::draft::{Draft, End, Node, Switch};
use super::names::Namer;
use super::sku::SkuFile;
use rackwright_infiniband::name::natural;
use rackwright_infiniband::structure::Structure;
use rackwright_infiniband::{Device, DeviceIx, DeviceKind, Fabric, FabricBuilder, PortRef, Rate, Role, Speed};
use rackwright_site::model::SwitchRole;

/// Fills in missing values from the cables: the role of each switch, its unit, rail and pod.
pub(super) fn fill(draft: &mut Draft, skus: Option<&SkuFile>) {
    let wiring = Wiring::of(draft, skus);
    let structure = Structure::of(&wiring.fabric);
    let mut units: BTreeMap<usize, String> = BTreeMap::new();
    let mut pods: BTreeMap<usize, String> = BTreeMap::new();
    for (switch, view) in draft.switches.iter().zip(&structure.switches) {
        for (number, names) in [(view.unit, &mut units), (view.pod, &mut pods)] {
            let Some(number) = number else { continue };
            let first = names.entry(number).or_insert_with(|| switch.name.clone());
            if natural(&switch.name, first).is_lt() {
                first.clone_from(&switch.name);
            }
        }
    }
    let (units, pods) = (numbers(&units), numbers(&pods));
    for (switch, view) in draft.switches.iter_mut().zip(&structure.switches) {
        let found = match view.role {
            Role::Leaf => Some(SwitchRole::Leaf),
            Role::Spine => Some(SwitchRole::Spine),
            Role::Core => Some(SwitchRole::Core),
            Role::Unknown => None,
        };
        switch.role = switch.role.or(found);
        if switch.role == Some(SwitchRole::Leaf) && view.role == Role::Leaf {
            switch.scalable_unit = view.unit.and_then(|unit| units.get(&unit).copied());
            switch.rail = view.rail;
        }
        if structure.levels == 3 && switch.role != Some(SwitchRole::Core) {
            switch.pod = view.pod.and_then(|pod| pods.get(&pod).copied());
        }
    }
}

/// Sorts switches by role, then by name. Cables keep their ends.
pub(super) fn order(draft: &mut Draft) {
    let mut order: Vec<usize> = (0..draft.switches.len()).collect();
    let key = |at: &usize| {
        draft
            .switches
            .get(*at)
            .map(|switch| (switch.role.unwrap_or(SwitchRole::Core), &switch.name))
    };
    order.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        let roles = a.map(|(role, _)| role).cmp(&b.map(|(role, _)| role));
        let names = match (a, b) {
            (Some((_, a)), Some((_, b))) => natural(a, b).then_with(|| a.cmp(b)),
            _ => std::cmp::Ordering::Equal,
        };
        roles.then(names)
    });
    let mut new = vec![0; order.len()];
    for (to, from) in order.iter().enumerate() {
        new[*from] = to;
    }
    let mut old: Vec<Option<Switch>> = std::mem::take(&mut draft.switches).into_iter().map(Some).collect();
    draft.switches = order.iter().filter_map(|at| old.get_mut(*at)?.take()).collect();
    for cable in &mut draft.cables {
        for end in [&mut cable.a, &mut cable.b] {
            if let End::Port(switch, _) = end {
                *switch = new[*switch];
            }
        }
    }
    // Links to nodes first, leaf by leaf, then links between switches.
    draft.cables.sort_by_key(|cable| match (&cable.a, &cable.b) {
        (End::Hca(..), End::Port(switch, port)) => (0, *switch, *port),
        (End::Port(switch, port), _) => (1, *switch, *port),
        (End::Hca(..), End::Hca(..)) => (2, 0, 0),
    });
    label(draft);
}

/// Numbers cables without a label.
fn label(draft: &mut Draft) {
    let mut names = Namer::default();
    for cable in draft.cables.iter().filter(|cable| !cable.label.is_empty()) {
        names.unique_name(&cable.label, &[]);
    }
    let width = draft.cables.len().max(1).ilog10() as usize + 1;
    for (number, cable) in draft.cables.iter_mut().enumerate() {
        if cable.label.is_empty() {
            cable.label = names.unique_name(&format!("c{:0width$}", number + 1), &[]);
        }
    }
}

/// Numbers from 1, in the order of the names.
fn numbers(names: &BTreeMap<usize, String>) -> BTreeMap<usize, usize> {
    let mut order: Vec<(&usize, &String)> = names.iter().collect();
    order.sort_by(|a, b| natural(a.1, b.1).then_with(|| a.cmp(b)));
    order.iter().enumerate().map(|(i, (at, _))| (**at, i + 1)).collect()
}

struct Wiring {
    /// Switches first, in the order of the draft.
    fabric: Fabric,
}

impl Wiring {
    fn of(draft: &Draft, skus: Option<&SkuFile>) -> Self {
        let mut builder = FabricBuilder::default();
        let mut switches = Vec::with_capacity(draft.switches.len());
        for switch in &draft.switches {
            let role = match switch.role {
                Some(SwitchRole::Leaf) => Role::Leaf,
                Some(SwitchRole::Spine) => Role::Spine,
                Some(SwitchRole::Core) => Role::Core,
                None => Role::Unknown,
            };
            let ports = u8::try_from(switch.ports).unwrap_or(rackwright_infiniband::model::MAX_PORT);
            switches.push(builder.device(Device {
                role,
                ..Device::new(DeviceKind::Switch, &switch.name, ports)
            }));
        }
        let rails = Rows::of(draft, skus);
        let mut adapters: BTreeMap<(usize, &str), DeviceIx> = BTreeMap::new();
        for cable in &draft.cables {
            let ends = [&cable.a, &cable.b].map(|end| match end {
                End::Port(switch, port) => {
                    let (device, port) = (*switches.get(*switch)?, u8::try_from(*port).ok()?);
                    Some(PortRef { device, port })
                }
                End::Hca(node, hca) => {
                    let (rail, is_known) = rails.rail(draft, *node, hca)?;
                    let node_name = &draft.nodes.get(*node)?.name;
                    // A name with machine and adapter, whatever the adapter's name in the draft. A GUID shows no rail.
                    let name = match is_known {
                        true => format!("{node_name} mlx5_{rail}"),
                        false => format!("{node_name} ibx{rail:016x}"),
                    };
                    let device = *adapters.entry((*node, hca)).or_insert_with(|| {
                        builder.device(Device {
                            rail: Some(rail).filter(|_| is_known),
                            ..Device::new(DeviceKind::ChannelAdapter, &name, 1)
                        })
                    });
                    Some(PortRef { device, port: 1 })
                }
            });
            if let [Some(a), Some(b)] = ends {
                // The checker reports contradicting cables.
                let _ = builder.connect(a, b, Some(Rate::x4(Speed::Ndr)));
            }
        }
        Self {
            fabric: builder.finish(),
        }
    }
}

/// Rails of HCAs by SKU, and whether they are known.
struct Rows<'a>(BTreeMap<&'a str, BTreeMap<&'a str, (u8, bool)>>);

impl<'a> Rows<'a> {
    fn of(draft: &'a Draft, skus: Option<&'a SkuFile>) -> Self {
        let mut rows: BTreeMap<&str, BTreeMap<&str, (u8, bool)>> = BTreeMap::new();
        for sku in &draft.skus {
            let hcas = sku.hcas.iter().zip(0..=u8::MAX);
            let known = !sku.has_unknown_rails;
            rows.insert(
                &sku.name,
                hcas.map(|(hca, rail)| (hca.as_str(), (rail, known))).collect(),
            );
        }
        for node in &draft.nodes {
            if let Some(sku) = skus.and_then(|skus| skus.named(&node.sku)) {
                rows.entry(&node.sku)
                    .or_insert_with(|| sku.hcas.iter().map(|hca| (&*hca.name, (hca.rail, true))).collect());
            }
        }
        Self(rows)
    }

    fn rail(&self, draft: &Draft, node: usize, hca: &str) -> Option<(u8, bool)> {
        let sku = draft.nodes.get(node).map(|node: &Node| node.sku.as_str())?;
        self.0.get(sku)?.get(hca).copied()
    }
}
