//! Every intent in all 12 states: where it is allowed, what it writes, and that a refusal changes nothing and gives a
//! useful hint.

use rackwright_api::v1::{Deployment, PowerAction};
use rackwright_lifecycle::{Claim, CustomerId, Decision, Edge, Facts, Policy, PowerGoal, PowerRequest, State, decide};
use rackwright_store::NodeRecord;

use super::*;
use crate::testing::nodes::Shape::{self, Claimed, Dirty, Free};
use crate::testing::nodes::{NOW, all_nodes, deployment, held_claim, image, record, request, same_customer};

/// The claim that `deployment` requests.
fn new_claim(generation: u64, number: u32) -> Claim {
    Claim {
        generation,
        deployment: number,
        image_digest: "b3-new".into(),
        image_name: "images/noble".into(),
        hostname: "db-1".into(),
        ssh_authorized_keys: vec!["ssh-ed25519 NEW".into()],
        has_user_data: true,
        plain_user_data: String::new(),
        root_drive: "nvme0n1".into(),
        verify_whole_disk: true,
        release_requested: false,
        handed_over: None,
        customer: "new-co".into(),
        cluster: None,
    }
}

/// One intent: its effect on the record, and where it is allowed.
struct Intent {
    name: &'static str,
    write: fn(&mut NodeRecord),
    /// For each state in the order of the chart, the allowed shapes: f(ree), d(irty), c(laimed).
    allowed: [&'static str; 12],
}

#[rustfmt::skip]
const INTENTS: &[Intent] = &[
    // Order of the columns:
    //                    disc insp avai allo imag rebo vali acti recl  fail   quar   main
    Intent { name: "deploy", write: write_deploy,
        allowed:         ["",  "",  "f", "",  "",  "",  "",  "",  "",    "",    "",    ""] },
    Intent { name: "reimage", write: write_reimage,
        allowed:         ["",  "",  "",  "",  "",  "",  "",  "c", "",    "c",   "",    ""] },
    Intent { name: "release", write: write_release,
        allowed:         ["",  "",  "c", "c", "c", "c", "c", "c", "",    "c",   "",    ""] },
    Intent { name: "hold", write: |r| r.node.wanted.hold = Some("fan".into()),
        allowed:         ["f", "f", "fc", "", "",  "",  "",  "c", "",    "fdc", "",    ""] },
    Intent { name: "resume", write: |r| r.node.wanted.resume = true,
        allowed:         ["",  "",  "",  "",  "",  "",  "",  "",  "",    "",    "",    "fc"] },
    Intent { name: "quarantine", write: |r| r.node.wanted.condemn = Some("odd".into()),
        allowed:         ["f", "f", "fc", "c", "c", "c", "c", "c", "fdc", "fdc", "",   ""] },
    Intent { name: "readmit", write: |r| r.node.wanted.readmit = true,
        allowed:         ["",  "",  "",  "",  "",  "",  "",  "",  "",    "fd",  "fdc", "fd"] },
    Intent { name: "retry", write: |r| r.node.wanted.retry = true,
        allowed:         ["",  "",  "",  "",  "",  "",  "",  "",  "",    "fc",  "",    ""] },
    Intent { name: "settings", write: |r| r.node.wanted.reinspect = true,
        allowed:         ["",  "",  "f", "",  "",  "",  "",  "",  "",    "f",   "",    ""] },
    Intent { name: "power", write: write_power,
        allowed:         ["",  "",  "fc", "", "",  "",  "",  "c", "",    "fdc", "fdc", "fdc"] },
    Intent { name: "delete", write: |_| {},
        allowed:         ["f", "",  "f", "",  "",  "",  "",  "",  "",    "fd",  "fd",  "fd"] },
];

fn write_deploy(record: &mut NodeRecord) {
    record.node.generation = 8;
    record.node.claim = Some(new_claim(8, 1));
}

fn write_reimage(record: &mut NodeRecord) {
    record.node.claim = Some(Claim {
        customer: "old-co".into(),
        ..new_claim(7, 5)
    });
    record.node.wanted.retry = record.node.state == State::Failed;
}

fn write_release(record: &mut NodeRecord) {
    record.node.claim.as_mut().unwrap().release_requested = true;
}

fn write_power(record: &mut NodeRecord) {
    record.node.wanted.power = Some(PowerRequest {
        goal: PowerGoal::Cycle,
        at: NOW,
    });
}

impl Intent {
    fn ask(&self, record: &mut NodeRecord) -> Result<(), ApiError> {
        request(self.name, record).unwrap()
    }

