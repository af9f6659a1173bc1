//! Writes topology files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::read::arrow;
use crate::model::{Device, Fabric, PortRef};
use crate::name::natural;

/// A section: sort key, type and name.
type Section = (Vec<(String, u64)>, String, String);
/// A line of a section: the port's number and name as the sort key, and the text.
type Line = (u8, String, String);
/// Type and name of a system, and the name of its port.
type End = (String, String, String);

/// Writes a fabric as a topology file with both ends of each cable. The types of systems are Rackwright's own: `SW64`
/// for a switch with 64 ports and `HOST` for a machine. For types that ibutils defines, replace them in the file.
/// Blanks and slashes in device names, which the format does not allow, become dashes.
#[must_use]
pub fn write(fabric: &Fabric, title: &str) -> String {
    let mut sections: BTreeMap<Section, Vec<Line>> = BTreeMap::new();
    for (ix, link) in fabric.links() {
        let rate = arrow(fabric.link_rate(ix));
        for (near, far) in [(link.a, link.b), (link.b, link.a)] {
            let (kind, name, port) = end(fabric, near);
            let (far_kind, far_name, far_port) = end(fabric, far);
            let line = format!("    {port} {rate} {far_kind} {far_name} {far_port}");
            let key = (natural_key(&name), kind, name);
            sections.entry(key).or_default().push((near.port, port, line));
        }
    }
    let mut text = format!("# {}\n", title.replace(['\n', '\r'], " "));
    for ((_, kind, name), mut lines) in sections {
        lines.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| natural(&a.1, &b.1)));
        let _ = writeln!(text, "\n{kind} {name}");
        for (_, _, line) in lines {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn end(fabric: &Fabric, end: PortRef) -> End {
    let device = fabric.device(end.device);
    match device.host() {
        Some(host) => (
            "HOST".to_owned(),
            plain(host.machine),
            format!("{}/P{}", host.adapter, end.port),
        ),
        None => (kind(device), named(device), format!("P{}", end.port)),
    }
}

fn kind(device: &Device) -> String {
    match device.is_switch() {
        true => format!("SW{}", device.port_count),
        false => format!("HCA{}", device.port_count),
    }
}

fn named(device: &Device) -> String {
    match (device.name.trim(), device.guid) {
        ("", Some(guid)) => format!("{guid}"),
        ("", None) => "unnamed".to_owned(),
        (name, _) => plain(name),
    }
}

/// Replaces characters with a meaning in the format.
fn plain(name: &str) -> String {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '=' | '"' | ',' | '>' | '#');
    name.replace(bad, "-")
}

/// Sorts numbers in names numerically: leaf-2 before leaf-10.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut key = vec![(String::new(), 0u64)];
    let mut in_number = false;
    for c in name.chars() {
        let last = key.len() - 1;
        match c.to_digit(10) {
            Some(digit) => {
                key[last].1 = key[last].1.saturating_mul(10).saturating_add(digit.into());
                in_number = true;
            }
            None => {
                if in_number {
                    key.push((String::new(), 0));
                    in_number = false;
                }
                let last = key.len() - 1;
                key[last].0.push(c);
            }
        }
    }
    key
}
