//! The claim table.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rackwright_fanout::{AgentNo, Bits, Chunk, ClaimTable, Grant, Moment, Outside, RackNo, Span, TableSettings};

const CHUNKS: u32 = 24;
const RACK: u32 = 3;
const AGENTS: u32 = 12;

/// A table with agents that all joined and hold what `held` says.
struct Case {
    table: ClaimTable,
    held: BTreeMap<u32, Bits>,
    running: Vec<Grant>,
    now: Moment,
}

impl Case {
    fn new() -> Self {
        Self::with(TableSettings::default())
    }

    fn with(settings: TableSettings) -> Self {
        let mut case = Self {
            table: ClaimTable::new(CHUNKS, settings, 5),
            held: (0..AGENTS).map(|agent| (agent, Bits::new(CHUNKS))).collect(),
            running: Vec::new(),
            now: Moment::micros(1),
        };
        for agent in 0..AGENTS {
            case.join(agent);
        }
        case
    }

    fn join(&mut self, agent: u32) {
        let fetching: Vec<Chunk> = self.of(agent).iter().map(|grant| grant.chunk).collect();
        let (held, rack) = (&self.held[&agent], RackNo(agent / RACK));
        let members = self
            .table
            .join(AgentNo(agent), rack, held, &fetching, self.now)
            .unwrap();
        assert!(members.contains(&AgentNo(agent)));
    }

    fn of(&self, agent: u32) -> Vec<Grant> {
        self.running
            .iter()
            .filter(|grant| grant.agent.0 == agent)
            .copied()
            .collect()
    }

    fn claim(&mut self, agent: u32, wanted: u32, stuck: &[Chunk]) -> bool {
        self.table
            .claim(AgentNo(agent), wanted, &self.held[&agent], stuck, self.now)
    }

    fn grants(&mut self) -> Vec<Grant> {
        let grants = self.table.grants(self.now);
        self.running.extend(&grants);
        grants
    }

    fn done(&mut self, grant: Grant) {
        self.running.retain(|other| *other != grant);
        self.held.get_mut(&grant.agent.0).unwrap().add(grant.chunk);
        self.table
            .done(grant.agent, grant.chunk, &self.held[&grant.agent.0], self.now);
    }
}

#[test]
fn the_origin_gives_a_chunk_once_and_holders_give_it_on() {
    let mut case = Case::new();
    for agent in 0..AGENTS {
        case.claim(agent, 8, &[]);
    }
    let mut rounds = 0;
    loop {
        let mut grants = case.grants();
        if grants.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 400, "the table does not come to an end");
        while let Some(grant) = grants.pop() {
            case.done(grant);
            case.claim(grant.agent.0, 8, &[]);
        }
    }
    assert_eq!(case.table.origin().chunks, u64::from(CHUNKS), "one copy");
    for rack in 0..AGENTS / RACK {
        let mut all = Bits::new(CHUNKS);
        let mut count = 0;
        for agent in rack * RACK..(rack + 1) * RACK {
            count += case.held[&agent].count();
            for chunk in case.held[&agent].iter() {
                all.add(chunk);
            }
        }
        assert!(all.is_full(), "rack {rack} lacks chunks");
        assert_eq!(count, CHUNKS, "rack {rack} got a chunk twice from outside");
    }
}

#[test]
fn a_lease_that_runs_out_goes_to_another_holder_and_then_to_the_origin() {
    let mut case = Case::new();
    case.held.insert(0, Bits::full(CHUNKS));
    case.join(0);
    let mut sources = Vec::new();
    for _ in 0..3 {
        case.claim(3, 1, &[]);
        let grants = case.grants();
        let [grant] = grants[..] else { panic!("{grants:?}") };
        sources.push(grant.from);
        // The same chunk again: only this one is lacking.
        let mut held = Bits::full(CHUNKS);
        held.remove(grant.chunk);
        case.held.insert(3, held);
        case.now = grant.lease.plus(Span::micros(1));
        case.running.clear();
        case.table.expire(case.now);
    }
    let holder = Outside::Agent(AgentNo(0));
    assert_eq!(sources, [holder, holder, Outside::Origin]);
    assert_eq!((case.table.origin().chunks, case.table.origin().again), (1, 1));
}

