//! Parses a dump. It terminates on any text and reports the unusable parts.

use std::collections::BTreeMap;

use super::line::{self, Header, Line, Peer, PortLine};
use super::{Dump, DumpError, DumpFault, DumpFinding, Note, Place};
use crate::guid::Guid;
use crate::model::{Device, DeviceIx, DeviceKind, FabricBuilder, MAX_PORT, PortRef};
use crate::rate::Rate;

/// Limits for reading a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a dump, in bytes. 100,000 channel adapters need about 120 MB.
    pub bytes: usize,
    /// Maximum length of a line, in bytes. Descriptions have at most 64.
    pub line_bytes: usize,
    /// Maximum number of devices.
    pub devices: usize,
    /// Maximum number of stored findings.
    pub findings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            line_bytes: 2_000,
            devices: 1_000_000,
            findings: 1_000,
        }
    }
}

/// Reads the output of `ibnetdiscover`.
///
/// # Errors
/// The text exceeds the limits or has no device. Any smaller fault is a finding.
pub fn read(bytes: &[u8], limits: Limits) -> Result<Dump, DumpError> {
    if bytes.len() > limits.bytes {
        return Err(DumpError::TooLarge {
            bytes: bytes.len(),
            most: limits.bytes,
        });
    }
    let text = String::from_utf8_lossy(bytes);
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    let mut reader = Reader::new(limits);
    let mut number = 0;
    for line in text.lines() {
        number += 1;
        if lossy && line.contains(char::REPLACEMENT_CHARACTER) {
            reader.find(number, DumpFault::NotText, "contains bytes that are not UTF-8");
        }
        reader.line(number, line)?;
    }
    reader.finish(number)
}

/// Data about the next device that precede its header.
#[derive(Default)]
struct DevicePrelude {
    vendor: u32,
    model: u32,
    system: Option<Guid>,
    port0_guid: Option<Guid>,
    notes: Vec<(Place, Box<str>)>,
}

/// A port's line, before it is joined with the line of the other end.
struct PendingPort<'a> {
    near: PortRef,
    peer: Peer<'a>,
    line: u32,
}

struct Reader<'a> {
    limits: Limits,
    builder: FabricBuilder,
    by_guid: BTreeMap<Guid, DeviceIx>,
    prelude: DevicePrelude,
    current: Option<DeviceIx>,
    pending: Vec<PendingPort<'a>>,
    notes: Vec<Note>,
    findings: Vec<DumpFinding>,
    more_findings: usize,
}

