//! `docs/bmc-support.md`: the capabilities of each machine. Each test writes or checks the rows of the machines that it
//! has; the rows of missing machines (emulators) are kept. `UPDATE_DOCS=1` writes.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use rackwright_redfish::capabilities::{Capability, Report};

/// All machines of the page, in order.
const MACHINES: [&str; 13] = [
    "Dell PowerEdge R750 (recorded)",
    "Gigabyte H262 (recorded)",
    "HPE DL385 Gen10 Plus v2 (recorded)",
    "Lenovo SR670 V2 (recorded)",
    "NVIDIA DGX H100 (recorded)",
    "Supermicro SYS-821GE-TNHR (recorded)",
    "sushy-emulator, fake driver",
    "sushy-emulator, libvirt test driver",
    "rackwright-sim, vm",
    "rackwright-sim, dgx-h100",
    "lab, QEMU",
    "OpenIPMI ipmi_sim (IPMI)",
    "virtualbmc, libvirt test driver (IPMI)",
];
/// Each table, with the first capability of its columns.
const TABLES: [(&str, Capability); 4] = [
    ("Power", Capability::PowerOn),
    ("Boot", Capability::BootPxe),
    ("Media, firmware, accounts", Capability::MediaCd),
    ("Services", Capability::Sessions),
];
const INTRODUCTION: &str = "# Capabilities of BMCs

This page shows the capabilities of each BMC (baseboard management controller) that the tests use. Each test checks the rows of
its own machines: `crates/redfish/tests/mockups.rs` ([recorded machines](../crates/redfish/tests/recordings/README.md)),
`crates/redfish/tests/sushy.rs`, `crates/sim/tests/mockup.rs`, `crates/lab/tests/support.rs` and `crates/ipmi/tests`. With
`UPDATE_DOCS=1` a test writes its rows, and leaves all other rows unchanged.

| cell | meaning |
|---|---|
| `pass` | the BMC offers the capability in a form that Rackwright can use |
| `-` | the BMC does not offer the capability |
| `fail` | the BMC reports the capability, but a required resource cannot be read or used |

`rackwright bmc probe` shows the same capabilities for any BMC, with reasons ([bmc.md](bmc.md)).

For BMCs marked IPMI, `pass` means that a request over IPMI succeeded. The test reads the result back where IPMI allows this.
`-` has two more meanings there: Rackwright does not read the value over IPMI (sensors), or the BMC does not keep the value
(`ipmi_sim` keeps only the device of a boot override). IPMI reports no MAC addresses. The address of the node's BMC contains the
MAC addresses ([ipmi.md](ipmi.md)).

The project has no recordings of NVIDIA's GB200, GB300 and GH200. According to the public sources in `crates/redfish/quirks`,
their BMCs list no Ethernet interfaces of the machine. Rackwright then reads the MAC addresses from the machine's boot options,
or an operator gives the addresses ([netboot.md](netboot.md#the-mac-addresses-of-a-node)). The tests of this case use only
scripted BMCs.

With libvirt's test driver, the tests on `sushy-emulator` (`crates/redfish/tests/emulator/libvirt.rs`) change power, boot, BIOS
settings and the BIOS version, and read all of them back. A setting applies at once. `SimpleUpdate` raises the minor version and
does not fetch the file. Two cases need other BMCs: the transfer of a file, and a setting that waits for the next start. The
tests use scripted BMCs and simulated BMCs for them (`rackwright-sim --firmware-updates` for the transfer). libvirt's QEMU
driver would add nothing: it also keeps settings and versions only as text in the machine's description.
";

fn columns(table: usize) -> &'static [Capability] {
    let begin = |index: usize| {
        TABLES
            .get(index)
            .and_then(|(_, first)| Capability::ALL.iter().position(|one| one == first))
    };
    &Capability::ALL[begin(table).unwrap()..begin(table + 1).unwrap_or(Capability::ALL.len())]
}

fn row(machine: &str, table: usize, report: &Report) -> String {
    let cells = columns(table).iter().map(|one| {
        let outcome = report.finding(*one).unwrap().outcome.to_string();
        if outcome == "not offered" {
            "-".to_owned()
        } else {
            outcome
        }
    });
    format!("| {machine} | {} |", cells.collect::<Vec<_>>().join(" | "))
}

/// The page with these rows of one machine; the other rows are kept.
fn page(former: &str, machine: &str, report: &Report) -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut sections = former.split("\n## ").skip(1);
    for (index, (title, _)) in TABLES.iter().enumerate() {
        let section = sections.next().unwrap_or_default();
        let titles: Vec<&str> = columns(index).iter().map(|one| one.title()).collect();
        page.push_str(&format!("\n## {title}\n\n| machine | {} |\n", titles.join(" | ")));
        page.push_str(&format!("|{}\n", "---|".repeat(titles.len() + 1)));
        for known in MACHINES {
            let begin = format!("| {known} |");
            if known == machine {
                page.push_str(&format!("{}\n", row(machine, index, report)));
            } else if let Some(line) = section.lines().find(|line| line.starts_with(&begin)) {
                page.push_str(&format!("{line}\n"));
            }
        }
    }
    page
}

/// Checks the rows of a machine, or writes them.
pub fn check(machine: &str, report: &Report) {
    assert!(MACHINES.contains(&machine), "{machine} is not on the list of machines");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bmc-support.md");
    let updates = std::env::var_os("UPDATE_DOCS").is_some();
    let mut file = std::fs::File::options()
        .read(true)
        .write(updates)
        .create(updates)
        .truncate(false)
        .open(&path)
        .unwrap();
    // Tests are separate processes, and several may write.
    if updates {
        file.lock().unwrap();
    }
    let mut former = String::new();
    file.read_to_string(&mut former).unwrap();
    let wanted = page(&former, machine, report);
    if updates {
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(wanted.as_bytes()).unwrap();
        return;
    }
    for index in 0..TABLES.len() {
        let row = row(machine, index, report);
        assert!(
            former.lines().any(|line| line == row),
            "docs/bmc-support.md has not this row; UPDATE_DOCS=1 writes it: {row}\n{report:#?}"
        );
    }
    assert_eq!(former, wanted, "docs/bmc-support.md is not as UPDATE_DOCS=1 writes it");
}
