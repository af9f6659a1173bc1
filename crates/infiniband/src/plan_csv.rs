//! A cabling list from a spreadsheet: `cable,device_a,port_a,device_b,port_b,speed,width`.
//!
//! The first line names the columns, in any order. `speed`, `width`, `guid_a` and `guid_b` are optional, and their
//! cells may be empty. A port is a number, or an adapter with an optional port number: `5`, `mlx5_3`, `mlx5_3/2`,
//! `HCA-3`, `HCA 3`. Device `gpu-093` with port `mlx5_3` equals device `gpu-093 mlx5_3` with port `1`.

use std::collections::BTreeMap;

use super::guid::Guid;
use super::model::{DeviceKind, MAX_PORT, Role};
use super::name;
use super::plan::{Plan, PlanFault, PlannedCable, PlannedDevice};

/// Maximum size of a list, in bytes.
const MAX_BYTES: usize = 256 << 20;
/// Maximum number of reported faults.
const MAX_FAULTS: usize = 100;
const NEEDED: [&str; 5] = ["cable", "device_a", "port_a", "device_b", "port_b"];

impl Plan {
    /// Reads a cabling list.
    ///
    /// # Errors
    /// The first 100 faults, with their lines.
    pub fn from_csv(text: &str) -> Result<Self, Vec<PlanFault>> {
        if text.len() > MAX_BYTES {
            let text = format!("the list has {} bytes; the limit is {MAX_BYTES}", text.len());
            return Err(vec![PlanFault { line: 0, text }]);
        }
        let mut list = List::default();
        let mut lines = (1u32..).zip(text.lines()).filter(|(_, line)| !blank(line));
        let columns = match lines.next() {
            Some((line, header)) => Columns::of(header).map_err(|text| vec![PlanFault { line, text }])?,
            None => {
                return Err(vec![PlanFault {
                    line: 1,
                    text: "the list is empty".to_owned(),
                }]);
            }
        };
        for (line, text) in lines {
            if let Err(text) = list.row(&columns, line, text) {
                list.faults.push(PlanFault { line, text });
            }
            if list.faults.len() >= MAX_FAULTS {
                break;
            }
        }
        list.finish()
    }
}

fn blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

struct Columns(BTreeMap<String, usize>);

impl Columns {
    fn of(header: &str) -> Result<Self, String> {
        let cells = cells(header.trim_start_matches('\u{feff}'))?;
        let found: BTreeMap<String, usize> = cells
            .iter()
            .enumerate()
            .map(|(at, cell)| (cell.trim().to_ascii_lowercase(), at))
            .collect();
        match NEEDED.into_iter().find(|needed| !found.contains_key(*needed)) {
            Some(missing) => Err(format!(
                "no column {missing:?}: the first line must name cable, device_a, port_a, device_b, port_b, and may name \
                 speed, width, guid_a, guid_b"
            )),
            None => Ok(Self(found)),
        }
    }

    fn cell<'a>(&self, row: &'a [String], column: &str) -> &'a str {
        let cell = self.0.get(column).and_then(|at| row.get(*at));
        cell.map(|cell| cell.trim()).unwrap_or_default()
    }
}

