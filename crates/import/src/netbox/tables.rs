//! NetBox's tables, the columns used, and the rows.
//!
//! Columns may have the names of NetBox 4.x's list view exports (`Device A`, `Height`), of its import forms
//! (`side_a_device`, `u_height`), or of its API (`dcim/tables/*.py`, `dcim/forms/bulk_import.py` and
//! `dcim/api/serializers_` of netbox-community/netbox). Case, blanks and punctuation are ignored.

use crate::csv::{Broken, Cell, Reader};
use rackwright_site::finding::Spot;

/// Maximum number of rows in all tables.
pub const MAX_ROWS: usize = 4_000_000;

/// A table of NetBox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Sites,
    /// Locations, which may be nested.
    Locations,
    Racks,
    DeviceTypes,
    Devices,
    PowerPanels,
    PowerFeeds,
    /// Power ports: the inputs of devices.
    PowerPorts,
    /// Power outlets of rack PDUs.
    PowerOutlets,
    Interfaces,
    /// Front ports of patch panels. Optional.
    FrontPorts,
    /// Rear ports of patch panels. Optional.
    RearPorts,
    Cables,
}

/// A column: the name in this crate, and NetBox's names for it, beginning with the name in exports.
type Column = (&'static str, &'static [&'static str]);

impl Table {
    /// All tables, each after those that it refers to.
    pub const ALL: [Self; 13] = [
        Self::Sites,
        Self::Locations,
        Self::Racks,
        Self::DeviceTypes,
        Self::Devices,
        Self::PowerPanels,
        Self::PowerFeeds,
        Self::PowerPorts,
        Self::PowerOutlets,
        Self::Interfaces,
        Self::FrontPorts,
        Self::RearPorts,
        Self::Cables,
    ];

    /// The path below `/api/dcim/` of NetBox.
    #[must_use]
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::Sites => "sites",
            Self::Locations => "locations",
            Self::Racks => "racks",
            Self::DeviceTypes => "device-types",
            Self::Devices => "devices",
            Self::PowerPanels => "power-panels",
            Self::PowerFeeds => "power-feeds",
            Self::PowerPorts => "power-ports",
            Self::PowerOutlets => "power-outlets",
            Self::Interfaces => "interfaces",
            Self::FrontPorts => "front-ports",
            Self::RearPorts => "rear-ports",
            Self::Cables => "cables",
        }
    }

    /// The table for a file name: `devices.csv`, or NetBox's own name for the export, `netbox_power feeds.csv`.
    #[must_use]
    pub fn of_file(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".csv")?;
        let stem = normal(stem);
        let stem = stem.strip_prefix("netbox_").unwrap_or(&stem);
        Self::ALL.into_iter().find(|table| normal(table.endpoint()) == stem)
    }

    fn columns(self) -> &'static [Column] {
        match self {
            Self::Sites => &[("id", &["id"]), ("name", &["name"])],
            Self::Locations => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("site", &["site"]),
                ("parent", &["parent"]),
                ("parent_id", &["parent_id"]),
            ],
            Self::Racks => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("site", &["site"]),
                ("location", &["location"]),
                ("location_id", &["location_id"]),
                ("units", &["height", "u_height", "height_u"]),
                ("start", &["starting_unit"]),
                ("down", &["desc_units", "descending_units"]),
                ("weight", &["max_weight"]),
                ("weight_unit", &["weight_unit"]),
            ],
            Self::DeviceTypes => &[
                ("model", &["device_type", "model"]),
                ("units", &["u_height", "height", "height_u"]),
                ("weight", &["weight"]),
                ("weight_unit", &["weight_unit"]),
            ],
            Self::Devices => DEVICES,
            Self::PowerPanels => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("site", &["site"]),
                ("location", &["location"]),
            ],
            Self::PowerFeeds => FEEDS,
            Self::PowerPorts => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("device", &["device"]),
                ("device_id", &["device_id"]),
                ("maximum", &["maximum_draw"]),
                ("allocated", &["allocated_draw"]),
            ],
            Self::PowerOutlets => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("device", &["device"]),
                ("device_id", &["device_id"]),
                ("type", &["type"]),
                ("port", &["power_port"]),
                ("leg", &["feed_leg"]),
            ],
            Self::Interfaces => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("device", &["device"]),
                ("device_id", &["device_id"]),
                ("type", &["type"]),
                ("wwn", &["wwn"]),
            ],
            Self::FrontPorts => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("device", &["device"]),
                ("device_id", &["device_id"]),
                ("rear", &["rear_port", "mappings", "rear_ports"]),
                ("rear_id", &["rear_port_id"]),
                ("position", &["rear_port_position", "position"]),
            ],
            Self::RearPorts => &[
                ("id", &["id"]),
                ("name", &["name"]),
                ("device", &["device"]),
                ("device_id", &["device_id"]),
                ("positions", &["positions"]),
            ],
            Self::Cables => CABLES,
        }
    }

    /// The required columns.
    fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Sites => &["name"],
            Self::Locations | Self::Racks | Self::PowerPanels => &["name", "site"],
            Self::DeviceTypes => &["model"],
            Self::Devices => &["name", "role", "type", "rack"],
            Self::PowerFeeds => &["name", "panel", "phase", "voltage", "amperage"],
            Self::PowerPorts | Self::PowerOutlets | Self::RearPorts => &["name", "device"],
            Self::FrontPorts => &["name", "device", "rear"],
            Self::Interfaces => &["name", "device", "type"],
            Self::Cables => &["a", "b", "device_a", "device_b"],
        }
    }
}

