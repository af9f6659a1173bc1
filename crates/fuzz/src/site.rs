//! Site files, dumps of fabrics, partitions, NetBox tables and what a management network says.

use std::collections::BTreeMap;

use rackwright_import::Options;
use rackwright_import::discovery::{parse_answer, parse_leases, parse_targets};
use rackwright_import::netbox::{NetboxOptions, Roles, Table, Tables, from_netbox};
use rackwright_infiniband::dump::{self, Limits};
use rackwright_infiniband::partition::{self, ManagerOptions};
use rackwright_planner::hall::{hall, irregularities};
use rackwright_site::file::{self, Source, check_within};

/// What is written of a dump is read again. A dump without findings has the same devices and links then. The rest of a line
/// may differ: a host chooses its description freely, and the format has no way to quote it.
pub(crate) fn dump(bytes: &[u8]) {
    let limits = Limits {
        bytes: 64 << 10,
        line_bytes: 2_000,
        devices: 1_000,
        findings: 20,
    };
    let Ok(read) = dump::read(bytes, limits) else { return };
    assert!(read.findings.len() <= 20, "{} findings", read.findings.len());
    let written = read.write();
    // What is written may be longer than what was read.
    let wide = Limits {
        bytes: 1 << 30,
        ..limits
    };
    match dump::read(written.as_bytes(), wide) {
        Ok(again) if read.findings.is_empty() => {
            let (first, second) = (read.fabric.counts(), again.fabric.counts());
            assert_eq!(format!("{second:?}"), format!("{first:?}"), "{written:.2000}");
        }
        Ok(_) => {}
        Err(error) => panic!("what was written is not read: {error}\n{written:.2000}"),
    }
}

/// Partitions that are taken are written so that they are read as the same.
pub(crate) fn partitions(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = ManagerOptions::parse(&text);
    let Ok(read) = partition::parse(&text) else { return };
    let written = match read.render() {
        Ok(written) => written,
        Err(error) => panic!("what was read cannot be written: {error}"),
    };
    assert!(
        partition::parse(&written).is_ok_and(|again| again == read),
        "{written:.2000}"
    );
}

/// A limit on names that is so low that the largest allowed site is read in milliseconds.
const LIMITS: file::Limits = file::Limits { names: 1 << 12 };

/// A site file is accepted as a whole or refused with findings, the same each time. An accepted site has a hall.
pub(crate) fn file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let source = Source {
        name: "site.yaml",
        text: &text,
    };
    let checked = check_within(&[source], LIMITS);
    match &checked.site {
        Some(site) => drop((hall(site), irregularities(site))),
        None => assert!(!checked.findings.list.is_empty(), "refused without a reason"),
    }
    let again = check_within(&[source], LIMITS);
    let shown = |findings| format!("{findings:?}");
    assert_eq!(shown(&again.findings), shown(&checked.findings), "other findings");
}

/// Tables by their order in the first bytes, one after the other; from the same tables comes the same site file.
pub(crate) fn netbox(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut tables = Tables::default();
    for (table, text) in Table::ALL.into_iter().zip(text.split("\n\n")) {
        let _ = tables.add_csv(table, table.endpoint(), text);
    }
    let (roles, skus, panels) = (Roles::default(), BTreeMap::new(), BTreeMap::new());
    let options = NetboxOptions {
        options: Options {
            site: "fuzz",
            output: "site.yaml",
            skus: None,
        },
        sites: &[],
        roles: &roles,
        skus: &skus,
        feeds: &[],
        panels: &panels,
    };
    let first = from_netbox(&tables, &options);
    assert_eq!(from_netbox(&tables, &options).text, first.text, "another site file");
}

/// Answers and lists from a management network.
pub(crate) fn discovery(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(answer) = parse_answer(bytes) {
        assert!(format!("{answer:?}").len() <= 64 << 10, "an answer without a bound");
    }
    drop((parse_leases(&text), parse_targets(&text)));
}
