//! The most nodes within budgets that racks share.
//!
//! An item is a number of nodes of one profile, and a row is a budget. The most nodes are the optimum of an integer
//! program. Its linear relaxation has prices: what a watt of each scarce budget is worth in nodes. The prices prove an
//! upper bound, and nodes that cost little of the scarce budgets are taken first. Branch and bound closes the gap.
//!
//! Items without a common row are independent parts. Nodes of items that use the same rows alike are one class.

use super::ledger::Row;
use super::simplex::relax;
use super::view::Effort;

/// Maximum number of classes times rows of a relaxation. A part with more is relaxed further: only its scarcest rows
/// count for the bound.
const CELLS: usize = 16_384;
/// Rounds of narrowing the items to what single rows allow.
const ROUNDS: usize = 4;
/// Parts of a node in which the bound is computed.
const UNIT: u128 = 1 << 40;

/// Nodes within all rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed {
    /// The number of nodes of each item.
    pub taken: Vec<u32>,
    /// The sum of `taken`.
    pub found: u32,
    /// A proven upper bound on the sum.
    pub bound: u32,
    /// Whether every row counts for the bound.
    pub whole: bool,
}

/// Packs items of at most `most` nodes each. Ends with `wanted` nodes, or with a bound below them; or with neither, if
/// the effort ran out.
pub(super) fn pack(mut most: Vec<u32>, mut rows: Vec<Row>, wanted: u32, effort: &mut Effort) -> Packed {
    narrow(&mut most, &mut rows);
    let (mut parts, alone) = parts(&most, rows);
    let mut taken = vec![0; most.len()];
    for item in alone {
        taken[item] = most[item];
    }
    let free: u32 = taken.iter().sum();
    let sum = |parts: &[Part], of: fn(&Part) -> u32| free + parts.iter().map(of).sum::<u32>();
    for part in &mut parts {
        part.start(effort);
    }
    for at in 0..parts.len() {
        loop {
            let (found, bound) = (sum(&parts, Part::found), sum(&parts, |part| part.bound));
            let part = &mut parts[at];
            if found >= wanted || bound < wanted || part.found() == part.bound {
                break;
            }
            let target = part.bound.min(part.found() + wanted - found);
            if part.improve(target, effort).is_none() {
                break;
            }
        }
    }
    let bound = sum(&parts, |part| part.bound);
    for part in &parts {
        for (&item, &nodes) in part.items.iter().zip(&part.taken) {
            taken[item] = nodes;
        }
    }
    Packed {
        found: taken.iter().sum(),
        taken,
        bound,
        whole: parts.iter().all(|part| part.relaxed_rows == part.rows.len()),
    }
}

/// Narrows each item to what every row allows for it alone, and removes rows that suffice.
fn narrow(most: &mut [u32], rows: &mut Vec<Row>) {
    for _ in 0..ROUNDS {
        let mut narrowed = false;
        for row in rows.iter() {
            for &(item, each) in &row.terms {
                let nodes = row.left.checked_div(each).unwrap_or(u64::MAX);
                let known = &mut most[item as usize];
                if nodes < u64::from(*known) {
                    *known = nodes as u32;
                    narrowed = true;
                }
            }
        }
        rows.retain(|row| !row.suffices(most));
        if !narrowed {
            break;
        }
    }
}

/// The independent parts, and the items without a row.
fn parts(most: &[u32], rows: Vec<Row>) -> (Vec<Part>, Vec<usize>) {
    // Each item points to another one of its part; the last one points to itself.
    let mut above: Vec<usize> = (0..most.len()).collect();
    let mut used = vec![false; most.len()];
    let top = |above: &mut Vec<usize>, mut item: usize| {
        while above[item] != item {
            above[item] = above[above[item]];
            item = above[item];
        }
        item
    };
    let mut kept = Vec::with_capacity(rows.len());
    for mut row in rows {
        row.terms.retain(|term| most[term.0 as usize] > 0);
        let Some(&(first, _)) = row.terms.first() else { continue };
        let first = top(&mut above, first as usize);
        for &(item, _) in &row.terms {
            used[item as usize] = true;
            let other = top(&mut above, item as usize);
            above[other] = first;
        }
        kept.push(row);
    }
    let mut places = vec![usize::MAX; most.len()];
    let mut local = vec![0u32; most.len()];
    let mut parts: Vec<Part> = Vec::new();
    for item in (0..most.len()).filter(|&item| used[item]) {
        let place = &mut places[top(&mut above, item)];
        if *place == usize::MAX {
            *place = parts.len();
            parts.push(Part::default());
        }
        let part = &mut parts[*place];
        local[item] = part.items.len() as u32;
        part.items.push(item);
        part.most.push(most[item]);
    }
    for mut row in kept {
        let place = places[top(&mut above, row.terms[0].0 as usize)];
        for term in &mut row.terms {
            term.0 = local[term.0 as usize];
        }
        parts[place].rows.push(row);
    }
    parts.iter_mut().for_each(Part::finish);
    let alone = (0..most.len()).filter(|&item| !used[item]).collect();
    (parts, alone)
}