const DEVICES: &[Column] = &[
    ("id", &["id"]),
    ("name", &["name"]),
    ("role", &["role", "device_role"]),
    ("type", &["type", "device_type"]),
    ("site", &["site"]),
    ("location", &["location"]),
    ("rack", &["rack"]),
    ("rack_id", &["rack_id"]),
    ("position", &["position", "position_u"]),
    ("status", &["status"]),
    ("oob", &["oob_ip", "out_of_band_ip"]),
];

const FEEDS: &[Column] = &[
    ("id", &["id"]),
    ("name", &["name"]),
    ("panel", &["power_panel"]),
    ("panel_id", &["power_panel_id"]),
    ("site", &["site"]),
    ("rack", &["rack"]),
    ("rack_id", &["rack_id"]),
    ("type", &["type"]),
    ("supply", &["supply"]),
    ("phase", &["phase"]),
    ("voltage", &["voltage"]),
    ("amperage", &["amperage"]),
    ("utilization", &["max_utilization"]),
];

const CABLES: &[Column] = &[
    ("id", &["id"]),
    ("label", &["label"]),
    ("a", &["termination_a", "side_a_name", "a_terminations"]),
    ("b", &["termination_b", "side_b_name", "b_terminations"]),
    ("device_a", &["device_a", "side_a_device"]),
    ("device_b", &["device_b", "side_b_device"]),
    ("type_a", &["side_a_type"]),
    ("type_b", &["side_b_type"]),
    ("id_a", &["termination_a_id"]),
    ("id_b", &["termination_b_id"]),
];

/// Lower case, with one `_` for each run of other characters than letters and digits.
fn normal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() {
            out.extend(c.to_lowercase());
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
    }
    out.trim_end_matches('_').to_owned()
}

/// A row: the cells of the used columns, with their places.
#[derive(Debug, Clone)]
pub(super) struct Row {
    at: Spot,
    cells: Vec<(&'static str, Spot, Box<str>)>,
}

impl Row {
    /// The text of a cell, trimmed. Empty if the cell is missing or has no value.
    pub(super) fn get(&self, column: &str) -> &str {
        let found = self.cells.iter().find(|(name, _, _)| *name == column);
        match found.map_or("", |(_, _, text)| text.trim()) {
            "\u{2014}" => "",
            text => text,
        }
    }

    /// The place of a cell, or of the row if there is no such cell.
    pub(super) fn spot(&self, column: &str) -> Spot {
        let found = self.cells.iter().find(|(name, _, _)| *name == column);
        found.map_or(self.at, |(_, at, _)| *at)
    }

