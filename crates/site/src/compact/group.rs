//! Groups of items that change regularly.

use super::axis::{Axis, Grid, MAX_LIST};
use super::text::{Rule, Text};
use super::{Item, Row, Value};
use crate::text::plain;

/// The most by which the GUIDs of two neighbours differ. Ports of one type of device are 0x10 to 0x100 apart.
const MAX_PAIR_STEP: i128 = 0x1000;

/// A field of a group, or a comment above the group.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// The value of the first item is the value of all.
    Same,
    /// A value of one item alone, with characters that a pattern gives another meaning.
    Alone,
    Text(Text),
    Number(Axis),
    Guid(Axis),
}

impl Cell {
    fn of(value: &Value) -> Self {
        match value {
            Value::Same(_) => Self::Same,
            Value::Name(text) => Text::of(text, Rule::Own).map_or(Self::Alone, Self::Text),
            Value::Shared(text) => Text::of(text, Rule::Shared).map_or(Self::Same, Self::Text),
            Value::Filled { template, is_own, .. } => {
                let (rule, other) = match is_own {
                    true => (Rule::Each, Self::Alone),
                    false => (Rule::Shared, Self::Same),
                };
                Text::of(template, rule).map_or(other, Self::Text)
            }
            Value::Number(number) => Self::Number(Axis::new(i128::from(*number))),
            // The reader refuses this GUID.
            Value::Guid(0) => Self::Same,
            Value::Guid(guid) => Self::Guid(Axis::new(i128::from(*guid))),
        }
    }

    fn axes(&self) -> impl Iterator<Item = &Axis> {
        let (text, one) = match self {
            Self::Same | Self::Alone => (None, None),
            Self::Text(text) => (Some(text), None),
            Self::Number(axis) | Self::Guid(axis) => (None, Some(axis)),
        };
        text.into_iter().flat_map(Text::axes).chain(one)
    }

    fn axes_mut(&mut self) -> impl Iterator<Item = &mut Axis> {
        let (text, one) = match self {
            Self::Same | Self::Alone => (None, None),
            Self::Text(text) => (Some(text), None),
            Self::Number(axis) | Self::Guid(axis) => (None, Some(axis)),
        };
        text.into_iter().flat_map(Text::axes_mut).chain(one)
    }

    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Same, Self::Same) => true,
            // No item has the value of another.
            (Self::Alone, _) => false,
            (Self::Text(a), Self::Text(b)) => a.is_like(b),
            (Self::Number(a), Self::Number(b)) | (Self::Guid(a), Self::Guid(b)) => a.is_like(b),
            _ => false,
        }
    }

    /// Whether the notation has a form for all items of the grid. `steps`: the steps along its last direction, by axis.
    fn fits(&self, steps: &[i128], grid: &Grid) -> bool {
        let last = grid.directions().saturating_sub(1);
        let with_step = |axis: &Axis| axis.with(last, steps.first().copied().unwrap_or(0));
        match self {
            Self::Same => true,
            Self::Alone => false,
            Self::Text(text) => text.fits(steps, grid),
            // The list repeats; no value of it does.
            Self::Number(axis) => match with_step(axis).cover() {
                Ok(None) => true,
                Ok(Some(cover)) => cover.low == 0 && cover.values(grid) <= MAX_LIST,
                Err(_) => false,
            },
            Self::Guid(axis) => {
                let axis = with_step(axis);
                matches!(axis.cover(), Ok(Some(cover)) if cover.low == 0 && cover.high == last
                    && axis.even_step(cover, grid).is_some_and(|step| step > 0))
            }
        }
    }
}

/// Items that follow each other, as a grid. At first a single item.
#[derive(Debug, Clone)]
pub(super) struct Group<T> {
    grid: Grid,
    cells: Vec<Cell>,
    first: Row<T>,
    /// The second item of a group of two.
    second: Option<Row<T>>,
}

impl<T: PartialEq> Group<T> {
    pub(super) fn of(row: Row<T>) -> Self {
        let comments = row.comments.iter().map(|comment| {
            let text = Text::of(comment, Rule::Comment);
            text.map_or(Cell::Same, Cell::Text)
        });
        Self {
            grid: Grid::default(),
            cells: row
                .fields
                .iter()
                .map(|field| Cell::of(&field.value))
                .chain(comments)
                .collect(),
            first: row,
            second: None,
        }
    }

    fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.cells.iter().flat_map(Cell::axes)
    }

    /// Whether the groups have the same fields, and those change alike within each.
    fn is_like(&self, other: &Self) -> bool {
        let (a, b) = (&self.first, &other.first);
        self.grid == other.grid
            && a.tag == b.tag
            && a.comments.len() == b.comments.len()
            && a.fields.len() == b.fields.len()
            && self.cells.iter().zip(&other.cells).all(|(a, b)| a.is_like(b))
            && self
                .cells
                .iter()
                .zip(a.fields.iter().zip(&b.fields))
                .all(|(cell, (a, b))| a.lead == b.lead && (*cell != Cell::Same || a.value == b.value))
    }

    fn fits(&self, steps: &[i128], grid: &Grid) -> bool {
        let mut rest = steps;
        self.cells.iter().all(|cell| {
            let (own, after) = rest.split_at(cell.axes().count().min(rest.len()));
            rest = after;
            cell.fits(own, grid)
        })
    }

    /// Two items are too few to show an order, unless they are neighbours.
    fn is_weak_pair(&self) -> bool {
        if self.grid.items() != 2 {
            return false;
        }
        let mut step = None;
        self.cells.iter().any(|cell| match cell {
            Cell::Text(text) => text.leaps(&self.grid),
            Cell::Guid(axis) => {
                let own = axis.step(0);
                own > MAX_PAIR_STEP || step.replace(own).is_some_and(|former| former != own)
            }
            Cell::Same | Cell::Alone | Cell::Number(_) => false,
        })
    }

    /// Gives the items of the section: one for the whole group, if it has an order.
    pub(super) fn emit(mut self, write: &mut impl FnMut(Item<T>)) {
        let pair = self.second.take().filter(|_| self.is_weak_pair());
        match pair {
            Some(second) => {
                Self::of(self.first).emit(write);
                Self::of(second).emit(write);
            }
            None => write(self.item()),
        }
    }

    fn item(self) -> Item<T> {
        let Self { grid, cells, first, .. } = self;
        let of_fields = cells.iter().zip(&first.fields);
        let lines = of_fields.map(|(cell, field)| (field.lead.clone(), show(cell, &field.value, &grid)));
        let lines = lines.collect();
        let of_comments = cells.iter().skip(first.fields.len()).zip(&first.comments);
        let comments = of_comments.map(|(cell, comment)| match cell {
            Cell::Text(text) if grid.directions() > 0 => text.pattern(&grid),
            _ => comment.clone(),
        });
        Item {
            comments: comments.collect(),
            lines,
            count: grid.items(),
            tag: first.tag,
        }
    }
}

/// The value in YAML.
fn show(cell: &Cell, value: &Value, grid: &Grid) -> String {
    let is_single = grid.directions() == 0;
    match (cell, value) {
        (Cell::Text(text), _) if !is_single => plain(&text.pattern(grid)),
        (Cell::Number(axis), _) => match axis.cover() {
            Ok(Some(cover)) => {
                let values = axis.values(cover, grid);
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                format!("[{}]", values.join(", "))
            }
            Ok(None) | Err(_) => axis.first.to_string(),
        },
        (Cell::Guid(axis), _) => match axis.cover() {
            Ok(Some(cover)) => {
                let step = axis.even_step(cover, grid).unwrap_or(0);
                format!("{:#018x}+{step:#x}", axis.first)
            }
            Ok(None) | Err(_) => format!("{:#018x}", axis.first),
        },
        (_, Value::Same(yaml)) => yaml.clone(),
        (_, Value::Name(text) | Value::Shared(text) | Value::Filled { text, .. }) => crate::text::scalar(text),
        (_, Value::Number(number)) => number.to_string(),
        (_, Value::Guid(guid)) => format!("{guid:#018x}"),
    }
}

/// Groups of one size that follow each other, of which each may continue the ones before.
#[derive(Debug)]
pub(super) struct Run<T> {
    first: Group<T>,
    groups: usize,
    /// From one group to the next, by axis.
    steps: Vec<i128>,
}

impl<T: PartialEq> Run<T> {
    pub(super) fn of(first: Group<T>) -> Self {
        Self {
            first,
            groups: 1,
            steps: Vec::new(),
        }
    }

    /// Adds the next group, or gives it back if it does not continue the run.
    pub(super) fn extend(&mut self, next: Group<T>) -> Option<Group<T>> {
        if !self.first.is_like(&next) {
            return Some(next);
        }
        let axes = self.first.axes().zip(next.axes());
        let apart: Vec<i128> = axes.map(|(a, b)| b.first - a.first).collect();
        if self.groups == 1 {
            self.steps = apart;
        } else {
            let groups = i128::try_from(self.groups).unwrap_or(0);
            if !self
                .steps
                .iter()
                .zip(&apart)
                .all(|(step, apart)| step * groups == *apart)
            {
                return Some(next);
            }
        }
        if !self.first.fits(&self.steps, &self.first.grid.with(self.groups + 1)) {
            return Some(next);
        }
        self.groups += 1;
        let is_pair = self.groups == 2 && self.first.grid.directions() == 0;
        self.first.second = is_pair.then_some(next.first);
        None
    }

    /// All groups of the run as one.
    pub(super) fn close(self) -> Group<T> {
        let Self {
            mut first,
            groups,
            steps,
        } = self;
        if groups == 1 {
            return first;
        }
        let direction = first.grid.directions();
        first.grid = first.grid.with(groups);
        let axes = first.cells.iter_mut().flat_map(Cell::axes_mut);
        for (axis, step) in axes.zip(steps) {
            *axis = axis.with(direction, step);
        }
        first
    }
}