/// Items that share rows.
#[derive(Debug, Default)]
struct Part {
    /// The number of each item among all items.
    items: Vec<usize>,
    most: Vec<u32>,
    rows: Vec<Row>,
    /// For each item: its rows, and what a node takes there.
    columns: Vec<Vec<(u32, u64)>>,
    /// The number of rows of the relaxation. They come first.
    relaxed_rows: usize,
    classes: Vec<Class>,
    /// For each class: the rows of the relaxation, and what a node takes there.
    shapes: Vec<Vec<(u32, u64)>>,
    taken: Vec<u32>,
    bound: u32,
}

/// Items that take the same from every row of the relaxation.
#[derive(Debug)]
struct Class {
    items: Vec<usize>,
    most: u32,
}

impl Part {
    /// Sorts the rows, the scarcest first, and forms the classes.
    fn finish(&mut self) {
        let scarcity = |row: &Row| {
            let all: u128 = row
                .terms
                .iter()
                .map(|&(item, each)| u128::from(each) * u128::from(self.most[item as usize]))
                .sum();
            all as f64 / (row.left as f64).max(1.0)
        };
        let rows = std::mem::take(&mut self.rows).into_iter();
        let mut rows: Vec<(f64, Row)> = rows.map(|row| (scarcity(&row), row)).collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.rows = rows.into_iter().map(|row| row.1).collect();
        self.columns = vec![Vec::new(); self.items.len()];
        for (row, known) in (0u32..).zip(&self.rows) {
            for &(item, each) in &known.terms {
                self.columns[item as usize].push((row, each));
            }
        }
        self.relaxed_rows = self.rows.len();
        self.classify();
        while self.relaxed_rows > 1 && self.cells() > CELLS {
            self.relaxed_rows = (self.relaxed_rows / 2).min((CELLS / self.classes.len()).max(1));
            self.classify();
        }
        self.taken = vec![0; self.items.len()];
        self.bound = self.most.iter().sum();
    }

    /// Forms the classes of items that the relaxed rows do not tell apart.
    fn classify(&mut self) {
        let relaxed = self.relaxed_rows;
        let column = |item: usize| {
            let known = &self.columns[item];
            &known[..known.partition_point(|cell| (cell.0 as usize) < relaxed)]
        };
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        order.sort_by(|&a, &b| column(a).cmp(column(b)).then(a.cmp(&b)));
        let (mut classes, mut shapes): (Vec<Class>, Vec<Vec<(u32, u64)>>) = (Vec::new(), Vec::new());
        for item in order {
            let most = self.most[item];
            match classes.last_mut() {
                Some(class) if shapes.last().is_some_and(|shape| shape == column(item)) => {
                    class.items.push(item);
                    class.most += most;
                }
                _ => {
                    let items = vec![item];
                    classes.push(Class { items, most });
                    shapes.push(column(item).to_vec());
                }
            }
        }
        (self.classes, self.shapes) = (classes, shapes);
    }

    fn found(&self) -> u32 {
        self.taken.iter().sum()
    }

    fn cells(&self) -> usize {
        self.classes.len() * self.relaxed_rows
    }

    /// The relaxation without limits on classes, rounded down, and its bound.
    fn start(&mut self, effort: &mut Effort) {
        effort.spend(self.cells());
        let limits: Vec<(u32, u32)> = self.classes.iter().map(|class| (0, class.most)).collect();
        if let Some(point) = self.point(&limits) {
            self.bound = self.bound.min(point.bound);
            self.taken = self.rounded(&point);
        }
    }

    /// Finds `target` nodes, or proves that there are fewer. `None`: the effort ran out.
    fn improve(&mut self, target: u32, effort: &mut Effort) -> Option<()> {
        let limits: Vec<(u32, u32)> = self.classes.iter().map(|class| (0, class.most)).collect();
        match self.branch(limits, target, effort)? {
            Some(taken) => self.taken = taken,
            None => self.bound = target - 1,
        }
        Some(())
    }

