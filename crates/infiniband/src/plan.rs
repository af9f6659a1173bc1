//! The planned fabric: devices, and cables with names and wanted rates.

use std::collections::BTreeMap;
use std::fmt;

use super::guid::Guid;
use super::model::{Device, DeviceIx, DeviceKind, Fabric, FabricBuilder, LinkIx, PortRef, Role};
use super::name;
use super::rate::{Rate, Speed, Width};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDevice {
    /// The name, unique in the plan. A channel adapter has the form `gpu-093 mlx5_3`, like its future description.
    pub name: String,
    pub kind: DeviceKind,
    /// The role of a switch.
    pub role: Role,
    /// Node GUID or port GUID, if known.
    pub guid: Option<Guid>,
    /// Number of ports.
    pub port_count: u8,
    /// Rail of an adapter or a leaf, from 0.
    pub rail: Option<u8>,
    /// The usual number of the adapter in its machine (`3` for HCA 3). `None`: taken from the name.
    pub hca: Option<u16>,
}

impl PlannedDevice {
    /// A switch with this role.
    pub fn switch(name: impl Into<String>, role: Role, port_count: u8) -> Self {
        Self {
            name: name.into(),
            kind: DeviceKind::Switch,
            role,
            guid: None,
            port_count,
            rail: None,
            hca: None,
        }
    }

    /// A channel adapter with one port.
    pub fn adapter(name: impl Into<String>, hca: u16, rail: u8) -> Self {
        Self {
            name: name.into(),
            kind: DeviceKind::ChannelAdapter,
            role: Role::Unknown,
            guid: None,
            port_count: 1,
            rail: Some(rail),
            hca: Some(hca),
        }
    }
}

/// A planned cable. An end is an index in the list of devices and a port number from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCable {
    /// The text on the label.
    pub name: String,
    /// One end.
    pub a: (usize, u8),
    /// The other end.
    pub b: (usize, u8),
    /// The wanted speed. `None`: any.
    pub speed: Option<Speed>,
    /// The wanted number of lanes. `None`: any.
    pub width: Option<Width>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFault {
    /// Line in the source file, from 1. 0 if there is no file.
    pub line: u32,
    /// The fault and its subject.
    pub text: String,
}

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.text),
            line => write!(f, "line {line}: {}", self.text),
        }
    }
}

/// The wanted properties of a cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CableSpec {
    pub(super) name: Box<str>,
    pub(super) speed: Option<Speed>,
    pub(super) width: Option<Width>,
}

/// The planned fabric.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    fabric: Fabric,
    cables: Vec<CableSpec>,
    hcas: Vec<Option<u16>>,
}