#[test]
fn what_a_lost_agent_alone_had_is_fetched_again() {
    let mut case = Case::new();
    case.claim(0, 1, &[]);
    let grant = case.grants()[0];
    assert_eq!(grant.from, Outside::Origin);
    case.done(grant);
    // Two agents must say so: one alone cannot put another one out.
    case.table.away(AgentNo(1), AgentNo(0));
    case.table.away(AgentNo(1), AgentNo(0));
    assert!(case.claim(0, 0, &[]), "one reporter put an agent out");
    case.table.away(AgentNo(1), AgentNo(0));
    case.table.away(AgentNo(2), AgentNo(0));
    assert!(!case.claim(0, 0, &[]), "two reporters do");
    for agent in 1..AGENTS {
        case.claim(agent, CHUNKS, &[]);
    }
    let mut again = 0;
    for _ in 0..200 {
        for grant in case.grants() {
            again += u32::from(grant.chunk == Chunk(0) || grant.from == Outside::Origin);
            case.done(grant);
        }
    }
    assert!(again >= CHUNKS, "the lost chunk did not come again");
    assert_eq!(case.table.origin().chunks, u64::from(CHUNKS) + 1);
}

#[test]
fn two_agents_put_a_third_one_out_once_and_only_until_it_speaks() {
    let mut case = Case::new();
    for round in 0..3 {
        case.table.away(AgentNo(3), AgentNo(0));
        case.table.away(AgentNo(6), AgentNo(0));
        let is_known = case.claim(0, 0, &[]);
        assert_eq!(is_known, round > 0, "round {round}");
        case.join(0);
    }
    case.table.away(AgentNo(3), AgentNo(0));
    case.table.away(AgentNo(7), AgentNo(0));
    assert!(case.claim(0, 0, &[]), "one of them was wrong before");
    case.table.away(AgentNo(7), AgentNo(0));
    case.table.away(AgentNo(8), AgentNo(0));
    assert!(!case.claim(0, 0, &[]), "two others say so");
    // Another job of its node begins anew.
    case.table.lost(AgentNo(0));
    case.join(0);
    case.table.away(AgentNo(3), AgentNo(0));
    case.table.away(AgentNo(6), AgentNo(0));
    assert!(!case.claim(0, 0, &[]));
}

/// The source of the one chunk that this agent is granted.
fn source_for(case: &mut Case, agent: u32) -> Outside {
    case.claim(agent, 1, &[]);
    let grants = case.grants();
    let [grant] = grants[..] else { panic!("{grants:?}") };
    assert_eq!(grant.agent, AgentNo(agent));
    case.claim(agent, 0, &[]);
    case.table.failed(grant.agent, grant.chunk);
    grant.from
}

#[test]
fn wrong_bytes_keep_the_rack_of_two_reporters_from_a_source_and_no_other_rack() {
    let mut case = Case::with(TableSettings {
        origin_at_once: 0,
        ..TableSettings::default()
    });
    case.held.insert(0, Bits::full(CHUNKS));
    case.join(0);
    let liar = Outside::Agent(AgentNo(0));
    // Two racks say so, one agent each, and each twice.
    for _ in 0..2 {
        case.table.lied(AgentNo(3), AgentNo(0), case.now);
        case.table.lied(AgentNo(6), AgentNo(0), case.now);
    }
    assert_eq!(source_for(&mut case, 4), liar, "one agent of its rack says so");
    case.table.lied(AgentNo(5), AgentNo(0), case.now);
    assert_eq!(source_for(&mut case, 7), liar, "another rack");
    case.claim(4, 1, &[]);
    assert_eq!(case.grants(), [], "the rack of the reporters has no other source");
    // Another holder serves it, too.
    case.held.insert(9, bits(&[5]));
    case.join(9);
    let grants = case.grants();
    let sources: Vec<_> = grants.iter().map(|grant| (grant.chunk, grant.from)).collect();
    assert_eq!(sources, [(Chunk(5), Outside::Agent(AgentNo(9)))]);
    // Another job of the node begins anew.
    case.table.lost(AgentNo(0));
    case.join(0);
    case.held.insert(3, bits(&[5]));
    assert_eq!(source_for(&mut case, 3), liar);
}

#[test]
fn four_agents_of_two_racks_exclude_an_agent_and_three_do_not() {
    let mut case = Case::with(TableSettings {
        origin_at_once: 0,
        ..TableSettings::default()
    });
    case.held.insert(0, Bits::full(CHUNKS));
    case.join(0);
    for reporter in [3, 4, 6] {
        case.table.lied(AgentNo(reporter), AgentNo(0), case.now);
    }
    assert_eq!(source_for(&mut case, 9), Outside::Agent(AgentNo(0)));
    case.table.lied(AgentNo(10), AgentNo(0), case.now);
    case.claim(9, 1, &[]);
    assert_eq!(case.grants(), []);
    // It stays so when the agent is lost and comes back with the same job.
    case.table.away(AgentNo(3), AgentNo(0));
    case.table.away(AgentNo(4), AgentNo(0));
    assert!(!case.claim(0, 0, &[]));
    case.join(0);
    assert_eq!(case.grants(), []);
    case.table.lost(AgentNo(0));
    case.join(0);
    assert_eq!(case.grants()[0].from, Outside::Agent(AgentNo(0)), "another job");
}

