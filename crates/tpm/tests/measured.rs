//! Measured boot, with the log of a real start: OVMF with Secure Boot and swtpm, Debian's shim and grub, a Rackwright
//! ramdisk.

use std::collections::BTreeSet;

use rackwright_tpm::log::{Event, Log, write};
use rackwright_tpm::measured::{Boot, BootMismatch, Digest, Served};
use rackwright_tpm::pcr::Values;
use rackwright_tpm::sha256;

const LOG: &[u8] = include_bytes!("logs/shim-grub.log");
const PCRS: &str = include_str!("logs/shim-grub.pcrs");
const EV_IPL: u32 = 0x0d;
const PROGRAM: u32 = 0x8000_0003;

fn digest(text: &str) -> Digest {
    hex::decode(text).expect("hex").try_into().expect("32 bytes")
}

fn quoted() -> Values {
    let value = |line: &str| {
        let (pcr, value) = line.split_once(' ').expect("a number and a value");
        (pcr.parse().expect("a number"), digest(value))
    };
    PCRS.lines().map(value).collect()
}

/// The programs served to that machine: Debian's shim, grub and kernel, and the ramdisk of that day.
fn served() -> Served {
    let programs = [
        "80a66d53a945d2286fcadd780fae1c225aa732079cd67b5225dc78aaab4e2ff8",
        "f85e271fd67bfb46fc14e90af0962f311de7e6a77ce46d210244835ccac469ed",
        "5f21ff2c0d5d899842b28a8b19901ba72cf7a7ab93c02a77fadc6ff72be85b31",
    ];
    Served {
        programs: programs.map(digest).into(),
        kernel: digest("51349501a3d1ff83836437d2b365fd2d57f2feb8642d315e5181dec23d4c3275"),
        ramdisk: digest("c28cbb1ed0b720b726ec056360e7ec7f6594453c94f5ca1b784de8f7f674c6cb"),
        authorities: BTreeSet::from([
            "sha256:bb7e6bb5d9aa0d3d2495149897b96a45ee86d93426f211643a76b8ac80e4b82f".to_owned(),
        ]),
        arguments: vec!["console=ttyS0".to_owned()],
    }
}

