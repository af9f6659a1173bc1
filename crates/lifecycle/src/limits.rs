//! How many effects may be under way at once on a shared resource: a circuit, a rack, the site and its uplinks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::ids::NodeId;
use crate::time::seconds;

/// The bounds of one site. An absent bound means unbounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Machines that are switched on at once: the inrush of a start is the highest load.
    pub power_on: PowerOnLimits,
    /// Machines that fetch an image at once.
    pub image: ImageLimits,
}

/// Machines that are switched on at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PowerOnLimits {
    /// On one circuit.
    pub per_circuit: Option<u32>,
    /// In one rack.
    pub per_rack: Option<u32>,
    /// At the whole site.
    pub at_once: Option<u32>,
    /// Seconds for which a machine still counts after it was seen on: until the inrush and the peak of its start are over.
    pub settle_s: u32,
}

impl Default for PowerOnLimits {
    fn default() -> Self {
        Self {
            per_circuit: None,
            per_rack: None,
            at_once: None,
            settle_s: 10,
        }
    }
}

/// Machines that fetch an image at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageLimits {
    /// At the whole site.
    pub at_once: Option<u32>,
    /// In one rack.
    pub per_rack: Option<u32>,
    /// Capacity of the image servers and their uplinks, in 10^6 bytes a second.
    pub bandwidth_mb_s: Option<u32>,
    /// Share of one machine while it writes, in 10^6 bytes a second.
    pub per_node_mb_s: Option<u32>,
}

impl ImageLimits {
    /// Machines at once at the whole site: the given bound or the bound by bandwidth, whichever is less.
    #[must_use]
    pub fn site(&self) -> Option<u32> {
        let by_bandwidth = match (self.bandwidth_mb_s, self.per_node_mb_s) {
            // A link slower than one machine still carries one machine.
            (Some(all), Some(one)) => Some((all / one.max(1)).max(1)),
            _ => None,
        };
        [self.at_once, by_bandwidth].into_iter().flatten().min()
    }
}

/// The bounded activities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Switching on.
    PowerOn,
    /// Fetching and writing an image.
    Image,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[Self::PowerOn, Self::Image];

    /// The kind that `effect` counts as; none: unbounded.
    #[must_use]
    pub fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::PowerOn => Some(Self::PowerOn),
            Effect::WriteImage => Some(Self::Image),
            _ => None,
        }
    }

    /// The name as stored and counted.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PowerOn => "power-on",
            Self::Image => "image",
        }
    }
}

/// A shared resource with room for a number of machines at once.
///
/// The order of this type is the locking order: a node takes its resources in this order, the narrow before the wide, and a
/// caller that changes several locks them in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// The bounded activity.
    pub kind: Kind,
    /// The machines that share it.
    pub scope: Scope,
}

/// A set of machines that share something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// One machine alone, while an alarm about its power or cooling keeps it from starting.
    Alarm(NodeId),
    /// The machines on one circuit.
    Circuit(String),
    /// The machines on one vertex of the site's power tree.
    Power(String),
    /// The machines in one rack.
    Rack(String),
    /// All machines.
    Site,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alarm(name) => write!(f, "alarm {name}"),
            Self::Circuit(name) => write!(f, "circuit {name}"),
            Self::Power(name) => write!(f, "power {name}"),
            Self::Rack(name) => write!(f, "rack {name}"),
            Self::Site => f.write_str("site"),
        }
    }
}

/// The stored form: kind and scope.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.scope)
    }
}

impl Resource {
    /// Parses the stored form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, scope) = text.split_once(' ')?;
        let kind = Kind::ALL.iter().copied().find(|k| k.as_str() == kind)?;
        let scope = match scope.split_once(' ') {
            Some(("alarm", name)) => Scope::Alarm(NodeId::stored(name)),
            Some(("power", name)) => Scope::Power(name.to_owned()),
            Some(("circuit", name)) => Scope::Circuit(name.to_owned()),
            Some(("rack", name)) => Scope::Rack(name.to_owned()),
            None if scope == "site" => Scope::Site,
            _ => return None,
        };
        Some(Self { kind, scope })
    }
}

/// One resource that an effect needs, and its bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub resource: Resource,
    /// The number of permits.
    pub room: u32,
    /// The permit stays taken for this long after the effect ended, in microseconds.
    pub settle_us: i64,
}

/// The node's circuit and rack, by its labels `circuit` and `rack`, where it has them.
fn place(labels: &BTreeMap<String, String>) -> (Option<Scope>, Option<Scope>) {
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty()).cloned();
    (label("circuit").map(Scope::Circuit), label("rack").map(Scope::Rack))
}

