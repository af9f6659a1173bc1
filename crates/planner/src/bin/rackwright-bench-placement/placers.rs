//! The placers in the trace: Rackwright's, one that only counts nodes, and one that gives whole units.

use std::collections::BTreeMap;

use rackwright_placement::{ClusterId, Hall, UnitId, find};

use crate::hall::{WIDTH, plain};

/// Search steps per request in the trace, where most requests are repeated: nearly guesses alone.
const QUICK: u64 = 200;

/// A policy that places clusters.
pub trait Placer {
    /// The policy's name in the results.
    fn name(&self) -> &'static str;
    /// Places a whole cluster or nothing.
    fn place(&mut self, cluster: u64, nodes: u32) -> bool;
    /// Ends a cluster.
    fn end(&mut self, cluster: u64);
    /// A copy for experiments.
    fn copy(&self) -> Box<dyn Placer>;
    /// The units of a cluster.
    fn units(&self, cluster: u64) -> Vec<u32>;
    /// Whether a cluster spans several units, and whether its traffic may need a link that another cluster needs.
    fn exposed(&self, cluster: u64) -> (bool, bool);
}

/// Rackwright's placement.
#[derive(Clone)]
pub struct HallPlacer(pub Hall);

impl Placer for HallPlacer {
    fn name(&self) -> &'static str {
        "rackwright"
    }

    fn place(&mut self, cluster: u64, nodes: u32) -> bool {
        let request = plain(cluster, nodes);
        find(&self.0, &request, QUICK).is_some_and(|p| self.0.take(&p).is_ok())
    }

    fn end(&mut self, cluster: u64) {
        self.0.free(ClusterId(cluster));
    }

    fn copy(&self) -> Box<dyn Placer> {
        Box::new(self.clone())
    }

    fn units(&self, cluster: u64) -> Vec<u32> {
        let placement = self.0.clusters().get(&ClusterId(cluster));
        placement.map_or_else(Vec::new, |p| p.units.iter().map(|u| u.unit.0).collect())
    }

    fn exposed(&self, cluster: u64) -> (bool, bool) {
        let hall = &self.0;
        let placement = hall.clusters().get(&ClusterId(cluster));
        placement.map_or((false, false), |p| {
            let sound = hall.check_rule(p).is_ok();
            (p.units.len() > 1, !sound)
        })
    }
}

/// Counts nodes. With `whole`, a cluster larger than a unit gets whole units only. Otherwise it chooses the fullest
/// sufficient unit or pod, like Slurm's topology/tree, and ignores links.
#[derive(Clone)]
pub struct CountingPlacer {
    free: Vec<u32>,
    whole: bool,
    clusters: BTreeMap<u64, Vec<(u32, u32)>>,
}

impl CountingPlacer {
    /// An empty hall with this number of pods.
    pub fn new(pods: u32, whole: bool) -> Self {
        Self {
            free: vec![WIDTH; (pods * WIDTH) as usize],
            whole,
            clusters: BTreeMap::new(),
        }
    }

    fn pods(&self) -> Vec<std::ops::Range<usize>> {
        let width = WIDTH as usize;
        (0..self.free.len() / width)
            .map(|p| p * width..(p + 1) * width)
            .collect()
    }

    /// Units of the range with the nodes taken from each: the emptiest first, and the rest from the fullest sufficient
    /// one.
    fn from(&self, range: std::ops::Range<usize>, nodes: u32) -> Option<Vec<(u32, u32)>> {
        let usable = |&u: &usize| self.free[u] > 0 && (!self.whole || self.free[u] == WIDTH);
        let mut units: Vec<usize> = range.filter(usable).collect();
        units.sort_by_key(|&u| std::cmp::Reverse(self.free[u]));
        let (mut left, mut out) = (nodes, Vec::new());
        while left > 0 {
            let fits = units.iter().rposition(|&u| self.free[u] >= left);
            let unit = units.remove(fits.unwrap_or(0).min(units.len().checked_sub(1)?));
            let taken = left.min(self.free[unit]);
            left -= taken;
            out.push((unit as u32, if self.whole { WIDTH } else { taken }));
        }
        Some(out)
    }

    fn choose(&self, nodes: u32) -> Option<Vec<(u32, u32)>> {
        let one = (0..self.free.len())
            .filter(|&u| self.free[u] >= nodes)
            .min_by_key(|&u| self.free[u]);
        if let Some(unit) = one {
            return Some(vec![(unit as u32, nodes)]);
        }
        let room = |p: &std::ops::Range<usize>| self.free[p.clone()].iter().sum::<u32>();
        let mut pods = self.pods();
        pods.sort_by_key(room);
        let in_pod = pods.into_iter().find_map(|p| self.from(p, nodes));
        in_pod.or_else(|| self.from(0..self.free.len(), nodes))
    }
}

/// The shape of "Links as a Service" and Jigsaw on counts alone: all units equal except one smaller unit, and the same
/// for pods.
fn even(units: &[(u32, u32)]) -> bool {
    let alike_but_one = |counts: &[u32]| {
        let most = counts.iter().max().copied().unwrap_or(0);
        counts.iter().filter(|&&c| c < most).count() < 2
    };
    let mut pods: BTreeMap<u32, u32> = BTreeMap::new();
    for (unit, _) in units {
        *pods.entry(unit / WIDTH).or_default() += 1;
    }
    let counts: Vec<_> = units.iter().map(|u| u.1).collect();
    alike_but_one(&counts) && alike_but_one(&pods.into_values().collect::<Vec<_>>())
}

impl Placer for CountingPlacer {
    fn name(&self) -> &'static str {
        if self.whole {
            "whole units only"
        } else {
            "unconstrained"
        }
    }

    fn place(&mut self, cluster: u64, nodes: u32) -> bool {
        let Some(units) = self.choose(nodes) else {
            return false;
        };
        for &(unit, taken) in &units {
            self.free[UnitId(unit).at()] -= taken;
        }
        self.clusters.insert(cluster, units);
        true
    }

    fn end(&mut self, cluster: u64) {
        for (unit, taken) in self.clusters.remove(&cluster).unwrap_or_default() {
            self.free[unit as usize] += taken;
        }
    }

    fn copy(&self) -> Box<dyn Placer> {
        Box::new(self.clone())
    }

    fn units(&self, cluster: u64) -> Vec<u32> {
        let units = self.clusters.get(&cluster);
        units.map_or_else(Vec::new, |u| u.iter().map(|u| u.0).collect())
    }

    fn exposed(&self, cluster: u64) -> (bool, bool) {
        let units = self.clusters.get(&cluster);
        units.map_or((false, false), |units| (units.len() > 1, !even(units)))
    }
}