    /// The number at the beginning of a cell: `48U`, `80%`, `1361 kg`. `None`: the cell is empty or not a number.
    pub(super) fn number(&self, column: &str) -> Option<f64> {
        let text = self.get(column);
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || ".-".contains(c)))
            .unwrap_or(text.len());
        text.get(..end)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// A weight in kg. The unit is at the end of the cell or in the column `weight_unit`.
    pub(super) fn kilograms(&self, column: &str) -> Option<f64> {
        let unit = self
            .get(column)
            .trim_start_matches(|c: char| c.is_ascii_digit() || ".- ".contains(c));
        let unit = if unit.is_empty() { self.get("weight_unit") } else { unit };
        let factor = match unit.to_ascii_lowercase().as_str() {
            "kg" | "kilograms" => 1.0,
            "g" | "grams" => 0.001,
            "lb" | "lbs" | "pounds" => 0.453_592_37,
            "oz" | "ounces" => 0.028_349_523_125,
            _ => return None,
        };
        // Rounded to the gram, to remove digits from the conversion.
        Some((self.number(column)? * factor * 1000.0).round() / 1000.0)
    }
}

/// Why a file is not a NetBox table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct TableError {
    /// The file, by the name that the caller gave.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// A description.
    pub what: String,
}

/// All tables exported from NetBox or read from its API.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    pub(super) files: Vec<Box<str>>,
    rows: Vec<(Table, Vec<Row>)>,
    count: usize,
}

impl Tables {
    /// Adds an exported file. The first line names the columns.
    ///
    /// # Errors
    /// The text is not CSV, a required column is missing, or there are more than [`MAX_ROWS`] rows.
    pub fn add_csv(&mut self, table: Table, file: &str, text: &str) -> Result<(), TableError> {
        let error = |line, column, what: String| TableError {
            file: file.to_owned(),
            line,
            column,
            what,
        };
        let broken = |broken: Broken| error(broken.line, broken.column, broken.what.to_owned());
        let mut reader = Reader::new(text);
        let Some(header) = reader.row().map_err(broken)? else {
            return Err(error(
                1,
                1,
                "the file is empty: its first line names the columns".to_owned(),
            ));
        };
        let columns = header_columns(table, &header).map_err(|(at, what)| {
            let cell = header.get(at);
            error(1, cell.map_or(1, |cell| cell.column), what)
        })?;
        let number = self.file(file);
        while let Some(cells) = reader.row().map_err(broken)? {
            let (line, column) = cells.first().map_or((1, 1), |cell| (cell.line, cell.column));
            if self.count >= MAX_ROWS {
                return Err(error(line, column, format!("there are more than {MAX_ROWS} rows")));
            }
            if cells.len() > header.len() {
                let what = format!(
                    "the row has {} cells, but the first line names {} columns",
                    cells.len(),
                    header.len()
                );
                return Err(error(line, column, what));
            }
            let spot = |line, column| Spot {
                file: number,
                line,
                column,
            };
            let named = columns
                .iter()
                .zip(cells)
                .filter_map(|(name, cell)| Some(((*name)?, cell)));
            let cells = named.map(|(name, cell)| (name, spot(cell.line, cell.column), cell.text.into()));
            let cells = cells.collect();
            self.push(
                table,
                Row {
                    at: spot(line, column),
                    cells,
                },
            );
        }
        Ok(())
    }

    /// Adds an object of the API as fields by name. In findings, its id takes the place of the line.
    ///
    /// # Errors
    /// There are more than [`MAX_ROWS`] rows.
    pub fn add_object(
        &mut self,
        table: Table,
        file: &str,
        id: u32,
        fields: &[(String, String)],
    ) -> Result<(), TableError> {
        if self.count >= MAX_ROWS {
            return Err(TableError {
                file: file.to_owned(),
                line: id,
                column: 1,
                what: format!("there are more than {MAX_ROWS} objects"),
            });
        }
        let at = Spot {
            file: self.file(file),
            line: id,
            column: 1,
        };
        let known = |name: &str| {
            let name = normal(name);
            let mut columns = table.columns().iter();
            columns
                .find(|(_, names)| names.contains(&&*name))
                .map(|(column, _)| *column)
        };
        let cells = fields
            .iter()
            .filter_map(|(name, value)| Some((known(name)?, at, value.as_str().into())));
        let row = Row {
            at,
            cells: cells.collect(),
        };
        self.push(table, row);
        Ok(())
    }