    fn lets(&self, state: State, shape: Shape) -> bool {
        let column = State::ALL.iter().position(|s| *s == state).unwrap();
        let letter = match shape {
            Free => 'f',
            Dirty => 'd',
            Claimed => 'c',
        };
        self.allowed[column].contains(letter)
    }
}

#[test]
fn an_intent_is_allowed_where_the_table_says_and_writes_what_it_says() {
    for intent in INTENTS {
        for (state, shape, before) in all_nodes() {
            let at = format!("{} of {state}, {shape:?}", intent.name);
            let mut after = before.clone();
            let answer = intent.ask(&mut after);
            assert_eq!(answer.is_ok(), intent.lets(state, shape), "{at}: {answer:?}");
            let mut wanted = before;
            if answer.is_ok() {
                (intent.write)(&mut wanted);
            }
            assert_eq!(after, wanted, "{at}");
        }
    }
}

#[test]
fn the_table_names_no_node_that_cannot_be() {
    for intent in INTENTS {
        let named: usize = intent.allowed.iter().map(|cell| cell.len()).sum();
        let real = all_nodes()
            .filter(|(state, shape, _)| intent.lets(*state, *shape))
            .count();
        assert_eq!(named, real, "{}", intent.name);
    }
}

#[test]
fn a_refusal_names_node_state_and_reason_and_has_a_hint() {
    for intent in INTENTS {
        for (state, shape, mut record) in all_nodes().filter(|(s, k, _)| !intent.lets(*s, *k)) {
            let at = format!("{} of {state}, {shape:?}", intent.name);
            record.reason = "the fan stopped".into();
            let Err(ApiError::Precondition { subject, message, hint }) = intent.ask(&mut record) else {
                panic!("{at}: not a precondition");
            };
            assert_eq!(subject, "nodes/n1", "{at}");
            let start = format!("n1 is {state} (the fan stopped): ");
            assert!(
                message.starts_with(&start) && message.len() > start.len(),
                "{at}: {message}"
            );
            assert!(hint.len() > 10, "{at}: {hint:?}");
        }
    }
}

/// The edge or effect that follows at once from the record, without any knowledge of the machine.
fn next_of(record: &NodeRecord) -> Decision {
    decide(&record.node, &Facts::default(), &Policy::default(), NOW)
}

#[test]
fn what_is_written_is_acted_on() {
    for intent in INTENTS.iter().filter(|i| i.name != "delete") {
        for (state, shape, before) in all_nodes().filter(|(s, k, _)| intent.lets(*s, *k)) {
            let mut record = before;
            intent.ask(&mut record).unwrap();
            let edge = match (intent.name, state, shape) {
                ("power", State::Available, Claimed) => Edge::Claimed,
                ("power", ..) => {
                    assert!(
                        matches!(next_of(&record), Decision::Act(_)),
                        "power of {state}, {shape:?}"
                    );
                    continue;
                }
                ("deploy", ..) | ("release", State::Available, _) => Edge::Claimed,
                ("reimage", State::Active, _) => Edge::Reimaged,
                ("reimage" | "retry", State::Failed, Claimed) => Edge::Retried,
                ("release", State::Allocated, _) => Edge::Unclaimed,
                ("release", ..) => Edge::Released,
                ("hold", ..) => Edge::Held,
                ("resume", _, Claimed) => Edge::Revalidate,
                ("resume" | "retry" | "settings", ..) => Edge::Reinspect,
                ("quarantine", ..) => Edge::Condemned,
                ("readmit", ..) => Edge::Readmitted,
                other => panic!("{other:?} is not in the table"),
            };
            let next = next_of(&record);
            let is_edge = matches!(&next, Decision::Move { edge: e, .. } if *e == edge);
            assert!(is_edge, "{} of {state}, {shape:?}: {next:?}", intent.name);
        }
    }
}

/// Commands in backticks: `rackwright node VERB n1` and, after one of them, `node VERB n1`.
fn commands(hint: &str) -> Vec<&str> {
    let quoted = hint.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|q| q.trim_start_matches("rackwright ").strip_prefix("node "))
        .filter_map(|rest| rest.split(' ').next())
        .collect()
}

/// Whether a command, or one named in its refusal's hint, changes the node or shows its state.
fn leads_on(verb: &str, record: &NodeRecord, tried: &mut Vec<&'static str>) -> bool {
    let Some(intent) = INTENTS.iter().find(|i| i.name == verb) else {
        return true; // A reading command: explain, watch.
    };
    if tried.contains(&intent.name) {
        return false;
    }
    tried.push(intent.name);
    match intent.ask(&mut record.clone()) {
        Err(ApiError::Precondition { hint, .. }) => {
            let named = commands(&hint);
            named.is_empty() || named.iter().any(|next| leads_on(next, record, tried))
        }
        other => other.is_ok(),
    }
}

