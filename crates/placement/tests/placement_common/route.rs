//! Decides whether a cluster's own links can route its streams, from the definitions and without the rule.

use std::collections::BTreeSet;

use rackwright_placement::*;

use super::Dice;

/// A cluster's own links, as counts.
pub struct Own {
    /// Pod and number of hosts of each unit.
    units: Vec<(usize, usize)>,
    /// Number of links of unit u to spine s, each direction.
    up: Vec<Vec<u32>>,
    /// Number of links of pod p at spine s to core c, each direction.
    cores: Vec<Vec<Vec<u32>>>,
}

impl Own {
    pub fn of(wirings: Wirings, units: &[UnitShare], cores: &[SpineShare]) -> Self {
        let mut pods: Vec<_> = units.iter().map(|u| u.pod).collect();
        pods.sort();
        pods.dedup();
        let index = |pod: PodId| pods.iter().position(|&p| p == pod).unwrap();
        let (spines, core) = (wirings.spines, wirings.cores);
        let counts = |mask: Mask| (0..spines.peers).map(|s| spines.count(mask, s)).collect();
        let mut above = vec![vec![vec![0; core.peers as usize]; spines.peers as usize]; pods.len()];
        for share in cores.iter().filter(|s| pods.contains(&s.pod)) {
            for c in 0..core.peers {
                above[index(share.pod)][share.spine as usize][c as usize] = core.count(share.links, c);
            }
        }
        Self {
            units: units
                .iter()
                .map(|u| (index(u.pod), u.hosts.count_ones() as usize))
                .collect(),
            up: units.iter().map(|u| counts(u.links)).collect(),
            cores: above,
        }
    }

    pub fn connected(&self) -> bool {
        let pairs = (0..self.units.len()).flat_map(|a| (a + 1..self.units.len()).map(move |b| (a, b)));
        pairs
            .into_iter()
            .all(|(a, b)| Router::new(self).route(&[(a, b), (b, a)]))
    }

    /// A pattern between units, with one destination for each host, that cannot be routed.
    pub fn unroutable(&self) -> Option<Vec<usize>> {
        let hosts: Vec<usize> = self
            .units
            .iter()
            .enumerate()
            .flat_map(|(u, &(_, h))| vec![u; h])
            .collect();
        let mut tried = BTreeSet::new();
        let mut bad = None;
        let mut judge = |to: &[usize]| {
            let mut flows: Vec<_> = hosts
                .iter()
                .copied()
                .zip(to.iter().copied())
                .filter(|f| f.0 != f.1)
                .collect();
            flows.sort();
            if bad.is_none() && tried.insert(flows.clone()) && !Router::new(self).route(&flows) {
                bad = Some(to.to_vec());
            }
        };
        if hosts.len() <= 7 {
            let mut to = hosts.clone();
            permutations(&mut to, 0, &mut judge);
        } else {
            let mut dice = Dice::new(hosts.len() as u64);
            for _ in 0..60 {
                let mut to = hosts.clone();
                for i in (1..to.len()).rev() {
                    to.swap(i, dice.roll(0, i as u64) as usize);
                }
                judge(&to);
            }
            for by in 1..hosts.len() {
                let mut to = hosts.clone();
                to.rotate_left(by);
                judge(&to);
            }
        }
        bad
    }
}

/// Every distinct permutation of `to`.
fn permutations(to: &mut Vec<usize>, at: usize, judge: &mut impl FnMut(&[usize])) {
    if at == to.len() {
        return judge(to);
    }
    let mut seen = BTreeSet::new();
    for i in at..to.len() {
        if seen.insert(to[i]) {
            to.swap(at, i);
            permutations(to, at + 1, judge);
            to.swap(at, i);
        }
    }
}

/// Finds a route for every stream, or proves that there is none.
///
/// The stream with the fewest options goes first. Even so, an unlucky order can take hours although a route exists. So
/// the search restarts with another order after a while, each time later.
struct Router<'a> {
    own: &'a Own,
    up: Vec<Vec<u32>>,
    down: Vec<Vec<u32>>,
    core_up: Vec<Vec<Vec<u32>>>,
    core_down: Vec<Vec<Vec<u32>>>,
    dice: Dice,
    steps: u64,
}