    fn file(&mut self, name: &str) -> u32 {
        let at = self.files.iter().position(|file| **file == *name).unwrap_or_else(|| {
            self.files.push(name.into());
            self.files.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    fn push(&mut self, table: Table, row: Row) {
        self.count += 1;
        match self.rows.iter_mut().find(|(known, _)| *known == table) {
            Some((_, rows)) => rows.push(row),
            None => self.rows.push((table, vec![row])),
        }
    }

    /// The rows of a table, in the order of addition.
    pub(super) fn rows(&self, table: Table) -> &[Row] {
        let found = self.rows.iter().find(|(known, _)| *known == table);
        found.map_or(&[], |(_, rows)| rows)
    }
}

/// The used column of each cell in the first line. `None`: the column is not used.
fn header_columns(table: Table, header: &[Cell]) -> Result<Vec<Option<&'static str>>, (usize, String)> {
    let mut columns: Vec<Option<&'static str>> = vec![None; header.len()];
    for (column, names) in table.columns() {
        // Names in the order of the list. If a table has several of them, the first one counts.
        let at = names
            .iter()
            .find_map(|name| header.iter().position(|cell| normal(&cell.text) == *name));
        if let Some(at) = at
            && let Some(place) = columns.get_mut(at)
        {
            *place = Some(column);
        }
    }
    for needed in table.needed() {
        if !columns.contains(&Some(needed)) {
            let names = table
                .columns()
                .iter()
                .find(|(column, _)| column == needed)
                .map_or(&[][..], |(_, names)| names);
            let what = format!(
                "no column `{}`: export {} with all columns, in English",
                names.join("` or `"),
                table.endpoint()
            );
            return Err((0, what));
        }
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_known_by_their_names() {
        assert_eq!(Table::of_file("devices.csv"), Some(Table::Devices));
        assert_eq!(Table::of_file("netbox_power feeds.csv"), Some(Table::PowerFeeds));
        assert_eq!(Table::of_file("netbox_device-types.csv"), Some(Table::DeviceTypes));
        assert_eq!(Table::of_file("prefixes.csv"), None);
        assert_eq!(Table::of_file("devices.txt"), None);
    }

    #[test]
    fn cells_are_found_by_any_of_their_names_and_units_do_not_disturb() {
        let mut tables = Tables::default();
        tables
            .add_csv(
                Table::Racks,
                "racks.csv",
                "ID,Name,Site,Height,Max Weight,Space\n7,r1,a,48U,3000.0 lbs,\u{2014}\n",
            )
            .unwrap();
        tables
            .add_csv(
                Table::Racks,
                "more.csv",
                "name,site,u_height,max_weight,weight_unit\nr2,a,42,1361,kg\n",
            )
            .unwrap();
        let rows = tables.rows(Table::Racks);
        assert_eq!(
            (rows[0].number("units"), rows[1].number("units")),
            (Some(48.0), Some(42.0))
        );
        assert_eq!(
            (rows[0].kilograms("weight"), rows[1].kilograms("weight")),
            (Some(1360.777), Some(1361.0))
        );
        let spot = rows[1].spot("units");
        assert_eq!((spot.file, spot.line, spot.column), (1, 2, 6));
    }

    #[test]
    fn what_is_missing_is_told_with_its_place() {
        let mut tables = Tables::default();
        let error = tables.add_csv(Table::Racks, "racks.csv", "Name\nr1\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "racks.csv:1:1: no column `site`: export racks with all columns, in English"
        );
        let error = tables.add_csv(Table::Sites, "s.csv", "name\na,b\n").unwrap_err();
        assert_eq!((error.line, error.column), (2, 1));
    }
}
