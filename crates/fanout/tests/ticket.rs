//! Tickets of agents for their peers.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rackwright_fanout::{
    CLOCK_SKEW_S, Holder, LONGEST_TICKET, LONGEST_VALIDITY_S, OwnJob, Refusal, Ticket, TicketError, admit,
};

const NOW: i64 = 1_790_000_000;
const BOOT: &str = "01994d5e-7c1f-7abc-8def-0123456789ab";

fn ticket() -> Ticket {
    Ticket {
        image: format!("b3-{}", "a1".repeat(32)),
        customer: "customers/physics".to_owned(),
        node: "gpu-001".to_owned(),
        generation: 7,
        boot: BOOT.to_owned(),
        begins: NOW,
        ends: NOW + 3600,
    }
}

/// The machine that the ticket is for.
const OWN: Holder<'_> = Holder {
    node: "gpu-001",
    generation: 7,
    boot: BOOT,
};

fn job() -> OwnJob {
    OwnJob {
        image: ticket().image,
        customer: ticket().customer,
        is_public: false,
    }
}

#[test]
fn a_ticket_opens_the_own_image_to_its_own_machine() {
    assert_eq!(admit(&ticket(), &job(), OWN, NOW), Ok(()));
    let other_image = Ticket {
        image: format!("b3-{}", "a2".repeat(32)),
        ..ticket()
    };
    let other_customer = Ticket {
        customer: "customers/biology".to_owned(),
        ..ticket()
    };
    let none = Ticket {
        customer: String::new(),
        ..ticket()
    };
    let unbound = Ticket {
        boot: String::new(),
        ..ticket()
    };
    let cases = [
        (
            "stolen by another node",
            ticket(),
            Holder { node: "gpu-002", ..OWN },
            Refusal::OtherHolder,
        ),
        (
            "from a former boot",
            ticket(),
            Holder {
                boot: "01994d5e-0000",
                ..OWN
            },
            Refusal::OtherHolder,
        ),
        (
            "shown with the certificate of a former claim",
            ticket(),
            Holder { generation: 6, ..OWN },
            Refusal::OtherHolder,
        ),
        (
            "of a machine without a boot",
            unbound,
            Holder { boot: "", ..OWN },
            Refusal::OtherHolder,
        ),
        ("for another image", other_image, OWN, Refusal::OtherImage),
        (
            "of another customer",
            other_customer.clone(),
            OWN,
            Refusal::OtherCustomer,
        ),
        ("of no customer", none, OWN, Refusal::OtherCustomer),
    ];
    for (why, ticket, holder, refusal) in cases {
        assert_eq!(admit(&ticket, &job(), holder, NOW), Err(refusal), "{why}");
    }
    let public = OwnJob {
        is_public: true,
        ..job()
    };
    assert_eq!(
        admit(&other_customer, &public, OWN, NOW),
        Ok(()),
        "a public image is open to every customer"
    );
}

#[test]
fn clocks_may_differ_a_little() {
    let at = |now| admit(&ticket(), &job(), OWN, now);
    let (begins, ends) = (ticket().begins, ticket().ends);
    assert_eq!(at(begins - CLOCK_SKEW_S), Ok(()));
    assert_eq!(at(begins - CLOCK_SKEW_S - 1), Err(Refusal::NotYet));
    assert_eq!(at(ends + CLOCK_SKEW_S - 1), Ok(()));
    assert_eq!(at(ends + CLOCK_SKEW_S), Err(Refusal::Ended));
}

#[test]
fn no_ticket_is_longer_than_a_day() {
    let valid_for = |seconds: i64| {
        let ends = NOW.saturating_add(seconds);
        admit(&Ticket { ends, ..ticket() }, &job(), OWN, NOW)
    };
    assert_eq!(valid_for(LONGEST_VALIDITY_S), Ok(()));
    assert_eq!(valid_for(LONGEST_VALIDITY_S + 1), Err(Refusal::TooLong));
    assert_eq!(valid_for(i64::MAX), Err(Refusal::TooLong));
    assert_eq!(valid_for(0), Err(Refusal::TooLong), "a ticket without a time");
    let always = Ticket {
        begins: i64::MIN,
        ends: i64::MAX,
        ..ticket()
    };
    for now in [i64::MIN, NOW, i64::MAX - CLOCK_SKEW_S] {
        assert_eq!(admit(&always, &job(), OWN, now), Err(Refusal::TooLong));
    }
}

#[test]
fn only_the_one_encoding_is_a_ticket() {
    let text = ticket().encode().unwrap();
    assert_eq!(Ticket::parse(text.as_bytes()), Ok(ticket()));
    let wrong = [
        text.replace("v1", "v2"),
        text.replace("ends=", "ends=+"),
        text.replace("ends=", "ends=0"),
        text.replace("generation=7", "generation=07"),
        text.replace("generation=7", "generation=-7"),
        text.replace("node=", "nodes="),
        text.replace('\n', "\r\n"),
        format!("{text}\n"),
        format!("{text}ends=9\n"),
        text.trim_end().to_owned(),
        text.replace("customer=customers/physics\n", ""),
        String::new(),
    ];
    for wrong in wrong {
        assert_eq!(Ticket::parse(wrong.as_bytes()), Err(TicketError::Form), "{wrong:?}");
    }
    assert_eq!(Ticket::parse(&[b'x'; LONGEST_TICKET + 1]), Err(TicketError::TooLong));
    let two_lines = Ticket {
        node: "gpu-001\nboot=x".to_owned(),
        ..ticket()
    };
    assert_eq!(
        two_lines.encode(),
        Err(TicketError::Form),
        "a field passes for another one"
    );
    let long = Ticket {
        node: "n".repeat(300),
        ..ticket()
    };
    assert_eq!(long.encode(), Err(TicketError::TooLong));
}

proptest! {
    #[test]
    fn no_other_bytes_give_the_same_ticket(at in 0usize..400, byte: u8) {
        let text = ticket().encode().unwrap();
        let mut changed = text.clone().into_bytes();
        let at = at % changed.len();
        prop_assume!(changed[at] != byte);
        changed[at] = byte;
        if let Ok(other) = Ticket::parse(&changed) {
            prop_assert_ne!(&other, &ticket());
            prop_assert_eq!(other.encode().unwrap().into_bytes(), changed);
        }
    }
}