/// The cells of a line, quoted as in RFC 4180, but without line breaks in cells.
fn cells(line: &str) -> Result<Vec<String>, String> {
    let mut cells = vec![String::new()];
    let (mut quoted, mut chars) = (false, line.chars().peekable());
    while let Some(c) = chars.next() {
        let last = cells.len() - 1;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cells[last].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells[last].push(c),
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    Ok(cells)
}

#[derive(Default)]
struct Seen {
    name: String,
    guid: Option<Guid>,
    cables: u32,
    max_port: u8,
    adapter: bool,
    beside_adapter: bool,
}

#[derive(Default)]
struct List {
    by_name: BTreeMap<String, usize>,
    devices: Vec<Seen>,
    cables: Vec<PlannedCable>,
    lines: BTreeMap<(usize, u8), u32>,
    faults: Vec<PlanFault>,
}

impl List {
    fn row(&mut self, columns: &Columns, line: u32, text: &str) -> Result<(), String> {
        let row = cells(text)?;
        let named = |column: &str| match columns.cell(&row, column) {
            "" => Err(format!("{column} is empty")),
            cell => Ok(cell),
        };
        let name = named("cable")?.to_owned();
        let speed = optional(columns.cell(&row, "speed"))?;
        let width = optional(columns.cell(&row, "width"))?;
        let guid_a: Option<Guid> = optional(columns.cell(&row, "guid_a"))?;
        let guid_b: Option<Guid> = optional(columns.cell(&row, "guid_b"))?;
        let a = place(named("device_a")?, named("port_a")?)?;
        let b = place(named("device_b")?, named("port_b")?)?;
        let (a, b) = (self.device(a, guid_a)?, self.device(b, guid_b)?);
        if a == b {
            let device = &self.devices[a.0].name;
            return Err(format!("{device:?} port {} is cabled to itself", a.1));
        }
        let mut taken = Vec::new();
        for end in [a, b] {
            // The line of the port's first cable stays, so that every further cable of the port names that line.
            let first = *self.lines.entry(end).or_insert(line);
            if first != line {
                let device = &self.devices[end.0].name;
                taken.push(format!(
                    "{device:?} port {} already has a cable, in line {first}",
                    end.1
                ));
            }
        }
        if !taken.is_empty() {
            return Err(taken.join("; "));
        }
        for (near, far) in [(a, b), (b, a)] {
            let beside_adapter = self.devices[far.0].adapter;
            let seen = &mut self.devices[near.0];
            seen.cables += 1;
            seen.max_port = seen.max_port.max(near.1);
            seen.beside_adapter |= beside_adapter;
        }
        self.cables.push(PlannedCable {
            name,
            a,
            b,
            speed,
            width,
        });
        Ok(())
    }

    fn device(&mut self, (name, port): (String, u8), guid: Option<Guid>) -> Result<(usize, u8), String> {
        let at = *self.by_name.entry(name::key(&name)).or_insert(self.devices.len());
        if at == self.devices.len() {
            self.devices.push(Seen {
                adapter: name::host(&name).is_some(),
                guid: name.parse().ok(),
                name,
                ..Seen::default()
            });
        }
        let seen = &mut self.devices[at];
        if let Some(new) = guid {
            // The first GUID stays, so that every other GUID is compared with the first.
            let first = *seen.guid.get_or_insert(new);
            if first != new {
                return Err(format!(
                    "{:?} has GUID {first} in another line, but {new} here",
                    seen.name
                ));
            }
        }
        Ok((at, port))
    }

    fn finish(self) -> Result<Plan, Vec<PlanFault>> {
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        let devices: Vec<PlannedDevice> = self.devices.into_iter().map(planned).collect();
        Plan::new(&devices, &self.cables)
    }
}

/// Words in the names of switches.
const SWITCHES: [&str; 5] = ["leaf", "spine", "core", "switch", "sw-"];

/// A list does not mark switches. A device is a switch if its name contains such a word, if it has many cables or
/// ports, or if it is connected to an adapter.
fn planned(seen: Seen) -> PlannedDevice {
    let name = seen.name.to_ascii_lowercase();
    let called = SWITCHES.iter().any(|word| name.contains(word));
    let switch = !seen.adapter && (called || seen.beside_adapter || seen.cables > 2 || seen.max_port > 2);
    PlannedDevice {
        name: seen.name,
        kind: if switch {
            DeviceKind::Switch
        } else {
            DeviceKind::ChannelAdapter
        },
        role: Role::Unknown,
        guid: seen.guid,
        port_count: seen.max_port,
        rail: None,
        hca: None,
    }
}

fn optional<T: std::str::FromStr<Err: ToString>>(cell: &str) -> Result<Option<T>, String> {
    match cell {
        "" => Ok(None),
        cell => cell.parse().map(Some).map_err(|error: T::Err| error.to_string()),
    }
}

/// The name of the device and the number of its port. The name of an adapter is the machine's name and the adapter's name.
fn place(device: &str, port: &str) -> Result<(String, u8), String> {
    let number = |text: &str| match text.parse() {
        Ok(number) if (1..=MAX_PORT).contains(&number) => Ok(number),
        _ => Err(format!(
            "{text:?} is not a port: write a number from 1 to {MAX_PORT}, or an adapter such as mlx5_3"
        )),
    };
    if let Ok(number) = number(port) {
        return Ok((device.to_owned(), number));
    }
    let (adapter, own) = match port.split_once('/') {
        Some((adapter, own)) => (adapter, number(own)?),
        None => (port, 1),
    };
    let adapter = match adapter
        .to_ascii_uppercase()
        .strip_prefix("HCA")
        .map(|n| n.trim_start_matches(['-', ' ']))
    {
        Some(n) => format!("HCA-{n}"),
        None => adapter.to_owned(),
    };
    let name = format!("{device} {adapter}");
    match name::host(&name) {
        Some(_) => Ok((name, own)),
        None => Err(number(port).err().unwrap_or_default()),
    }
}
