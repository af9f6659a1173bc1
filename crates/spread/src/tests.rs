use std::collections::BTreeSet;
use std::net::SocketAddr;

use rackwright_api::v1::grant_message::Message as Down;
use rackwright_fanout::{Bits, Chunk, ClaimTable, Moment, Outside, Span, TableSettings};
use rackwright_lifecycle::Timestamp;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::message::Beginning;
use super::record::{Place, QUEUE, Record, Stream};
use super::*;

const CHUNKS: u32 = 20;
const AT: Timestamp = Timestamp(1);

fn moment(s: u64) -> Moment {
    Moment::micros(s * 1_000_000)
}

fn writer(node: &'static str, rack: &str) -> Writer {
    Writer {
        node: node.into(),
        of: AgentSession {
            generation: 3,
            boot: format!("boot-{node}"),
        },
        operation: format!("job-{node}"),
        address: SocketAddr::from(([10, 0, 0, 9], 8470)),
        rack: rack.to_owned(),
    }
}

fn beginning(held: &[u32]) -> Beginning {
    let mut bits = Bits::new(CHUNKS);
    for chunk in held {
        bits.add(Chunk(*chunk));
    }
    Beginning {
        held: bits,
        fetching: Vec::new(),
        port: 8470,
    }
}

fn record() -> Record {
    Record::new(CHUNKS, ClaimTable::new(CHUNKS, TableSettings::default(), 1))
}

/// An agent with its end of the stream.
struct Agent {
    place: Place,
    end: CancellationToken,
    receiver: mpsc::Receiver<ToAgent>,
}

impl Agent {
    fn begin(record: &mut Record, writer: Writer, held: &[u32], now: Moment) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let end = CancellationToken::new();
        let stream = Stream {
            sender,
            end: end.clone(),
        };
        let place = record.begin(writer, beginning(held), stream, (now, AT)).unwrap();
        Self { place, end, receiver }
    }

    fn wants(&self, record: &mut Record, wanted: u32, held: &[u32], now: Moment) {
        let held = beginning(held).held;
        let stuck = Vec::new();
        record.heard(self.place, Message::Claim { wanted, held, stuck }, now);
    }

    fn came(&self, record: &mut Record, chunk: u32, held: &[u32], now: Moment) {
        let (chunk, held) = (Chunk(chunk), beginning(held).held);
        record.heard(self.place, Message::Came { chunk, held }, now);
    }

    /// The messages so far: the mates' nodes, and the grants with their sources.
    fn messages(&mut self) -> (Vec<String>, Vec<(u32, String)>) {
        let (mut mates, mut grants) = (Vec::new(), Vec::new());
        while let Ok(message) = self.receiver.try_recv() {
            match message.unwrap().message.unwrap() {
                Down::Mate(peer) => mates.push(peer.node),
                Down::Grant(grant) => grants.push((grant.chunk, grant.source.map_or_else(String::new, |s| s.node))),
            }
        }
        (mates, grants)
    }

    fn end_words(&mut self) -> String {
        let mut words = String::new();
        while let Ok(message) = self.receiver.try_recv() {
            if let Err(status) = message {
                words = status.message().to_owned();
            }
        }
        words
    }
}

#[test]
fn agents_of_a_rack_learn_of_each_other_and_another_rack_gets_chunks_from_them() {
    let mut record = record();
    let now = moment(1);
    let mut one = Agent::begin(&mut record, writer("n1", "r1"), &[], now);
    let mut two = Agent::begin(&mut record, writer("n2", "r1"), &[], now);
    let mut far = Agent::begin(&mut record, writer("n3", "r2"), &[], now);
    assert_eq!(one.messages().0, ["nodes/n2"]);
    assert_eq!(two.messages().0, ["nodes/n1"]);
    assert!(far.messages().0.is_empty());

    one.wants(&mut record, 1, &[], now);
    two.wants(&mut record, 1, &[], now);
    let (sources, next) = record.look(now);
    assert_eq!(sources, [Outside::Origin; 2]);
    assert!(
        next.is_some_and(|next| next > now && next <= moment(6)),
        "a lease ends: {next:?}"
    );
    let (first, second) = (one.messages().1, two.messages().1);
    assert_ne!(first[0].0, second[0].0, "a rack fetches each chunk once");
    let chunk = first[0].0;
    one.came(&mut record, chunk, &[chunk], now);
    // The servers give a chunk once: of all chunks, the one that the first rack holds comes from there.
    let others: Vec<u32> = (0..CHUNKS).filter(|other| *other != chunk).collect();
    far.wants(&mut record, 16, &others, now);
    assert_eq!(record.look(now).0.len(), 1);
    assert_eq!(far.messages().1, [(chunk, "nodes/n1".to_owned())]);

    let report = record.report();
    let racks: Vec<_> = report
        .racks
        .iter()
        .map(|rack| (rack.name.as_str(), rack.held, rack.agents.len()))
        .collect();
    assert_eq!(
        (report.chunks, racks),
        (CHUNKS, vec![("r1", 1, 2), ("r2", CHUNKS - 1, 1)])
    );
    let own = record.report_of(&"n1".into()).unwrap();
    assert_eq!((own.mates, own.held, own.is_alone), (1, 1, false));
    assert_eq!(record.report_of(&"n9".into()), None);
}

