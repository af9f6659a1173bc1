//! Reads topology files.

use std::collections::BTreeMap;

use super::SPEEDS;
use crate::model::{DeviceKind, MAX_PORT, Role};
use crate::name;
use crate::plan::{Plan, PlanFault, PlannedCable, PlannedDevice};
use crate::rate::{Rate, Speed, Width};

/// Maximum size of a file, in bytes.
const MAX_BYTES: usize = 256 << 20;
/// Maximum length of a line, in bytes, as in ibutils.
const MAX_LINE: usize = 1024;
/// Maximum number of reported faults.
const MAX_FAULTS: usize = 100;

pub(super) fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// Type and name of a system.
pub(super) fn system(line: &str) -> Result<(&str, &str), String> {
    let (named, config) = match line.split_once(" CFG:") {
        Some((named, config)) => (named, config.trim()),
        None => (line, ""),
    };
    let words: Vec<&str> = named.split_whitespace().collect();
    let [kind, name] = words[..] else {
        return Err("neither a system (TYPE NAME) nor a port (PORT -> TYPE NAME PORT)".to_owned());
    };
    if [kind, name].iter().any(|word| word.contains(['/', '=', '"', ',', '>'])) {
        return Err(format!(
            "{kind:?} {name:?} is not a system: type and name must be plain words"
        ));
    }
    if config.is_empty() {
        return Ok((kind, name));
    }
    Err(format!(
        "{name:?} has boards (CFG: {config}): a topology file does not describe the inside of a chassis"
    ))
}

/// The word with the arrow.
pub(super) fn arrow_at(line: &str) -> Option<&str> {
    line.split_whitespace()
        .nth(1)
        .filter(|word| word.starts_with('-') && word.ends_with('>'))
}

/// Parses `->`, `-4x->`, `-4x-25G->`.
fn rate(arrow: &str) -> Result<(Option<Width>, Option<Speed>), String> {
    let bad = || format!("{arrow:?} is not an arrow such as -> or -4x-25G->");
    let inner = arrow.strip_prefix('-').and_then(|rest| rest.strip_suffix('>'));
    let (mut width, mut speed) = (None, None);
    for part in inner.ok_or_else(bad)?.split('-').filter(|part| !part.is_empty()) {
        let gigabits = part.strip_suffix(['G', 'g']).unwrap_or(part);
        let known = SPEEDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(gigabits));
        let lanes = part.ends_with(['x', 'X']).then(|| part.parse().ok()).flatten();
        match (lanes, known) {
            (Some(lanes), _) if width.is_none() && speed.is_none() => width = Some(lanes),
            (None, Some((_, known))) if speed.is_none() => speed = Some(*known),
            _ => return Err(bad()),
        }
    }
    Ok((width, speed))
}

/// An end as written: the adapter, if named, and the port.
type Port = (Option<String>, u8);

fn port(text: &str) -> Result<Port, String> {
    let bad = || {
        format!("{text:?} is not a port: write P5, or mlx5_3/P1 for a host; a chassis of several boards cannot be read")
    };
    let number = |text: &str| {
        let digits = text.strip_prefix(['P', 'p']).unwrap_or(text);
        digits.parse().ok().filter(|port| (1..=MAX_PORT).contains(port))
    };
    if let Some(port) = number(text) {
        return Ok((None, port));
    }
    let (adapter, own) = match text.split_once('/') {
        Some((adapter, own)) => (adapter, number(own).ok_or_else(bad)?),
        None => (text, 1),
    };
    // `U2` is ibutils' name for the second adapter of a host.
    let upper = adapter.to_ascii_uppercase();
    let numbered = upper.strip_prefix("HCA").or_else(|| upper.strip_prefix('U'));
    let digits = numbered.map(|rest| rest.trim_start_matches(['-', '_']));
    let adapter = match digits.filter(|digits| digits.parse::<u16>().is_ok()) {
        Some(digits) => format!("HCA-{digits}"),
        None => adapter.to_owned(),
    };
    match name::host(&format!("host {adapter}")) {
        Some(_) => Ok((Some(adapter), own)),
        None => Err(bad()),
    }
}

