//! The decisions of one agent.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rackwright_fanout::{
    AgentNo, Bits, BitsError, Chance, Chunk, Download, DownloadSettings, Kept, Linger, LingerFacts, MessageRate,
    Moment, Outside, PeerNo, Shelf, Source, Span, Step, UploadSettings, Uploads, linger, memory_for_peers,
};

fn bits(chunks: u32, some: &[u32]) -> Bits {
    let mut bits = Bits::new(chunks);
    for chunk in some {
        bits.add(Chunk(*chunk));
    }
    bits
}

proptest! {
    #[test]
    fn a_set_of_chunks_survives_the_wire(chunks in 1u32..300, some in prop::collection::vec(0u32..300, 0..40), seed: u64) {
        let set = bits(chunks, &some);
        prop_assert_eq!(&Bits::from_bytes(chunks, &set.to_bytes()).unwrap(), &set);
        let mut expected: Vec<u32> = some.iter().copied().filter(|chunk| *chunk < chunks).collect();
        expected.sort_unstable();
        expected.dedup();
        prop_assert_eq!(set.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), expected);
        let other = bits(chunks, &some[..some.len() / 2]);
        match set.random_outside(&other, &mut Chance::new(seed)) {
            Some(chunk) => prop_assert!(set.has(chunk) && !other.has(chunk)),
            None => prop_assert!(!set.any_outside(&[&other])),
        }
        prop_assert!(Bits::full(chunks).is_full());
    }
}

#[test]
fn a_set_of_another_image_is_refused() {
    assert_eq!(
        Bits::from_bytes(450, &[0; 56]).unwrap_err(),
        BitsError::Length {
            expected: 57,
            found: 56
        }
    );
    let mut behind = [0; 57];
    behind[56] = 0b100;
    assert_eq!(Bits::from_bytes(450, &behind).unwrap_err(), BitsError::Unused);
    behind[56] = 0b10;
    assert!(Bits::from_bytes(450, &behind).unwrap().has(Chunk(449)));
}

#[test]
fn requests_of_other_racks_are_served_first_and_lines_are_short() {
    let mut uploads = Uploads::new(UploadSettings::default());
    assert_eq!(uploads.offer(1, "rack", false), Ok(()));
    assert_eq!(uploads.offer(2, "rack too many", false), Err("rack too many"));
    for (number, name) in (10..).zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
        assert_eq!(uploads.offer(number, name, true), Ok(()));
    }
    assert_eq!(uploads.offer(20, "outside too many", true), Err("outside too many"));
    assert_eq!(uploads.load(), 9);
    // Few chunks: one after the other. The own rack waits for two uploads at most.
    assert_eq!((uploads.next(1), uploads.next(1)), (Some((10, "a")), None));
    uploads.sent(&10);
    assert_eq!(uploads.next(1), Some((11, "b")));
    uploads.sent(&11);
    assert_eq!(uploads.next(1), Some((1, "rack")));
    // Many chunks: four at once.
    let next: Vec<_> = (0..4).map_while(|_| uploads.next(100)).map(|(_, name)| name).collect();
    assert_eq!(next, ["c", "d", "e"]);
    for node in [1, 12, 13, 14] {
        uploads.sent(&node);
    }
    let rest: Vec<_> = (0..4).map_while(|_| uploads.next(100)).map(|(_, name)| name).collect();
    assert_eq!(rest, ["f", "g", "h"]);
}

#[test]
fn a_rack_that_waits_gets_every_third_upload_however_many_other_racks_ask() {
    let mut uploads = Uploads::new(UploadSettings::default());
    let mut order = String::new();
    for number in 0..10 {
        // After each upload the line of other racks is filled again, and one agent of the rack asks again.
        for other in 100..108 {
            let _ = uploads.offer(other, 'o', true);
        }
        let _ = uploads.offer(number, 'r', false);
        let (node, kind) = uploads.next(1).unwrap();
        order.push(kind);
        uploads.sent(&node);
    }
    assert_eq!(order, "ooroorooro");
}

#[test]
fn requests_of_one_node_take_one_place() {
    let mut uploads = Uploads::new(UploadSettings::default());
    assert_eq!(uploads.offer(7, "first", true), Ok(()));
    assert_eq!(uploads.offer(7, "second", true), Err("second"), "one waits");
    assert_eq!(uploads.next(100), Some((7, "first")));
    assert_eq!(uploads.offer(7, "second", true), Ok(()));
    assert_eq!(uploads.next(100), None, "one is answered");
    assert_eq!(uploads.offer(8, "other", true), Ok(()));
    assert_eq!(uploads.next(100), Some((8, "other")), "the next node is not held up");
    uploads.sent(&8);
    assert_eq!(uploads.next(100), None);
    uploads.sent(&7);
    assert_eq!(uploads.next(100), Some((7, "second")));
}

