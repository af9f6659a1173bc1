use super::*;
use proptest::prelude::*;

const BYTES: u64 = 16 * BLOCK as u64;

fn open(bytes: u64) -> Open {
    Open {
        drive: Arc::new(SimDrive::new("sim-00000", 0, "test", "S0".to_owned(), bytes)),
        life: None,
    }
}

fn drive() -> Open {
    open(BYTES + 17)
}

fn read(drive: &Open) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    drive.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_drive_has_whole_blocks_and_an_end() {
    let drive = drive();
    assert_eq!(drive.size_bytes(), BYTES);
    assert!(drive.drive.is_blank());
    assert!(drive.write_at(&[1; 512], BYTES - 512).is_ok());
    for offset in [BYTES - 511, BYTES, u64::MAX] {
        assert!(drive.write_at(&[1; 512], offset).is_err(), "{offset}");
        assert!(drive.read_at(&mut [1; 512], offset).is_err(), "{offset}");
    }
    assert!(!drive.drive.is_blank());
    drive.zero_out(0, BYTES).unwrap();
    assert!(drive.drive.is_blank());
}

#[test]
fn a_drive_with_too_many_writes_never_looks_erased() {
    let bytes = 3 * RUNS as u64 * BLOCK as u64;
    let drive = open(bytes);
    for block in 0..=RUNS as u64 {
        drive.write_at(&[7; 64], 2 * block * BLOCK as u64).unwrap();
    }
    assert!(drive.drive.medium().runs.is_empty());
    let mut last = [0; BLOCK];
    drive.read_at(&mut last, bytes - BLOCK as u64).unwrap();
    assert!(Content::of(&last) != Content::Zeros);
}

#[test]
fn no_simulated_drive_has_a_real_device_node() {
    let drives = SimDrives::new([drive().drive]);
    let facts = drives.list().remove(0);
    assert!(!facts.node.exists() && !facts.node.starts_with("/dev"), "{facts:?}");
    assert!(drives.open(&facts).is_ok());
    assert!(
        drives
            .open(&DriveFacts {
                node: "/dev/null".into(),
                ..facts
            })
            .is_err()
    );
}

#[test]
fn a_system_boots_when_it_is_complete_and_any_write_removes_it() {
    let install = |drive: &Open| {
        drive.drive.write_image("b3-00", BYTES / 2).unwrap();
        assert!(drive.drive.installed().is_none(), "not whole yet");
        let seed = |installed: &mut Installed| installed.hostname = "web-1".to_owned();
        drive.drive.put_seed(seed).unwrap();
        drive.drive.settle();
        assert_eq!(drive.drive.installed().unwrap().hostname, "web-1");
    };
    let ends: [fn(&Open); 4] = [
        |drive| drive.write_at(&[1; 512], BYTES - 512).unwrap(),
        |drive| drive.zero_out(0, BLOCK as u64).unwrap(),
        |drive| drive.drive.invalidate(),
        |drive| {
            let erased = drive.execute(EraseMethod::NvmeSanitizeCrypto, &JobControl::without_listener());
            assert!(erased.is_ok());
        },
    ];
    let drive = drive();
    for end in ends {
        install(&drive);
        assert!(drive.drive.change_installed(|installed| installed.hostname.clear()));
        end(&drive);
        assert!(drive.drive.installed().is_none());
        assert!(
            drive.drive.put_seed(|_| ()).is_err(),
            "there is no installed system for the seed"
        );
        drive.drive.settle();
        assert!(drive.drive.installed().is_none());
    }
}

#[derive(Debug, Clone)]
enum Act {
    Write(u64, usize, u8),
    Data(u64, usize),
    Zero(u64, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let place = || (0..BYTES / 512, 1..40_usize);
    let inside = |sector: u64, count: usize| (count as u64).min(BYTES / 512 - sector);
    prop_oneof![
        (place(), prop_oneof![Just(0), Just(0xff), Just(7)]).prop_map(move |((at, n), byte)| Act::Write(
            at * 512,
            inside(at, n) as usize * 512,
            byte
        )),
        place().prop_map(move |(at, n)| Act::Data(at * 512, inside(at, n) as usize * 512)),
        place().prop_map(move |(at, n)| Act::Zero(at * 512, inside(at, n) * 512)),
    ]
}

proptest! {
    /// Every act changes only the touched blocks, and zeroed blocks or blocks set to ones read so.
    #[test]
    fn only_touched_blocks_change(acts in prop::collection::vec(act(), 1..30)) {
        let drive = drive();
        for act in acts {
            let before = read(&drive);
            let (offset, length) = match &act {
                Act::Write(at, length, byte) => {
                    drive.write_at(&vec![*byte; *length], *at).unwrap();
                    (*at as usize, *length)
                }
                Act::Data(at, length) => {
                    let data: Vec<u8> = (0..*length).map(|n| (n % 251) as u8).collect();
                    drive.write_at(&data, *at).unwrap();
                    (*at as usize, *length)
                }
                Act::Zero(at, length) => {
                    drive.zero_out(*at, *length).unwrap();
                    (*at as usize, *length as usize)
                }
            };
            let after = read(&drive);
            for (block, (old, new)) in before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate() {
                let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
                if to <= offset || offset + length <= from {
                    prop_assert_eq!(old, new, "block {} changed by {:?}", block, act);
                } else if offset <= from && to <= offset + length {
                    match act {
                        Act::Zero(..) | Act::Write(_, _, 0) => prop_assert!(new.iter().all(|byte| *byte == 0)),
                        Act::Write(_, _, 0xff) => prop_assert!(new.iter().all(|byte| *byte == 0xff)),
                        _ => prop_assert!(new.iter().any(|byte| *byte != 0)),
                    }
                }
            }
        }
    }
}