    /// Branches on the numbers of classes. `None`: the effort ran out. `Some(None)`: there are fewer nodes.
    fn branch(&self, limits: Vec<(u32, u32)>, target: u32, effort: &mut Effort) -> Option<Option<Vec<u32>>> {
        let mut open = vec![limits];
        let mut cut = false;
        while let Some(limits) = open.pop() {
            effort.step(self.cells() * 4)?;
            let Some(point) = self.point(&limits) else { continue };
            if point.bound < target {
                continue;
            }
            let taken = self.rounded(&point);
            if taken.iter().sum::<u32>() >= target {
                return Some(Some(taken));
            }
            let away = |number: f64| (number - number.round()).abs();
            let candidates = (0..limits.len()).filter(|&class| limits[class].0 < limits[class].1);
            let widest = candidates.max_by(|&a, &b| away(point.numbers[a]).total_cmp(&away(point.numbers[b])));
            // All numbers are fixed, so a row outside the relaxation is in the way.
            let Some(class) = widest else {
                cut = true;
                continue;
            };
            let (least, most) = limits[class];
            let middle = (point.numbers[class].max(0.0) as u32).clamp(least, most - 1);
            let mut lower = limits.clone();
            lower[class] = (least, middle);
            let mut upper = limits;
            upper[class] = (middle + 1, most);
            open.extend([lower, upper]);
        }
        if cut {
            effort.cut = true;
            return None;
        }
        Some(None)
    }

    /// The relaxed optimum with each class between two limits. `None`: the lower limits exceed a row.
    fn point(&self, limits: &[(u32, u32)]) -> Option<Point> {
        let mut left: Vec<u64> = self.rows[..self.relaxed_rows].iter().map(|row| row.left).collect();
        for (shape, &(least, _)) in self.shapes.iter().zip(limits) {
            for &(row, each) in shape {
                let left = &mut left[row as usize];
                *left = left.checked_sub(each.checked_mul(u64::from(least))?)?;
            }
        }
        let room: Vec<u32> = limits.iter().map(|(least, most)| most - least).collect();
        let relaxed = relax(&room, &left, &self.shapes);
        let sure: u32 = limits.iter().map(|limit| limit.0).sum();
        let numbers = relaxed.numbers.iter().zip(limits);
        Some(Point {
            bound: sure + bound(&relaxed.prices, &room, &left, &self.shapes),
            numbers: numbers.map(|(number, limit)| number + f64::from(limit.0)).collect(),
            prices: relaxed.prices,
        })
    }

    /// Whole numbers of nodes within all rows: those of the classes first, then whatever fits, the cheapest first.
    fn rounded(&self, point: &Point) -> Vec<u32> {
        let mut left: Vec<u64> = self.rows.iter().map(|row| row.left).collect();
        let mut taken = vec![0; self.items.len()];
        let mut take = |item: usize, wish: u32| {
            let column = &self.columns[item];
            let room = column.iter().map(|&(row, each)| left[row as usize] / each).min();
            let nodes = room.map_or(wish, |room| wish.min(u32::try_from(room).unwrap_or(u32::MAX)));
            for &(row, each) in column {
                left[row as usize] -= each * u64::from(nodes);
            }
            nodes
        };
        for (class, &number) in self.classes.iter().zip(&point.numbers) {
            let mut wish = (number + 1e-6).max(0.0) as u32;
            for &item in &class.items {
                let nodes = take(item, wish.min(self.most[item]));
                taken[item] = nodes;
                wish -= nodes;
            }
        }
        let price = |row: u32| point.prices.get(row as usize).copied().unwrap_or(0.0);
        let cost = |item: usize| {
            let column = self.columns[item].iter();
            column.map(|&(row, each)| price(row) * each as f64).sum::<f64>()
        };
        let costs: Vec<f64> = (0..self.items.len()).map(cost).collect();
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        order.sort_by(|&a, &b| costs[a].total_cmp(&costs[b]));
        for item in order {
            taken[item] += take(item, self.most[item] - taken[item]);
        }
        taken
    }
}

/// A relaxed optimum.
struct Point {
    /// The number of each class.
    numbers: Vec<f64>,
    prices: Vec<f64>,
    bound: u32,
}

/// The upper bound that these prices of the rows prove. Any prices prove a bound: what is left of the budgets is sold,
/// and an item that costs less than a node gains the rest of it.
fn bound(prices: &[f64], most: &[u32], left: &[u64], columns: &[Vec<(u32, u64)>]) -> u32 {
    let prices: Vec<u128> = prices
        .iter()
        .map(|price| (price * UNIT as f64).round() as u128)
        .collect();
    let sold: u128 = prices
        .iter()
        .zip(left)
        .map(|(price, &left)| price.saturating_mul(u128::from(left)))
        .fold(0, u128::saturating_add);
    let gain = |(column, &most): (&Vec<(u32, u64)>, &u32)| {
        let cost = column
            .iter()
            .map(|&(row, each)| prices[row as usize].saturating_mul(u128::from(each)))
            .fold(0, u128::saturating_add);
        UNIT.saturating_sub(cost) * u128::from(most)
    };
    let gained: u128 = columns.iter().zip(most).map(gain).sum();
    let all: u32 = most.iter().sum();
    u32::try_from(sold.saturating_add(gained) / UNIT).map_or(all, |bound| bound.min(all))
}

#[cfg(test)]
mod tests;
