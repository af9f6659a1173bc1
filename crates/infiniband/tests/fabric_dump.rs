//! Dumps are read and written without loss, whatever their content.

use proptest::prelude::*;
use rackwright_infiniband::dump::{DumpFault, Limits, read};
use rackwright_infiniband::{Dump, DumpError};

/// The non-blank lines, with runs of blanks reduced to one.
fn normal(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect()
}

fn dump(text: &str) -> Dump {
    read(text.as_bytes(), Limits::default()).expect("a dump")
}

#[test]
#[ignore = "needs a dump of a real fabric, in the folder RACKWRIGHT_FABRICS"]
fn a_dump_of_a_real_fabric_comes_back_as_it_was() {
    let folder = std::env::var_os("RACKWRIGHT_FABRICS").expect("RACKWRIGHT_FABRICS: a folder with x5.ibnetdiscover");
    let path = std::path::Path::new(&folder).join("x5.ibnetdiscover");
    let text = std::fs::read_to_string(&path).expect("x5.ibnetdiscover");
    let found = dump(&text);
    assert_eq!(found.findings, []);
    let counts = found.fabric.counts();
    assert_eq!((counts.switches, counts.adapters), (11, 89));
    let port_lines = text.lines().filter(|line| line.starts_with('[')).count();
    assert_eq!(counts.links * 2, port_lines);
    assert_eq!(normal(&found.write()), normal(&text));
}

const ODD: &str = r#"# comment
vendid=0x2c9
devid=0xd2f2
sysimgguid=0xb0
switchguid=0xb0(b0)
Switch	65 "S-00000000000000b0"		# "MF0;leaf "1":MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]	"H-00000000000000c0"[1](c0) 		# "" lid 5 4xNDR
[2]	"H-00000000000000d0"[2](d2) 		# "node HCA-1 " lid 12 1xSDR
[3]	"S-00000000000000e0"[1]		# "MF0;vs:MQM9700/U1" lid 9 12xXDR s=1 w=2
[65]	"H-00000000000000b8"[1](b8) 		# "" lid 4 4xHDR

vendid=0x2c9
devid=0x1021
caguid=0xc0
Ca	1 "H-00000000000000c0"		# ""
[1](c0) 	"S-00000000000000b0"[1]		# lid 5 lmc 1 "MF0;leaf "1":MQM9700/U1" lid 3 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xd0
caguid=0xd0
Ca	2 "H-00000000000000d0"		# "node HCA-1 "
[1](d1) 	"R-00000000000000f0"[1](f1) 		# lid 11 lmc 0 "router" lid 77 8xFDR10
[2](d2) 	"S-00000000000000b0"[2]		# lid 12 lmc 0 "MF0;leaf "1":MQM9700/U1" lid 3 1xSDR

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xe0
switchguid=0xe0(e0)
Switch	1 "S-00000000000000e0"		# "MF0;vs:MQM9700/U1" base port 0 lid 9 lmc 0
[1]	"S-00000000000000b0"[3]		# "MF0;leaf "1":MQM9700/U1" lid 3 12xXDR s=1 w=2

vendid=0x2c9
devid=0xd2f4
sysimgguid=0xe0
rtguid=0xf0
Rt	2 "R-00000000000000f0"		# "router"
[1](f1) 	"H-00000000000000d0"[1](d1) 		# lid 77 lmc 0 "node HCA-1 " lid 11 8xFDR10

vendid=0x2c9
devid=0xcf00
sysimgguid=0xb0
caguid=0xb8
Ca	1 "H-00000000000000b8"		# ""
[1](b8) 	"S-00000000000000b0"[65]		# lid 4 lmc 0 "MF0;leaf "1":MQM9700/U1" lid 3 4xHDR
"#;

#[test]
fn odd_devices_descriptions_and_rates_come_back_as_they_were() {
    let found = dump(ODD);
    assert_eq!(found.findings, []);
    assert_eq!(normal(&found.write()), normal(ODD));
    let counts = found.fabric.counts();
    assert_eq!(
        (
            counts.switches,
            counts.adapters,
            counts.aggregation_nodes,
            counts.routers
        ),
        (2, 2, 1, 1)
    );
    assert_eq!(counts.links, 5);
}

