//! Imports panels, feeds and rack PDUs as the power tree, and the outlets of PSUs.

use std::collections::{BTreeMap, BTreeSet};

use super::cables::{PartKind, Point, in_order};
use super::tables::{Row, Table};
use super::{Class, Importer, Part, TOP, renamed};
use crate::draft::{Domain, Outlet, Rating, Remarks};
use crate::names::{Namer, clean};
use rackwright_pattern::fits_stars;
use rackwright_site::model::{DomainKind, Phase, Phases};

/// A power feed of NetBox.
struct Feed<'a> {
    row: &'a Row,
    name: String,
    rating: Option<Rating>,
    derate: Option<f64>,
    letter: String,
    remarks: Remarks,
}

impl<'a> Importer<'a> {
    /// Imports panels, feeds and rack PDUs.
    pub(super) fn power(&mut self) {
        let mut names = Namer::default();
        let panels = self.panel_rows();
        let panel_names: Vec<String> = panels
            .iter()
            .map(|row| names.unique_name(row.get("name"), &[&format!("{}-{}", row.get("site"), row.get("name"))]))
            .collect();
        let mut feeds: BTreeMap<usize, Feed<'a>> = BTreeMap::new();
        let mut by_panel: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in 0..self.parts[PartKind::Feed as usize].len() {
            let kind = PartKind::Feed;
            let Some(row) = self.part(Point { kind, at }).map(|part| part.row) else {
                continue;
            };
            let Some(panel) = self.panel_of(row, &panels) else {
                continue;
            };
            let panel_name = panel_names.get(panel).map_or("", String::as_str);
            let feed = self.feed(row, panel_name, &mut names);
            feeds.insert(at, feed);
            by_panel.entry(panel).or_default().push(at);
        }
        for (at, (row, name)) in panels.iter().zip(&panel_names).enumerate() {
            let below: Vec<usize> = by_panel.get(&at).cloned().unwrap_or_default();
            self.panel(row, name, &below, &mut feeds);
        }
        self.pdus(&feeds, &mut names);
        if self.draft.domains.is_empty() {
            let what = "NetBox has no power panels and feeds: the file has no power";
            self.sink
                .warning(TOP, "power", what, "without power nothing can be reserved");
        }
    }