#[test]
fn a_second_stream_of_a_node_replaces_the_first_and_keeps_its_place() {
    let mut record = record();
    let mut first = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(1));
    let mut mate = Agent::begin(&mut record, writer("n2", "r1"), &[], moment(1));
    first.wants(&mut record, 1, &[], moment(1));
    record.look(moment(1));
    mate.messages();
    let mut second = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(2));
    assert!(first.end.is_cancelled());
    assert_eq!(first.end_words(), "a newer stream of this node has replaced this one");
    assert_eq!(second.messages().0, ["nodes/n2"]);
    assert!(mate.messages().0.is_empty(), "it knows the agent at this address");
    // The end of the first stream does not remove the agent, and its messages do not count.
    record.leave(first.place, true, moment(2));
    first.wants(&mut record, 16, &[1, 2, 3], moment(2));
    assert_eq!((record.len(), record.report().racks[0].held), (2, 0));
    // The grant of the first stream goes on.
    assert_eq!(record.report().racks[0].agents[0].grants, 1);
    // Another address is told.
    let mut moved = writer("n1", "r1");
    moved.address.set_port(9000);
    Agent::begin(&mut record, moved, &[], moment(3));
    assert_eq!(mate.messages().0, ["nodes/n1"]);
}

#[test]
fn an_agent_that_says_that_it_fetches_everything_holds_two_chunks() {
    let mut record = record();
    let mut other = Agent::begin(&mut record, writer("n2", "r1"), &[], moment(1));
    let (sender, _receiver) = mpsc::channel(QUEUE);
    let end = CancellationToken::new();
    let mut beginning = beginning(&[]);
    beginning.fetching = (0..CHUNKS).map(Chunk).collect();
    let stream = Stream { sender, end };
    record
        .begin(writer("n1", "r1"), beginning, stream, (moment(1), AT))
        .unwrap();
    assert_eq!(record.report().racks[0].agents[0].grants, 2);
    other.wants(&mut record, 1, &[], moment(1));
    record.look(moment(1));
    assert_eq!(other.messages().1.len(), 1, "the rest is free for others of the rack");
}

#[test]
fn another_job_of_a_node_begins_without_the_grants_of_the_former_one() {
    let mut record = record();
    let first = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(1));
    first.wants(&mut record, 2, &[], moment(1));
    record.look(moment(1));
    let mut next = writer("n1", "r1");
    next.operation = "the-next-job".into();
    Agent::begin(&mut record, next, &[], moment(2));
    assert_eq!(record.report().racks[0].agents[0].grants, 0);
    assert_eq!(record.len(), 1);
}

#[test]
fn an_agent_whose_stream_breaks_stays_for_ten_seconds_and_gets_no_grants() {
    let mut record = record();
    let mut agent = Agent::begin(&mut record, writer("n1", "r1"), &[4], moment(1));
    agent.wants(&mut record, 2, &[4], moment(1));
    record.leave(agent.place, false, moment(1));
    let (sources, next) = record.look(moment(1));
    assert_eq!((sources, agent.messages().1), (Vec::new(), Vec::new()));
    assert!(
        next.is_some_and(|next| next > moment(11) && next < moment(12)),
        "{next:?}"
    );
    record.look(moment(10));
    assert_eq!(record.len(), 1);
    record.look(next.unwrap());
    assert!(record.is_empty());
    // An agent that ends its stream itself is gone at once.
    let agent = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(20));
    record.leave(agent.place, true, moment(20));
    assert!(record.is_empty());
}

#[test]
fn a_lease_that_ends_gives_the_chunk_to_another_agent_of_the_rack() {
    let mut record = record();
    let mut slow = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(1));
    let mut other = Agent::begin(&mut record, writer("n2", "r1"), &[], moment(1));
    let all: Vec<u32> = (0..CHUNKS - 1).collect();
    slow.wants(&mut record, 1, &all, moment(1));
    let (sources, next) = record.look(moment(1));
    let last = (CHUNKS - 1, String::new());
    assert_eq!((sources.len(), slow.messages().1), (1, vec![last.clone()]));
    other.wants(&mut record, 1, &[], moment(2));
    assert!(record.look(moment(2)).0.is_empty(), "the rack fetches it");
    record.look(next.unwrap());
    assert_eq!(other.messages().1, [last]);
}

