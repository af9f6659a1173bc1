//! Assigns the BMCs that answered to machines: a new machine, a known node, a node at another address, or a conflict
//! between two machines with one identity. The result depends only on the arguments, not on their order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::identity::{Evidence, Relation, plausible_mac, plausible_serial, plausible_uuid};

/// Maximum number of different evidence with one key that is compared. Beyond it all are in conflict.
const DIFFERENT_MAX: usize = 64;
/// Maximum number of addresses that may share a service UUID. Beyond it, the UUID is a default of the manufacturer.
const SERVICES_MAX: usize = 4;
/// Maximum number of addresses or nodes that a sentence names.
const NAMED: usize = 5;

/// A BMC that answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The address, such as `https://10.0.0.5`.
    pub address: String,
    /// UUID of its Redfish service. Empty here and below: unknown.
    pub service_uuid: String,
    /// UUID of the system.
    pub uuid: String,
    /// Manufacturer of the system.
    pub manufacturer: String,
    /// Serial number of the system.
    pub serial: String,
    /// MAC addresses of the system.
    pub macs: Vec<String>,
}

/// An enrolled node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownNode {
    /// The node's name.
    pub id: String,
    /// The address of the node's BMC, in the same form as [`Seen::address`].
    pub address: String,
    /// UUID of the system at the last reading. Empty: not read.
    pub uuid: String,
    /// Manufacturer of the system.
    pub manufacturer: String,
    /// Serial number of the system.
    pub serial: String,
    /// MAC addresses of the system.
    pub macs: Vec<String>,
}

/// The result for a BMC that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// The machine is not a node yet.
    New,
    /// The BMC belongs to a node.
    Known { node: String },
    /// The BMC belongs to a node, and the known address of this node does not answer.
    Moved {
        node: String,
        /// The known address of the node.
        from: String,
    },
    /// The BMC belongs to the same machine as an earlier entry.
    SameAs {
        /// Index of that entry in the list, from 0.
        first: usize,
    },
    /// The machine cannot be identified.
    Conflict {
        /// The reason, a sentence without a full stop.
        why: String,
    },
}

fn evidence(uuid: &str, maker: &str, serial: &str, macs: &[String], service: &str) -> Evidence {
    Evidence {
        uuid: plausible_uuid(uuid),
        serial: plausible_serial(serial),
        maker: maker.trim().to_lowercase(),
        macs: macs.iter().filter_map(|mac| plausible_mac(mac)).collect(),
        service: plausible_uuid(service),
    }
}

/// All entries, grouped by machine.
struct Groups {
    /// By group: the indices of its members in the list, in order.
    members: Vec<Vec<usize>>,
    /// By group: all different evidence.
    evidence: Vec<BTreeSet<Evidence>>,
    /// By group: the reason for a conflict.
    conflict: Vec<Option<String>>,
}

/// Judges each entry. `answering` has addresses of known nodes where a Redfish service is known to answer. The
/// addresses in `seen` answer by definition. The results are in the order of `seen`.
#[must_use]
pub fn judge(seen: &[Seen], known: &[KnownNode], answering: &HashSet<String>) -> Vec<Judgement> {
    let groups = group(seen);
    let nodes = Nodes::new(known);
    let live: HashSet<&str> = seen.iter().map(|one| one.address.as_str()).collect();
    let is_live = |address: &str| live.contains(address) || answering.contains(address);
    let mut judged: BTreeMap<usize, Judgement> = BTreeMap::new();
    for (index, members) in groups.members.iter().enumerate() {
        let Some(first) = members.first().copied() else {
            continue;
        };
        let addresses: BTreeSet<&str> = members.iter().map(|at| seen[*at].address.as_str()).collect();
        let judgement = match &groups.conflict[index] {
            Some(why) => Judgement::Conflict { why: why.clone() },
            None => nodes.judge(&groups.evidence[index], &addresses, &is_live),
        };
        let is_conflict = matches!(judgement, Judgement::Conflict { .. });
        for other in members.iter().skip(1) {
            let of_other = match is_conflict {
                true => judgement.clone(),
                false => Judgement::SameAs { first },
            };
            judged.insert(*other, of_other);
        }
        judged.insert(first, judgement);
    }
    judged.into_values().collect()
}