impl Limits {
    /// True where nothing is bounded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let PowerOnLimits {
            per_circuit,
            per_rack,
            at_once,
            ..
        } = self.power_on;
        [per_circuit, per_rack, at_once, self.image.per_rack, self.image.site()]
            .iter()
            .all(Option::is_none)
    }

    /// The resources that `effect` needs on a node with these labels, in locking order. A node without a known circuit is
    /// bounded by its rack and the site alone, and so on.
    #[must_use]
    pub fn needs(&self, effect: Effect, labels: &BTreeMap<String, String>) -> Vec<Need> {
        let Some(kind) = Kind::of(effect) else {
            return Vec::new();
        };
        let (circuit, rack) = place(labels);
        let (rooms, settle_us) = match kind {
            Kind::PowerOn => {
                let limits = &self.power_on;
                let rooms = [limits.per_circuit, limits.per_rack, limits.at_once];
                (rooms, seconds(i64::from(limits.settle_s)))
            }
            Kind::Image => ([None, self.image.per_rack, self.image.site()], 0),
        };
        let scopes = [circuit, rack, Some(Scope::Site)];
        let bounded = scopes.into_iter().zip(rooms);
        let need = |(scope, room): (Option<Scope>, Option<u32>)| {
            Some(Need {
                resource: Resource { kind, scope: scope? },
                room: room?,
                settle_us,
            })
        };
        bounded.filter_map(need).collect()
    }

    /// The faults of these bounds, a line each, with the field's name.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let (power_on, image) = (&self.power_on, &self.image);
        let fields = [
            ("power_on.per_circuit", power_on.per_circuit),
            ("power_on.per_rack", power_on.per_rack),
            ("power_on.at_once", power_on.at_once),
            ("image.at_once", image.at_once),
            ("image.per_rack", image.per_rack),
            ("image.bandwidth_mb_s", image.bandwidth_mb_s),
            ("image.per_node_mb_s", image.per_node_mb_s),
        ];
        let zeros = fields.iter().filter(|(_, value)| *value == Some(0));
        let mut faults: Vec<_> = zeros
            .map(|(field, _)| format!("limits.{field}: must be at least 1; omit the field for no limit"))
            .collect();
        let pair = [
            ("image.bandwidth_mb_s", image.bandwidth_mb_s),
            ("image.per_node_mb_s", image.per_node_mb_s),
        ];
        for (given, missing) in [(0, 1), (1, 0)] {
            if pair[given].1.is_some() && pair[missing].1.is_none() {
                let (given, missing) = (pair[given].0, pair[missing].0);
                faults.push(format!("limits.{given}: has no effect without limits.{missing}"));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            power_on: PowerOnLimits {
                per_circuit: Some(4),
                per_rack: Some(16),
                at_once: Some(512),
                settle_s: 10,
            },
            image: ImageLimits {
                at_once: Some(100),
                per_rack: None,
                bandwidth_mb_s: Some(10_000),
                per_node_mb_s: Some(300),
            },
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn permit_texts(effect: Effect, pairs: &[(&str, &str)]) -> Vec<String> {
        let needs = limits().needs(effect, &labels(pairs));
        let text = |n: &Need| format!("{}: {} for {} s", n.resource, n.room, n.settle_us / 1_000_000);
        needs.iter().map(text).collect()
    }

    #[test]
    fn an_effect_needs_the_resources_of_its_node_the_narrow_first() {
        let place = [("rack", "r 1"), ("circuit", "c/7"), ("site", "x")];
        assert_eq!(
            permit_texts(Effect::PowerOn, &place),
            [
                "power-on circuit c/7: 4 for 10 s",
                "power-on rack r 1: 16 for 10 s",
                "power-on site: 512 for 10 s"
            ]
        );
        assert_eq!(
            permit_texts(Effect::PowerOn, &[("circuit", "")]),
            ["power-on site: 512 for 10 s"]
        );
        // 10,000 MB/s have room for 33 machines of 300 MB/s, which is less than 100.
        assert_eq!(permit_texts(Effect::WriteImage, &place), ["image site: 33 for 0 s"]);
        assert!(permit_texts(Effect::PowerOff, &place).is_empty());
        assert!(Limits::default().needs(Effect::PowerOn, &labels(&place)).is_empty());
        assert!(Limits::default().is_empty() && !limits().is_empty());
    }

    #[test]
    fn a_resource_is_read_back_and_the_narrow_one_comes_first() {
        let needs = limits().needs(Effect::PowerOn, &labels(&[("rack", "r 1"), ("circuit", "c/7")]));
        let resources: Vec<_> = needs.into_iter().map(|n| n.resource).collect();
        let mut resources = resources;
        let power = |scope| Resource {
            kind: Kind::PowerOn,
            scope,
        };
        resources.push(power(Scope::Power("pdu-a-r 1".into())));
        resources.push(power(Scope::Alarm("gpu-1".into())));
        resources.sort();
        for resource in &resources {
            assert_eq!(Resource::parse(&resource.to_string()).as_ref(), Some(resource));
        }
        assert!(resources.is_sorted());
        assert!(resources.iter().map(ToString::to_string).is_sorted());
        for text in [
            "",
            "site",
            "power-on",
            "power-off site",
            "power-on row 1",
            "power-on circuit",
        ] {
            assert_eq!(Resource::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_fault_is_reported_with_its_field() {
        let zero = Limits {
            power_on: PowerOnLimits {
                per_circuit: Some(0),
                ..PowerOnLimits::default()
            },
            image: ImageLimits {
                per_node_mb_s: Some(0),
                ..ImageLimits::default()
            },
        };
        assert_eq!(
            zero.faults(),
            [
                "limits.power_on.per_circuit: must be at least 1; omit the field for no limit",
                "limits.image.per_node_mb_s: must be at least 1; omit the field for no limit",
                "limits.image.per_node_mb_s: has no effect without limits.image.bandwidth_mb_s",
            ]
        );
        assert!(limits().faults().is_empty() && Limits::default().faults().is_empty());
        let mut narrow = limits();
        narrow.image.bandwidth_mb_s = Some(100);
        assert_eq!(narrow.image.site(), Some(1), "one machine has to get through");
    }
}
