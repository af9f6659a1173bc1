//! Matches discovered devices to planned ones.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use crate::adapter::{self, Scheme};
use crate::model::{DeviceIx, DeviceKind, Fabric, PortRef};
use crate::name;
use crate::plan::Plan;
use crate::rail;

/// Maximum number of seeds in fabrics, or parts of fabrics, without recognised devices.
const MAX_SEEDS: usize = 64;

/// Number of recognised devices by method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Matched {
    pub by_guid: usize,
    /// By description.
    pub by_name: usize,
    /// By their connections.
    pub by_place: usize,
}

/// The pairs of planned and discovered devices.
pub(super) struct Matching {
    found: Vec<Option<DeviceIx>>,
    planned: Vec<Option<DeviceIx>>,
    /// Planned devices that were recognised by GUID or description, and exchanged devices with a known place.
    identified: Vec<bool>,
    pub(super) counts: Matched,
}

impl Matching {
    pub(super) fn of(plan: &Plan, found: &Fabric) -> Self {
        let planned = plan.fabric();
        let mut matching = Self {
            found: vec![None; planned.devices().len()],
            planned: vec![None; found.devices().len()],
            identified: Vec::new(),
            counts: Matched::default(),
        };
        matching.counts.by_guid = matching.by_guid(planned, found);
        matching.counts.by_name = matching.by_name(planned, found) + matching.by_number(planned, found);
        matching.identified = matching.found.iter().map(Option::is_some).collect();
        matching.counts.by_place = matching.by_place(planned, found);
        matching
    }

    /// Whether the planned device was recognised by GUID or description.
    pub(super) fn is_identified(&self, planned: DeviceIx) -> bool {
        self.identified[planned.0 as usize]
    }

    /// The partners of all planned devices.
    pub(super) fn partners(&self) -> &[Option<DeviceIx>] {
        &self.found
    }

    /// Gives planned devices other partners. Then matches all devices anew that can only be recognised by their places.
    pub(super) fn repair(&mut self, planned: &Fabric, found: &Fabric, pairs: &[(DeviceIx, Option<DeviceIx>)]) {
        for (ix, _) in pairs {
            self.identified[ix.0 as usize] = false;
        }
        for (partner, identified) in self.found.iter_mut().zip(&self.identified) {
            if !identified && let Some(other) = partner.take() {
                self.planned[other.0 as usize] = None;
            }
        }
        for (ix, other) in pairs {
            if let Some(other) = other
                && self.pair((planned, found), *ix, *other)
            {
                self.identified[ix.0 as usize] = true;
            }
        }
        self.counts.by_place = self.by_place(planned, found);
    }

    pub(super) fn found_of(&self, planned: DeviceIx) -> Option<DeviceIx> {
        self.found[planned.0 as usize]
    }

    pub(super) fn planned_of(&self, found: DeviceIx) -> Option<DeviceIx> {
        self.planned[found.0 as usize]
    }

    /// Pairs two devices, unless one of them already has a partner or their kinds differ.
    fn pair(&mut self, fabrics: (&Fabric, &Fabric), planned: DeviceIx, found: DeviceIx) -> bool {
        let kinds = (fabrics.0.device(planned).kind, fabrics.1.device(found).kind);
        let free = self.found_of(planned).is_none() && self.planned_of(found).is_none();
        if free && kinds.0 == kinds.1 {
            self.found[planned.0 as usize] = Some(found);
            self.planned[found.0 as usize] = Some(planned);
        }
        free && kinds.0 == kinds.1
    }

    fn by_guid(&mut self, planned: &Fabric, found: &Fabric) -> usize {
        let mut pairs = 0;
        for (ix, device) in planned.devices() {
            if let Some(other) = device.guid.and_then(|guid| found.find(guid)) {
                pairs += usize::from(self.pair((planned, found), ix, other));
            }
        }
        pairs
    }

    fn by_name(&mut self, planned: &Fabric, found: &Fabric) -> usize {
        let theirs = unique_names(found, |ix| self.planned_of(ix).is_none());
        let ours = unique_names(planned, |ix| self.found_of(ix).is_none());
        let pairs: Vec<(DeviceIx, DeviceIx)> = ours
            .iter()
            .filter_map(|(name, ix)| Some((*ix, *theirs.get(name)?)))
            .collect();
        pairs
            .into_iter()
            .filter(|(a, b)| self.pair((planned, found), *a, *b))
            .count()
    }

