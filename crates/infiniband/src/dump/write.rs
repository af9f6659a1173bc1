//! Writes a fabric in the form of `ibnetdiscover`.

use std::fmt::Write as _;

use super::{Dump, Note, Place};
use crate::guid::Guid;
use crate::model::{Device, DeviceIx, DeviceKind, Fabric, Port, PortRef};

impl Dump {
    /// A dump of a fabric that does not come from a dump.
    pub fn of(fabric: Fabric) -> Self {
        Self {
            fabric,
            ..Self::default()
        }
    }

    /// Writes the dump in the form of `ibnetdiscover`. Reading it gives the same fabric. Devices without a GUID are
    /// omitted.
    pub fn write(&self) -> String {
        let mut out = String::new();
        for (ix, device) in self.fabric.devices() {
            if let Some(guid) = device.guid {
                self.block(&mut out, ix, device, guid);
            }
        }
        for note in self.notes_at(DeviceIx(u32::MAX)) {
            out.push_str(&note.text);
            out.push('\n');
        }
        out
    }

    fn notes_at(&self, device: DeviceIx) -> &[Note] {
        let from = self.notes.partition_point(|note| note.device < device);
        let to = self.notes.partition_point(|note| note.device <= device);
        &self.notes[from..to]
    }

    fn note(&self, device: DeviceIx, place: Place, lead: &str) -> String {
        let found = self.notes_at(device).iter().find(|note| note.place == place);
        found.map(|note| format!("{lead}{}", note.text)).unwrap_or_default()
    }

    fn block(&self, out: &mut String, ix: DeviceIx, device: &Device, guid: Guid) {
        let before = self.notes_at(ix).iter().filter(|note| note.place == Place::Before);
        for note in before {
            out.push_str(&note.text);
            out.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = write!(out, "\nvendid={:#x}\ndevid={:#x}\n", device.vendor, device.model);
        if let Some(system) = device.system {
            let note = self.note(ix, Place::System, "\t\t");
            let _ = writeln!(out, "sysimgguid={:#x}{note}", system.get());
        }
        let (ports, id, note) = (device.port_count, id(device, guid), self.note(ix, Place::Device, " "));
        let name = &device.name;
        if device.is_switch() {
            let port0 = device
                .port0_guid
                .map(|port0| format!("({:x})", port0.get()))
                .unwrap_or_default();
            let beside = self.note(ix, Place::Guid, "\t");
            let port0_kind = if device.enhanced { "enhanced" } else { "base" };
            let _ = writeln!(out, "switchguid={:#x}{port0}{beside}", guid.get());
            let _ = writeln!(
                out,
                "Switch\t{ports} {id}\t\t# \"{name}\" {port0_kind} port 0 lid {} lmc {}{note}",
                device.lid, device.lmc
            );
        } else {
            let (small, large) = match device.kind {
                DeviceKind::Router => ("rt", "Rt"),
                _ => ("ca", "Ca"),
            };
            let _ = writeln!(out, "{small}guid={:#x}", guid.get());
            let _ = writeln!(out, "{large}\t{ports} {id}\t\t# \"{name}\"{note}");
        }
        for port in self.fabric.ports(ix) {
            self.port(out, ix, device, port);
        }
    }

    fn port(&self, out: &mut String, ix: DeviceIx, device: &Device, port: &Port) {
        let near = PortRef {
            device: ix,
            port: port.number,
        };
        let Some(far) = self.fabric.far_end(near) else { return };
        let peer = self.fabric.device(far.device);
        let Some(peer_guid) = peer.guid else { return };
        let Some(peer_port) = self.fabric.port(far) else { return };
        let outside = self.note(ix, Place::Outside(port.number), "");
        let _ = write!(out, "[{}]{outside}", port.number);
        if !device.is_switch()
            && let Some(guid) = port.guid
        {
            let _ = write!(out, "({:x}) ", guid.get());
        }
        let peer_outside = self.note(far.device, Place::Outside(far.port), "");
        let _ = write!(out, "\t{}[{}]{peer_outside}", id(peer, peer_guid), far.port);
        if !peer.is_switch()
            && let Some(guid) = peer_port.guid
        {
            let _ = write!(out, "({:x}) ", guid.get());
        }
        out.push_str("\t\t# ");
        if !device.is_switch() {
            let _ = write!(out, "lid {} lmc {} ", port.lid, port.lmc);
        }
        let lid = if peer.is_switch() { peer.lid } else { peer_port.lid };
        let _ = write!(out, "\"{}\" lid {lid}", peer.name);
        if let Some(rate) = port.rate {
            let _ = write!(out, " {rate}");
        }
        let _ = writeln!(out, "{}", self.note(ix, Place::Port(port.number), " "));
    }
}

/// `"S-0002c90200417670"`.
fn id(device: &Device, guid: Guid) -> String {
    let letter = match device.kind {
        DeviceKind::Switch => 'S',
        DeviceKind::ChannelAdapter | DeviceKind::AggregationNode => 'H',
        DeviceKind::Router => 'R',
    };
    format!("\"{letter}-{:016x}\"", guid.get())
}