/// Maximum number of steps. A placement without a proof within them is a fault.
const MOST_STEPS: u64 = 1_000_000;

impl<'a> Router<'a> {
    fn new(own: &'a Own) -> Self {
        Self {
            up: own.up.clone(),
            down: own.up.clone(),
            core_up: own.cores.clone(),
            core_down: own.cores.clone(),
            own,
            dice: Dice::new(1),
            steps: 0,
        }
    }

    fn route(&mut self, flows: &[(usize, usize)]) -> bool {
        if self.coloured(flows) {
            return true;
        }
        let (mut most, mut all) = (1_000, 0);
        while all < MOST_STEPS {
            let mut fresh = Self::new(self.own);
            fresh.dice = Dice::new(self.dice.next());
            fresh.steps = most;
            if let Some(found) = fresh.ways(&mut flows.to_vec()) {
                return found;
            }
            all += most;
            most *= 2;
        }
        false
    }

    /// Whether colouring finds routes for all streams: first spines, then cores for each spine. It does for every shape
    /// that keeps the rule. A failure proves nothing.
    fn coloured(&self, flows: &[(usize, usize)]) -> bool {
        let mut demand = vec![vec![0; self.up.len()]; self.up.len()];
        flows.iter().for_each(|&(from, to)| demand[from][to] += 1);
        let spines = self.up.first().map_or(0, Vec::len);
        let links = |s: usize| self.up.iter().map(|of_unit| of_unit[s]).collect::<Vec<u32>>();
        let Some(ways) = colour(demand, &(0..spines).map(links).collect::<Vec<_>>()) else {
            return false;
        };
        (0..spines).all(|s| {
            let pods = self.core_up.len();
            let mut demand = vec![vec![0; pods]; pods];
            for &(_, from, to) in ways.iter().filter(|w| w.0 == s) {
                let (p, q) = (self.own.units[from].0, self.own.units[to].0);
                demand[p][q] += u32::from(p != q);
            }
            let cores = self.core_up.iter().map(|of_pod| of_pod[s].len()).max().unwrap_or(0);
            let links = |c: usize| self.core_up.iter().map(|of_pod| of_pod[s][c]).collect::<Vec<u32>>();
            colour(demand, &(0..cores).map(links).collect::<Vec<_>>()).is_some()
        })
    }

    /// The spine and core of each route that a stream can take now. Within a pod the core is irrelevant.
    fn options(&self, (from, to): (usize, usize)) -> Vec<(usize, Option<usize>)> {
        let (p, q) = (self.own.units[from].0, self.own.units[to].0);
        let spines = (0..self.up[from].len()).filter(|&s| self.up[from][s] > 0 && self.down[to][s] > 0);
        if p == q {
            return spines.map(|s| (s, None)).collect();
        }
        let cores = |s: usize| {
            let free = move |c: &usize| self.core_up[p][s][*c] > 0 && self.core_down[q][s][*c] > 0;
            (0..self.core_up[p][s].len()).filter(free).map(move |c| (s, Some(c)))
        };
        spines.flat_map(cores).collect()
    }

    /// `None`: no steps are left.
    fn ways(&mut self, flows: &mut Vec<(usize, usize)>) -> Option<bool> {
        self.steps = self.steps.checked_sub(1)?;
        let counted = flows.iter().enumerate().map(|(i, &flow)| (self.options(flow).len(), i));
        let Some((options, at)) = counted.min() else {
            return Some(true);
        };
        if options == 0 {
            return Some(false);
        }
        let (from, to) = flows.swap_remove(at);
        let mut options = self.options((from, to));
        for i in (1..options.len()).rev() {
            options.swap(i, self.dice.roll(0, i as u64) as usize);
        }
        for (spine, core) in options {
            self.take((from, to), spine, core, u32::wrapping_sub);
            let found = self.ways(flows);
            self.take((from, to), spine, core, u32::wrapping_add);
            if found != Some(false) {
                return found;
            }
        }
        flows.push((from, to));
        let last = flows.len() - 1;
        flows.swap(at, last);
        Some(false)
    }