    fn panel_rows(&self) -> Vec<&'a Row> {
        let tables = self.tables;
        let mut rows: Vec<&Row> = tables.rows(Table::PowerPanels).iter().collect();
        rows.retain(|row| self.takes(row.get("site")));
        rows.sort_by(|a, b| in_order(a.get("name"), b.get("name")).then_with(|| a.get("site").cmp(b.get("site"))));
        rows
    }

    /// The panel of a feed. `None` without a finding if its site is not imported.
    fn panel_of(&mut self, row: &Row, panels: &[&Row]) -> Option<usize> {
        let (id, name, site) = (row.get("panel_id"), row.get("panel"), row.get("site"));
        let is = |panel: &&Row| {
            if id.is_empty() {
                panel.get("name") == name && (site.is_empty() || panel.get("site") == site)
            } else {
                panel.get("id") == id
            }
        };
        let fitting: Vec<usize> = (0..panels.len()).filter(|at| panels.get(*at).is_some_and(is)).collect();
        match fitting.as_slice() {
            [one] => Some(*one),
            [] if !self.tables.rows(Table::PowerPanels).iter().any(|panel| is(&panel)) => {
                let what = format!("there is no power panel named {name}");
                self.sink
                    .error(row.spot("panel"), "power_panel", what, "export power panels as well");
                None
            }
            [] => None,
            _ => {
                let what = format!("several power panels are named {name}");
                let fix = "give them different names, or import by the API, which has their ids";
                self.sink.error(row.spot("panel"), "power_panel", what, fix);
                None
            }
        }
    }

    fn feed(&mut self, row: &'a Row, panel: &str, names: &mut Namer) -> Feed<'a> {
        let own = row.get("name");
        let name = names.unique_name(own, &[&format!("{panel}-{own}")]);
        let mut remarks = Remarks::default();
        renamed(&mut remarks, &name, own);
        let phase = row.get("phase").to_ascii_lowercase();
        let phases = if phase.starts_with("three") {
            Phases::Three
        } else {
            Phases::Single
        };
        let rating = match (row.number("voltage"), row.number("amperage")) {
            (Some(volts), Some(amps))
                if volts >= 1.0 && amps > 0.0 && !row.get("supply").eq_ignore_ascii_case("dc") =>
            {
                Some(Rating::Electrical { volts, amps, phases })
            }
            // A DC feed has no phases, and its voltage may be negative.
            (Some(volts), Some(amps)) if volts != 0.0 && amps > 0.0 => Some(Rating::Watts(volts.abs() * amps)),
            _ => {
                let what = "NetBox has no voltage and amperage of this feed";
                remarks.missing(
                    "watts",
                    what,
                    "give them in NetBox, or write volts, amps and phases here",
                );
                None
            }
        };
        let derate = row
            .number("utilization")
            .map(|percent| (percent * 100.0).round() / 10_000.0);
        let derate = derate.filter(|derate| (0.05..=1.0).contains(derate));
        let letter = self.letter(&[own, panel]).unwrap_or_else(|| {
            let redundant = row.get("type").eq_ignore_ascii_case("redundant");
            let (letter, kind) = if redundant {
                ("B", "redundant")
            } else {
                ("A", "primary")
            };
            let what = format!("NetBox has no feed letters: {letter} is assumed, because this feed's type is {kind}");
            remarks.assumed(
                "feed",
                what,
                "give the feeds that are lost together (--feed LETTER=NAME)",
            );
            letter.to_owned()
        });
        Feed {
            row,
            name,
            rating,
            derate,
            letter,
            remarks,
        }
    }

    /// The feed letter configured for one of these names.
    fn letter(&self, names: &[&str]) -> Option<String> {
        let fits = |(_, pattern): &&(String, String)| names.iter().any(|name| fits_stars(pattern, name));
        self.options.feeds.iter().find(fits).map(|(letter, _)| letter.clone())
    }

    /// A panel and the circuits on it.
    fn panel(&mut self, row: &Row, name: &str, below: &[usize], feeds: &mut BTreeMap<usize, Feed<'a>>) {
        let mut remarks = Remarks::default();
        renamed(&mut remarks, name, row.get("name"));
        let letters: BTreeSet<String> = below
            .iter()
            .filter_map(|at| feeds.get(at))
            .map(|feed| feed.letter.clone())
            .collect();
        let one_letter = letters.first().filter(|_| letters.len() == 1).cloned();
        let watts: Option<f64> = below.iter().filter_map(|at| feeds.get(at)).map(watts).sum();
        let said = self.options.panels.get(row.get("name"));
        let rating = said.copied().or(watts.filter(|watts| *watts > 0.0));
        if rating.is_none() {
            let what = "NetBox has no rating of panels, and no feed of this panel has a rating";
            remarks.missing("watts", what, "write the rating here, or give it (--panel NAME=WATTS)");
        } else if said.is_none() {
            let what = "NetBox has no rating of panels: the sum of its feeds is assumed, so the panel limits nothing";
            remarks.assumed(
                "watts",
                what,
                "give the rating (--panel NAME=WATTS), and write a `utility` above the panels",
            );
        }
        self.draft.domains.push(Domain {
            name: name.to_owned(),
            kind: DomainKind::Panel,
            parent: None,
            feed: one_letter.clone(),
            rating: rating.map(|watts| Rating::Watts(watts.round())),
            derate: None,
            rack: None,
            outlets: Vec::new(),
            remarks,
        });
        for at in below {
            let Some(feed) = feeds.get_mut(at) else { continue };
            let rack = self.rack_of(feed.row).map(|rack| rack.name.clone());
            self.draft.domains.push(Domain {
                name: feed.name.clone(),
                kind: DomainKind::Circuit,
                parent: Some(name.to_owned()),
                feed: one_letter.is_none().then(|| feed.letter.clone()),
                rating: feed.rating,
                derate: feed.derate,
                rack,
                outlets: Vec::new(),
                remarks: std::mem::take(&mut feed.remarks),
            });
        }
    }

    /// Rack PDUs: one for each power port with outlets.
    fn pdus(&mut self, feeds: &BTreeMap<usize, Feed<'a>>, names: &mut Namer) {
        let pdus: Vec<usize> = (0..self.devices.len())
            .filter(|at| self.devices.get(*at).is_some_and(|device| device.class == Class::Pdu))
            .collect();
        for device in pdus {
            let inlets: Vec<(usize, &'a str)> = self
                .power_ports_at(device)
                .into_iter()
                .map(|(at, part)| (at, part.name))
                .collect();
            let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for at in self.outlets_of(device) {
                if let Some(inlet) = self.inlet_of(at, &inlets) {
                    groups.entry(inlet).or_default().push(at);
                }
            }
            if groups.is_empty() {
                let (row, name) = self
                    .devices
                    .get(device)
                    .map_or((None, ""), |device| (Some(device.row), device.row.get("name")));
                let what = format!("{name} has no outlets fed by a power port: it is left out");
                let at = row.map_or(TOP, |row| row.spot("name"));
                self.sink
                    .warning(at, "name", what, "add its power ports and outlets in NetBox");
            }
            for (inlet, outlets) in groups {
                let only = inlets.len() == 1;
                self.pdu(device, inlet, only, &outlets, feeds, names);
            }
        }
    }

    fn outlets_of(&self, device: usize) -> Vec<usize> {
        let parts = &self.parts[PartKind::Outlet as usize];
        let first = parts.partition_point(|part| part.device < Some(device));
        let own = parts.iter().enumerate().skip(first);
        own.take_while(|(_, part)| part.device == Some(device))
            .map(|(at, _)| at)
            .collect()
    }

    /// The power port of an outlet: the one that it names, or the only one.
    fn inlet_of(&mut self, outlet: usize, inlets: &[(usize, &str)]) -> Option<usize> {
        let kind = PartKind::Outlet;
        let row = self.part(Point { kind, at: outlet })?.row;
        let port = row.get("port");
        let found = match (port, inlets) {
            ("", [(only, _)]) => Some(*only),
            (port, inlets) => inlets.iter().find(|(_, name)| *name == port).map(|(at, _)| *at),
        };
        if found.is_none() {
            let what = format!(
                "outlet {} of {} is fed by no power port",
                row.get("name"),
                row.get("device")
            );
            self.sink.warning(
                row.spot("port"),
                "power_port",
                what,
                "set its power port in NetBox; the outlet is left out",
            );
        }
        found
    }

    fn pdu(
        &mut self,
        device: usize,
        inlet: usize,
        only: bool,
        outlets: &[usize],
        feeds: &BTreeMap<usize, Feed<'a>>,
        names: &mut Namer,
    ) {
        let kind = PartKind::PowerPort;
        let point = Point { kind, at: inlet };
        let (Some(own), Some(port)) = (self.devices.get(device), self.part(point).map(|part| part.name)) else {
            return;
        };
        let in_netbox = own.row.get("name");
        let wanted = if only {
            in_netbox.to_owned()
        } else {
            format!("{in_netbox}-{port}")
        };
        let mut remarks = Remarks::default();
        let name = names.unique_name(&wanted, &[]);
        renamed(&mut remarks, &name, in_netbox);
        let rack = own.rack.clone();
        if rack.is_none() {
            remarks.missing(
                "rack",
                "NetBox has no rack of this PDU",
                "set its rack in NetBox, or here",
            );
        }
        let feed = self
            .peers
            .get(&point)
            .filter(|peer| peer.kind == PartKind::Feed)
            .and_then(|peer| feeds.get(&peer.at));
        match feed {
            None => remarks.missing(
                "parent",
                format!("{in_netbox} {port} is cabled to no power feed"),
                "add the cable in NetBox",
            ),
            Some(_) => {
                let what = "NetBox has no rating of rack PDUs: the rating of its feed is assumed";
                remarks.assumed("volts", what, "write volts, amps and phases of its nameplate");
            }
        }
        if feed.is_none() {
            let what = "NetBox has no rating of rack PDUs";
            remarks.missing(
                "watts",
                what,
                "add the cable to its feed, or write volts, amps and phases",
            );
        }
        let rating = feed.and_then(|feed| feed.rating);
        let derate = feed.and_then(|feed| feed.derate);
        let list = self.list_outlets(&name, outlets, rating);
        if let Some(Rating::Electrical { volts, .. }) = rating
            && volts < 300.0
            && list.iter().any(|outlet| outlet.phase != Phase::All)
        {
            let what = "the feed legs A, B, C of NetBox are assumed to be L1, L2, L3 to neutral";
            remarks.assumed(
                "outlets",
                what,
                "at this voltage outlets are often between phases: write L1-L2, L2-L3, L3-L1",
            );
        }
        let parent = feed.map(|feed| feed.name.clone());
        self.draft.domains.push(Domain {
            name,
            kind: DomainKind::RackPdu,
            parent,
            feed: None,
            rating,
            derate,
            rack,
            outlets: list,
            remarks,
        });
    }

    /// The outlets of a rack PDU in the site file.
    fn list_outlets(&mut self, pdu: &str, outlets: &[usize], rating: Option<Rating>) -> Vec<Outlet> {
        let mut own_names = Namer::default();
        let mut list = Vec::new();
        for at in outlets {
            let kind = PartKind::Outlet;
            let Some(row) = self.part(Point { kind, at: *at }).map(|part| part.row) else {
                continue;
            };
            let outlet = own_names.unique_name(row.get("name"), &[]);
            self.outlets.insert(*at, format!("{pdu}/{outlet}"));
            list.push(Outlet {
                name: outlet,
                phase: leg(row, rating),
                amps: amps(row.get("type")),
            });
        }
        list
    }

    /// Connects the PSUs of nodes to their outlets.
    pub(super) fn plug_in(&mut self) {
        if self.draft.domains.is_empty() {
            return;
        }
        for device in 0..self.devices.len() {
            let Some(Class::Node(node)) = self.devices.get(device).map(|device| device.class) else {
                continue;
            };
            let ports: Vec<(usize, Part<'a>)> = self
                .power_ports_at(device)
                .into_iter()
                .map(|(at, part)| (at, Part { ..*part }))
                .collect();
            let mut psus = Vec::with_capacity(ports.len());
            let mut remarks = Remarks::default();
            for (at, part) in &ports {
                let kind = PartKind::PowerPort;
                let peer = self.peers.get(&Point { kind, at: *at });
                let outlet = peer
                    .filter(|peer| peer.kind == PartKind::Outlet)
                    .and_then(|peer| self.outlets.get(&peer.at));
                if outlet.is_none() {
                    let name = clean(part.name);
                    remarks.comments.push(format!("ASSUMED psus: {name} is not plugged in"));
                    let what = "a power port is cabled to no outlet of a rack PDU: the PSU counts as not plugged in";
                    self.sink
                        .warning(part.row.spot("name"), "name", what, "add the cable in NetBox");
                }
                psus.push(outlet.cloned());
            }
            if ports.is_empty() {
                remarks.missing(
                    "psus",
                    "NetBox has no power ports of this node",
                    "add them in NetBox, or write the outlets here",
                );
            }
            if let Some(node) = self.draft.nodes.get_mut(node) {
                node.psus = (!ports.is_empty()).then_some(psus);
                node.remarks.comments.append(&mut remarks.comments);
                node.remarks.gaps.append(&mut remarks.gaps);
            }
        }
    }
}

/// Continuous capacity of a feed, in watts. `None`: it has no rating.
fn watts(feed: &Feed<'_>) -> Option<f64> {
    Some(match feed.rating? {
        Rating::Watts(watts) => watts * feed.derate.unwrap_or(1.0),
        Rating::Electrical { volts, amps, phases } => {
            let factor = match phases {
                Phases::Single => 1.0,
                Phases::Three => 3_f64.sqrt(),
            };
            // 0.8 is the default derate of a site file.
            factor * volts * amps * feed.derate.unwrap_or(0.8)
        }
    })
}

/// The phase of an outlet. NetBox has feed legs for three-phase feeds only.
fn leg(row: &Row, rating: Option<Rating>) -> Phase {
    let three = matches!(
        rating,
        Some(Rating::Electrical {
            phases: Phases::Three,
            ..
        })
    );
    match row.get("leg") {
        "A" if three => Phase::L1,
        "B" if three => Phase::L2,
        "C" if three => Phase::L3,
        _ => Phase::All,
    }
}

/// Capacity of a socket by IEC 60320, in amps.
fn amps(kind: &str) -> Option<f64> {
    let kind = kind.to_ascii_lowercase();
    match kind.strip_prefix("iec-60320-").unwrap_or(&kind) {
        "c13" | "c15" => Some(10.0),
        "c19" | "c21" => Some(16.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_carry_what_their_standard_says() {
        assert_eq!(
            [amps("iec-60320-c13"), amps("C19"), amps("nema-5-15r")],
            [Some(10.0), Some(16.0), None]
        );
    }
}