#[test]
fn an_agent_that_does_not_read_its_messages_loses_its_stream_and_the_rack_goes_on() {
    let mut record = record();
    let (sender, receiver) = mpsc::channel(1);
    let end = CancellationToken::new();
    let stream = Stream {
        sender,
        end: end.clone(),
    };
    let place = record
        .begin(writer("n1", "r1"), beginning(&[]), stream, (moment(1), AT))
        .unwrap();
    let claim = Message::Claim {
        wanted: 4,
        held: beginning(&[]).held,
        stuck: Vec::new(),
    };
    let mut other = Agent::begin(&mut record, writer("n2", "r1"), &[], moment(1));
    record.heard(place, claim, moment(1));
    other.wants(&mut record, 2, &[], moment(1));
    record.look(moment(1));
    assert!(end.is_cancelled(), "its queue has room for one message");
    assert_eq!(other.messages().1.len(), 2);
    drop(receiver);
}

#[test]
fn wrong_bytes_are_told_once_for_each_job_and_only_of_agents_that_were_named() {
    let mut record = record();
    let one = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(1));
    let two = Agent::begin(&mut record, writer("n2", "r1"), &[], moment(1));
    Agent::begin(&mut record, writer("n3", "r2"), &[], moment(1));
    let report = |node: &'static str| Message::Wrong {
        node: node.into(),
        reason: "frame of 3 bytes".into(),
    };
    for unnamed in ["n1", "n3", "n9"] {
        assert_eq!(record.heard(one.place, report(unnamed), moment(1)), None, "{unnamed}");
    }
    let first = record.heard(one.place, report("n2"), moment(1)).unwrap();
    assert_eq!(
        (first.sender.as_str(), first.reporter.as_str(), first.is_first),
        ("n2", "n1", true)
    );
    assert_eq!(first.operation, "job-n2");
    assert!(!record.heard(one.place, report("n2"), moment(1)).unwrap().is_first);
    assert!(record.heard(two.place, report("n1"), moment(1)).unwrap().is_first);
    // A new stream of the same job is no new job.
    Agent::begin(&mut record, writer("n2", "r1"), &[], moment(2));
    assert!(!record.heard(one.place, report("n2"), moment(2)).unwrap().is_first);
}

#[test]
fn an_agent_that_is_alone_gets_chunks_from_the_servers_also_after_its_stream_broke() {
    let mut record = record();
    let holder = Agent::begin(&mut record, writer("n1", "r1"), &[], moment(1));
    let mut agent = Agent::begin(&mut record, writer("n2", "r2"), &[], moment(1));
    let all: Vec<u32> = (0..CHUNKS).collect();
    holder.wants(&mut record, 0, &all, moment(1));
    for _ in 0..3 {
        record.heard(agent.place, Message::Alone, moment(1));
    }
    agent.wants(&mut record, 1, &[], moment(1));
    assert_eq!(record.look(moment(1)).0, [Outside::Origin]);
    let chunk = agent.messages().1[0].0;
    agent.came(&mut record, chunk, &[0], moment(1));
    let again = Agent::begin(&mut record, writer("n2", "r2"), &[0], moment(2));
    again.wants(&mut record, 1, &[0], moment(2));
    assert_eq!(record.look(moment(2)).0, [Outside::Origin]);
    let report = record.report();
    assert_eq!(report.origin.for_alone, 2);
    assert!(report.racks[1].agents[0].is_alone);
    assert_eq!(report.racks[1].held, 0, "it serves none");
}

#[test]
fn a_large_rack_and_agents_without_a_rack_are_divided() {
    let mut record = record();
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let mut agents: Vec<Agent> = names
        .iter()
        .map(|name| {
            let mut writer = writer("n", "");
            writer.node = NodeId::stored(name.as_str());
            Agent::begin(&mut record, writer, &[], moment(1))
        })
        .collect();
    let mates: BTreeSet<usize> = agents.iter_mut().map(|agent| agent.messages().0.len()).collect();
    assert!(mates.iter().all(|mates| *mates < 48), "{mates:?}");
    assert_eq!(record.report().racks.len(), 1);
}

async fn peers_core() -> rackwright_ground::testing::TestCore {
    rackwright_ground::testing::core_with("images: {peers: true}\nlimits: {image: {at_once: 2}}\n").await
}