/// A cabled port: the index of its system, and the port as written.
type End = (usize, Port);

#[derive(Default)]
struct System {
    kind: String,
    name: String,
    max_port: u8,
    has_adapters: bool,
}

/// A cable before its ends are resolved.
struct Cable {
    line: u32,
    ends: [End; 2],
    rate: (Option<Width>, Option<Speed>),
}

#[derive(Default)]
struct Reader {
    systems: Vec<System>,
    by_name: BTreeMap<String, usize>,
    /// The cable at each port.
    at: BTreeMap<End, usize>,
    cables: Vec<Cable>,
    /// The current section.
    section: Option<usize>,
}

pub(super) fn read(text: &str) -> Result<Plan, Vec<PlanFault>> {
    let fault = |line: u32, text: String| PlanFault { line, text };
    if text.len() > MAX_BYTES {
        let words = format!("the file has {} bytes; the limit is {MAX_BYTES}", text.len());
        return Err(vec![fault(0, words)]);
    }
    let (mut reader, mut faults) = (Reader::default(), Vec::new());
    for (number, line) in (1u32..).zip(text.lines()).filter(|(_, line)| !is_blank(line)) {
        let read = match line.len() {
            0..=MAX_LINE => reader.line(number, line.trim_end()),
            long => Err(format!("the line has {long} bytes; the limit is {MAX_LINE}")),
        };
        if let Err(words) = read {
            faults.push(fault(number, words));
        }
        if faults.len() >= MAX_FAULTS {
            break;
        }
    }
    if faults.is_empty() && reader.cables.is_empty() {
        faults.push(fault(0, "there is no cable in the file".to_owned()));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    reader.finish()
}

impl Reader {
    fn line(&mut self, number: u32, line: &str) -> Result<(), String> {
        let Some(arrow) = arrow_at(line) else {
            self.section = None;
            let (kind, name) = system(line.trim())?;
            self.section = Some(self.system(kind, name)?);
            return Ok(());
        };
        let near = self
            .section
            .ok_or_else(|| "a port without a system before it".to_owned())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [own, _, kind, name, far] = words[..] else {
            return Err("write a port as PORT -> TYPE NAME PORT".to_owned());
        };
        let rate = rate(arrow)?;
        let near = (near, port(own)?);
        let far = (self.system(kind, name)?, port(far)?);
        self.cable(number, [near, far], rate)
    }

    fn system(&mut self, kind: &str, name: &str) -> Result<usize, String> {
        let at = *self.by_name.entry(name.to_owned()).or_insert(self.systems.len());
        if at == self.systems.len() {
            self.systems.push(System {
                kind: kind.to_owned(),
                name: name.to_owned(),
                ..System::default()
            });
        }
        match self.systems[at].kind == kind {
            true => Ok(at),
            false => Err(format!(
                "{name:?} is a {kind} here and a {} elsewhere",
                self.systems[at].kind
            )),
        }
    }

    fn cable(&mut self, line: u32, ends: [End; 2], rate: (Option<Width>, Option<Speed>)) -> Result<(), String> {
        let words = |reader: &Self, end: &End| {
            let adapter = end.1.0.as_ref().map(|adapter| format!("{adapter}/"));
            let name = &reader.systems[end.0].name;
            format!("{name} {}P{}", adapter.unwrap_or_default(), end.1.1)
        };
        if ends[0] == ends[1] {
            return Err(format!("{} is cabled to itself", words(self, &ends[0])));
        }
        for (near, far) in [(0, 1), (1, 0)] {
            let Some(&known) = self.at.get(&ends[near]) else {
                continue;
            };
            let known = &mut self.cables[known];
            // The same cable, described from its other end.
            if known.ends.contains(&ends[far]) && known.ends.contains(&ends[near]) {
                known.rate = (known.rate.0.or(rate.0), known.rate.1.or(rate.1));
                return Ok(());
            }
            let other = known.line;
            return Err(format!(
                "{} already has a cable, in line {other}",
                words(self, &ends[near])
            ));
        }
        for end in &ends {
            let system = &mut self.systems[end.0];
            match &end.1.0 {
                Some(_) => system.has_adapters = true,
                None => system.max_port = system.max_port.max(end.1.1),
            }
            self.at.insert(end.clone(), self.cables.len());
        }
        self.cables.push(Cable { line, ends, rate });
        Ok(())
    }

    /// Whether each type is a switch: some system of the type has a port above 2, or the type's name is that of a
    /// switch.
    fn switch_types(&self) -> BTreeMap<&str, bool> {
        let mut types: BTreeMap<&str, bool> = BTreeMap::new();
        for system in &self.systems {
            let is = types.entry(&system.kind).or_default();
            *is |= !is_adapter(&system.kind) && !system.has_adapters && is_switch(system);
        }
        types
    }

    fn finish(self) -> Result<Plan, Vec<PlanFault>> {
        let types = self.switch_types();
        let mut devices: Vec<PlannedDevice> = Vec::new();
        let mut places: BTreeMap<(usize, Option<&str>), usize> = BTreeMap::new();
        let mut faults = Vec::new();
        let mut cables = Vec::with_capacity(self.cables.len());
        for cable in &self.cables {
            let mut ends = [(0, 0); 2];
            for (place, (at, (adapter, port))) in ends.iter_mut().zip(&cable.ends) {
                let system = &self.systems[*at];
                let is_switch = types.get(&*system.kind).copied().unwrap_or(false);
                if is_switch && adapter.is_some() {
                    let text = format!("{} is a switch and has no adapters", system.name);
                    faults.push(PlanFault { line: cable.line, text });
                }
                let adapter = match is_switch {
                    true => None,
                    false => Some(adapter.as_deref().unwrap_or("HCA-1")),
                };
                let device = *places.entry((*at, adapter)).or_insert_with(|| {
                    devices.push(device(system, adapter));
                    devices.len() - 1
                });
                devices[device].port_count = devices[device].port_count.max(*port);
                *place = (device, *port);
            }
            let (width, speed) = cable.rate;
            let name = String::new();
            cables.push(PlannedCable {
                name,
                a: ends[0],
                b: ends[1],
                speed,
                width,
            });
        }
        faults.truncate(MAX_FAULTS);
        match faults.is_empty() {
            true => Plan::new(&devices, &cables),
            false => Err(faults),
        }
    }
}

/// Whether a type is a vendor's name for adapters, or the name that our writer uses for hosts.
fn is_adapter(kind: &str) -> bool {
    let kind = kind.to_ascii_uppercase();
    let numbered = kind
        .strip_prefix("MT")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    numbered
        || ["HCA", "HOST", "CA", "CX", "MCX", "MHX", "CONNECTX"]
            .iter()
            .any(|word| kind.starts_with(word))
}

fn is_switch(system: &System) -> bool {
    let (kind, name) = (system.kind.to_ascii_lowercase(), system.name.to_ascii_lowercase());
    let called = ["leaf", "spine", "core", "switch", "sw"];
    system.max_port > 2 || kind.starts_with("sw") || called.iter().take(4).any(|word| name.contains(word))
}

fn device(system: &System, adapter: Option<&str>) -> PlannedDevice {
    let name = match adapter {
        None => system.name.clone(),
        Some(adapter) => format!("{} {adapter}", system.name),
    };
    PlannedDevice {
        kind: match adapter {
            None => DeviceKind::Switch,
            Some(_) => DeviceKind::ChannelAdapter,
        },
        hca: None,
        ..PlannedDevice::switch(name, Role::Unknown, 0)
    }
}

/// A rate in the form of an arrow.
pub(super) fn arrow(rate: Option<Rate>) -> String {
    let Some(rate) = rate else { return "->".to_owned() };
    let speed = SPEEDS.iter().find(|(_, speed)| *speed == rate.speed);
    let unit = if rate.speed == Speed::Fdr10 { "" } else { "G" };
    match speed {
        Some((speed, _)) => format!("-{}-{speed}{unit}->", rate.width),
        None => format!("-{}->", rate.width),
    }
}
