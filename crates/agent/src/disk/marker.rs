//! The claim generation on a written drive: the file `rackwright/image` of the seed partition has lines of `key=value`, of
//! which `generation` and, if present, `node` are used.
//!
//! It protects a newer installation against a control plane that was reset to an older state. The installed system's root
//! can change it, so a marker can only make the agent more careful. A marker of another node, or one implausibly far ahead
//! of the control plane's generation, is ignored and reported.

use std::fs::File;
use std::path::Path;

use super::Window;
use super::fat::Fat;
use super::gpt::{Gpt, TYPE_BASIC_DATA};
use super::seed::SEED_LABEL;

const MAX_MARKER_BYTES: usize = 64 << 10;
/// A marker that is further ahead of the control plane's generation than this counts as forged.
pub const MAX_LEAD: u64 = 1 << 20;

/// The content of one drive's marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Name of the drive.
    pub drive: String,
    /// Value of `generation=N`.
    pub generation: u64,
    /// Value of `node=nodes/NAME`.
    pub node: Option<String>,
}

impl Marker {
    /// Whether the agent of `node` uses the marker. `registered_generation` is the generation from the control plane.
    pub fn counts(&self, node: &str, registered_generation: u64) -> bool {
        let same_node = self.node.as_deref().is_none_or(|named| named == node);
        same_node && self.generation <= registered_generation.saturating_add(MAX_LEAD)
    }
}

/// Reads the marker of a drive; `None` without a readable marker.
pub fn read(drive: &str, path: &Path, sector_bytes: u64) -> Option<Marker> {
    let file = File::open(path).ok()?;
    let gpt = Gpt::read(&file, sector_bytes).ok()?;
    gpt.partitions()
        .filter(|partition| partition.type_guid == TYPE_BASIC_DATA)
        .find_map(|partition| {
            let (start, length) = gpt.extent(&partition);
            let window = Window {
                file: &file,
                start,
                length,
            };
            let fat = Fat::open(&window).ok()?;
            if fat.label().ok()?? != SEED_LABEL {
                return None;
            }
            parse(
                drive,
                &String::from_utf8_lossy(&fat.read("rackwright", "image", MAX_MARKER_BYTES).ok()?),
            )
        })
}

/// Parses the text of a drive's marker; `None` without a generation.
pub fn parse(drive: &str, text: &str) -> Option<Marker> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))
    };
    let generation = value("generation")?.trim().parse().ok()?;
    let node = value("node")
        .map(|node| node.trim().to_owned())
        .filter(|node| !node.is_empty());
    Some(Marker {
        drive: drive.to_owned(),
        generation,
        node,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing() {
        let marker = parse("vda", "digest=b3-00\ngeneration=12\nnode=nodes/gpu-001\n").unwrap();
        assert_eq!((marker.generation, marker.node.as_deref()), (12, Some("nodes/gpu-001")));
        for wrong in ["", "generation=", "generation=-1", "generation=twelve", "generations=1"] {
            assert_eq!(parse("vda", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_a_plausible_marker_of_this_node_counts() {
        let marker = |generation, node: Option<&str>| Marker {
            drive: "vda".into(),
            generation,
            node: node.map(str::to_owned),
        };
        let table = [
            (marker(7, None), true),
            (marker(7, Some("nodes/a")), true),
            (marker(7, Some("nodes/b")), false),
            (marker(5 + MAX_LEAD, None), true),
            (marker(6 + MAX_LEAD, None), false),
            (marker(u64::MAX, Some("nodes/a")), false),
        ];
        for (marker, counts) in table {
            assert_eq!(marker.counts("nodes/a", 5), counts, "{marker:?}");
        }
    }
}