impl<'a> Reader<'a> {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            builder: FabricBuilder::default(),
            by_guid: BTreeMap::new(),
            prelude: DevicePrelude::default(),
            current: None,
            pending: Vec::new(),
            notes: Vec::new(),
            findings: Vec::new(),
            more_findings: 0,
        }
    }

    fn find(&mut self, line: u32, kind: DumpFault, text: impl Into<String>) {
        if self.findings.len() < self.limits.findings {
            let text = text.into();
            self.findings.push(DumpFinding { line, kind, text });
        } else {
            self.more_findings += 1;
        }
    }

    fn line(&mut self, number: u32, text: &'a str) -> Result<(), DumpError> {
        if text.len() > self.limits.line_bytes {
            let bytes = text.len();
            self.find(
                number,
                DumpFault::LongLine,
                format!("has {bytes} bytes; the line was skipped"),
            );
            return Ok(());
        }
        let Some(line) = line::parse(text) else {
            let shown: String = text.trim().chars().take(80).collect();
            self.find(number, DumpFault::UnknownLine, format!("not understood: {shown:?}"));
            return Ok(());
        };
        match line {
            Line::Blank | Line::AdapterGuid => {}
            Line::Remark(text) => self.note_prelude(Place::Before, text),
            Line::Vendor(vendor) => self.prelude.vendor = vendor,
            Line::Model(model) => self.prelude.model = model,
            Line::System(guid, note) => {
                self.prelude.system = guid;
                self.note_prelude(Place::System, note);
            }
            Line::SwitchGuid(_, port0, note) => {
                self.prelude.port0_guid = port0;
                self.note_prelude(Place::Guid, note);
            }
            Line::Header(header) => self.header(number, header)?,
            Line::Port(port) => self.port(number, port),
        }
        Ok(())
    }

    fn note_prelude(&mut self, place: Place, text: &str) {
        if !text.is_empty() {
            self.prelude.notes.push((place, text.into()));
        }
    }

    fn note(&mut self, device: DeviceIx, place: Place, text: &str) {
        if !text.is_empty() {
            let text = text.into();
            self.notes.push(Note { device, place, text });
        }
    }

    fn header(&mut self, line: u32, header: Header<'a>) -> Result<(), DumpError> {
        let prelude = std::mem::take(&mut self.prelude);
        if let Some(known) = self.by_guid.get(&header.guid) {
            self.current = Some(*known);
            let (kind, guid) = (header.kind.noun(), header.guid);
            let text = format!("{kind} {guid} was described before: two devices share a GUID, or the fabric changed");
            self.find(line, DumpFault::DuplicateDevice, text);
            return Ok(());
        }
        if self.by_guid.len() >= self.limits.devices {
            let most = self.limits.devices;
            return Err(DumpError::TooManyDevices { line, most });
        }
        let ports = header.ports.min(MAX_PORT);
        let ix = self.builder.device(Device {
            guid: Some(header.guid),
            vendor: prelude.vendor,
            model: prelude.model,
            system: prelude.system,
            port0_guid: prelude.port0_guid,
            lid: header.lid,
            lmc: header.lmc,
            enhanced: header.enhanced,
            ..Device::new(header.kind, header.name, ports)
        });
        self.by_guid.insert(header.guid, ix);
        for (place, text) in prelude.notes {
            self.note(ix, place, &text);
        }
        self.note(ix, Place::Device, header.note);
        self.current = Some(ix);
        Ok(())
    }

    fn port(&mut self, line: u32, pending: PortLine<'a>) {
        let Some(device) = self.current else {
            self.find(line, DumpFault::BadPort, "a port without a device before it");
            return;
        };
        let near = PortRef {
            device,
            port: pending.number,
        };
        if self.builder.known(near).is_some() {
            let text = format!("port {} of {} was described before", near.port, self.called(device));
            self.find(line, DumpFault::BadPort, text);
            return;
        }
        let (word, rest) = pending
            .rate
            .split_once(char::is_whitespace)
            .unwrap_or((pending.rate, ""));
        let (rate, note) = match word.parse::<Rate>() {
            Ok(rate) => (Some(rate), rest.trim()),
            Err(_) => (None, pending.rate),
        };
        match self.builder.port(near) {
            Ok(port) => {
                port.guid = pending.guid;
                (port.lid, port.lmc) = pending.own.unwrap_or_default();
                port.rate = rate;
                port.up = pending.peer.is_some();
            }
            Err(error) => {
                let text = format!("{}: {error}", self.called(device));
                self.find(line, DumpFault::BadPort, text);
                return;
            }
        }
        self.note(device, Place::Outside(near.port), pending.outside);
        self.note(device, Place::Port(near.port), note);
        if let Some(peer) = pending.peer {
            if rate.is_none() {
                let text = format!(
                    "port {} of {}: rate {word:?} is not known",
                    near.port,
                    self.called(device)
                );
                self.find(line, DumpFault::UnknownRate, text);
            }
            self.pending.push(PendingPort { near, peer, line });
        }
    }

    fn called(&self, ix: DeviceIx) -> String {
        let device = self.builder.get(ix);
        let guid = device.guid.map(|guid| guid.to_string()).unwrap_or_default();
        format!("{} {guid} {:?}", device.kind.noun(), device.name)
    }

    fn finish(mut self, lines: u32) -> Result<Dump, DumpError> {
        if self.by_guid.is_empty() {
            let first = self.findings.first().map(ToString::to_string);
            return Err(DumpError::NoDevice { lines, first });
        }
        let pending = std::mem::take(&mut self.pending);
        let sides: BTreeMap<PortRef, (Guid, u8)> = pending
            .iter()
            .map(|pending| (pending.near, (pending.peer.guid, pending.peer.port)))
            .collect();
        for pending in &pending {
            self.join(pending, &sides);
        }
        let mut trailing = std::mem::take(&mut self.prelude.notes);
        trailing.retain(|(place, _)| *place == Place::Before);
        for (place, text) in trailing {
            self.note(DeviceIx(u32::MAX), place, &text);
        }
        self.notes.sort_by_key(|note| (note.device, note.place));
        let mut fabric = self.builder;
        mark_aggregation_nodes(&mut fabric, &self.by_guid, &pending);
        self.findings.sort_by_key(|finding| finding.line);
        Ok(Dump {
            fabric: fabric.finish(),
            findings: self.findings,
            more_findings: self.more_findings,
            twice: Vec::new(),
            notes: self.notes,
        })
    }

    /// Connects a port with the peer in its line, after checking whether the peer's own line agrees.
    fn join(&mut self, pending: &PendingPort<'a>, sides: &BTreeMap<PortRef, (Guid, u8)>) {
        let PendingPort { near, peer, line } = pending;
        let far = PortRef {
            device: self.peer_device(peer),
            port: peer.port,
        };
        let own = self.builder.get(near.device).guid;
        let mutual = sides
            .get(&far)
            .is_some_and(|(guid, port)| Some(*guid) == own && *port == near.port);
        let linked = self.builder.known(*near).and_then(|port| port.link);
        if mutual {
            self.compare(pending, far);
            if linked.is_some() {
                return;
            }
        }
        let here = format!("port {} of {}", near.port, self.called(near.device));
        let there = format!("port {} of {}", far.port, self.called(far.device));
        if !mutual && sides.contains_key(&far) {
            let text = format!("{here} names {there}, which names another port");
            self.find(*line, DumpFault::Contradiction, text);
            return;
        }
        let rate = self.builder.known(*near).and_then(|port| port.rate);
        if let Err(error) = self.builder.connect(*near, far, rate) {
            let text = format!("{here} to {there}: {error}");
            self.find(*line, DumpFault::Contradiction, text);
            return;
        }
        if !mutual {
            if let Ok(port) = self.builder.port(far) {
                port.guid = port.guid.or(peer.port_guid);
                port.lid = if peer.kind == DeviceKind::Switch { 0 } else { peer.lid };
            }
            self.find(
                *line,
                DumpFault::OneSided,
                format!("{there} does not list its link to {here}"),
            );
        }
    }

    /// The device in a port's line. It is added if it has no block.
    fn peer_device(&mut self, peer: &Peer<'a>) -> DeviceIx {
        if let Some(known) = self.by_guid.get(&peer.guid) {
            let known = *known;
            let device = self.builder.get(known);
            let blockless = device.port_count < peer.port && device.vendor == 0 && device.model == 0;
            if blockless {
                self.builder.device_mut(known).port_count = peer.port.min(MAX_PORT);
            }
            return known;
        }
        let ix = self.builder.device(Device {
            guid: Some(peer.guid),
            lid: if peer.kind == DeviceKind::Switch { peer.lid } else { 0 },
            ..Device::new(peer.kind, peer.name, peer.port.min(MAX_PORT))
        });
        self.by_guid.insert(peer.guid, ix);
        ix
    }

    /// Compares the far end's data in a port's line with the far end's own block.
    fn compare(&mut self, pending: &PendingPort<'a>, far: PortRef) {
        let device = self.builder.get(far.device);
        let port = self.builder.known(far);
        let lid = match device.kind {
            DeviceKind::Switch => device.lid,
            _ => port.map_or(0, |port| port.lid),
        };
        let peer = &pending.peer;
        let own_guid = port.and_then(|port| port.guid);
        let guid_differs = own_guid.is_some() && peer.port_guid.is_some() && own_guid != peer.port_guid;
        let what = if *device.name != *peer.name {
            "description"
        } else if lid != peer.lid {
            "LID"
        } else if guid_differs {
            "port GUID"
        } else {
            return;
        };
        let text = format!(
            "the {what} of the far end, {}, differs from its own block",
            self.called(far.device)
        );
        self.find(pending.line, DumpFault::Contradiction, text);
    }
}

