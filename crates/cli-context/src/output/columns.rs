//! Tables of resources with columns as data, which `--sort-by` and `-o wide` refer to.

use std::cmp::Ordering;

use clap::Args;

use super::Table;
use super::table::Cell;
use crate::error::CliError;

/// A column of a table of `T`.
#[derive(Debug)]
pub struct Column<T> {
    pub header: &'static str,
    /// The cell for a resource, at the given time in seconds.
    pub cell: fn(&T, f64) -> Cell,
    /// The number for the order of the rows, such as a time in seconds. Without it, the order is that of the cells' texts.
    pub order: Option<fn(&T) -> Option<f64>>,
    /// Whether only `-o wide` shows the column.
    pub is_wide: bool,
}

impl<T> Column<T> {
    /// A column that is always shown, in the order of its texts.
    pub const fn new(header: &'static str, cell: fn(&T, f64) -> Cell) -> Self {
        Self {
            header,
            cell,
            order: None,
            is_wide: false,
        }
    }

    /// With another order of the rows.
    pub const fn ordered(self, order: fn(&T) -> Option<f64>) -> Self {
        Self {
            order: Some(order),
            ..self
        }
    }

    /// Shown only by `-o wide`.
    pub const fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// The name for `--sort-by`.
    fn name(&self) -> String {
        self.header.to_ascii_lowercase().replace(' ', "-")
    }
}

/// The table of these resources.
pub fn table<T>(columns: &[Column<T>], items: &[T], is_wide: bool, now: f64) -> Table {
    let shown = || columns.iter().filter(|column| is_wide || !column.is_wide);
    let header: Vec<&'static str> = shown().map(|column| column.header).collect();
    let mut table = Table::new(&header);
    for item in items {
        table.cells(shown().map(|column| (column.cell)(item, now)).collect());
    }
    table
}

/// The order of a list.
#[derive(Debug, Default, Args)]
pub struct SortArgs {
    /// Sort by a column: its name in lower case, with `-` for blanks; with `-` in front, in descending order
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort_by: Option<String>,
    /// With --sort-by: in descending order
    #[arg(long, requires = "sort_by")]
    pub reverse: bool,
}

/// The chosen column, and whether the order is descending.
#[derive(Debug)]
pub struct Sorting<'a, T> {
    column: &'a Column<T>,
    is_descending: bool,
}

impl SortArgs {
    /// The chosen order; none: the order of the server.
    ///
    /// # Errors
    /// `Usage` for an unknown column.
    pub fn sorting<'a, T>(&self, columns: &'a [Column<T>]) -> Result<Option<Sorting<'a, T>>, CliError> {
        let Some(given) = &self.sort_by else { return Ok(None) };
        let name = given.strip_prefix('-').unwrap_or(given);
        let Some(column) = columns.iter().find(|column| column.name() == name.to_ascii_lowercase()) else {
            let known: Vec<String> = columns.iter().map(Column::name).collect();
            return Err(CliError::usage(
                format!("there is no column `{name}` to sort by"),
                format!("columns: {}", known.join(", ")),
            ));
        };
        Ok(Some(Sorting {
            column,
            is_descending: self.reverse || given.starts_with('-'),
        }))
    }
}

impl<T> Sorting<'_, T> {
    /// Sorts the resources. Those without a value come last, in both orders. Equal ones keep their order.
    pub fn sort(&self, items: &mut [T], now: f64) {
        match self.column.order {
            Some(order) => items.sort_by(|a, b| self.compare(order(a), order(b), f64::total_cmp)),
            None => {
                let text = |item: &T| (self.column.cell)(item, now).value().map(str::to_owned);
                items.sort_by(|a, b| self.compare(text(a), text(b), String::cmp));
            }
        }
    }

    fn compare<V>(&self, a: Option<V>, b: Option<V>, values: impl Fn(&V, &V) -> Ordering) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self.is_descending => values(&b, &a),
            (Some(a), Some(b)) => values(&a, &b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Paint;

    type Row = (&'static str, Option<f64>);

    const COLUMNS: &[Column<Row>] = &[
        Column::<Row>::new("NAME", |row, _| row.0.into()),
        Column::<Row>::new("WAITS FOR", |row, now| match row.1 {
            Some(time) => format!("{} s", now - time).into(),
            None => "".into(),
        })
        .ordered(|row| row.1),
        Column::<Row>::new("LABELS", |_, _| "".into()).wide(),
    ];

    const ROWS: [Row; 4] = [("c", Some(2.0)), ("a", None), ("d", Some(10.0)), ("b", Some(2.0))];

    fn sorted(by: &str, reverse: bool) -> String {
        let args = SortArgs {
            sort_by: Some(by.to_owned()),
            reverse,
        };
        let mut rows = ROWS;
        args.sorting(COLUMNS).unwrap().unwrap().sort(&mut rows, 0.0);
        rows.iter().map(|row| row.0).collect()
    }

    #[test]
    fn rows_are_sorted_and_those_without_a_value_come_last() {
        assert_eq!(sorted("name", false), "abcd");
        assert_eq!(sorted("-name", false), "dcba");
        assert_eq!(sorted("NAME", true), "dcba");
        assert_eq!(
            sorted("waits-for", false),
            "cbda",
            "numbers by their size, equal ones in the former order"
        );
        assert_eq!(sorted("-waits-for", false), "dcba");
        assert!(SortArgs::default().sorting(COLUMNS).unwrap().is_none());
    }

    #[test]
    fn an_unknown_column_is_refused_with_the_known_ones() {
        let args = SortArgs {
            sort_by: Some("-colour".to_owned()),
            reverse: false,
        };
        let Err(CliError::Usage { message, hint }) = args.sorting(COLUMNS).map(|_| ()) else {
            panic!("it is refused");
        };
        assert_eq!(message, "there is no column `colour` to sort by");
        assert_eq!(hint, "columns: name, waits-for, labels");
    }

    #[test]
    fn wide_tables_have_more_columns() {
        let rows = &ROWS[..1];
        let text = |is_wide| table(COLUMNS, rows, is_wide, 5.0).render(Paint::PLAIN, None);
        assert_eq!(text(false), "NAME  WAITS FOR\nc     3 s\n");
        assert_eq!(text(true), "NAME  WAITS FOR  LABELS\nc     3 s        -\n");
    }
}