    fn take(&mut self, (from, to): (usize, usize), spine: usize, core: Option<usize>, with: fn(u32, u32) -> u32) {
        let (p, q) = (self.own.units[from].0, self.own.units[to].0);
        let change = |count: &mut u32| *count = with(*count, 1);
        change(&mut self.up[from][spine]);
        change(&mut self.down[to][spine]);
        if let Some(core) = core {
            change(&mut self.core_up[p][spine][core]);
            change(&mut self.core_down[q][spine][core]);
        }
    }
}

/// A link, source and destination for each unit of demand, if every place has these links in each direction. Uses
/// matchings that leave no place with more streams than links (König). Links that all places have come first.
fn colour(mut demand: Vec<Vec<u32>>, links: &[Vec<u32>]) -> Option<Vec<(usize, usize, usize)>> {
    let places = demand.len();
    let most = links.iter().flatten().copied().max().unwrap_or(0);
    let copies = (0..links.len()).flat_map(|way| (0..most).map(move |copy| (way, copy)));
    let mut ways: Vec<(usize, Vec<bool>)> = copies
        .map(|(way, copy)| (way, links[way].iter().map(|&n| n > copy).collect()))
        .collect();
    ways.sort_by_key(|(_, has)| has.iter().filter(|h| !**h).count());
    let mut out = Vec::new();
    for at in 0..ways.len() {
        let left = |v: usize| ways[at..].iter().filter(|w| w.1[v]).count() as u32;
        let sent: Vec<u32> = demand.iter().map(|row| row.iter().sum()).collect();
        let got: Vec<u32> = (0..places).map(|v| demand.iter().map(|row| row[v]).sum()).collect();
        let (way, has) = &ways[at];
        let urgent = |count: &[u32]| {
            (0..places)
                .map(|v| has[v] && count[v] >= left(v))
                .collect::<Vec<bool>>()
        };
        let edges: Vec<Vec<bool>> = (0..places)
            .map(|u| (0..places).map(|v| demand[u][v] > 0 && has[u] && has[v]).collect())
            .collect();
        for (from, to) in matching(&edges, &urgent(&sent), &urgent(&got)) {
            demand[from][to] -= 1;
            out.push((*way, from, to));
        }
    }
    demand.iter().flatten().all(|&d| d == 0).then_some(out)
}

/// A matching with all urgent rows and columns if possible, and as many other pairs as fit.
fn matching(edges: &[Vec<bool>], rows: &[bool], columns: &[bool]) -> Vec<(usize, usize)> {
    let n = edges.len();
    let mut row_of: Vec<Option<usize>> = vec![None; n];
    let order = (0..n).filter(|&r| rows[r]).collect::<Vec<_>>();
    for row in order {
        place_row(edges, row, &mut row_of, &mut vec![false; n]);
    }
    for column in (0..n).filter(|&c| columns[c]) {
        if row_of[column].is_none() {
            place_column(edges, column, columns, &mut row_of, &mut vec![false; n]);
        }
    }
    for row in (0..n).filter(|&r| !rows[r]) {
        if !row_of.contains(&Some(row)) {
            place_row(edges, row, &mut row_of, &mut vec![false; n]);
        }
    }
    let pairs = row_of.into_iter().enumerate();
    pairs.filter_map(|(column, row)| row.map(|row| (row, column))).collect()
}

fn place_row(edges: &[Vec<bool>], row: usize, row_of: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    for column in 0..edges.len() {
        if edges[row][column] && !std::mem::replace(&mut seen[column], true) {
            let free = row_of[column].is_none_or(|other| place_row(edges, other, row_of, seen));
            if free {
                row_of[column] = Some(row);
                return true;
            }
        }
    }
    false
}

/// A row for an urgent column: a free row, the row of a column that is not urgent, or the row of a column that finds
/// another row.
fn place_column(
    edges: &[Vec<bool>],
    column: usize,
    urgent: &[bool],
    row_of: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for row in 0..edges.len() {
        if !edges[row][column] || std::mem::replace(&mut seen[row], true) {
            continue;
        }
        let held = row_of.iter().position(|&r| r == Some(row));
        let gives = held.is_none_or(|other| !urgent[other] || place_column(edges, other, urgent, row_of, seen));
        if gives {
            if let Some(other) = held.filter(|&other| row_of[other] == Some(row)) {
                row_of[other] = None;
            }
            row_of[column] = Some(row);
            return true;
        }
    }
    false
}
