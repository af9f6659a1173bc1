//! A table of BMCs (CSV): the operator's data about them. All faults are reported with line and column.

use std::collections::{BTreeMap, HashMap};

use crate::csv::{Cell, Reader};

/// Maximum number of rows.
pub const TARGETS_MAX: usize = 10_000;
/// Maximum length of a cell, in bytes.
const CELL_MAX: usize = 1024;
/// Maximum number of labels of a row.
const LABELS_MAX: usize = 32;
/// Maximum number of reported faults.
const FAULTS_MAX: usize = 100;

const COLUMNS: [&str; 10] = [
    "address",
    "user",
    "password",
    "credential",
    "name",
    "rack",
    "unit",
    "sku",
    "system",
    "labels",
];

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetRow {
    /// Line in the file, from 1.
    pub line: u32,
    /// Address or host name of the BMC, with or without `https://` and port.
    pub address: String,
    /// User name. Empty: another credential applies.
    pub user: String,
    /// Password. Must not be displayed.
    pub password: String,
    /// Name of a stored credential.
    pub credential: String,
    /// Name of the node.
    pub name: String,
    /// Name of the rack.
    pub rack: String,
    /// Rack unit. 0: unknown.
    pub unit: u16,
    /// Name of the SKU.
    pub sku: String,
    /// Path of the system, if the BMC manages several.
    pub system: String,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
}

/// A fault with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct TableFault {
    /// Line, from 1.
    pub line: u32,
    /// The column's name in the header, or its number.
    pub column: String,
    /// The fault. Passwords are omitted.
    pub what: String,
}

fn fault(cell: &Cell, column: &str, what: impl Into<String>) -> TableFault {
    TableFault {
        line: cell.line,
        column: column.to_owned(),
        what: what.into(),
    }
}

/// Reads a table with a header row. `address` is required. `user`, `password`, `credential`, `name`, `rack`, `unit`,
/// `sku`, `system` and `labels` (`k=v;k=v`) are optional. Columns may be in any order.
///
/// # Errors
/// All faults. Then no row is returned.
pub fn parse_targets(text: &str) -> Result<Vec<TargetRow>, Vec<TableFault>> {
    let mut reader = Reader::new(text);
    let mut faults = Vec::new();
    let columns = match reader.row() {
        Ok(Some(header)) => header_columns(&header, &mut faults),
        Ok(None) => return Err(vec![missing_header()]),
        Err(broken) => return Err(vec![broken_fault(&broken)]),
    };
    if !faults.is_empty() {
        return Err(faults);
    }
    let (mut rows, mut lines) = (Vec::new(), HashMap::new());
    loop {
        let cells = match reader.row() {
            Ok(Some(cells)) => cells,
            Ok(None) => break,
            Err(broken) => {
                faults.push(broken_fault(&broken));
                break;
            }
        };
        if rows.len() >= TARGETS_MAX {
            faults.push(fault(
                &cells[0],
                "address",
                format!("the table has more than {TARGETS_MAX} rows: split the table"),
            ));
            break;
        }
        rows.push(row(&cells, &columns, &mut lines, &mut faults));
        if faults.len() >= FAULTS_MAX {
            faults.truncate(FAULTS_MAX);
            break;
        }
    }
    if faults.is_empty() { Ok(rows) } else { Err(faults) }
}

fn missing_header() -> TableFault {
    TableFault {
        line: 1,
        column: "1".into(),
        what: format!(
            "the table is empty; the first row must name the columns: {}",
            COLUMNS.join(", ")
        ),
    }
}

fn broken_fault(broken: &crate::csv::Broken) -> TableFault {
    TableFault {
        line: broken.line,
        column: format!("at character {}", broken.column),
        what: broken.what.to_owned(),
    }
}

fn header_columns(header: &[Cell], faults: &mut Vec<TableFault>) -> Vec<&'static str> {
    let mut columns: Vec<&'static str> = Vec::new();
    for (index, cell) in header.iter().enumerate() {
        let name = cell.text.trim().to_ascii_lowercase();
        match COLUMNS.iter().find(|column| **column == name) {
            Some(column) if columns.contains(column) => faults.push(fault(cell, column, "the column is listed twice")),
            Some(column) => columns.push(column),
            None => {
                let what = format!(
                    "{:?} is not a column; columns are {}",
                    cell.text.trim(),
                    COLUMNS.join(", ")
                );
                faults.push(fault(cell, &(index + 1).to_string(), what));
            }
        }
    }
    if faults.is_empty() && !columns.contains(&"address") {
        faults.push(fault(&header[0], "address", "the column is missing"));
    }
    columns
}

fn row(
    cells: &[Cell],
    columns: &[&'static str],
    lines: &mut HashMap<String, u32>,
    faults: &mut Vec<TableFault>,
) -> TargetRow {
    let first = &cells[0];
    let mut row = TargetRow {
        line: first.line,
        ..TargetRow::default()
    };
    if cells.len() > columns.len() {
        let column = (columns.len() + 1).to_string();
        faults.push(fault(
            &cells[columns.len()],
            &column,
            "the row has more cells than the header has columns",
        ));
    }
    for (cell, column) in cells.iter().zip(columns) {
        // A password may begin or end with a space.
        let text = if *column == "password" {
            cell.text.as_str()
        } else {
            cell.text.trim()
        };
        if text.len() > CELL_MAX || text.chars().any(char::is_control) {
            let what = format!("the cell must have at most {CELL_MAX} bytes and no control characters");
            faults.push(fault(cell, column, what));
            continue;
        }
        if let Err(what) = take(&mut row, column, text) {
            faults.push(fault(cell, column, what));
        }
    }
    if row.address.is_empty() {
        faults.push(fault(first, "address", "the address is missing"));
    } else if let Some(before) = lines.insert(row.address.to_ascii_lowercase(), row.line) {
        faults.push(fault(
            first,
            "address",
            format!("{} is already in line {before}", row.address),
        ));
    }
    let pair = |what: &str| fault(first, "user", what);
    if row.user.is_empty() != row.password.is_empty() {
        faults.push(pair("user and password go together: give both or none"));
    }
    if !row.user.is_empty() && !row.credential.is_empty() {
        faults.push(pair("give user and password, or a credential, not both"));
    }
    row
}

fn take(row: &mut TargetRow, column: &str, text: &str) -> Result<(), String> {
    let place = match column {
        "address" => &mut row.address,
        "user" => &mut row.user,
        "password" => &mut row.password,
        "credential" => &mut row.credential,
        "name" => &mut row.name,
        "rack" => &mut row.rack,
        "sku" => &mut row.sku,
        "system" => &mut row.system,
        "unit" => {
            row.unit = match text {
                "" => 0,
                text => text
                    .trim_start_matches(['u', 'U'])
                    .parse()
                    .ok()
                    .filter(|unit| (1..=100).contains(unit))
                    .ok_or_else(|| format!("{text:?} is not a rack unit from 1 to 100"))?,
            };
            return Ok(());
        }
        _ => {
            row.labels = labels(text)?;
            return Ok(());
        }
    };
    if column == "address" && (text.contains('@') || text.contains(char::is_whitespace)) {
        return Err("an address must not contain a user, a password or spaces".to_owned());
    }
    text.clone_into(place);
    Ok(())
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    for pair in text.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| format!("{pair:?} is not a label: write labels like rack=r12;row=3"))?;
        labels.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    if labels.len() > LABELS_MAX {
        return Err(format!("the row has more than {LABELS_MAX} labels"));
    }
    Ok(labels)
}