#[test]
fn hints_lead_to_a_command_that_helps() {
    let mut circles = Vec::new();
    for intent in INTENTS {
        for (state, shape, record) in all_nodes() {
            if !leads_on(intent.name, &record, &mut Vec::new()) {
                circles.push((intent.name, state, shape));
            }
        }
    }
    assert!(circles.is_empty(), "{circles:?}");
}

#[test]
fn deploying_counts_the_generation_on_and_names_the_host() {
    let mut record = record(State::Available, Free);
    let plain = Deployment {
        image: "images/noble".into(),
        ..Deployment::default()
    };
    assert_eq!(deploy(&mut record, &plain, image()).unwrap(), (8, 1));
    let claim = record.node.claim.clone().unwrap();
    assert_eq!(
        (claim.hostname.as_str(), claim.generation, claim.deployment),
        ("n1", 8, 1)
    );
    let before = record.clone();
    assert!(deploy(&mut record, &plain, image()).is_err(), "it is claimed by now");
    assert_eq!(record, before);
}

#[test]
fn reimaging_keeps_what_is_not_given_anew() {
    let mut record = record(State::Active, Claimed);
    let plain = Deployment {
        image: "images/noble".into(),
        ..Deployment::default()
    };
    assert_eq!(reimage(&mut record, &plain, image()).unwrap(), (7, 5));
    let (claim, former) = (record.node.claim.unwrap(), held_claim());
    assert_eq!(claim.image_digest, "b3-new");
    assert_eq!(claim.hostname, former.hostname);
    assert_eq!(claim.ssh_authorized_keys, former.ssh_authorized_keys);
    assert!(
        former.has_user_data && !claim.has_user_data,
        "user data is not kept, so none is taken over"
    );
    assert_eq!(record.node.generation, 7, "the claim is the same");
}

#[test]
fn a_claim_that_is_being_released_is_not_reimaged_but_may_be_released_again() {
    for state in [State::Active, State::Failed] {
        let mut record = record(state, Claimed);
        release(&mut record).unwrap();
        let before = record.clone();
        assert!(reimage(&mut record, &deployment(), image()).is_err());
        release(&mut record).unwrap();
        assert_eq!(record, before);
    }
}

#[test]
fn a_reason_is_words_for_whoever_finds_the_node() {
    let long = "x".repeat(1001);
    for ask in [hold, quarantine] {
        for bad in ["", " \t ", "two\nlines", "bell\u{7}", &long] {
            let mut record = record(State::Available, Free);
            let before = record.clone();
            let refused = ask(&mut record, bad);
            assert!(
                matches!(&refused, Err(ApiError::Invalid(f)) if f[0].0 == "reason"),
                "{bad:?}: {refused:?}"
            );
            assert_eq!(record, before, "{bad:?}");
        }
        assert!(ask(&mut record(State::Available, Free), &long[1..]).is_ok());
    }
}

#[test]
fn power_is_on_off_or_cycle_from_now() {
    for (action, goal) in [
        (PowerAction::On, PowerGoal::On),
        (PowerAction::Off, PowerGoal::Off),
        (PowerAction::Cycle, PowerGoal::Cycle),
    ] {
        let mut record = record(State::Active, Claimed);
        power(&mut record, action, NOW).unwrap();
        assert_eq!(record.node.wanted.power, Some(PowerRequest { goal, at: NOW }));
    }
    let mut record = record(State::Active, Claimed);
    let refused = power(&mut record, PowerAction::Unspecified, NOW);
    assert!(
        matches!(&refused, Err(ApiError::Invalid(f)) if f[0].0 == "action"),
        "{refused:?}"
    );
    assert_eq!(record.node.wanted.power, None);
}