    /// Adapters with other names (`HCA-4` and `mlx5_9`), paired in order if the machine has as many as planned: by the
    /// kernel's numbers if all have one, else by rails. Without an order, their places identify them.
    fn by_number(&mut self, planned: &Fabric, found: &Fabric) -> usize {
        let theirs = machines(found, |ix| self.planned_of(ix).is_none());
        let ours = machines(planned, |ix| self.found_of(ix).is_none());
        let mut pairs = 0;
        for (machine, adapters) in &ours {
            let Some(others) = theirs.get(machine) else {
                continue;
            };
            let numbers = adapters.by_number.as_ref().zip(others.by_number.as_ref());
            let rails = || adapters.by_rail.as_ref().zip(others.by_rail.as_ref());
            let Some((adapters, others)) = numbers.or_else(rails).filter(|(own, others)| own.len() == others.len())
            else {
                continue;
            };
            for (a, b) in adapters.iter().zip(others) {
                pairs += usize::from(self.pair((planned, found), *a, *b));
            }
        }
        pairs
    }

    /// Extends the pairs from recognised devices to their neighbours. Without any, it starts from two devices that look
    /// alike.
    fn by_place(&mut self, planned: &Fabric, found: &Fabric) -> usize {
        let (mut pairs, mut seeds) = (0, 0);
        loop {
            let spread = self.spread(planned, found);
            pairs += spread;
            if spread > 0 {
                continue;
            }
            if seeds == MAX_SEEDS || !self.seed(planned, found) {
                return pairs;
            }
            seeds += 1;
            pairs += 1;
        }
    }

    /// One round: each planned device is paired with the device that most of its recognised neighbours have at the
    /// planned port.
    fn spread(&mut self, planned: &Fabric, found: &Fabric) -> usize {
        let mut claims: BTreeMap<DeviceIx, (u32, DeviceIx)> = BTreeMap::new();
        for (ix, device) in planned.devices() {
            if self.found_of(ix).is_some() {
                continue;
            }
            let Some((other, votes)) = self.vote(planned, found, ix) else {
                continue;
            };
            if found.device(other).kind == device.kind {
                let claim = claims.entry(other).or_insert((votes, ix));
                if votes > claim.0 {
                    *claim = (votes, ix);
                }
            }
        }
        let claims = claims.into_iter();
        claims
            .filter(|(other, (_, ix))| self.pair((planned, found), *ix, *other))
            .count()
    }

    fn vote(&self, planned: &Fabric, found: &Fabric, ix: DeviceIx) -> Option<(DeviceIx, u32)> {
        let mut votes: BTreeMap<DeviceIx, u32> = BTreeMap::new();
        let mut asked = 0;
        for (own_port, far, _) in planned.neighbours(ix) {
            let Some(neighbour) = self.found_of(far.device) else {
                continue;
            };
            asked += 2;
            let beside = PortRef {
                device: neighbour,
                port: far.port,
            };
            if let Some(there) = found.far_end(beside)
                && self.planned_of(there.device).is_none()
            {
                *votes.entry(there.device).or_default() += 1 + u32::from(there.port == own_port);
            }
        }
        let (best, most) = votes.iter().max_by_key(|(ix, votes)| (**votes, u32::MAX - ix.0))?;
        let alone = votes.values().filter(|votes| *votes == most).count() == 1;
        (alone && most * 2 >= asked).then_some((*best, *most))
    }

    /// Pairs a planned switch without a partner with a discovered switch that looks alike up to the largest possible
    /// radius.
    fn seed(&mut self, planned: &Fabric, found: &Fabric) -> bool {
        for radius in [3, 2, 1, 0] {
            let ours = looks(planned, radius);
            let theirs = looks(found, radius);
            let mut by_look: BTreeMap<u64, DeviceIx> = BTreeMap::new();
            for (ix, device) in found.devices() {
                if device.is_switch() && self.planned_of(ix).is_none() {
                    by_look.entry(theirs[ix.0 as usize]).or_insert(ix);
                }
            }
            let open = planned
                .devices()
                .filter(|(ix, device)| device.is_switch() && self.found_of(*ix).is_none());
            let pair = open
                .filter_map(|(ix, _)| Some((ix, *by_look.get(&ours[ix.0 as usize])?)))
                .next();
            if let Some((ix, other)) = pair {
                return self.pair((planned, found), ix, other);
            }
        }
        self.only_switch(planned, found)
    }

