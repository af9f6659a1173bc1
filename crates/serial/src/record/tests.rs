//! Tests of recordings: retention, removal and holders.

use super::*;

const ALL: Bounds = Bounds {
    bytes: 1 << 20,
    segment_bytes: 1 << 16,
    age_us: i64::MAX,
};

fn holder_of(customer: &str, generation: u64) -> Holder {
    Holder {
        held: true,
        customer: customer.into(),
        generation,
    }
}

fn text(folder: &Path, may_read: &dyn Fn(&Head) -> bool) -> String {
    let mut reader = Reader::new(folder.to_owned());
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next(may_read).unwrap() {
        bytes.extend(piece.bytes);
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn recorded_bytes_are_read_with_their_time_and_boot() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(dir.path().into(), ALL, Holder::default());
    recorder.write(5, b"before ").unwrap();
    recorder.boot(10);
    recorder.write(11, b"one ").unwrap();
    recorder.write(12, b"two ").unwrap();
    recorder.boot(20);
    recorder.write(21, b"three").unwrap();
    let mut reader = Reader::new(dir.path().into());
    let mut seen = Vec::new();
    while let Some(piece) = reader.next(&|_| true).unwrap() {
        seen.push((piece.at_us, piece.boot_us));
    }
    assert_eq!(seen, [(5, 0), (11, 10), (12, 10), (21, 20)]);
    let kept = boots(dir.path(), |_| true).unwrap();
    assert_eq!(kept.iter().map(|b| b.boot_us).collect::<Vec<_>>(), [0, 10, 20]);
    // A follower receives later output, in this segment and in later segments.
    recorder.write(22, b"four").unwrap();
    assert_eq!(reader.next(&|_| true).unwrap().unwrap().bytes, b"four");
    recorder.boot(30);
    assert_eq!(reader.next(&|_| true).unwrap(), None);
    recorder.write(31, b"five").unwrap();
    assert_eq!(reader.next(&|_| true).unwrap().unwrap().boot_us, 30);
}

#[test]
fn a_segment_truncated_by_a_crash_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(dir.path().into(), ALL, Holder::default());
    recorder.write(1, b"whole").unwrap();
    recorder.write(2, b"cut short").unwrap();
    let path = segments(dir.path()).unwrap()[0].path.clone();
    let bytes = fs::read(&path).unwrap();
    for lost in 1..20 {
        fs::write(&path, &bytes[..bytes.len() - lost]).unwrap();
        assert_eq!(text(dir.path(), &|_| true), "whole", "{lost}");
    }
    // Later output goes to a new segment.
    let mut recorder = Recorder::new(dir.path().into(), ALL, Holder::default());
    recorder.write(3, b" and more").unwrap();
    assert_eq!(text(dir.path(), &|_| true), "whole and more");
}

#[test]
fn a_customer_reads_nothing_of_the_former() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(dir.path().into(), ALL, Holder::default());
    recorder.write(1, b"ours ").unwrap();
    recorder.set_holder(holder_of("acme", 1));
    recorder.write(2, b"acme's secret ").unwrap();
    recorder.set_holder(Holder::default());
    recorder.write(3, b"erasing ").unwrap();
    recorder.set_holder(holder_of("bolt", 2));
    recorder.write(4, b"bolt's").unwrap();
    let bolts = |head: &Head| head.holder == holder_of("bolt", 2);
    assert_eq!(text(dir.path(), &bolts), "bolt's");
    // The same customer under another claim is another holder.
    assert_eq!(text(dir.path(), &|head| head.holder == holder_of("acme", 3)), "");
    assert_eq!(remove_held(dir.path(), &holder_of("bolt", 2)).unwrap(), 1);
    assert_eq!(text(dir.path(), &|_| true), "ours erasing bolt's");
    assert_eq!(remove_held(dir.path(), &Holder::default()).unwrap(), 1);
    assert_eq!(text(dir.path(), &|_| true), "ours erasing ");
    // A segment with an unreadable holder may not be read and is removed.
    fs::write(dir.path().join(format!("{:020}-000{SUFFIX}", 9)), b"no head").unwrap();
    assert_eq!(text(dir.path(), &|_| true), "ours erasing ");
    assert_eq!(remove_held(dir.path(), &Holder::default()).unwrap(), 1);
}

#[test]
fn the_oldest_recordings_are_deleted_over_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        bytes: 10_000,
        segment_bytes: 1_000,
        age_us: i64::MAX,
    };
    let mut recorder = Recorder::new(dir.path().into(), bounds, Holder::default());
    for at in 0..400_i64 {
        recorder.write(at, format!("{at:0100}").as_bytes()).unwrap();
        let total: u64 = segments(dir.path()).unwrap().iter().map(|s| s.bytes).sum();
        assert!(total <= 11_200, "{total}");
    }
    let kept = text(dir.path(), &|_| true);
    assert!(kept.ends_with("399") && kept.len() > 5_000, "{}", kept.len());
    // Segments that are too old are removed too: files written now, one hour later.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let later = i64::try_from(now.as_micros()).unwrap() + 3_600_000_000;
    let bounds = Bounds {
        age_us: 1_800_000_000,
        ..bounds
    };
    let mut recorder = Recorder::new(dir.path().into(), bounds, Holder::default());
    recorder.write(later, b"alone").unwrap();
    assert_eq!(text(dir.path(), &|_| true), "alone");
}

#[test]
fn a_missing_folder_has_no_recordings() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    assert_eq!(boots(&none, |_| true).unwrap(), []);
    assert_eq!(Reader::new(none.clone()).next(&|_| true).unwrap(), None);
    assert_eq!(remove_held(&none, &Holder::default()).unwrap(), 0);
}
