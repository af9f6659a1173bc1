//! Numbers that change regularly from item to item.
//!
//! The items of a group form a grid: four racks with eight nodes each are a grid of eight by four. A number is regular if
//! it grows by a fixed step along each direction of the grid.

/// Maximum number of directions of a grid.
pub(super) const DIRECTIONS: usize = 4;

/// The most values that are written one by one.
pub(super) const MAX_LIST: usize = 64;

/// The numbers of items along each direction, the fastest direction first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Grid {
    sizes: [usize; DIRECTIONS],
    len: usize,
}

impl Grid {
    /// The grid with one more direction, slower than the others.
    pub(super) fn with(mut self, size: usize) -> Self {
        if let Some(place) = self.sizes.get_mut(self.len) {
            *place = size;
            self.len += 1;
        }
        self
    }

    /// Number of directions. 0: a single item.
    pub(super) fn directions(&self) -> usize {
        self.len
    }

    /// Number of items.
    pub(super) fn items(&self) -> usize {
        self.product(0, self.len)
    }

    /// Number of items along the directions from `from` to the one before `to`.
    pub(super) fn product(&self, from: usize, to: usize) -> usize {
        let sizes = self.sizes.get(from..to).unwrap_or_default();
        sizes
            .iter()
            .fold(1, |product: usize, size| product.saturating_mul(*size))
    }
}

/// The directions along which a value changes: from `low`, the fastest, to `high`, without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) low: usize,
    pub(super) high: usize,
}

impl Cover {
    /// Number of values.
    pub(super) fn values(self, grid: &Grid) -> usize {
        grid.product(self.low, self.high + 1)
    }
}

/// A number of the first item, and its step along each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) first: i128,
    steps: [i128; DIRECTIONS],
}

impl Axis {
    pub(super) fn new(first: i128) -> Self {
        Self {
            first,
            steps: [0; DIRECTIONS],
        }
    }

    /// The number with a step along one more direction.
    pub(super) fn with(mut self, direction: usize, step: i128) -> Self {
        if let Some(place) = self.steps.get_mut(direction) {
            *place = step;
        }
        self
    }

    /// The step along a direction.
    pub(super) fn step(&self, direction: usize) -> i128 {
        self.steps.get(direction).copied().unwrap_or(0)
    }

    /// Whether the numbers change alike.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.steps == other.steps
    }

    /// The directions along which the number changes. `None`: it is constant. `Err`: the directions have a gap.
    pub(super) fn cover(&self) -> Result<Option<Cover>, Gap> {
        let Some(low) = self.steps.iter().position(|step| *step != 0) else {
            return Ok(None);
        };
        let high = self.steps.iter().rposition(|step| *step != 0).unwrap_or(low);
        let between = self.steps.get(low..=high).unwrap_or_default();
        if between.contains(&0) {
            return Err(Gap);
        }
        Ok(Some(Cover { low, high }))
    }

    /// The step from one value to the next, if it is the same between all neighbours.
    pub(super) fn even_step(&self, cover: Cover, grid: &Grid) -> Option<i128> {
        let steps = self.steps.get(cover.low..=cover.high)?;
        let first = *steps.first()?;
        let mut directions = steps.iter().enumerate();
        let is_even = directions.all(|(i, step)| {
            let before = grid.product(cover.low, cover.low + i);
            i128::try_from(before).is_ok_and(|before| *step == first * before)
        });
        is_even.then_some(first)
    }

    /// Whether no step goes down.
    pub(super) fn goes_up(&self) -> bool {
        self.steps.iter().all(|step| *step >= 0)
    }

    /// All values along the covered directions, in the order of the items.
    pub(super) fn values(&self, cover: Cover, grid: &Grid) -> Vec<i128> {
        let mut values = vec![self.first];
        for direction in cover.low..=cover.high {
            let (size, step) = (grid.product(direction, direction + 1), self.step(direction));
            values = (0..size)
                .flat_map(|i| {
                    let offset = i128::try_from(i).unwrap_or(0) * step;
                    values.iter().map(move |value| value + offset).collect::<Vec<_>>()
                })
                .collect();
        }
        values
    }
}

/// A value changes along two directions, but not along one between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap;