#[test]
fn four_agents_of_one_rack_keep_an_agent_from_their_rack_only() {
    let settings = TableSettings {
        origin_at_once: 0,
        ..TableSettings::default()
    };
    let mut table = ClaimTable::new(CHUNKS, settings, 5);
    let now = Moment::micros(1);
    for (agent, rack) in [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1), (5, 2)] {
        let held = if agent == 0 {
            Bits::full(CHUNKS)
        } else {
            Bits::new(CHUNKS)
        };
        table.join(AgentNo(agent), RackNo(rack), &held, &[], now).unwrap();
    }
    for reporter in 1..5 {
        table.lied(AgentNo(reporter), AgentNo(0), now);
    }
    for agent in [1, 5] {
        table.claim(AgentNo(agent), 1, &Bits::new(CHUNKS), &[], now);
    }
    let agents: Vec<AgentNo> = table.grants(now).iter().map(|grant| grant.agent).collect();
    assert_eq!(agents, [AgentNo(5)]);
}

#[test]
fn what_only_an_avoided_agent_holds_comes_from_the_origin_once_more() {
    let mut case = Case::with(TableSettings {
        origin_budget_percent: 0,
        ..TableSettings::default()
    });
    case.held.insert(0, Bits::full(CHUNKS));
    case.held.insert(1, bits(&[3]));
    case.join(0);
    case.join(1);
    case.table.lied(AgentNo(3), AgentNo(0), case.now);
    assert_eq!(source_for(&mut case, 4), Outside::Agent(AgentNo(0)));
    case.table.lied(AgentNo(4), AgentNo(0), case.now);
    // One rack fetches all but the chunk that another agent holds, too; the others get them from there.
    for chunk in 1..=CHUNKS {
        case.claim(4, 1, &[]);
        let grant = case.grants()[0];
        let from = if chunk < CHUNKS {
            Outside::Origin
        } else {
            Outside::Agent(AgentNo(1))
        };
        assert_eq!(grant.from, from, "chunk {chunk}");
        case.done(grant);
    }
    assert_eq!(case.table.origin().chunks, u64::from(CHUNKS) - 1);
    assert!(matches!(source_for(&mut case, 7), Outside::Agent(_)));
}

#[test]
fn an_agent_that_its_mates_report_is_a_rack_of_its_own_and_goes_on() {
    let mut case = Case::with(TableSettings {
        origin_at_once: 0,
        ..TableSettings::default()
    });
    case.held.insert(0, bits(&[4]));
    case.held.insert(3, Bits::full(CHUNKS));
    case.join(0);
    case.join(3);
    case.table.lied(AgentNo(1), AgentNo(0), case.now);
    case.claim(0, 1, &[]);
    case.table.lied(AgentNo(2), AgentNo(0), case.now);
    // Its own claim goes on, and its chunk is fetched again for its former rack.
    let grants = case.grants();
    assert_eq!(grants.iter().map(|grant| grant.agent).collect::<Vec<_>>(), [AgentNo(0)]);
    case.claim(0, 0, &[]);
    let all: Vec<u32> = (0..CHUNKS).filter(|chunk| *chunk != 4).collect();
    case.held.insert(1, bits(&all));
    case.claim(1, 1, &[]);
    let grants = case.grants();
    let [grant] = grants[..] else { panic!("{grants:?}") };
    assert_eq!((grant.agent, grant.chunk), (AgentNo(1), Chunk(4)));
    assert_eq!(
        grant.from,
        Outside::Agent(AgentNo(3)),
        "not from the agent that was reported"
    );
    case.done(grant);
    // It stays apart when its stream breaks, and also when it was lost meanwhile. Other racks take chunks from it.
    case.join(0);
    case.table.away(AgentNo(1), AgentNo(0));
    case.table.away(AgentNo(2), AgentNo(0));
    case.join(0);
    for agent in [1, 3] {
        case.table.lost(AgentNo(agent));
        case.held.insert(agent, Bits::new(CHUNKS));
    }
    case.held.insert(2, bits(&all));
    case.claim(2, 1, &[]);
    assert_eq!(case.grants(), [], "the only holder is avoided");
    case.held.insert(6, bits(&all));
    assert_eq!(source_for(&mut case, 6), Outside::Agent(AgentNo(0)));
}

