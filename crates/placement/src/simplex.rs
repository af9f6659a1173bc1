//! The linear relaxation of an integer program: the most items under shared budgets.
//!
//! A primal simplex with bounded variables on a dense table. The result is a hint: floating-point numbers round, so the
//! caller checks the numbers against every budget, and computes its bound from the prices in integers.

/// Numbers below this count as zero.
const TINY: f64 = 1e-9;

/// The relaxed optimum, or a point on the way to it.
#[derive(Debug, Clone)]
pub(super) struct Relaxed {
    /// The number of each item.
    pub numbers: Vec<f64>,
    /// The price of one unit of each budget, in items. Never negative.
    pub prices: Vec<f64>,
}

/// Maximizes the sum of all numbers. `most[j]` bounds number `j`; `columns[j]` has the rows that item `j` uses and what
/// one of them takes; `left[i]` is the budget of row `i`.
pub(super) fn relax(most: &[u32], left: &[u64], columns: &[Vec<(u32, u64)>]) -> Relaxed {
    let mut table = Table::new(most, left, columns);
    let limit = 50 + 10 * (most.len() + left.len());
    for round in 0..limit {
        // The steepest column first. Late rounds take the first one, which ends cycles.
        let Some(column) = table.entering(round > limit / 2) else {
            break;
        };
        table.enter(column);
    }
    table.relaxed()
}

/// The basic variables as functions of the others: `value[i]` minus the sum of `cells[i][j]` times variable `free[j]`.
struct Table {
    /// Number of items. Variables from here on are the slacks of the rows.
    items: usize,
    /// The upper bound of each variable.
    most: Vec<f64>,
    /// The variable stands for its distance from the upper bound.
    flipped: Vec<bool>,
    basic: Vec<usize>,
    value: Vec<f64>,
    free: Vec<usize>,
    cells: Vec<f64>,
    /// The gain of one unit of each free variable.
    gain: Vec<f64>,
    /// Each row is divided by its largest number.
    scale: Vec<f64>,
}

impl Table {
    fn new(most: &[u32], left: &[u64], columns: &[Vec<(u32, u64)>]) -> Self {
        let (items, rows) = (most.len(), left.len());
        let mut scale = vec![1.0_f64; rows];
        for &(row, each) in columns.iter().flatten() {
            scale[row as usize] = scale[row as usize].max(each as f64);
        }
        let mut cells = vec![0.0; items * rows];
        for (item, column) in columns.iter().enumerate() {
            for &(row, each) in column {
                cells[row as usize * items + item] = each as f64 / scale[row as usize];
            }
        }
        let bounds = most.iter().map(|&n| f64::from(n));
        Self {
            items,
            most: bounds.chain(std::iter::repeat_n(f64::INFINITY, rows)).collect(),
            flipped: vec![false; items + rows],
            basic: (items..items + rows).collect(),
            value: left
                .iter()
                .zip(&scale)
                .map(|(&left, scale)| left as f64 / scale)
                .collect(),
            free: (0..items).collect(),
            cells,
            gain: vec![1.0; items],
            scale,
        }
    }

    fn entering(&self, first: bool) -> Option<usize> {
        let gains = self.gain.iter().enumerate().filter(|(_, gain)| **gain > TINY);
        if first {
            return gains
                .min_by_key(|(column, _)| self.free[*column])
                .map(|(column, _)| column);
        }
        gains.max_by(|a, b| a.1.total_cmp(b.1)).map(|(column, _)| column)
    }

    fn row(&self, row: usize) -> std::ops::Range<usize> {
        row * self.items..(row + 1) * self.items
    }

    /// Raises a free variable until it or a basic variable meets a bound.
    fn enter(&mut self, column: usize) {
        let mut step = self.most[self.free[column]];
        let mut leaving = None;
        for (row, &basic) in self.basic.iter().enumerate() {
            let cell = self.cells[row * self.items + column];
            let room = if cell > TINY {
                self.value[row] / cell
            } else if cell < -TINY {
                (self.most[basic] - self.value[row]) / -cell
            } else {
                continue;
            };
            if room < step {
                step = room;
                leaving = Some((row, cell < 0.0));
            }
        }
        match leaving {
            // Only rounding leads here: every number has an upper bound.
            None if step.is_infinite() => self.gain[column] = 0.0,
            None => self.flip_free(column, step),
            Some((row, at_most)) => {
                if at_most {
                    self.flip_basic(row);
                }
                self.pivot(row, column);
            }
        }
    }

    /// The free variable is at its upper bound from now on.
    fn flip_free(&mut self, column: usize, most: f64) {
        for row in 0..self.basic.len() {
            let cell = &mut self.cells[row * self.items + column];
            self.value[row] = (self.value[row] - *cell * most).max(0.0);
            *cell = -*cell;
        }
        self.gain[column] = -self.gain[column];
        let variable = self.free[column];
        self.flipped[variable] = !self.flipped[variable];
    }

    fn flip_basic(&mut self, row: usize) {
        let variable = self.basic[row];
        self.value[row] = self.most[variable] - self.value[row];
        let range = self.row(row);
        self.cells[range].iter_mut().for_each(|cell| *cell = -*cell);
        self.flipped[variable] = !self.flipped[variable];
    }

    /// The free variable of a column and the basic one of a row change places.
    fn pivot(&mut self, row: usize, column: usize) {
        let range = self.row(row);
        let mut pivot = self.cells[range.clone()].to_vec();
        let by = pivot[column];
        pivot[column] = 1.0;
        pivot.iter_mut().for_each(|cell| *cell /= by);
        self.value[row] = (self.value[row] / by).max(0.0);
        self.cells[range].copy_from_slice(&pivot);
        for other in (0..self.basic.len()).filter(|&other| other != row) {
            let range = self.row(other);
            let cells = &mut self.cells[range];
            let factor = std::mem::replace(&mut cells[column], 0.0);
            if factor != 0.0 {
                cells.iter_mut().zip(&pivot).for_each(|(cell, p)| *cell -= factor * p);
                self.value[other] = (self.value[other] - factor * self.value[row]).max(0.0);
            }
        }
        let factor = std::mem::replace(&mut self.gain[column], 0.0);
        self.gain
            .iter_mut()
            .zip(&pivot)
            .for_each(|(gain, p)| *gain -= factor * p);
        std::mem::swap(&mut self.basic[row], &mut self.free[column]);
    }

    fn relaxed(&self) -> Relaxed {
        let mut numbers = vec![0.0; self.items];
        for (&variable, &value) in self.basic.iter().zip(&self.value) {
            if variable < self.items {
                numbers[variable] = value;
            }
        }
        for (item, number) in numbers.iter_mut().enumerate().filter(|(item, _)| self.flipped[*item]) {
            *number = self.most[item] - *number;
        }
        let mut prices = vec![0.0; self.scale.len()];
        for (&variable, &gain) in self.free.iter().zip(&self.gain) {
            if variable >= self.items {
                let row = variable - self.items;
                prices[row] = (-gain).max(0.0) / self.scale[row];
            }
        }
        Relaxed { numbers, prices }
    }
}
