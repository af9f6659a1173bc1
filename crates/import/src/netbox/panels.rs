//! Cables through patch panels: several in NetBox, one in the site file.
//!
//! A front port of a panel connects to a position of its rear port, and another cable continues from there. A signal
//! that enters at position 3 of one rear port leaves at position 3 of the next. Up to NetBox 4.4 a front port has one
//! `rear_port` and a `rear_port_position`. Since 4.5 it has a list of mappings (netbox-community/netbox, pull request
//! 20851). A front port with several mappings is not followed, because it does not continue as a single cable.

use std::collections::BTreeMap;

use super::cables::{Index, PartKind, Point, signal};
use super::{Importer, Part};
use crate::names::Namer;

/// Maximum number of panels on one cable. More would be a loop.
const MOST_PANELS: usize = 64;

/// The mapping between front and rear ports, by index.
#[derive(Default)]
struct Panels {
    /// The rear port and position for each front port.
    rear: BTreeMap<usize, (usize, u32)>,
    /// The front port for each position of a rear port.
    front: BTreeMap<(usize, u32), usize>,
    /// Number of positions of each rear port.
    positions: BTreeMap<usize, u32>,
}

/// The path of a cable through panels.
struct CablePath {
    end: Point,
    /// Labels of the cables on the path.
    labels: Vec<String>,
    /// `panel port`, in order.
    ports: Vec<String>,
}

impl Panels {
    fn of(importer: &Importer<'_>) -> Self {
        let index = Index::of(importer);
        let mut panels = Self::default();
        for (at, part) in importer.parts[PartKind::RearPort as usize].iter().enumerate() {
            let said = part.row.number("positions").filter(|said| *said >= 1.0);
            panels.positions.insert(at, said.map_or(1, |said| said as u32));
        }
        for (at, part) in importer.parts[PartKind::FrontPort as usize].iter().enumerate() {
            let Some((rear, position)) = rear_of(&index, part) else {
                continue;
            };
            panels.rear.insert(at, (rear, position));
            panels.front.insert((rear, position), at);
            let known = panels.positions.entry(rear).or_insert(1);
            *known = position.max(*known);
        }
        panels
    }
}

/// The rear port of a front port, and the position on it.
fn rear_of(index: &Index<'_>, part: &Part<'_>) -> Option<(usize, u32)> {
    let (name, id) = (part.row.get("rear"), part.row.get("rear_id"));
    let position = part.row.number("position").map(|position| position as u32);
    if !id.is_empty() {
        let at = index.by_id.get(&(PartKind::RearPort, id))?;
        return Some((*at, position.unwrap_or(1)));
    }
    let named = |name: &str| {
        let places = index.by_name.get(&(PartKind::RearPort, part.device, name))?;
        places.first().copied().filter(|_| places.len() == 1)
    };
    if let Some(at) = named(name) {
        return Some((at, position.unwrap_or(1)));
    }
    // The mapping in one cell, such as `Rear 1:3`.
    let (name, position) = name.rsplit_once(':')?;
    Some((named(name.trim())?, position.trim().parse().ok()?))
}