    /// If no device is recognised, and plan and fabric have one switch each, pairs these switches.
    fn only_switch(&mut self, planned: &Fabric, found: &Fabric) -> bool {
        let only = |fabric: &Fabric| {
            let mut switches = fabric.devices().filter(|(_, device)| device.is_switch());
            switches.next().filter(|_| switches.next().is_none()).map(|(ix, _)| ix)
        };
        match (only(planned), only(found)) {
            (Some(ix), Some(other)) if self.found.iter().all(Option::is_none) => self.pair((planned, found), ix, other),
            _ => false,
        }
    }
}

fn unique_names(fabric: &Fabric, free: impl Fn(DeviceIx) -> bool) -> BTreeMap<(DeviceKind, String), DeviceIx> {
    let mut names: BTreeMap<(DeviceKind, String), Vec<DeviceIx>> = BTreeMap::new();
    for (ix, device) in fabric.devices() {
        if free(ix) && !name::is_generic(&device.name) {
            names
                .entry((device.kind, name::key(&device.name)))
                .or_default()
                .push(ix);
        }
    }
    names
        .into_iter()
        .filter_map(|(name, ixs)| Some((name, *ixs.first().filter(|_| ixs.len() == 1)?)))
        .collect()
}

/// The adapters of a machine in the orders that are known.
struct Ordered {
    by_number: Option<Vec<DeviceIx>>,
    by_rail: Option<Vec<DeviceIx>>,
}

/// The adapters that are free, by machine. Rails are those of the plan, else those on which the machines agree.
fn machines(fabric: &Fabric, free: impl Fn(DeviceIx) -> bool) -> BTreeMap<String, Ordered> {
    let mut by_name: BTreeMap<String, (Vec<&str>, Vec<DeviceIx>)> = BTreeMap::new();
    for (ix, device) in fabric.devices() {
        if let Some(host) = device.host() {
            let (names, adapters) = by_name.entry(name::key(host.machine)).or_default();
            names.push(host.adapter);
            adapters.push(ix);
        }
    }
    let names: Vec<Vec<&str>> = by_name.values().map(|(names, _)| names.clone()).collect();
    let agreed = rail::agree(&names);
    let mut machines = BTreeMap::new();
    for ((machine, (names, adapters)), agreed) in by_name.into_iter().zip(agreed) {
        let ordered = |numbers: Option<Vec<u32>>| -> Option<Vec<DeviceIx>> {
            let mut ordered: Vec<(u32, DeviceIx)> = numbers?.into_iter().zip(adapters.iter().copied()).collect();
            ordered.sort_unstable();
            Some(ordered.into_iter().map(|(_, ix)| ix).filter(|ix| free(*ix)).collect())
        };
        let planned = adapters
            .iter()
            .map(|adapter| fabric.device(*adapter).rail.map(u32::from));
        let planned: Option<Vec<u32>> = planned.collect();
        let rails = || -> Option<Vec<u32>> {
            let known = agreed.are_known().then_some(&agreed.rails)?;
            known.iter().map(|rail| rail.map(u32::from)).collect()
        };
        let ordered = Ordered {
            by_number: ordered(names.iter().map(|name| kernel_number(name)).collect()),
            by_rail: ordered(planned.or_else(rails)),
        };
        machines.insert(machine, ordered);
    }
    machines
}

/// The number that the kernel or the firmware gives an adapter.
fn kernel_number(name: &str) -> Option<u32> {
    let place = adapter::place(name).filter(|place| place.scheme == Scheme::Kernel);
    place.map(|place| place.number())
}

/// A hash for each device. Devices with equal surroundings up to this many links away have equal hashes.
fn looks(fabric: &Fabric, radius: u8) -> Vec<u64> {
    let mut looks: Vec<u64> = fabric.devices().map(|(_, device)| digest(&device.kind)).collect();
    for _ in 0..=radius {
        let next = fabric.devices().map(|(ix, _)| {
            let around = fabric
                .neighbours(ix)
                .map(|(port, far, _)| (port, far.port, looks[far.device.0 as usize]));
            digest(&(looks[ix.0 as usize], around.collect::<Vec<_>>()))
        });
        looks = next.collect();
    }
    looks
}

/// Deterministic, because this hasher starts with fixed keys.
fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
