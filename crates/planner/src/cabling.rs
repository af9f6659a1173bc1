//! The cabling of a site as a plan, for comparison with a discovered fabric.

use std::collections::{BTreeMap, BTreeSet};

use rackwright_infiniband::{Guid, Plan, PlanFault, PlannedCable, PlannedDevice, Role, Width};
use rackwright_site::model::{NodeId, Port, Site, Speed, SwitchId, SwitchRole};

/// All switches, HCAs and cables of a site. An HCA named `mlx5_0:2` is port 2 of `mlx5_0`.
///
/// The planned rate is the slower speed of the two ends, with four lanes.
///
/// # Errors
/// A switch has more ports than InfiniBand can number, or cables contradict each other.
pub fn plan(site: &Site) -> Result<Plan, Vec<PlanFault>> {
    plan_of(site, |_| true)
}

/// The same for some of the switches, such as those of one fabric: with their cables, and without HCAs that are cabled to
/// other switches.
///
/// # Errors
/// As [`plan`].
pub fn plan_of(site: &Site, is_part: impl Fn(SwitchId) -> bool) -> Result<Plan, Vec<PlanFault>> {
    let is_out = |port: Port| matches!(port, Port::Switch { switch, .. } if !is_part(switch));
    let mut list = List::default();
    for cable in &site.cables {
        if let (Port::Hca { node, hca }, other) | (other, Port::Hca { node, hca }) = (cable.a, cable.b)
            && is_out(other)
        {
            list.out.insert((node, hca));
        }
    }
    for id in site.switch_ids().filter(|id| is_part(*id)) {
        list.switch(site, id);
    }
    for id in site.node_ids() {
        list.node(site, id);
    }
    let mut cables = Vec::with_capacity(site.cables.len());
    for cable in site.cables.iter().filter(|cable| !is_out(cable.a) && !is_out(cable.b)) {
        let (Some(a), Some(b)) = (list.place(cable.a), list.place(cable.b)) else {
            let text = format!("cable {}: an end has a port number above 254", cable.label);
            list.faults.push(PlanFault { line: 0, text });
            continue;
        };
        cables.push(PlannedCable {
            name: cable.label.to_string(),
            a,
            b,
            speed: Some(lanes(speed(site, cable.a).min(speed(site, cable.b)))),
            width: Some(Width::X4),
        });
    }
    if list.faults.is_empty() {
        Plan::new(&list.devices, &cables)
    } else {
        Err(list.faults)
    }
}

#[derive(Default)]
struct List {
    devices: Vec<PlannedDevice>,
    switches: BTreeMap<SwitchId, usize>,
    /// Device and port of each HCA.
    hcas: BTreeMap<(NodeId, u8), (usize, u8)>,
    /// HCAs that are cabled to switches outside the plan.
    out: BTreeSet<(NodeId, u8)>,
    faults: Vec<PlanFault>,
}

impl List {
    fn switch(&mut self, site: &Site, id: SwitchId) {
        let switch = site.switch(id);
        let role = match switch.role {
            SwitchRole::Leaf => Role::Leaf,
            SwitchRole::Spine => Role::Spine,
            SwitchRole::Core => Role::Core,
        };
        let ports = u8::try_from(switch.ports).unwrap_or(rackwright_infiniband::model::MAX_PORT);
        self.switches.insert(id, self.devices.len());
        self.devices.push(PlannedDevice {
            guid: switch.guid.and_then(Guid::new),
            rail: switch.rail,
            ..PlannedDevice::switch(&*switch.name, role, ports)
        });
    }

    fn node(&mut self, site: &Site, id: NodeId) {
        let node = site.node(id);
        let mut adapters: BTreeMap<&str, usize> = BTreeMap::new();
        for (hca, index) in site.sku_of(id).hcas.iter().zip(0..=u8::MAX) {
            if self.out.contains(&(id, index)) {
                continue;
            }
            let (adapter, port) = adapter_port(&hca.name);
            let guid = node
                .port_guids
                .get(usize::from(index))
                .copied()
                .flatten()
                .and_then(Guid::new);
            let device = *adapters.entry(adapter).or_insert_with(|| {
                let name = format!("{} {adapter}", node.name);
                self.devices.push(PlannedDevice {
                    hca: None,
                    ..PlannedDevice::adapter(name, 0, hca.rail)
                });
                self.devices.len() - 1
            });
            let planned = &mut self.devices[device];
            planned.port_count = planned.port_count.max(port);
            planned.guid = planned.guid.or(guid);
            self.hcas.insert((id, index), (device, port));
        }
    }

    fn place(&self, port: Port) -> Option<(usize, u8)> {
        match port {
            Port::Hca { node, hca } => self.hcas.get(&(node, hca)).copied(),
            Port::Switch { switch, port } => {
                let port = u8::try_from(port)
                    .ok()
                    .filter(|port| *port <= rackwright_infiniband::model::MAX_PORT)?;
                Some((*self.switches.get(&switch)?, port))
            }
        }
    }
}

/// `mlx5_0:2` is port 2 of `mlx5_0`, `mlx5_0` its port 1.
fn adapter_port(hca: &str) -> (&str, u8) {
    match hca.rsplit_once(':') {
        Some((adapter, port)) => match port.parse() {
            Ok(port) if port > 0 && port <= rackwright_infiniband::model::MAX_PORT => (adapter, port),
            _ => (hca, 1),
        },
        None => (hca, 1),
    }
}

fn speed(site: &Site, port: Port) -> Speed {
    match port {
        Port::Hca { node, .. } => site.sku_of(node).hca_speed,
        Port::Switch { switch, .. } => site.switch(switch).speed,
    }
}

fn lanes(speed: Speed) -> rackwright_infiniband::Speed {
    match speed {
        Speed::Edr => rackwright_infiniband::Speed::Edr,
        Speed::Hdr => rackwright_infiniband::Speed::Hdr,
        Speed::Ndr => rackwright_infiniband::Speed::Ndr,
        Speed::Xdr => rackwright_infiniband::Speed::Xdr,
    }
}