#[tokio::test]
async fn a_table_ends_with_its_last_agent_and_after_a_panic() {
    let core = peers_core().await;
    let spreads = core.feature::<Spreads>();
    let table = || Arc::new(Table::new("b3-1", CHUNKS, settings(&core), 1));
    assert_eq!(settings(&core).origin_at_once, 2, "the limit of the settings");
    let (first, second) = (table(), table());
    for (table, is_broken) in [(&first, false), (&second, true)] {
        let (joined, mut receiver) = table.begin(writer("n1", "r1"), beginning(&[])).unwrap();
        spreads.lock().insert("b3-1".to_owned(), table.clone());
        table::start(&core, table);
        let claim = Message::Claim {
            wanted: 1,
            held: beginning(&[]).held,
            stuck: Vec::new(),
        };
        joined.heard(claim);
        let grant = receiver.recv().await.unwrap().unwrap();
        assert!(matches!(grant.message, Some(Down::Grant(_))), "{grant:?}");
        assert!(spreads.report_of("b3-1", &"n1".into()).is_some());
        if is_broken {
            table.break_lock();
            // The next one who looks at the record finds it broken.
            assert_eq!(table.report().racks.len(), 1);
        } else {
            joined.leave(true);
        }
        table.closed().cancelled().await;
        assert!(spreads.table("b3-1").is_none());
    }
}

#[tokio::test]
async fn an_agent_without_a_session_and_a_site_without_the_setting_are_refused_in_words() {
    let asking = Asking {
        node: "n1".into(),
        of: AgentSession::default(),
        address: None,
    };
    let off = rackwright_ground::testing::core().await;
    let refused = tonic::Status::from(session(&off, &asking).await.map(drop).unwrap_err());
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("images.peers is false"), "{refused:?}");
    let core = peers_core().await;
    let refused = tonic::Status::from(session(&core, &asking).await.map(drop).unwrap_err());
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("has no session here"), "{refused:?}");
}

#[tokio::test]
async fn a_report_of_wrong_bytes_is_one_event_that_names_both_nodes() {
    let core = peers_core().await;
    let mut wrong = WrongBytes {
        reporter: "n1".into(),
        sender: "n2".into(),
        operation: "job".into(),
        reason: "frame of 3 bytes".into(),
        is_first: true,
    };
    report_wrong_bytes(&core, &wrong).await;
    wrong.is_first = false;
    report_wrong_bytes(&core, &wrong).await;
    let events = core.store.events(&Scope::Site, 0, "nodes/n2", 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, EventKind::SecurityAgentSentWrongBytes);
    assert!(!events[0].kind.is_for_customers());
    let message = &events[0].message;
    assert!(
        message.contains("n1") && message.contains("n2") && message.contains("3 bytes"),
        "{message}"
    );
}

#[test]
fn a_span_of_a_lease_is_told_in_milliseconds() {
    let mut record = record();
    let mut agent = Agent::begin(&mut record, writer("n1", ""), &[], moment(1));
    agent.wants(&mut record, 1, &[], moment(1));
    record.look(moment(1));
    let grant = agent.receiver.try_recv().unwrap().unwrap();
    let Some(Down::Grant(grant)) = grant.message else {
        panic!("{grant:?}");
    };
    let lease = Span::millis(u64::from(grant.lease_ms));
    assert_eq!(lease, Span::seconds(4), "twice the expected time, and two seconds");
}

#[tokio::test]
async fn messages_in_quick_succession_are_one_look_at_the_table() {
    let core = peers_core().await;
    let table = Arc::new(Table::new("b3-1", CHUNKS, settings(&core), 1));
    let (joined, mut receiver) = table.begin(writer("n1", "r1"), beginning(&[])).unwrap();
    core.feature::<Spreads>()
        .lock()
        .insert("b3-1".to_owned(), table.clone());
    tokio::time::pause();
    table::start(&core, &table);
    let claim = |held: &[u32]| Message::Claim {
        wanted: 1,
        held: beginning(held).held,
        stuck: Vec::new(),
    };
    let begun = tokio::time::Instant::now();
    joined.heard(claim(&[]));
    for grants in 1..=5 {
        let message = receiver.recv().await.unwrap().unwrap().message;
        let Some(Down::Grant(grant)) = message else {
            panic!("{message:?}");
        };
        // The clock of this test moves only while every task waits.
        assert!(begun.elapsed() >= std::time::Duration::from_millis(2 * (grants - 1)));
        let (chunk, held) = (Chunk(grant.chunk), beginning(&[]).held);
        joined.heard(Message::Came { chunk, held });
        joined.heard(claim(&[]));
    }
    joined.leave(true);
}