impl Plan {
    /// Creates a plan from devices and cables.
    ///
    /// # Errors
    /// All faults: duplicate names and GUIDs, ports that do not exist or have two cables.
    pub fn new(devices: &[PlannedDevice], cables: &[PlannedCable]) -> Result<Self, Vec<PlanFault>> {
        let (mut builder, mut faults) = (FabricBuilder::default(), Vec::new());
        let fault = |text: String| PlanFault { line: 0, text };
        let (mut names, mut guids) = (BTreeMap::new(), BTreeMap::new());
        let mut ixs = Vec::with_capacity(devices.len());
        for device in devices {
            let name = &device.name;
            if names.insert(name::key(name), ()).is_some() {
                faults.push(fault(format!("two devices have the name {name:?}")));
            }
            if let Some(guid) = device.guid
                && let Some(other) = guids.insert(guid, name)
            {
                faults.push(fault(format!("{name:?} and {other:?} have the same GUID, {guid}")));
            }
            ixs.push(builder.device(Device {
                role: device.role,
                guid: device.guid,
                rail: device.rail,
                ..Device::new(device.kind, name, device.port_count)
            }));
        }
        let mut wanted = Vec::with_capacity(cables.len());
        for cable in cables {
            let end = |(device, port): (usize, u8)| {
                let device = *ixs.get(device)?;
                Some(PortRef { device, port })
            };
            let (Some(a), Some(b)) = (end(cable.a), end(cable.b)) else {
                faults.push(fault(format!(
                    "cable {}: the device of an end is not in the plan",
                    cable.name
                )));
                continue;
            };
            let rate = cable.speed.zip(cable.width).map(|(speed, width)| Rate { width, speed });
            match builder.connect(a, b, rate) {
                Ok(_) => wanted.push(CableSpec {
                    name: cable.name.as_str().into(),
                    speed: cable.speed,
                    width: cable.width,
                }),
                Err(error) => {
                    let (a, b) = (&builder.get(a.device).name, &builder.get(b.device).name);
                    let text = format!("cable {} from {a:?} to {b:?}: {error}", cable.name);
                    faults.push(fault(text));
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            fabric: builder.finish(),
            cables: wanted,
            hcas: devices.iter().map(|device| device.hca).collect(),
        })
    }

    /// Uses a discovered fabric as the plan. Its cables have no names, and the present rates are wanted.
    pub fn of_reference(fabric: Fabric) -> Self {
        let cables = fabric
            .links()
            .map(|(ix, _)| {
                let rate = fabric.link_rate(ix);
                CableSpec {
                    name: "".into(),
                    speed: rate.map(|rate| rate.speed),
                    width: rate.map(|rate| rate.width),
                }
            })
            .collect();
        let hcas = vec![None; fabric.devices().len()];
        Self { fabric, cables, hcas }
    }

    /// The planned devices and links.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The label of a cable. Empty if it has none.
    pub fn cable_name(&self, link: LinkIx) -> &str {
        &self.cables[link.0 as usize].name
    }

    pub(super) fn wanted(&self, link: LinkIx) -> &CableSpec {
        &self.cables[link.0 as usize]
    }

    /// Such as `cable 0417`, or the two ends if the cable has no name.
    pub fn cable_text(&self, link: LinkIx) -> String {
        match self.cable_name(link) {
            "" => {
                let link = self.fabric.link(link);
                format!("cable {} to {}", self.end_text(link.a), self.end_text(link.b))
            }
            name => format!("cable {name}"),
        }
    }

    /// Such as `leaf-12` or `HCA 3 of node gpu-093`.
    pub fn device_text(&self, ix: DeviceIx) -> String {
        device_text(&self.fabric, ix, self.hcas[ix.0 as usize])
    }

    /// Such as `leaf-12 port 5` or `HCA 3 of node gpu-093`.
    pub fn end_text(&self, end: PortRef) -> String {
        end_text(&self.fabric, end, self.hcas[end.device.0 as usize])
    }
}

/// A device in words: by its name if the name identifies it, otherwise by its GUID.
pub fn device_text(fabric: &Fabric, ix: DeviceIx, hca: Option<u16>) -> String {
    let device = fabric.device(ix);
    if let Some(host) = device.host() {
        return match hca {
            Some(hca) => format!("HCA {hca} of node {}", host.machine),
            None => format!("HCA {} of node {}", host.adapter, host.machine),
        };
    }
    let (noun, name) = (device.kind.noun(), name::proper(&device.name));
    match device.guid {
        Some(guid) if name.is_empty() => format!("{noun} {guid}"),
        Some(guid) if name::is_generic(name) => format!("{noun} {guid} ({name:?})"),
        _ => name.to_owned(),
    }
}

/// A port in words. The only port of an adapter has no number.
pub fn end_text(fabric: &Fabric, end: PortRef, hca: Option<u16>) -> String {
    let device = device_text(fabric, end.device, hca);
    let known = fabric.device(end.device);
    if known.kind == DeviceKind::ChannelAdapter && known.port_count == 1 {
        device
    } else {
        format!("{device} port {}", end.port)
    }
}