/// Changes the events of the real log and computes the resulting PCR values.
fn changed(change: impl FnOnce(&mut Vec<Event<'_>>)) -> Result<(), BootMismatch> {
    let mut log = Log::parse(LOG).expect("a log");
    change(&mut log.events);
    let bytes = write(&log.events);
    let log = Log::parse(&bytes).expect("a log");
    Boot::read(&log, &log.replay()).and_then(|boot| boot.judge(&served()))
}

fn text(pcr: u8, data: &'static str) -> Event<'static> {
    let measured = data.strip_prefix("grub_cmd: ").unwrap_or(data);
    Event {
        pcr,
        kind: EV_IPL,
        digest: sha256(&[measured.as_bytes()]),
        data: data.as_bytes(),
    }
}

fn place(events: &[Event<'_>], of: &str) -> usize {
    let begins = |event: &Event<'_>| event.data.starts_with(of.as_bytes());
    events.iter().position(begins).expect("the event is in the log")
}

#[test]
fn a_real_start_is_the_one_that_was_served() {
    let log = Log::parse(LOG).unwrap();
    let boot = Boot::read(&log, &quoted()).unwrap();
    assert_eq!(boot.programs.len(), 4, "shim, grub, and the kernel twice");
    assert_eq!(boot.files.len(), 4, "two configurations, kernel and ramdisk");
    boot.judge(&served()).unwrap();
    changed(|_| {}).unwrap();
}

#[test]
fn a_log_that_does_not_replay_to_the_quote_proves_nothing() {
    let log = Log::parse(LOG).unwrap();
    for pcr in [4, 8, 9] {
        let mut values = quoted();
        values.insert(pcr, [1; 32]);
        assert_eq!(Boot::read(&log, &values), Err(BootMismatch::Replay(pcr)));
    }
}

#[test]
fn another_program_kernel_or_ramdisk_is_found() {
    let program = changed(|events| {
        let at = events.iter().rposition(|event| event.kind == PROGRAM).unwrap();
        events[at].digest = [7; 32];
    });
    assert!(matches!(program, Err(BootMismatch::Program(_))), "{program:?}");
    let kernel = changed(|events| {
        let at = place(events, "grub_cmd: linux");
        let file = (at..).find(|at| events[*at].pcr == 9).unwrap();
        events[file].digest = [7; 32];
    });
    assert!(matches!(kernel, Err(BootMismatch::Kernel(_))), "{kernel:?}");
    let ramdisk = changed(|events| {
        let file = events
            .iter()
            .rposition(|event| event.pcr == 9 && event.kind == EV_IPL)
            .unwrap();
        events[file].digest = [7; 32];
    });
    assert!(matches!(ramdisk, Err(BootMismatch::Ramdisk(_))), "{ramdisk:?}");
}

#[test]
fn a_further_ramdisk_is_found_under_any_name_in_the_log() {
    let two_files = changed(|events| {
        let at = place(events, "grub_cmd: initrd");
        events[at] = text(8, "grub_cmd: initrd a b");
    });
    assert!(matches!(two_files, Err(BootMismatch::Command(_))), "{two_files:?}");
    let second_command = changed(|events| {
        let at = place(events, "grub_cmd: initrd");
        events.insert(at, text(8, "grub_cmd: initrd a"));
        events.insert(at + 1, text(9, "a.cfg"));
    });
    assert!(
        matches!(second_command, Err(BootMismatch::Ramdisk(_))),
        "{second_command:?}"
    );
    let unnamed = changed(|events| events.push(text(9, "/grub/grub.cfg")));
    assert!(matches!(unnamed, Err(BootMismatch::Files { .. })), "{unnamed:?}");
}

#[test]
fn a_foreign_command_and_a_forged_text_are_found() {
    for command in [
        "grub_cmd: insmod a",
        "grub_cmd: chainloader /x.efi",
        "grub_cmd: devicetree /d",
    ] {
        let added = changed(|events| events.push(text(8, command)));
        assert!(matches!(added, Err(BootMismatch::Command(_))), "{added:?}");
    }
    let forged = changed(|events| {
        let at = place(events, "grub_cmd: boot");
        events[at].data = b"grub_cmd: exit";
    });
    assert_eq!(forged, Err(BootMismatch::ForgedText(8)));
    let unknown = changed(|events| events.push(text(8, "anything")));
    assert!(
        matches!(unknown, Err(BootMismatch::UnknownEvent { pcr: 8, .. })),
        "{unknown:?}"
    );
}

#[test]
fn another_command_line_of_the_kernel_is_found() {
    let log = Log::parse(LOG).unwrap();
    let boot = Boot::read(&log, &quoted()).unwrap();
    let with = |change: &dyn Fn(&str) -> String| {
        let mut boot = boot.clone();
        boot.command_lines[0] = change(&boot.command_lines[0]);
        boot.judge(&served())
    };
    let differs = |change: &dyn Fn(&str) -> String, word: &str| {
        assert_eq!(with(change), Err(BootMismatch::CommandLine(word.into())));
    };
    differs(&|line| format!("{line} init=/bin/sh"), "init");
    differs(&|line| line.replace(" console=ttyS0", ""), "console=ttyS0 is missing");
    differs(&|line| line.replace("sha256:bb", "sha256:cc"), "rackwright.ca");
    differs(
        &|line| format!("{line} rackwright.ca=sha256:{}", "c".repeat(64)),
        "rackwright.ca",
    );
    differs(&|line| line.replace("rackwright.ca=", "ca="), "ca");
    assert_eq!(with(&|line| line.replace("10.77.0.100", "10.77.0.101")), Ok(()));
    let mut twice = boot.clone();
    twice.command_lines.push(String::new());
    assert!(twice.judge(&served()).is_err());
}

#[test]
fn a_start_without_measured_files_is_an_error_with_advice() {
    let ipxe = changed(|events| events.retain(|event| event.pcr != 8 && event.pcr != 9));
    assert_eq!(ipxe, Err(BootMismatch::NotMeasured));
    assert!(BootMismatch::NotMeasured.to_string().contains("boot_loader: shim-grub"));
}