#[test]
fn what_cannot_be_used_is_found_with_its_line() {
    let broken = ODD
        .replace(
            "[1](c0) \t\"S-00000000000000b0\"[1]",
            "[1](c0) \t\"S-00000000000000b0\"[4]",
        )
        .replace("Ca\t2 \"H", "garbage\nCa\t1 \"H")
        .replace("rtguid=0xf0", "rtguid=0xf0\ntheguid=4")
        .replace(
            "12xXDR s=1 w=2\n\nvendid",
            "12xXDR s=1 w=3\n[1]\t\"S-00000000000000b0\"[3]\n\nvendid",
        );
    let found = dump(&broken);
    let kinds: Vec<(u32, DumpFault)> = found
        .findings
        .iter()
        .map(|finding| (finding.line, finding.kind))
        .collect();
    assert!(kinds.contains(&(7, DumpFault::Contradiction)), "{kinds:?}");
    assert!(kinds.contains(&(16, DumpFault::OneSided)), "{kinds:?}");
    assert!(kinds.contains(&(22, DumpFault::UnknownLine)), "{kinds:?}");
    assert!(
        kinds.iter().filter(|(_, kind)| *kind == DumpFault::BadPort).count() >= 2,
        "{kinds:?}"
    );
    assert!(found.findings.iter().all(|finding| !finding.text.is_empty()));
}

#[test]
fn two_devices_of_one_guid_are_found() {
    let twice = format!("{ODD}\ncaguid=0xc0\nCa\t1 \"H-00000000000000c0\"\t\t# \"clone\"\n");
    let kinds: Vec<DumpFault> = dump(&twice).findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [DumpFault::DuplicateDevice]);
}

#[test]
fn text_that_is_no_dump_says_so_and_limits_hold() {
    let error = read(b"hello\nworld\n", Limits::default()).expect_err("no dump");
    assert_eq!(
        error.to_string(),
        "no device in 2 lines: the input must be the output of ibnetdiscover without options; line 1: not understood: \
         \"hello\""
    );
    let limits = Limits {
        devices: 2,
        findings: 1,
        line_bytes: 200,
        ..Limits::default()
    };
    assert!(matches!(
        read(ODD.as_bytes(), limits),
        Err(DumpError::TooManyDevices { line: 22, most: 2 })
    ));
    let limits = Limits { devices: 9, ..limits };
    let noisy = format!("{ODD}x\ny\n{}\n", "z".repeat(300));
    let found = read(noisy.as_bytes(), limits).expect("a dump");
    assert_eq!((found.findings.len(), found.more_findings), (1, 2));
    let limits = Limits { bytes: 10, ..limits };
    assert!(matches!(read(ODD.as_bytes(), limits), Err(DumpError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_fail(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, Limits::default());
    }

    /// A real dump with changed bytes and with lines cut, doubled and swapped: what is read and written reads the same
    /// again.
    #[test]
    fn a_damaged_dump_is_read_and_what_was_read_comes_back(
        edits in proptest::collection::vec((0usize..2000, any::<u8>(), 0u8..4), 0..12)
    ) {
        let mut text = ODD.as_bytes().to_vec();
        for (at, byte, how) in edits {
            let at = at % text.len().max(1);
            match how {
                0 if !text.is_empty() => text[at] = byte,
                1 if !text.is_empty() => { text.remove(at); }
                2 => text.insert(at, byte),
                _ => {
                    let copy: Vec<u8> = text[at..(at + 80).min(text.len())].to_vec();
                    text.extend(copy);
                }
            }
        }
        if let Ok(first) = read(&text, Limits::default()) {
            let written = first.write();
            let second = read(written.as_bytes(), Limits::default()).expect("what was written can be read");
            prop_assert_eq!(second.fabric.counts().links, first.fabric.counts().links);
            prop_assert_eq!(normal(&second.write()), normal(&written));
        }
    }
}