/// Groups the entries by machine.
fn group(seen: &[Seen]) -> Groups {
    let mut services: HashMap<String, usize> = HashMap::new();
    for service in seen.iter().filter_map(|one| plausible_uuid(&one.service_uuid)) {
        *services.entry(service).or_default() += 1;
    }
    let mut classes: BTreeMap<Evidence, Vec<usize>> = BTreeMap::new();
    let mut alone = Vec::new();
    for (place, one) in seen.iter().enumerate() {
        let mut found = evidence(&one.uuid, &one.manufacturer, &one.serial, &one.macs, &one.service_uuid);
        let is_makers = |service: &String| services.get(service).is_some_and(|count| *count > SERVICES_MAX);
        found.service = found.service.filter(|service| !is_makers(service));
        match found.is_empty() {
            true => alone.push(place),
            false => classes.entry(found).or_default().push(place),
        }
    }
    let classes: Vec<(Evidence, Vec<usize>)> = classes.into_iter().collect();
    let mut union = Union::new(classes.len());
    let mut clashes: BTreeMap<usize, String> = BTreeMap::new();
    let mut buckets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (class, (found, _)) in classes.iter().enumerate() {
        for key in found.keys() {
            buckets.entry(key).or_default().push(class);
        }
    }
    let compared = Compared {
        seen,
        classes: &classes,
    };
    for (key, bucket) in &buckets {
        compared.compare(key, bucket, &mut union, &mut clashes);
    }
    let mut groups = compared.gather(&mut union, &clashes);
    for place in alone {
        groups.members.push(vec![place]);
        groups.evidence.push(BTreeSet::new());
        groups.conflict.push(None);
    }
    groups
}

struct Compared<'a> {
    seen: &'a [Seen],
    classes: &'a [(Evidence, Vec<usize>)],
}

impl Compared<'_> {
    fn addresses(&self, classes: &[usize]) -> String {
        let places = classes.iter().flat_map(|class| &self.classes[*class].1);
        let addresses: BTreeSet<&str> = places.map(|place| self.seen[*place].address.as_str()).collect();
        named(addresses.into_iter())
    }

    fn compare(&self, key: &str, bucket: &[usize], union: &mut Union, clashes: &mut BTreeMap<usize, String>) {
        if bucket.len() > DIFFERENT_MAX {
            // No one of them can be proven right, and comparing all pairs would take too long.
            let why = format!(
                "{} different machines have {}: {}",
                bucket.len(),
                worded(key),
                self.addresses(bucket)
            );
            bucket.iter().for_each(|class| note(clashes, *class, &why));
            return;
        }
        for (at, a) in bucket.iter().enumerate() {
            for b in &bucket[at + 1..] {
                match self.classes[*a].0.relation(&self.classes[*b].0) {
                    Relation::Same => union.join(*a, *b),
                    Relation::Different => {}
                    Relation::Clash => {
                        let why = format!(
                            "{} have {}, but are two machines: serial number or MAC addresses differ",
                            self.addresses(&[*a, *b]),
                            worded(key)
                        );
                        note(clashes, *a, &why);
                        note(clashes, *b, &why);
                    }
                }
            }
        }
    }

    fn gather(&self, union: &mut Union, clashes: &BTreeMap<usize, String>) -> Groups {
        let mut by_root: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for class in 0..self.classes.len() {
            by_root.entry(union.root(class)).or_default().push(class);
        }
        let mut groups = Groups {
            members: Vec::new(),
            evidence: Vec::new(),
            conflict: Vec::new(),
        };
        for classes in by_root.values() {
            let mut members: Vec<usize> = classes
                .iter()
                .flat_map(|class| self.classes[*class].1.clone())
                .collect();
            members.sort_unstable();
            let evidence: BTreeSet<Evidence> = classes.iter().map(|class| self.classes[*class].0.clone()).collect();
            let uuids: BTreeSet<&String> = evidence.iter().filter_map(|one| one.uuid.as_ref()).collect();
            let torn = (uuids.len() > 1).then(|| {
                let addresses = self.addresses(classes);
                format!("{addresses} share MAC addresses or serial numbers, but have different UUIDs")
            });
            let clash = classes.iter().filter_map(|class| clashes.get(class)).min().cloned();
            groups.members.push(members);
            groups.conflict.push(clash.or(torn));
            groups.evidence.push(evidence);
        }
        groups
    }
}

/// Keeps the alphabetically first reason, so that the order of comparisons has no effect.
fn note(clashes: &mut BTreeMap<usize, String>, class: usize, why: &str) {
    let kept = clashes.entry(class).or_insert_with(|| why.to_owned());
    if why < kept.as_str() {
        why.clone_into(kept);
    }
}

fn worded(key: &str) -> String {
    let (kind, value) = key.split_once(' ').unwrap_or(("", key));
    let kind = match kind {
        "u" => "the UUID",
        "s" => "the serial number",
        "r" => "the service's UUID",
        _ => "the MAC address",
    };
    format!("{kind} {value}")
}

fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Nodes, with lookup by evidence and by address.
struct Nodes<'a> {
    nodes: &'a [KnownNode],
    evidence: Vec<Evidence>,
    by_key: HashMap<String, Vec<usize>>,
    by_address: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Nodes<'a> {
    fn new(nodes: &'a [KnownNode]) -> Self {
        let of = |node: &KnownNode| evidence(&node.uuid, &node.manufacturer, &node.serial, &node.macs, "");
        let evidence: Vec<Evidence> = nodes.iter().map(of).collect();
        let (mut by_key, mut by_address) = (HashMap::<String, Vec<usize>>::new(), HashMap::<&str, Vec<usize>>::new());
        for (index, node) in nodes.iter().enumerate() {
            for key in evidence[index].keys() {
                by_key.entry(key).or_default().push(index);
            }
            by_address.entry(node.address.as_str()).or_default().push(index);
        }
        Self {
            nodes,
            evidence,
            by_key,
            by_address,
        }
    }

    fn id(&self, index: usize) -> &str {
        &self.nodes[index].id
    }

    /// Judges a machine by its evidence and addresses.
    fn judge(
        &self,
        found: &BTreeSet<Evidence>,
        addresses: &BTreeSet<&str>,
        is_live: &impl Fn(&str) -> bool,
    ) -> Judgement {
        let (same, clashing) = self.relatives(found, addresses);
        let here: BTreeSet<usize> = addresses
            .iter()
            .filter_map(|at| self.by_address.get(at))
            .flatten()
            .copied()
            .collect();
        let ids = |some: &BTreeSet<usize>| named(some.iter().map(|index| self.id(*index)));
        if !clashing.is_empty() {
            let why = format!(
                "the machine identifies itself as node {}, but has the serial number or MAC addresses of another \
                 machine",
                ids(&clashing)
            );
            return Judgement::Conflict { why };
        }
        // Picks the node with the smallest name, so that the order of nodes has no effect.
        let by_name = |some: &BTreeSet<usize>| some.iter().copied().min_by_key(|index| self.id(*index));
        let Some(node) = by_name(&same) else {
            return self.by_place(found, &here, by_name(&here));
        };
        if same.len() > 1 {
            let why = format!("nodes {} are all this machine: delete all but one of them", ids(&same));
            return Judgement::Conflict { why };
        }
        let known = &self.nodes[node];
        if here.is_empty() && !is_live(&known.address) {
            return Judgement::Moved {
                node: known.id.clone(),
                from: known.address.clone(),
            };
        }
        if !here.is_empty() && !here.contains(&node) {
            let why = format!(
                "node {} is known by this address, but the machine is node {}",
                ids(&here),
                known.id
            );
            return Judgement::Conflict { why };
        }
        Judgement::Known { node: known.id.clone() }
    }

    /// The nodes that are this machine, and the nodes with an identity that contradicts it.
    fn relatives(&self, found: &BTreeSet<Evidence>, addresses: &BTreeSet<&str>) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut same, mut clashing) = (BTreeSet::new(), BTreeSet::new());
        for one in found {
            let keys = one.keys();
            let candidates = keys.iter().filter_map(|key| self.by_key.get(key)).flatten();
            for index in candidates.copied().collect::<BTreeSet<usize>>() {
                let is_here = addresses.contains(self.nodes[index].address.as_str());
                let relation = match is_here {
                    true => one.relation_in_place(&self.evidence[index]),
                    false => one.relation(&self.evidence[index]),
                };
                match relation {
                    Relation::Same => same.insert(index),
                    Relation::Clash => clashing.insert(index),
                    Relation::Different => false,
                };
            }
        }
        (same, clashing)
    }

    /// Judges a machine without matching evidence at the address of the nodes `here`.
    fn by_place(&self, found: &BTreeSet<Evidence>, here: &BTreeSet<usize>, first: Option<usize>) -> Judgement {
        let Some(first) = first else { return Judgement::New };
        let says = found.iter().any(|one| one.uuid.is_some());
        let is_told = |index: &usize| self.evidence[*index].uuid.is_some();
        if says && here.iter().all(is_told) {
            let why = format!(
                "node {} is known by this address, but another machine answers there now",
                self.id(first)
            );
            return Judgement::Conflict { why };
        }
        Judgement::Known {
            node: self.id(first).to_owned(),
        }
    }
}

/// Disjoint sets (union-find).
struct Union(Vec<usize>);

impl Union {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn root(&mut self, mut of: usize) -> usize {
        while self.0[of] != of {
            self.0[of] = self.0[self.0[of]];
            of = self.0[of];
        }
        of
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}