#[test]
fn a_request_behind_an_answer_to_the_same_node_takes_no_place_in_the_line() {
    let mut uploads = Uploads::new(UploadSettings::default());
    assert_eq!(uploads.offer(7, "first", false), Ok(()));
    assert_eq!(uploads.next(100), Some((7, "first")));
    assert_eq!(uploads.offer(7, "second", false), Ok(()));
    assert_eq!(uploads.offer(8, "other", false), Ok(()));
    assert_eq!(uploads.offer(9, "too many", false), Err("too many"));
    assert_eq!(uploads.next(100), Some((8, "other")));
}

#[test]
fn a_slow_receiver_loses_its_place_only_while_another_node_waits() {
    let mut uploads = Uploads::new(UploadSettings::default());
    let (soon, late) = (Span::seconds(1), Span::seconds(4));
    uploads.offer(1, (), false).unwrap();
    uploads.next(1);
    assert!(!uploads.is_too_slow(0, late), "no other waits");
    uploads.offer(1, (), false).unwrap();
    assert!(!uploads.is_too_slow(0, late), "its own next request waits");
    uploads.offer(2, (), true).unwrap();
    assert!(uploads.is_too_slow(0, late));
    assert!(uploads.is_too_slow((1 << 20) - 1, late));
    assert!(!uploads.is_too_slow(1 << 20, late), "256 KiB a second");
    assert!(!uploads.is_too_slow(0, soon), "it has just begun");
}

#[test]
fn messages_beyond_the_rate_wait_and_a_pause_frees_only_the_first_ones_again() {
    let mut rate = MessageRate::new(100, 3);
    let mut wait = |ms: u64| rate.take(Moment::micros(ms * 1000)).as_micros() / 1000;
    assert_eq!([wait(0), wait(0), wait(0), wait(0), wait(0)], [0, 0, 0, 10, 20]);
    assert_eq!([wait(50), wait(50)], [0, 0]);
    assert_eq!([wait(9000), wait(9000), wait(9000), wait(9000)], [0, 0, 0, 10]);
}

#[test]
fn a_quarter_of_the_memory_is_for_peers_or_none() {
    let frame = 4 << 20;
    for chunks in [64, 450] {
        assert_eq!(memory_for_peers(2 << 40, frame, chunks), 512 << 30);
        assert_eq!(memory_for_peers(1 << 30, frame, chunks), 256 << 20);
        assert_eq!(memory_for_peers((1 << 30) - 1, frame, chunks), 0);
    }
    // A small image is shared between small machines too.
    assert_eq!(memory_for_peers(160 << 20, frame, 10), 40 << 20);
    assert_eq!(memory_for_peers((160 << 20) - 1, frame, 10), 0);
}