#[test]
fn a_claim_keeps_its_customer_and_a_cluster_changes_its_own_nodes() {
    for state in [State::Active, State::Failed] {
        let mut record = record(state, Claimed);
        let before = record.clone();
        let refused = reimage(&mut record, &deployment(), image()).unwrap_err().to_string();
        assert!(
            refused.contains("old-co") && refused.contains("release the node first"),
            "{refused}"
        );
        record.node.claim.as_mut().unwrap().customer = CustomerId::default();
        let refused = reimage(&mut record, &deployment(), image());
        assert!(refused.is_err(), "from no customer to one");
        record = before;
        assert_eq!(rewrite(&mut record.clone(), &deployment(), image()), Some((7, 5)));
        let mut rewritten = record.clone();
        rewrite(&mut rewritten, &deployment(), image());
        assert_eq!(rewritten.node.claim.unwrap().customer, "old-co", "whoever asks");
        record.node.claim.as_mut().unwrap().cluster = Some(rackwright_lifecycle::ClusterClaim {
            cluster: "alpha".into(),
            let_go: None,
            build: 0,
        });
        let before = record.clone();
        let Err(ApiError::Precondition { hint, .. }) = reimage(&mut record, &same_customer(), image()) else {
            panic!("a node of a cluster")
        };
        assert!(hint.contains("cluster reimage alpha"), "{hint}");
        assert!(release(&mut record).is_err());
        assert_eq!(record, before);
    }
    let mut record = record(State::Quarantined, Claimed);
    record.node.claim.as_mut().unwrap().cluster = Some(rackwright_lifecycle::ClusterClaim {
        cluster: "alpha".into(),
        let_go: None,
        build: 0,
    });
    let Err(ApiError::Precondition { hint, .. }) = readmit(&mut record, true) else {
        panic!("a node of a cluster")
    };
    assert!(hint.contains("cluster replace alpha n1"), "{hint}");
}

#[test]
fn erasing_calls_need_confirmation() {
    let mut held = record(State::Maintenance, Claimed);
    resume(&mut held.clone(), false).unwrap();
    held.node.claim.as_mut().unwrap().release_requested = true;
    let before = held.clone();
    let refused = resume(&mut held, false);
    assert!(matches!(&refused, Err(ApiError::Unconfirmed { message, .. }) if message.contains("erases everything")));
    assert_eq!(held, before);
    resume(&mut held, true).unwrap();
    for shape in [Free, Dirty, Claimed] {
        let mut record = record(State::Quarantined, shape);
        assert!(matches!(readmit(&mut record, false), Err(ApiError::Unconfirmed { .. })));
        assert!(!record.node.wanted.readmit);
    }
}

#[test]
fn a_doubted_node_takes_only_settling_calls() {
    let mut record = record(State::Available, Free);
    record.node.doubt = Some(rackwright_lifecycle::Doubt {
        cause: rackwright_lifecycle::DoubtCause::Restored,
        since: NOW,
        why: "the database is older".into(),
        generation: 0,
    });
    assert!(!is_free(&record));
    assert!(deploy(&mut record.clone(), &deployment(), image()).is_err());
    for kind in [
        "deploy",
        "reimage",
        "release",
        "resume",
        "retry",
        "power",
        "settings",
        "firmware",
        "bmc-password",
        "delete",
    ] {
        let Err(ApiError::Precondition { message, hint, .. }) = check_not_doubted(&record, kind) else {
            panic!("{kind}")
        };
        assert!(
            message.contains("older") && hint.contains("node believe n1") && hint.contains("readmit"),
            "{kind}: {hint}"
        );
    }
    readmit(&mut record.clone(), true).unwrap();
    record.node.believe();
    assert!(
        readmit(&mut record, true).is_err(),
        "a node of the pool is not readmitted"
    );
}

#[test]
fn given_mac_addresses_stand_beside_reported_ones_and_replace_those_of_boot_options() {
    let texts = |macs: &str| macs.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (known, in_options, former, given, expected) in [
        // Not identified yet.
        ("", "", "", "a", ""),
        ("r", "", "", "a r", "r a"),
        ("r a", "", "a", "b", "r b"),
        ("r a", "", "a", "", "r"),
        ("o", "o", "", "a", "a"),
        ("a", "o", "a", "", "o"),
        ("a", "o", "a", "a b", "a b"),
    ] {
        let mut node = record(State::Available, Free);
        node.identity.macs = texts(known);
        node.identity.boot_option_macs = texts(in_options);
        node.spec.boot_macs = texts(former);
        boot_macs(&mut node, texts(given)).unwrap();
        assert_eq!(node.spec.boot_macs, texts(given));
        let case = format!("{known:?} {in_options:?} {former:?} {given:?}");
        assert_eq!(node.identity.macs, texts(expected), "{case}");
    }
    let mut node = record(State::Available, Free);
    node.identity.macs = texts("a");
    node.spec.boot_macs = texts("a");
    let refused = boot_macs(&mut node, Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("no other MAC address"), "{refused}");
}