/// The vendor's device id of aggregation nodes in Switch-IB 2 and later.
const AGGREGATION_NODE: u32 = 0xcf09;

/// Distinguishes SHARP's aggregation nodes from the channel adapters of machines.
///
/// An aggregation node is known by its description or device id. Otherwise it has a single port and is behind the last
/// port of a switch of the same system, beyond the switch's round number of ports (37, 41, 65, 81, 129, 145).
fn mark_aggregation_nodes(
    builder: &mut FabricBuilder,
    by_guid: &BTreeMap<Guid, DeviceIx>,
    pending: &[PendingPort<'_>],
) {
    let mut found: Vec<DeviceIx> = Vec::new();
    for ix in by_guid.values() {
        let device = builder.get(*ix);
        let named = device.name.to_ascii_lowercase().contains("aggregation node");
        if device.is_adapter() && (named || device.model == AGGREGATION_NODE) {
            found.push(*ix);
        }
    }
    for PendingPort { near, peer, .. } in pending {
        let (adapter, Some(switch)) = (builder.get(near.device), by_guid.get(&peer.guid)) else {
            continue;
        };
        let switch = builder.get(*switch);
        let behind_last = peer.port == switch.port_count && matches!(peer.port, 37 | 41 | 65 | 81 | 129 | 145);
        let same_system = adapter.system.is_some() && adapter.system == switch.system;
        if adapter.is_adapter() && adapter.port_count == 1 && switch.is_switch() && behind_last && same_system {
            found.push(near.device);
        }
    }
    for ix in found {
        builder.device_mut(ix).kind = DeviceKind::AggregationNode;
    }
}
