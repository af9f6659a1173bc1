//! A placement as text: its pods and units, with one character for each host.

use std::fmt::Write;

use super::hall::Hall;
use super::links::bits;
use super::request::{Placement, UnitShare};
use super::spec::NodeId;

/// Draws the pods of the placement. In pods of more than 48 units, only the units of the placement.
///
/// `#` is a node of the placement, `s` a spare, `.` a free node, `x` a node of another cluster, `-` a node held out.
#[must_use]
pub fn draw(hall: &Hall, placement: &Placement) -> String {
    let mut pods: Vec<_> = placement.units.iter().map(|u| u.pod).collect();
    pods.sort_unstable();
    pods.dedup();
    let (nodes, spares, units) = (placement.nodes.len(), placement.spares.len(), placement.units.len());
    let mut out = format!(
        "{} and {} in {} of {}\n",
        counted(nodes, "node"),
        counted(spares, "spare"),
        counted(units, "unit"),
        counted(pods.len(), "pod")
    );
    for pod in pods {
        let Some(known) = hall.pods.get(pod.at()) else {
            continue;
        };
        let above: Vec<_> = placement.cores.iter().filter(|c| c.pod == pod).collect();
        let _ = write!(out, "{}", hall.spec.pods[pod.at()].name);
        if !above.is_empty() {
            let links: u32 = above.iter().map(|c| c.links.count_ones()).sum();
            let _ = write!(
                out,
                ": {links} links to cores above {} spines on each rail",
                above.len()
            );
        }
        out.push('\n');
        let whole = known.units.len() <= 48;
        for (place, unit) in known.units.clone().enumerate() {
            let share = placement.units.iter().find(|u| u.unit.0 == unit);
            if whole || share.is_some() {
                let name = &hall.spec.pods[pod.at()].units[place];
                draw_unit(hall, placement, name, unit, share, &mut out);
            }
        }
    }
    out.push_str("# node  s spare  . free  x taken  - out of service\n");
    out
}

fn draw_unit(hall: &Hall, placement: &Placement, name: &str, at: u32, share: Option<&UnitShare>, out: &mut String) {
    let unit = &hall.units[at as usize];
    let mine = share.map_or(0, |s| s.hosts);
    let host = |place: usize| {
        let bit = 1 << place;
        if mine & bit != 0 {
            let spare = placement.spares.contains(&NodeId(unit.nodes[place]));
            return if spare { 's' } else { '#' };
        }
        match (unit.taken & bit != 0, unit.excluded & bit != 0) {
            (true, _) => 'x',
            (_, true) => '-',
            _ => '.',
        }
    };
    let hosts: String = (0..unit.nodes.len()).map(host).collect();
    let _ = write!(out, "  {name:<10} {hosts}");
    if let Some(share) = share {
        let links: Vec<_> = bits(share.links).collect();
        let _ = write!(out, "  {} nodes", mine.count_ones());
        if !links.is_empty() {
            let _ = write!(out, ", uplinks {}", ranges(&links));
        }
    }
    out.push('\n');
}

/// Such as `0-3,7` for 0, 1, 2, 3, 7.
fn ranges(numbers: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|&(&n, want)| n == want).count();
        let comma = if out.is_empty() { "" } else { "," };
        let _ = match run {
            1 => write!(out, "{comma}{first}"),
            n => write!(out, "{comma}{first}-{}", first + n as u32 - 1),
        };
        rest = &rest[run..];
    }
    out
}

fn counted(count: usize, what: &str) -> String {
    let many = if count == 1 { "" } else { "s" };
    format!("{count} {what}{many}")
}
