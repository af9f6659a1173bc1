//! Imports of dumps, for several tests.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::collections::BTreeSet;

use rackwright_import::{DumpOptions, Imported, Options, SkuFile, from_dump};
use rackwright_infiniband::{Dump, Fabric};

pub fn import(dump: &Dump, skus: Option<&SkuFile>) -> Imported {
    from_dump(
        dump,
        &DumpOptions {
            options: Options {
                site: "lab",
                output: "site.yaml",
                skus,
            },
            dump: "dump",
            room: "room",
            rack: "rack",
            sku: None,
        },
    )
}

/// Errors and warnings, without the three that every dump gives.
pub fn finding_texts(imported: &Imported) -> Vec<String> {
    let always = ["racks[0].name", "cables", "power"];
    let list = imported.findings.list.iter();
    list.filter(|finding| !always.contains(&&*finding.path))
        .map(ToString::to_string)
        .collect()
}

/// Every link between switches and adapters, as GUIDs and ports.
pub fn links(fabric: &Fabric) -> BTreeSet<[(u64, u8); 2]> {
    let ends = fabric.links().filter_map(|(_, link)| {
        let mut ends = [link.a, link.b].map(|end| {
            let device = fabric.device(end.device);
            let own = fabric.port(end).and_then(|port| port.guid);
            let guid = if device.is_switch() {
                device.guid
            } else {
                own.or(device.guid)
            };
            (guid.map_or(0, |guid| guid.get()), end.port)
        });
        ends.sort_unstable();
        let kept = [link.a, link.b].iter().all(|end| {
            let device = fabric.device(end.device);
            device.is_switch() || device.is_adapter()
        });
        kept.then_some(ends)
    });
    ends.collect()
}