impl Importer<'_> {
    /// Joins cables that meet in panels into one.
    pub(super) fn follow_panels(&mut self, labels: &mut Namer) {
        let panels = Panels::of(self);
        let is_port = |point: &Point| matches!(point.kind, PartKind::FrontPort | PartKind::RearPort);
        let starts = self.peers.iter();
        let starts = starts.filter(|(from, to)| from.kind == PartKind::Interface && is_port(to));
        let starts: Vec<Point> = starts.map(|(from, _)| *from).collect();
        for start in starts {
            // Already joined from the other end.
            if !self.peers.get(&start).is_some_and(is_port) {
                continue;
            }
            match self.path(&panels, start) {
                Ok(path) => self.join_through(start, path, labels),
                Err(why) => self.dead_end(start, &why),
            }
        }
    }

    fn join_through(&mut self, start: Point, path: CablePath, labels: &mut Namer) {
        // The cables between keep their labels, because other paths use the same trunk.
        self.labels.remove(&start);
        self.labels.remove(&path.end);
        self.peers.insert(start, path.end);
        self.peers.insert(path.end, start);
        let first = start.min(path.end);
        let note = format!("cables {} by way of {}", path.labels.join(", "), path.ports.join(", "));
        self.notes.insert(first, note);
        if let Some(one) = path.labels.first() {
            let label = labels.unique_name(&path.labels.join(":"), &[one]);
            self.labels.insert(first, label);
        }
    }

    /// A path through panels that does not end at an interface. The cable is omitted, like others with one end.
    fn dead_end(&mut self, start: Point, why: &str) {
        let Some(part) = self.part(start) else { return };
        if signal(part.row.get("type")).is_none() {
            return;
        }
        let at = part.row.spot("name");
        let what = format!("the cable of {} through patch panels is left out: {why}", part.name);
        let fix = "complete the ports of the panels and their cables in NetBox, or write the cable";
        self.sink.warning(at, "name", what, fix);
    }

    fn label_of(&self, one: Point, other: Point) -> String {
        self.labels.get(&one.min(other)).cloned().unwrap_or_default()
    }

    /// Follows a cable from an interface to the interface at the other end.
    fn path(&self, panels: &Panels, start: Point) -> Result<CablePath, String> {
        let mut path = CablePath {
            end: start,
            labels: Vec::new(),
            ports: Vec::new(),
        };
        let mut stack: Vec<u32> = Vec::new();
        let mut leave = start;
        for _ in 0..=MOST_PANELS {
            let Some(&at) = self.peers.get(&leave) else {
                return Err(format!("no cable is at {}", self.port_text(leave)));
            };
            let label = self.label_of(leave, at);
            path.labels.extend((!label.is_empty()).then_some(label));
            let through = match at.kind {
                PartKind::Interface if !stack.is_empty() => {
                    let words = self.port_text(at);
                    return Err(format!("several positions of a panel end at {words} together"));
                }
                PartKind::Interface => {
                    path.end = at;
                    return Ok(path);
                }
                PartKind::FrontPort => self.to_rear(panels, at, &mut stack)?,
                PartKind::RearPort => self.to_front(panels, at, &mut stack)?,
                PartKind::PowerPort | PartKind::Outlet | PartKind::Feed => {
                    return Err("it ends at a power port, an outlet or a power feed".to_owned());
                }
            };
            path.ports.push(self.port_text(at));
            leave = through;
        }
        Err(format!("it goes through more than {MOST_PANELS} panels"))
    }

    fn to_rear(&self, panels: &Panels, front: Point, stack: &mut Vec<u32>) -> Result<Point, String> {
        let known = panels.rear.get(&front.at);
        let &(at, position) =
            known.ok_or_else(|| format!("{} leads to no rear port, or to several", self.port_text(front)))?;
        if panels.positions.get(&at).is_some_and(|positions| *positions > 1) {
            stack.push(position);
        }
        let kind = PartKind::RearPort;
        Ok(Point { kind, at })
    }

    fn to_front(&self, panels: &Panels, rear: Point, stack: &mut Vec<u32>) -> Result<Point, String> {
        let words = || self.port_text(rear);
        let position = match panels.positions.get(&rear.at) {
            Some(positions) if *positions > 1 => stack
                .pop()
                .ok_or_else(|| format!("{} has {positions} positions, but no position is given", words()))?,
            _ => 1,
        };
        let found = panels.front.get(&(rear.at, position));
        let &at = found.ok_or_else(|| format!("{} has no front port at position {position}", words()))?;
        let kind = PartKind::FrontPort;
        Ok(Point { kind, at })
    }

    fn port_text(&self, point: Point) -> String {
        let Some(part) = self.part(point) else {
            return String::new();
        };
        let device = part.device.and_then(|device| self.devices.get(device));
        let device = device.map_or("", |device| device.row.get("name"));
        format!("{device} {}", part.name)
    }
}
