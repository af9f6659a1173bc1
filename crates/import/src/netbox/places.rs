//! Imports sites and locations as rooms, and racks.

use std::collections::BTreeMap;

use super::tables::{Row, Table};
use super::{Importer, RackInfo, renamed};
use crate::draft::{Rack, Remarks, Room};
use crate::names::Namer;
use rackwright_infiniband::name::natural;

/// Default number of units of a rack.
const USUAL_UNITS: u16 = 42;

/// Maximum number of units of a rack in a site file.
const MAX_UNITS: f64 = 120.0;

impl<'a> Importer<'a> {
    pub(super) fn places(&mut self) {
        let mut names = Namer::default();
        let sites = self.sites(&mut names);
        let locations = self.locations(&sites, &mut names);
        self.read_racks(&sites, &locations);
    }

    /// Rooms by site.
    fn sites(&mut self, names: &mut Namer) -> BTreeMap<&'a str, String> {
        let tables = self.tables;
        let mut found: Vec<&str> = tables.rows(Table::Sites).iter().map(|row| row.get("name")).collect();
        // Sites in other tables count as well, because the table of sites is optional.
        for table in [Table::Locations, Table::Racks, Table::PowerPanels] {
            found.extend(tables.rows(table).iter().map(|row| row.get("site")));
        }
        found.retain(|site| !site.is_empty() && self.takes(site));
        found.sort_by(|a, b| natural(a, b).then_with(|| a.cmp(b)));
        found.dedup();
        let mut rooms = BTreeMap::new();
        for site in found {
            let name = names.unique_name(site, &[]);
            rooms.insert(site, name.clone());
            self.draft.rooms.push(Room { name, parent: None });
        }
        rooms
    }

    /// Rooms by site and location.
    fn locations(
        &mut self,
        sites: &BTreeMap<&'a str, String>,
        names: &mut Namer,
    ) -> BTreeMap<(&'a str, &'a str), String> {
        let tables = self.tables;
        let mut rows: Vec<&Row> = tables.rows(Table::Locations).iter().collect();
        rows.retain(|row| self.takes(row.get("site")));
        rows.sort_by(|a, b| {
            let key = |row: &Row| (row.get("site").to_owned(), row.get("name").to_owned());
            natural(a.get("site"), b.get("site"))
                .then_with(|| natural(a.get("name"), b.get("name")))
                .then_with(|| key(a).cmp(&key(b)))
        });
        let mut rooms: BTreeMap<(&str, &str), String> = BTreeMap::new();
        let mut added: Vec<(&Row, String)> = Vec::new();
        for row in rows {
            let (site, location) = (row.get("site"), row.get("name"));
            if rooms.contains_key(&(site, location)) {
                let what = format!("site {site} has two locations named {location}");
                let fix = "racks are distinguished by the name of their location: rename one of them";
                self.sink.error(row.spot("name"), "name", what, fix);
                continue;
            }
            let of_site = sites.get(site).map_or("", String::as_str);
            let name = names.unique_name(location, &[&format!("{of_site}-{location}")]);
            rooms.insert((site, location), name.clone());
            added.push((row, name));
        }
        for (row, name) in added {
            let site = row.get("site");
            let parent = rooms
                .get(&(site, row.get("parent")))
                .or_else(|| sites.get(site))
                .cloned();
            self.draft.rooms.push(Room { name, parent });
        }
        rooms
    }

    fn read_racks(&mut self, sites: &BTreeMap<&'a str, String>, locations: &BTreeMap<(&'a str, &'a str), String>) {
        let tables = self.tables;
        let mut rows: Vec<&'a Row> = tables.rows(Table::Racks).iter().collect();
        rows.retain(|row| self.takes(row.get("site")));
        rows.sort_by(|a, b| {
            let key = |row: &Row| ["name", "site", "location"].map(|column| row.get(column).to_owned());
            natural(a.get("name"), b.get("name")).then_with(|| key(a).cmp(&key(b)))
        });
        let mut names = Namer::default();
        for row in rows {
            let (own, site, location) = (row.get("name"), row.get("site"), row.get("location"));
            let room = locations.get(&(site, location)).or_else(|| sites.get(site));
            let room = room.cloned().unwrap_or_default();
            let name = names.unique_name(own, &[&format!("{room}-{own}")]);
            let mut remarks = Remarks::default();
            renamed(&mut remarks, &name, own);
            let units = match row.number("units") {
                Some(units) if (1.0..=MAX_UNITS).contains(&units) => units as u16,
                Some(units) => {
                    let what = format!("the rack has {units} units");
                    self.sink.error(
                        row.spot("units"),
                        "units",
                        what,
                        "a site file has racks of 1 to 120 units",
                    );
                    USUAL_UNITS
                }
                None => {
                    let what = "NetBox has no height of the rack: 42 units are assumed";
                    remarks.assumed("units", what, "write its units");
                    USUAL_UNITS
                }
            };
            self.draft.racks.push(Rack {
                name: name.clone(),
                room,
                units: Some(units),
                weight_limit_kg: row.kilograms("weight").filter(|kg| (1.0..=100_000.0).contains(kg)),
                remarks,
            });
            self.rack_ids.insert(row.get("id"), self.racks.len());
            self.racks.push(RackInfo { row, name, units });
        }
    }

    /// The rack of a row, by id, or by name, location and site. `None` also if several racks match.
    pub(super) fn rack_of(&self, row: &Row) -> Option<&RackInfo<'a>> {
        let id = row.get("rack_id");
        if !id.is_empty() {
            return self.rack_ids.get(id).and_then(|at| self.racks.get(*at));
        }
        let name = row.get("rack");
        // The racks are in natural order, in which different names may be equal.
        let first = self
            .racks
            .partition_point(|rack| natural(rack.row.get("name"), name).is_lt());
        let near = self.racks.iter().skip(first);
        let near = near.take_while(|rack| natural(rack.row.get("name"), name).is_eq());
        let mut fitting: Vec<&RackInfo<'a>> = near.filter(|rack| rack.row.get("name") == name).collect();
        for column in ["site", "location"] {
            let wanted = row.get(column);
            if !wanted.is_empty() {
                fitting.retain(|rack| rack.row.get(column) == wanted);
            }
        }
        match fitting.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }
}

impl RackInfo<'_> {
    /// The lowest unit of a device, from 1 at the bottom, from NetBox's position and the height in units.
    pub(super) fn unit(&self, position: f64, height: f64) -> Option<u16> {
        let start = self.row.number("start").unwrap_or(1.0);
        let from_start = position - start + 1.0;
        let down = matches!(self.row.get("down").to_ascii_lowercase().as_str(), "true" | "1" | "yes");
        let unit = if down {
            f64::from(self.units) - (from_start + height - 1.0) + 1.0
        } else {
            from_start
        };
        let whole = unit.fract() == 0.0 && (1.0..=f64::from(self.units)).contains(&unit);
        whole.then_some(unit as u16)
    }
}