#[test]
fn reports_of_an_agent_count_for_four_others() {
    let settings = TableSettings::default();
    let mut table = ClaimTable::new(CHUNKS, settings, 5);
    let now = Moment::micros(1);
    for agent in 0..8 {
        table
            .join(AgentNo(agent), RackNo(0), &Bits::new(CHUNKS), &[], now)
            .unwrap();
    }
    for other in 2..8 {
        table.lied(AgentNo(0), AgentNo(other), now);
        table.lied(AgentNo(1), AgentNo(other), now);
    }
    let left = table.join(AgentNo(0), RackNo(0), &Bits::new(CHUNKS), &[], now).unwrap();
    assert_eq!(left, [0, 1, 6, 7].map(AgentNo));
}

#[test]
fn an_agent_alone_gets_all_from_the_origin_and_serves_no_peer() {
    let mut case = Case::new();
    case.held.insert(0, Bits::full(CHUNKS));
    case.join(0);
    case.table.alone(AgentNo(0));
    case.table.alone(AgentNo(5));
    case.claim(5, 1, &[]);
    case.claim(3, 1, &[]);
    let grants = case.grants();
    assert_eq!(grants.len(), 2);
    assert!(grants.iter().all(|grant| grant.from == Outside::Origin), "{grants:?}");
    assert_eq!(case.table.origin().for_alone, 1);
}

#[test]
fn an_agent_that_claims_much_and_fetches_nothing_holds_two_chunks() {
    let mut case = Case::new();
    case.claim(0, CHUNKS, &[]);
    for _ in 0..5 {
        case.grants();
        assert_eq!(case.of(0).len(), 2);
        case.claim(0, CHUNKS, &[]);
    }
    // The others of its rack get the rest.
    case.claim(1, CHUNKS, &[]);
    case.claim(2, CHUNKS, &[]);
    case.grants();
    let own: Vec<usize> = (0..RACK).map(|agent| case.of(agent).len()).collect();
    assert_eq!(own, [2, 1, 1], "the origin gives four at once");
    // A place that comes free is used.
    let grant = case.of(0)[0];
    case.table.failed(grant.agent, grant.chunk);
    case.running.retain(|other| *other != grant);
    case.claim(0, 1, &[]);
    let grants = case.grants();
    assert_eq!(grants.len(), 1);
}

#[test]
fn agents_that_return_keep_as_many_chunks_as_they_may_have_grants() {
    let settings = TableSettings {
        per_rack: 3,
        ..TableSettings::default()
    };
    let mut table = ClaimTable::new(CHUNKS, settings, 5);
    let now = Moment::micros(1);
    let all: Vec<Chunk> = (0..CHUNKS).map(Chunk).collect();
    // The only agent of an image may have more grants.
    table.join(AgentNo(9), RackNo(1), &Bits::new(CHUNKS), &[], now).unwrap();
    for agent in 0..2 {
        table
            .join(AgentNo(agent), RackNo(0), &Bits::new(CHUNKS), &all, now)
            .unwrap();
    }
    let kept = |agent| {
        all.iter()
            .filter(|chunk| table.fetches(AgentNo(agent), **chunk))
            .count()
    };
    assert_eq!([kept(0), kept(1)], [2, 1], "two of an agent, three of the rack");
}

#[test]
fn the_only_agent_fetches_six_chunks_at_once_and_two_as_soon_as_another_one_comes() {
    let settings = TableSettings {
        origin_at_once: 1,
        ..TableSettings::default()
    };
    for is_alone in [false, true] {
        let mut table = ClaimTable::new(CHUNKS, settings.clone(), 5);
        let now = Moment::micros(1);
        let mut held = Bits::new(CHUNKS);
        table.join(AgentNo(0), RackNo(0), &held, &[], now).unwrap();
        if is_alone {
            table.alone(AgentNo(0));
        }
        table.claim(AgentNo(0), 16, &held, &[], now);
        let grants = table.grants(now);
        assert_eq!(grants.len(), 6, "whatever number of machines may fetch at once");
        table.join(AgentNo(1), RackNo(0), &Bits::new(CHUNKS), &[], now).unwrap();
        for (left, grant) in (0..6).rev().zip(&grants) {
            held.add(grant.chunk);
            table.done(AgentNo(0), grant.chunk, &held, now);
            assert_eq!(table.grants(now).len(), usize::from(left == 0), "{left} left");
        }
    }
}