proptest! {
    #[test]
    fn a_shelf_stays_within_its_limit(sizes in prop::collection::vec((0u32..60, 1u32..40), 1..120), limit in 0u64..400) {
        let mut shelf = Shelf::new(50, limit);
        let mut known = std::collections::BTreeMap::new();
        for (chunk, size) in sizes {
            let seen = |chunk: Chunk| (chunk.0 % 7) as u16;
            let before = shelf.held().clone();
            match shelf.offer(Chunk(chunk), size, seen) {
                Kept::Yes(dropped) => {
                    known.entry(chunk).or_insert(size);
                    for old in dropped {
                        prop_assert!(seen(old) > seen(Chunk(chunk)), "a rarer chunk was dropped for a more common one");
                        known.remove(&old.0);
                    }
                }
                Kept::No => prop_assert_eq!(&before, shelf.held()),
            }
            prop_assert!(shelf.bytes() <= limit);
            prop_assert_eq!(shelf.bytes(), known.values().map(|size| u64::from(*size)).sum::<u64>());
            let held: Vec<u32> = shelf.held().iter().map(|chunk| chunk.0).collect();
            prop_assert_eq!(held, known.keys().copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_last_holder_of_a_rack_stays_while_it_is_needed() {
    let facts = LingerFacts {
        unfinished_in_rack: 3,
        later_holders: 0,
        waited: Span::seconds(10),
        holds_all: true,
        called_off: false,
    };
    assert_eq!(linger(&facts), Linger::Stay(Span::seconds(50)));
    let cases = [
        (
            "no agent needs it",
            LingerFacts {
                unfinished_in_rack: 0,
                ..facts
            },
        ),
        (
            "another one finished later",
            LingerFacts {
                later_holders: 1,
                ..facts
            },
        ),
        (
            "the time is over",
            LingerFacts {
                waited: Span::seconds(60),
                ..facts
            },
        ),
        (
            "it holds only a part",
            LingerFacts {
                holds_all: false,
                ..facts
            },
        ),
        (
            "an operator wants it",
            LingerFacts {
                called_off: true,
                ..facts
            },
        ),
    ];
    for (why, facts) in cases {
        assert_eq!(linger(&facts), Linger::Leave, "{why}");
    }
}

const CHUNKS: u32 = 40;

fn download(peers: u16) -> Download {
    let mut download = Download::new(Bits::new(CHUNKS), DownloadSettings::default(), 7);
    for number in 0..peers {
        assert_eq!(download.add_peer(), Some(PeerNo(number)));
    }
    download
}

/// The steps until the agent rests.
fn steps(download: &mut Download, now: Moment) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        match download.step(now) {
            Step::Rest(until) => {
                assert!(until > now);
                return steps;
            }
            Step::Done => return steps,
            step => steps.push(step),
        }
        assert!(steps.len() < 200, "the agent does not come to rest: {steps:?}");
    }
}

fn asks(steps: &[Step]) -> Vec<(PeerNo, Chunk)> {
    let ask = |step: &Step| match step {
        Step::Ask(peer, chunk) => Some((*peer, *chunk)),
        _ => None,
    };
    steps.iter().filter_map(ask).collect()
}

#[test]
fn the_rarest_chunk_comes_first() {
    let now = Moment::micros(1);
    let mut download = download(4);
    for peer in 0..3 {
        download.saw(PeerNo(peer), &bits(CHUNKS, &[5]), 0, now);
    }
    download.saw(PeerNo(3), &bits(CHUNKS, &[5, 9]), 0, now);
    // Two samples of peer 3 may miss chunk 9 in one download; then it is the second request.
    let asked = asks(&steps(&mut download, now));
    assert!(asked.contains(&(PeerNo(3), Chunk(9))), "{asked:?}");
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[test]
fn an_agent_without_peers_claims() {
    let mut download = download(0);
    let claim = |wanted| Step::Claim {
        wanted,
        stuck: Vec::new(),
    };
    assert_eq!(steps(&mut download, Moment::micros(1)), [claim(6)]);
    assert_eq!(
        steps(&mut download, Moment::micros(2)),
        [],
        "a claim that stands is not repeated"
    );
    let (now, lease) = (Moment::micros(3), Moment::micros(9_000_000));
    assert!(download.granted(Chunk(4), Outside::Origin, lease, now));
    assert!(
        !download.granted(Chunk(4), Outside::Origin, lease, now),
        "the chunk is on its way"
    );
    assert!(
        !download.granted(Chunk(CHUNKS), Outside::Origin, lease, now),
        "there is no such chunk"
    );
    // Another agent begins: most chunks come from there.
    download.add_peer();
    let after = steps(&mut download, now);
    assert!(after.contains(&claim(1)), "one of two comes already: {after:?}");
}

#[test]
fn an_agent_that_was_the_only_one_has_no_more_requests_than_others() {
    let mut download = download(0);
    let (now, lease) = (Moment::micros(3), Moment::micros(9_000_000));
    for chunk in 0..6 {
        assert!(download.granted(Chunk(chunk), Outside::Origin, lease, now));
    }
    for peer in 0..4 {
        download.add_peer();
        download.saw(PeerNo(peer), &Bits::full(CHUNKS), 0, now);
    }
    assert_eq!(asks(&steps(&mut download, now)), []);
    assert!(download.received(Chunk(0), Source::Outside(Outside::Origin), now));
    assert_eq!(asks(&steps(&mut download, now)).len(), 1);
}

/// The agent's next moment, after all its steps.
fn rest(download: &mut Download, now: Moment) -> Moment {
    steps(download, now);
    match download.step(now) {
        Step::Rest(until) => until,
        step => panic!("no rest, but {step:?}"),
    }
}

#[test]
fn an_agent_that_waits_does_nothing_until_something_is_due() {
    let mut download = download(2);
    let seconds = |seconds: u64| Moment::micros(seconds * 1_000_000);
    let rests_for = |download: &mut Download, now: Moment| rest(download, now).since(now);
    // A request runs, and the claim is older than the time after which it is said again.
    download.saw(PeerNo(0), &bits(CHUNKS, &[1]), 0, seconds(1));
    assert_eq!(asks(&steps(&mut download, seconds(1))).len(), 1);
    assert!(rests_for(&mut download, seconds(5)) >= DownloadSettings::default().least_look);
    // No peer can be asked for 3 s, and nothing runs.
    for peer in [PeerNo(0), PeerNo(1)] {
        download.unreachable(peer, seconds(6));
    }
    assert_eq!(
        rests_for(&mut download, seconds(6)),
        Span::seconds(2),
        "the claim is due"
    );
    assert_eq!(
        rests_for(&mut download, seconds(8)),
        Span::seconds(1),
        "peers may be asked"
    );
    // A peer that is busy is asked again at the end of its rest.
    let mut download = self::download(1);
    download.saw(PeerNo(0), &bits(CHUNKS, &[1]), 0, seconds(1));
    let (peer, chunk) = asks(&steps(&mut download, seconds(1)))[0];
    download.refused(chunk, Source::Peer(peer), seconds(1));
    let next = rest(&mut download, seconds(1));
    assert_eq!(asks(&steps(&mut download, next)), [(peer, chunk)]);
}

#[test]
fn a_liar_is_left_and_reported_once() {
    let now = Moment::micros(1);
    let mut download = download(2);
    download.saw(PeerNo(0), &bits(CHUNKS, &[1, 2, 3]), 0, now);
    let (peer, chunk) = asks(&steps(&mut download, now))[0];
    assert!(download.lied(chunk, Source::Peer(peer)));
    assert!(!download.lied(chunk, Source::Peer(peer)), "a second report");
    download.saw(PeerNo(0), &bits(CHUNKS, &[1, 2, 3]), 0, now);
    assert_eq!(asks(&steps(&mut download, now)), [], "a liar is asked again");
    let liar = Outside::Agent(AgentNo(9));
    let lease = Moment::micros(9_000_000);
    assert!(download.granted(Chunk(7), liar, lease, now));
    assert!(download.lied(Chunk(7), Source::Outside(liar)));
    assert!(
        !download.granted(Chunk(8), liar, lease, now),
        "a liar of another rack is asked again"
    );
}

#[test]
fn three_silent_peers_mean_alone_and_one_answer_does_not() {
    let mut download = download(4);
    let mut now = Moment::micros(1);
    for peer in 0..3 {
        assert!(!download.is_alone());
        download.unreachable(PeerNo(peer), now);
    }
    assert!(download.is_alone());
    now = now.plus(Span::seconds(1));
    download.saw(PeerNo(3), &Bits::new(CHUNKS), 0, now);
    assert!(!download.is_alone());
}

#[test]
fn a_peer_that_refuses_the_ticket_is_left_in_peace_and_not_reported() {
    let now = Moment::micros(1);
    let mut download = download(3);
    download.saw(PeerNo(0), &bits(CHUNKS, &[1, 2]), 0, now);
    let (peer, _) = asks(&steps(&mut download, now))[0];
    download.shut_out(peer, now);
    for peer in 1..3 {
        download.shut_out(PeerNo(peer), now);
    }
    assert!(!download.is_alone(), "one peer answered before");
    let after = steps(&mut download, now);
    let is_report = |step: &Step| matches!(step, Step::Unreachable(_) | Step::Ask(..));
    assert!(!after.iter().any(is_report), "{after:?}");
    let mut download = download_of_strangers();
    assert!(download.is_alone(), "no peer serves it");
    assert_eq!(asks(&steps(&mut download, now)), []);
}

/// A download whose three peers refuse it.
fn download_of_strangers() -> Download {
    let mut download = download(3);
    (0..3).for_each(|peer| download.shut_out(PeerNo(peer), Moment::micros(1)));
    download
}

#[test]
fn a_late_chunk_is_asked_from_a_second_peer_near_the_end_only() {
    for (missing, most) in [(8, 2), (12, 1)] {
        let mut held = Bits::full(CHUNKS);
        for chunk in 0..missing {
            held.remove(Chunk(chunk));
        }
        let mut download = Download::new(held, DownloadSettings::default(), 3);
        let mut now = Moment::micros(1);
        for number in 0..4 {
            download.add_peer();
            download.saw(PeerNo(number), &bits(CHUNKS, &[0]), 0, now);
        }
        let mut all = asks(&steps(&mut download, now));
        for _ in 0..3 {
            now = now.plus(Span::millis(200));
            all.extend(asks(&steps(&mut download, now)));
        }
        assert_eq!(all.len(), most, "{missing} missing: {all:?}");
    }
}

#[test]
fn a_chunk_that_came_from_the_second_peer_is_asked_from_no_third_one() {
    let mut held = Bits::full(CHUNKS);
    for chunk in 0..8 {
        held.remove(Chunk(chunk));
    }
    let mut download = Download::new(held, DownloadSettings::default(), 3);
    let mut now = Moment::micros(1);
    for number in 0..4 {
        download.add_peer();
        download.saw(PeerNo(number), &bits(CHUNKS, &[0]), 0, now);
    }
    let mut all = asks(&steps(&mut download, now));
    now = now.plus(Span::millis(200));
    all.extend(asks(&steps(&mut download, now)));
    let [_, (second, Chunk(0))] = all[..] else {
        panic!("{all:?}");
    };
    assert!(download.received(Chunk(0), Source::Peer(second), now));
    now = now.plus(Span::millis(200));
    assert_eq!(asks(&steps(&mut download, now)), []);
}

/// What a download learns from outside. The names are those of the methods of `Download`.
#[derive(Debug, Clone)]
enum Event {
    Saw(u16, Vec<u32>, u8),
    Granted(u32, bool),
    Received(usize),
    Refused(usize),
    Lied(usize),
    Time(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0u16..6, prop::collection::vec(0..CHUNKS, 0..12), 0u8..6).prop_map(|(p, c, l)| Event::Saw(p, c, l)),
        2 => (0..CHUNKS + 2, any::<bool>()).prop_map(|(chunk, origin)| Event::Granted(chunk, origin)),
        6 => (0usize..8).prop_map(Event::Received),
        2 => (0usize..8).prop_map(Event::Refused),
        1 => (0usize..8).prop_map(Event::Lied),
        3 => (1u64..3_000_000).prop_map(Event::Time),
    ]
}

proptest! {
    #[test]
    fn a_download_keeps_its_limits(events in prop::collection::vec(event(), 1..150)) {
        let mut download = download(6);
        let mut now = Moment::micros(1);
        // What runs: the chunk, the source and when it was asked.
        let mut running: Vec<(Chunk, Source)> = Vec::new();
        let mut liars: Vec<Source> = Vec::new();
        for event in events {
            match event {
                Event::Saw(peer, chunks, load) => download.saw(PeerNo(peer), &bits(CHUNKS, &chunks), load, now),
                Event::Granted(chunk, origin) => {
                    let from = if origin { Outside::Origin } else { Outside::Agent(AgentNo(77)) };
                    let source = Source::Outside(from);
                    if download.granted(Chunk(chunk), from, now.plus(Span::seconds(4)), now) {
                        prop_assert!(chunk < CHUNKS && !liars.contains(&source));
                        running.push((Chunk(chunk), source));
                    }
                }
                Event::Received(at) if at < running.len() => {
                    let (chunk, source) = running.swap_remove(at);
                    let is_new = !download.done().has(chunk);
                    prop_assert_eq!(download.received(chunk, source, now), is_new);
                }
                Event::Refused(at) if at < running.len() => {
                    let (chunk, source) = running.swap_remove(at);
                    download.refused(chunk, source, now);
                }
                Event::Lied(at) if at < running.len() => {
                    let (chunk, source) = running.swap_remove(at);
                    let reported = download.lied(chunk, source);
                    prop_assert!(source == Source::Outside(Outside::Origin) || reported != liars.contains(&source));
                    if source != Source::Outside(Outside::Origin) {
                        liars.push(source);
                    }
                }
                Event::Time(micros) => now = now.plus(Span::micros(micros)),
                _ => {}
            }
            let left = CHUNKS - download.done().count();
            for (peer, chunk) in asks(&steps(&mut download, now)) {
                let source = Source::Peer(peer);
                prop_assert!(!download.done().has(chunk), "a chunk that is there is asked for");
                prop_assert!(!liars.contains(&source), "a liar is asked");
                // A request that the download gave up may be replaced.
                let same = download.requests().filter(|(other, _)| *other == chunk).count();
                prop_assert!(same == 1 || (same == 2 && left <= 8), "{} requests for one chunk, {} left", same, left);
                running.push((chunk, source));
            }
            let in_rack = download.requests().filter(|(_, source)| matches!(source, Source::Peer(_))).count();
            prop_assert!(in_rack <= 4);
        }
    }
}