#[test]
fn stuck_agents_correct_the_table_once_in_a_while() {
    let mut case = Case::new();
    case.held.insert(0, bits(&[4, 5]));
    case.join(0);
    case.held.insert(3, bits(&[4, 5]));
    case.join(3);
    case.held.insert(1, Bits::full(CHUNKS));
    for chunk in [4, 5] {
        case.held.get_mut(&1).unwrap().remove(Chunk(chunk));
    }
    case.claim(1, 2, &[Chunk(4)]);
    assert_eq!(
        case.grants().iter().map(|grant| grant.chunk).collect::<Vec<_>>(),
        [Chunk(4)]
    );
    case.claim(1, 2, &[Chunk(5)]);
    assert_eq!(case.grants(), [], "a second correction at once");
    case.now = case.now.plus(Span::seconds(3));
    case.claim(1, 2, &[Chunk(5)]);
    assert_eq!(
        case.grants().iter().map(|grant| grant.chunk).collect::<Vec<_>>(),
        [Chunk(5)]
    );
}

#[test]
fn a_large_rack_is_divided() {
    let mut table = ClaimTable::new(CHUNKS, TableSettings::default(), 5);
    let mut most = 0;
    for agent in 0..100 {
        let members = table
            .join(AgentNo(agent), RackNo(0), &Bits::new(CHUNKS), &[], Moment::micros(1))
            .unwrap();
        most = most.max(members.len());
    }
    assert_eq!(most, 48);
}

fn bits(some: &[u32]) -> Bits {
    let mut bits = Bits::new(CHUNKS);
    for chunk in some {
        bits.add(Chunk(*chunk));
    }
    bits
}

#[derive(Debug, Clone)]
enum Happens {
    Claim(u32, u32),
    Done(usize),
    Failed(usize),
    Lost(u32),
    Join(u32),
    Time(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..AGENTS, 0u32..9).prop_map(|(agent, wanted)| Happens::Claim(agent, wanted)),
        8 => (0usize..30).prop_map(Happens::Done),
        2 => (0usize..30).prop_map(Happens::Failed),
        1 => (0..AGENTS).prop_map(Happens::Lost),
        1 => (0..AGENTS).prop_map(Happens::Join),
        2 => (1u64..2_000_000).prop_map(Happens::Time),
    ]
}

proptest! {
    #[test]
    fn grants_are_right_whatever_happens(events in prop::collection::vec(happens(), 1..200)) {
        // The only agent of an image has more grants.
        let mut case = Case::with(TableSettings { only: 2, ..TableSettings::default() });
        for event in events {
            match event {
                Happens::Claim(agent, wanted) => _ = case.claim(agent, wanted, &[]),
                Happens::Done(at) if at < case.running.len() => case.done(case.running[at]),
                Happens::Failed(at) if at < case.running.len() => {
                    let grant = case.running.swap_remove(at);
                    case.table.failed(grant.agent, grant.chunk);
                }
                Happens::Lost(agent) => {
                    case.running.retain(|grant| grant.agent.0 != agent);
                    case.held.insert(agent, Bits::new(CHUNKS));
                    case.table.lost(AgentNo(agent));
                }
                Happens::Join(agent) => case.join(agent),
                Happens::Time(micros) => {
                    case.now = case.now.plus(Span::micros(micros));
                    case.table.expire(case.now);
                    let now = case.now;
                    case.running.retain(|grant| grant.lease >= now);
                }
                _ => {}
            }
            let before = case.running.clone();
            let new = case.grants();
            for (at, grant) in new.iter().enumerate() {
                let rack = grant.agent.0 / RACK;
                let mates = (rack * RACK..(rack + 1) * RACK).filter(|mate| case.held[mate].has(grant.chunk));
                prop_assert_eq!(mates.count(), 0, "the rack has the chunk");
                let same = before.iter().chain(&new[..at]);
                let claimed = same.filter(|other| other.agent.0 / RACK == rack && other.chunk == grant.chunk);
                prop_assert_eq!(claimed.count(), 0, "the rack fetches the chunk");
                if let Outside::Agent(source) = grant.from {
                    prop_assert!(case.held[&source.0].has(grant.chunk), "the source lacks the chunk");
                    prop_assert_ne!(source.0 / RACK, rack);
                }
                prop_assert!(grant.lease > case.now);
            }
            let at_origin = case.running.iter().filter(|grant| grant.from == Outside::Origin).count();
            prop_assert!(at_origin <= 4, "{} at the origin", at_origin);
            for agent in 0..AGENTS {
                let own = case.of(agent).len();
                prop_assert!(own <= 2, "agent {} has {}", agent, own);
            }
        }
    }
}
